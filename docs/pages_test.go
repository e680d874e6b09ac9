// Package docs_test compares the pages of this folder with the programs that they show.
package docs_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the code of the examples into the pages")

// maxBytes is the greatest size of a page in bytes.
const maxBytes = 40_000

// excerpt matches a line <!-- example FILE Name --> of a page and the fences after the line. FILE
// is relative to the page's folder. Name is a function, type or variable in the file, or "imports",
// or "file" for the whole file.
var excerpt = regexp.MustCompile("(?m)^<!-- (example|output) (\\S+) (\\w+) -->\\n(?:```(?:go|text)\\n(?s:.*?)^```\\n)?")

// Each piece of code in the pages equals the example that the tests run, and the output below it
// equals the example's output. With -args -write the test writes the code and the output to the
// pages.
func TestPages(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > maxBytes {
			t.Errorf("%s has %d bytes, at most %d: divide it", page, len(text), maxBytes)
		}
		got := excerpt.ReplaceAllStringFunc(string(text), func(s string) string {
			m := excerpt.FindStringSubmatch(s)
			code, output, err := example(filepath.Join(filepath.Dir(page), m[2]), m[3])
			switch {
			case err != nil:
				t.Errorf("%s: %v", page, err)
				return s
			case m[1] == "output" && output == "":
				t.Errorf("%s: %s of %s prints nothing", page, m[3], m[2])
			case m[1] == "output":
				return fmt.Sprintf("<!-- output %s %s -->\n```text\n%s```\n", m[2], m[3], output)
			}
			return fmt.Sprintf("<!-- example %s %s -->\n```go\n%s```\n", m[2], m[3], code)
		})
		if got != string(text) {
			if !*write {
				t.Errorf("%s is not what its examples are; go test ./docs -args -write", page)
			} else if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		loose := excerpt.ReplaceAllString(got, "")
		if i := strings.Index(loose, "```go\n"); i >= 0 {
			code, _, _ := strings.Cut(loose[i+6:], "\n```")
			t.Errorf("%s: nothing runs this code; put it in an example, and <!-- example FILE Name --> above it:\n%s", page, code)
		}
	}
}

// pages returns the paths of the README, of the examples' README and of all pages below this
// folder.
func pages(t *testing.T) []string {
	list := []string{"../README.md", "../examples/README.md"}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 3 {
		t.Fatalf("found %d pages only", len(list))
	}
	return list
}

// example returns the declaration of name in a file, and its output comment. For an Example, code
// is the function's body without the output comment.
func example(file, name string) (code, output string, err error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return "", "", err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		return "", "", err
	}
	at := func(p token.Pos) int { return fset.Position(p).Offset }
	if name == "file" {
		return string(src), "", nil
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name != name {
				continue
			}
			if !strings.HasPrefix(name, "Example") {
				return string(src[at(d.Pos()):at(d.End())]) + "\n", "", nil
			}
			body := src[at(d.Body.Lbrace)+1 : at(d.Body.Rbrace)]
			if i := bytes.LastIndex(body, []byte("\t// Output:")); i >= 0 {
				for _, line := range strings.Split(strings.TrimSpace(string(body[i+len("\t// Output:"):])), "\n") {
					output += strings.TrimRight(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "//"), " "), " ") + "\n"
				}
				body = body[:i]
			}
			out, err := format.Source(bytes.Trim(body, "\n"))
			if err != nil {
				return "", "", err
			}
			return dedent(string(out)) + "\n", output, nil
		case *ast.GenDecl:
			if name == "imports" && d.Tok == token.IMPORT {
				return string(src[at(d.Pos()):at(d.End())]) + "\n", "", nil
			}
			for _, s := range d.Specs {
				t, isType := s.(*ast.TypeSpec)
				v, isValue := s.(*ast.ValueSpec)
				if isType && t.Name.Name == name || isValue && v.Names[0].Name == name {
					return string(src[at(d.Pos()):at(d.End())]) + "\n", "", nil
				}
			}
		}
	}
	return "", "", fmt.Errorf("%s has no %s", file, name)
}

// dedent removes the first tab of each line of a function's body.
func dedent(code string) string {
	return strings.TrimRight(strings.ReplaceAll("\n"+code, "\n\t", "\n")[1:], "\n")
}

// Links in the pages point to files and headings that exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	n := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(withoutCode(string(text)), -1) {
			to, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			n++
			target := page
			if to != "" {
				target = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s points to %s, which is not there", page, m[1])
			} else if heading != "" && !hasHeading(t, target, heading) {
				t.Errorf("%s points to %s, but that has no such heading", page, m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d links only", n)
	}
}

// fenced matches fences and code spans, which have no links.
var fenced = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]+`")

func withoutCode(text string) string { return fenced.ReplaceAllString(text, "") }

// hasHeading reports whether a page has a heading with this GitHub anchor.
func hasHeading(t *testing.T, page, name string) bool {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	gone := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, line := range strings.Split(string(text), "\n") {
		if h := strings.TrimLeft(line, "#"); h != line {
			if strings.ReplaceAll(gone.ReplaceAllString(strings.ToLower(strings.TrimSpace(h)), ""), " ", "-") == name {
				return true
			}
		}
	}
	return false
}
