package docs_test

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// complete lists the packages whose exported names must all be in the pages on PyTorch. A name that
// no row of a page mentions must be in the generated table of the package's other names.
var complete = []string{
	"amp", "autograd", "checkpoint", "cuda", "data", "detect", "digits", "dist", "doctor",
	"initial", "memsnap", "models", "nn", "npy", "optim", "profile", "safetensors", "sched", "table",
	"tensor", "tensorboard", "text", "torchfile", "train", "vision",
}

// variables maps variables in the tables to their types.
var variables = map[string]string{
	"x": "tensor.Tensor", "y": "tensor.Tensor", "w": "tensor.Tensor", "loss": "tensor.Tensor",
	"s": "tensor.Scope", "g": "tensor.Generator", "dev": "device.Device", "gpu": "cuda.Device",
	"opt": "optim.Optimizer", "loader": "data.Loader", "scaler": "amp.GradScaler",
	"batch": "data.Batch", "step": "data.Step", "group": "dist.Group", "reducer": "dist.Reducer",
	"work": "dist.Work", "st": "cuda.Stream", "e": "cuda.Event", "event": "cuda.Event",
	"start": "cuda.Event", "prof": "profile.Profile",
}

// plumbing are methods that programs do not call by name.
var plumbing = []string{
	"Error", "Is", "MarshalJSON", "MarshalText", "Raised", "String", "UnmarshalJSON", "Unwrap",
}

var (
	generated  = regexp.MustCompile(`(?s)<!-- (rest \w+|absent) -->\n(.*?)<!-- end of (?:rest|absent) -->\n`)
	fence      = regexp.MustCompile("(?ms)^```.*?^```$")
	span       = regexp.MustCompile("`[^`]+`")
	quoted     = regexp.MustCompile(`"[^"]*"|//[^\n]*`)
	body       = regexp.MustCompile(` (?:struct|interface)\{.*`)
	goName     = regexp.MustCompile(`([A-Za-z_]\w*|\))?\.([A-Za-z]\w*)|\b[A-Z]\w*`)
	assignment = regexp.MustCompile(`^(\w+)(?:, \w+)* :?= `)
	key        = regexp.MustCompile(`^:(?:[^=]|$)`)
	word       = regexp.MustCompile(`\b[A-Za-z_]\w*`)
	qualified  = regexp.MustCompile(`\b([a-z]+)\.[A-Z]\w*`)
	top        = regexp.MustCompile("(Other pages: .*\n)\n(?:Packages,(?s:.*?)\n\n)?")
)

const (
	// titles is the end of the header line of each table whose last column is generated.
	titles = " Signatures |\n"
	fold   = "<br>" // separates signatures
)

// Some parts of the pages are generated: the line of packages, the column of signatures, and the
// tables of a package's other names. These parts agree with the packages' comments. The table of
// absent operations agrees with the operations that have no adapter in package samples. With -args
// -write the test writes all of these.
func TestFromPyTorch(t *testing.T) {
	list, err := filepath.Glob("from-pytorch/*.md")
	if err != nil || len(list) < 10 {
		t.Fatalf("%d pages, %v", len(list), err)
	}
	l := readLibrary(t)
	pages, said := map[string]string{}, map[string]bool{}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[path] = l.packages(signed(l, string(text)))
		if !strings.Contains(pages[path], "\nPackages, below") && filepath.Base(path) != "README.md" {
			t.Errorf("%s has no line that begins with Other pages, and a blank one behind it", path)
		}
		addWords(pages[path], said)
	}
	missing := slices.Clone(complete)
	for _, path := range list {
		got := generated.ReplaceAllStringFunc(pages[path], func(s string) string {
			what := generated.FindStringSubmatch(s)[1]
			if what == "absent" {
				return "<!-- absent -->\n" + absent(t) + "<!-- end of absent -->\n"
			}
			pkg := strings.TrimPrefix(what, "rest ")
			i := slices.Index(missing, pkg)
			if i < 0 {
				t.Errorf("%s: package %s is not one of rest, or stands twice", path, pkg)
				return s
			}
			missing = slices.Delete(missing, i, i+1)
			return "<!-- " + what + " -->\n" + l.unsaid(pkg, said) + "<!-- end of rest -->\n"
		})
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got == string(text) {
			continue
		}
		if !*write {
			t.Errorf("%s is not what the packages' comments say; go test ./docs -args -write", path)
		} else if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, pkg := range missing {
		t.Errorf("no page has the line <!-- rest %s -->", pkg)
	}
}

// packages returns a page with a generated line below its title: the import paths of the packages
// that the page's code names.
func (l *library) packages(page string) string {
	found := map[string]bool{}
	in := false // whether the line is in a table whose last column is generated
	for line := range strings.Lines(generated.ReplaceAllString(page, "")) {
		if in = strings.HasPrefix(line, "|") && (in || strings.HasSuffix(line, titles)); in {
			cells := strings.Split(line, " | ")
			line = cells[min(1, len(cells)-1)]
		}
		for _, code := range span.FindAllString(line, -1) {
			for _, m := range qualified.FindAllStringSubmatch(quoted.ReplaceAllString(code, ""), -1) {
				if l.things[m[0]] != nil {
					found[l.paths[m[1]]] = true
				}
			}
		}
	}
	text := "Packages, below `github.com/flambeau-go/flambeau/`:"
	column := len(text)
	for i, path := range slices.Sorted(maps.Keys(found)) {
		if i > 0 {
			text, column = text+",", column+1
		}
		if column += len(path) + 3; column > 98 {
			text, column = text+"\n`"+path+"`", len(path)+2
			continue
		}
		text += " `" + path + "`"
	}
	return top.ReplaceAllString(page, "${1}\n"+text+".\n\n")
}

// signed returns a page with current signatures in the generated last columns of its tables.
func signed(l *library, page string) string {
	var b strings.Builder
	in := false
	var types map[string]string // types of the variables in a table
	for line := range strings.Lines(page) {
		switch {
		case strings.HasSuffix(line, titles):
			in, types = true, map[string]string{}
		case !strings.HasPrefix(line, "|"):
			in = false
		case in && !strings.HasPrefix(line, "| ---"):
			cells := strings.Split(strings.TrimRight(line, " |\n"), " | ")
			if len(cells) < 2 {
				break
			}
			list := strings.Join(l.signatures(cells[1], types), fold)
			line = strings.Join(cells[:2], " | ") + " | " + list + " |\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// A mention is an exported name in the code of a cell.
type mention struct {
	// on is the text before the name's dot. It is "." if that text is no name, and "" if there is
	// no dot.
	on, name string
	assigned string // variable that the code assigns to
	key      bool   // whether the name is a field of a literal, or is selected as a field
	named    *named
}

// mentions returns the exported names in the code of a cell.
func (l *library) mentions(cell string) (all []mention) {
	for _, where := range span.FindAllStringIndex(cell, -1) {
		text := quoted.ReplaceAllString(strings.Trim(cell[where[0]:where[1]], "`"), `""`)
		var assigned string
		if a := assignment.FindStringSubmatch(text); a != nil {
			assigned = a[1]
		}
		for _, at := range goName.FindAllStringSubmatchIndex(text, -1) {
			m := mention{name: text[at[0]:at[1]], assigned: assigned}
			if at[4] >= 0 {
				m.on, m.name = ".", text[at[4]:at[5]]
			}
			if at[2] >= 0 {
				m.on = text[at[2]:at[3]]
			}
			m.key = m.on == "" && (key.MatchString(text[at[1]:]) || strings.HasSuffix(cell[:where[0]], "field "))
			m.named = l.things[m.on+"."+m.name]
			if ast.IsExported(m.name) {
				all = append(all, m)
				assigned = ""
			}
		}
	}
	return all
}

// signatures returns the signatures of the names in a cell, as code. types maps the variables of
// earlier cells of the table to their types, and signatures adds the variables of this cell.
func (l *library) signatures(cell string, types map[string]string) (list []string) {
	all := l.mentions(cell)
	// here holds the result types of the names handled so far. later holds the result types of all
	// names that the cell writes with a package.
	var here, later []string
	bare := true // whether the cell mentions neither a package nor a field
	for _, m := range all {
		if m.named != nil {
			later = append(later, m.named.gives...)
		}
		bare = bare && m.named == nil && !m.key
	}
	owner := "" // package or type of the last function that the cell mentions
	for _, m := range all {
		search := slices.Concat(here, []string{types[m.on]}, later)
		switch {
		case m.key:
			continue
		case variables[m.on] != "":
			search = []string{variables[m.on]}
		case m.on == "" && strings.Contains(owner, "."):
			search = append([]string{owner}, search...)
		case m.on == "":
			search = slices.Concat(here, []string{owner}, later)
		}
		if variables[m.on] == "" && (m.on != "" || bare) {
			search = append(search, "tensor.Tensor")
		}
		for _, t := range search {
			if m.named == nil {
				m.named = l.member(t, m.name)
			}
		}
		if m.named == nil && m.on != "" && variables[m.on] == "" {
			m.named = l.soleMethod(m.name)
		}
		if m.named == nil {
			continue
		}
		if m.named.kind == function {
			owner = m.named.name[:strings.LastIndex(m.named.name, ".")]
			if word.MatchString(m.on) && types[m.on] == "" && strings.Contains(owner, ".") {
				types[m.on] = owner
			}
		}
		if m.assigned != "" && len(m.named.gives) > 0 {
			types[m.assigned] = m.named.gives[0]
		}
		here = append(slices.Clone(m.named.gives), here...)
		code := "`" + strings.ReplaceAll(m.named.signature, "|", "\\|") + "`"
		if m.named.kind != value && m.named.kind != opaque && !slices.Contains(list, code) {
			list = append(list, code)
		}
	}
	return list
}

// addWords adds the words in the code of a page to words. It leaves out the generated tables of
// names that no page mentions, and the members of types in signatures.
func addWords(page string, words map[string]bool) {
	for line := range strings.Lines(fence.ReplaceAllString(generated.ReplaceAllString(page, ""), "")) {
		for _, code := range span.FindAllString(line, -1) {
			code = body.ReplaceAllString(quoted.ReplaceAllString(code, ""), "")
			for _, w := range word.FindAllString(code, -1) {
				words[w] = true
			}
		}
	}
}

// unsaid returns the table of a package's exported names that no page mentions.
func (l *library) unsaid(pkg string, said map[string]bool) string {
	var b strings.Builder
	above := "" // comment in the previous row
	for _, name := range l.order[pkg] {
		n, last := l.things[name], name[strings.LastIndex(name, ".")+1:]
		if said[last] || slices.Contains(plumbing, last) || n.kind == function && n.sentence == "" {
			continue // the comment of the interface covers these methods
		}
		code := "`" + strings.ReplaceAll(n.signature, "|", "\\|") + "`"
		switch {
		case b.Len() == 0:
			fmt.Fprintf(&b, "| package %s | |\n| --- | --- |\n| %s", l.paths[pkg], code)
		case n.sentence == above && n.sentence != "":
			b.WriteString(", " + code)
		default:
			fmt.Fprintf(&b, " | %s |\n| %s", marks.Replace(above), code)
		}
		above = n.sentence
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, " | %s |\n", marks.Replace(above))
	}
	return b.String()
}

// marks escapes the characters of a comment that have a meaning in Markdown.
var marks = strings.NewReplacer("|", "\\|", "<", "\\<", "*", "\\*", "_", "\\_")

// unsought lists how some reasons begin. Readers do not search for operations that are absent for
// such a reason, so the table leaves these operations out.
var unsought = []string{
	"inner form of", "the samples hold", "the function behind the layer", "a form for CUDA alone",
}

// absent returns the table of PyTorch's operations without a counterpart, grouped by reason. The
// reasons come from package samples, which runs PyTorch's own samples as tests.
func absent(t *testing.T) string {
	text, err := os.ReadFile("../internal/samples/testdata/ops.tsv")
	if err != nil {
		t.Fatal(err)
	}
	variant := regexp.MustCompile(`\.(special_)?(mvlgamma|polygamma)_\w+$`)
	var reasons []string
	names := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 6 || f[2] != "entry" || f[4] != "absent" || strings.HasSuffix(f[0], ".complex") ||
			slices.ContainsFunc(unsought, func(s string) bool { return strings.HasPrefix(f[5], s) }) {
			continue
		}
		name := variant.ReplaceAllString(strings.TrimPrefix(f[0], "torch."), "")
		name = "`" + strings.Replace(name, "nn.functional.", "F.", 1) + "`"
		if names[f[5]] == nil {
			reasons = append(reasons, f[5])
		}
		if !slices.Contains(names[f[5]], name) {
			names[f[5]] = append(names[f[5]], name)
		}
	}
	if len(reasons) == 0 {
		t.Fatal("ops.tsv has no operation that is absent")
	}
	var b strings.Builder
	b.WriteString("| PyTorch | absent, because |\n| --- | --- |\n")
	for _, r := range reasons {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(names[r], ", "), r)
	}
	return b.String()
}
