package arch

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// torchNames returns PyTorch's names in the tables under the given headings of a page: the words in
// backquotes before the last column. Names with a star match several names, and are returned as
// patterns.
func torchNames(page string, titles []string) (words map[string]bool, patterns []*regexp.Regexp) {
	words = map[string]bool{}
	for _, title := range titles {
		for line := range strings.Lines(section(page, title)) {
			if !strings.HasPrefix(line, "|") {
				continue
			}
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			for _, cell := range cells[:len(cells)-1] {
				for _, code := range span.FindAllString(cell, -1) {
					text := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(code, `""`)
					for _, w := range regexp.MustCompile(`\*?\b[A-Za-z_][\w*]*`).FindAllString(text, -1) {
						if strings.Contains(w, "*") {
							patterns = append(patterns, regexp.MustCompile("^"+strings.ReplaceAll(w, "*", `\w+`)+"$"))
						} else {
							words[w] = true
						}
					}
				}
			}
		}
	}
	return words, patterns
}

// TestTorchNamesAreListed checks the pages that compare with PyTorch. They must list every name in
// PyTorch's modules for GPUs, mixed precision, checkpointing and profiling, with our name or a
// replacement.
func TestTorchNamesAreListed(t *testing.T) {
	text, err := os.ReadFile("testdata/torchnames.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Names map[string][]string `json:"names"`
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	words, patterns := torchNames(comparison(t), append([]string{"torch.autograd"}, sections...))
	n := 0
	for module, names := range golden.Names {
	next:
		for _, name := range names {
			n++
			if words[name] {
				continue
			}
			for _, p := range patterns {
				if p.MatchString(name) {
					continue next
				}
			}
			t.Errorf("%s: %s is in no page of %s", module, name, comparisons)
		}
	}
	if n < 300 {
		t.Errorf("only %d names of PyTorch were read", n)
	}
	if words["no_such_name"] || words["Flambeau"] {
		t.Error("the pages are said to list what they do not")
	}
}
