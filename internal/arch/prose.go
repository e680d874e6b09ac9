package arch

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"
)

// These are the limits for lines and sentences in comments and pages.
const (
	maxColumns = 100 // largest number of columns of a line; a tab counts as 4
	maxWords   = 40  // largest number of words of a sentence
)

// An Overlong is a line or a sentence that is too long.
type Overlong struct {
	Violation
	Text string // the line without surrounding white space, or the sentence with single spaces
}

// Prose reads the named files (slash-separated, relative to the module root) from fsys. In their
// comments and pages, it finds the lines with more than 100 columns and the sentences with more
// than 40 words. It returns them in the order of the files.
//
// It reads Go, assembly, Markdown, and the comment lines of shell and Python scripts. It skips
// generated files, testdata and benchmark results.
func Prose(fsys fs.FS, files []string) ([]Overlong, error) {
	var found []Overlong
	for _, name := range files {
		if underTestdata(name) || strings.HasPrefix(name, "bench/results/") {
			continue
		}
		var read func(string, []byte) [][]proseLine
		switch path.Ext(name) {
		case ".go", ".s":
			read = goComments
		case ".md":
			read = markdown
		case ".py", ".sh":
			read = hashComments
		case "", path.Base(name): // a file without an extension, such as "pre-commit" or ".profile"
		default:
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("arch: reading %s: %w", name, err)
		}
		if read == nil && bytes.HasPrefix(text, []byte("#!")) {
			read = hashComments
		}
		if read == nil || generated(text) {
			continue
		}
		for _, group := range read(name, text) {
			found = append(found, overlong(name, group, path.Ext(name) == ".md")...)
		}
	}
	return found, nil
}

// overlong returns the lines and sentences of one comment group or page that are too long.
func overlong(name string, group []proseLine, page bool) []Overlong {
	var found []Overlong
	add := func(line int, text, format string, n, most int) {
		what := fmt.Sprintf(format, n, most)
		found = append(found, Overlong{Violation{fmt.Sprintf("%s:%d", name, line), what}, text})
	}
	for _, l := range group {
		if n := columns(l.raw); n > maxColumns && !l.free && !onlyLink.MatchString(l.text) {
			add(l.no, strings.TrimSpace(l.raw), "a line of %d columns, at most %d", n, maxColumns)
		}
	}
	for _, p := range paragraphs(group, page) {
		for _, s := range sentences(p) {
			if n := countWords(s); n > maxWords {
				add(s[0].line, s.String(), "a sentence of %d words, at most %d", n, maxWords)
			}
		}
	}
	return found
}

// A proseLine is one line of a comment or of a page.
type proseLine struct {
	no   int
	raw  string // the whole line, to count columns
	text string // the line without the comment marker
	free bool   // whether the line is exempt from the limits, as part of a table or a fenced block
}

// onlyLink matches a line that consists of one link, perhaps after a list marker.
var onlyLink = regexp.MustCompile(
	`^\s*(?:[-*]\s+)?(?:\[[^\]]*\]\([^)]*\)|\[[^\]]*\]: \S+|<?https?://\S+>?)[.,;:]?\s*$`)

func columns(line string) int {
	return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
}

var (
	directive = regexp.MustCompile(`^//(?:nolint|line |export |extern |[a-z0-9]+:[a-z0-9])`)
	output    = regexp.MustCompile(`(?i)^\s*(?:unordered )?output:`)
)

// goComments returns the comment groups of Go source or assembly. A comment after code forms its
// own group. Directives are left out, and so is the output of an Example, whose lines cannot be
// broken.
func goComments(name string, text []byte) [][]proseLine {
	var groups [][]proseLine
	var s scanner.Scanner
	file := token.NewFileSet().AddFile(name, -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	// last line of the comment group that is being read; -1 if there is none
	last := -1
	printed := false // whether the rest of the comment group is the output of an Example
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return groups
		}
		if tok != token.COMMENT {
			continue
		}
		at, no := file.Offset(pos), file.PositionFor(pos, false).Line
		before := string(text[bytes.LastIndexByte(text[:at], '\n')+1 : at])
		behind := strings.TrimSpace(before) != ""
		if behind || no != last+1 {
			printed = false
		}
		if directive.MatchString(lit) {
			last = -1
			continue
		}
		lines := commentLines(no, lit)
		if !behind {
			lines[0].raw = before + lines[0].raw
		}
		if output.MatchString(lines[0].text) && strings.HasSuffix(name, "_test.go") {
			printed = true
		}
		switch {
		case printed:
		case !behind && no == last+1:
			groups[len(groups)-1] = append(groups[len(groups)-1], lines...)
		default:
			groups = append(groups, lines)
		}
		last = lines[len(lines)-1].no
		if behind {
			last = -1
		}
	}
}

// commentLines returns the lines of one comment, whose first line has the number start.
func commentLines(start int, comment string) []proseLine {
	if text, ok := strings.CutPrefix(comment, "//"); ok {
		return []proseLine{{no: start, raw: comment, text: text}}
	}
	var lines []proseLine
	for whole := range strings.SplitSeq(comment, "\n") {
		text := strings.TrimSpace(strings.TrimSuffix(whole, "*/"))
		text = strings.TrimPrefix(strings.TrimPrefix(text, "/*"), "* ")
		lines = append(lines, proseLine{no: start + len(lines), raw: whole, text: text})
	}
	return lines
}

// hashDirective matches comments that are meant for a shell or a linter.
var hashDirective = regexp.MustCompile(`^#(?:!| ?(?:shellcheck|noqa|type:|fmt:|pylint:))`)

// hashComments returns the groups of comment lines in a script.
func hashComments(_ string, text []byte) [][]proseLine {
	var groups [][]proseLine
	no, last := 0, -1
	for line := range strings.SplitSeq(string(text), "\n") {
		no++
		comment := strings.TrimSpace(line)
		if !strings.HasPrefix(comment, "#") || hashDirective.MatchString(comment) {
			continue
		}
		l := proseLine{no: no, raw: strings.TrimRight(line, " \t\r"), text: comment[1:]}
		if no == last+1 {
			groups[len(groups)-1] = append(groups[len(groups)-1], l)
		} else {
			groups = append(groups, []proseLine{l})
		}
		last = no
	}
	return groups
}

// markdown returns the lines of a page as one group.
func markdown(_ string, text []byte) [][]proseLine {
	var page []proseLine
	fence := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		l := proseLine{no: len(page) + 1, raw: strings.TrimRight(line, " \r"), text: line}
		start := strings.TrimSpace(line)
		switch {
		case fence != "":
			l.free = true
			if strings.HasPrefix(start, fence) {
				fence = ""
			}
		case strings.HasPrefix(start, "```"), strings.HasPrefix(start, "~~~"):
			l.free, fence = true, start[:3]
		default:
			l.free = strings.HasPrefix(start, "|")
		}
		page = append(page, l)
	}
	return [][]proseLine{page}
}
