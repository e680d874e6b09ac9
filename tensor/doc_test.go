package tensor

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every file of the package is in the map of doc.go, and contains the names that the map lists. A
// file that is named after its only op needs no row.
func TestFilesAreListed(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, files, _ := strings.Cut(string(text), "\npackage tensor\n")
	row := regexp.MustCompile(`(?m)^//\t(\w+\.go)? +(.*)$`)
	name := regexp.MustCompile(`\b[A-Z]\w*`)
	listed, file, held := map[string]bool{"doc.go": true}, "", []byte(nil)
	for _, r := range row.FindAllStringSubmatch(files, -1) {
		if r[1] != "" {
			if file = r[1]; listed[file] {
				t.Errorf("%s is listed twice", file)
			}
			listed[file] = true
			if held, err = os.ReadFile(file); err != nil {
				t.Error(err)
			}
		}
		for _, n := range name.FindAllString(r[2], -1) {
			if !regexp.MustCompile(`(?m)^(func |func \(.*?\) |type |\t)` + n + `\b`).Match(held) {
				t.Errorf("%s does not hold %s", file, n)
			}
		}
	}
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if strings.HasSuffix(file, "_test.go") || listed[file] {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		op := `(?mi)^func (\(x \*Tensor\) )?` + strings.TrimSuffix(file, ".go") + `\(`
		if !regexp.MustCompile(op).Match(text) {
			t.Errorf("%s is not in the map of doc.go, and holds no op of its name", file)
		}
	}
}
