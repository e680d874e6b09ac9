package arch

import (
	"slices"
	"strings"
	"testing"
)

// split returns the sentences of a text. The text is a page if page is true, and otherwise a
// comment.
func split(text string, page bool) []string {
	var group []proseLine
	if page {
		group = markdown("", []byte(text))[0]
	} else {
		for l := range strings.SplitSeq(text, "\n") {
			group = append(group, proseLine{no: len(group) + 1, raw: "//" + l, text: l})
		}
	}
	var list []string
	for _, p := range paragraphs(group, page) {
		for _, s := range sentences(p) {
			list = append(list, s.String())
		}
	}
	return list
}

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{" One goes\n on. Two! Three? Four: five; six.", []string{"One goes on.", "Two!", "Three?", "Four: five; six."}},
		{" It ends. x.Sum begins, of a.go and 1.5.", []string{"It ends.", "x.Sum begins, of a.go and 1.5."}},
		{" Ends in 1.5. Ends in a.go. Ends.", []string{"Ends in 1.5.", "Ends in a.go.", "Ends."}},
		{" Some, e.g. One, i.e. Two, cf. Three vs. Four.", []string{"Some, e.g. One, i.e. Two, cf. Three vs. Four."}},
		{" By (A. Vaswani et al., J.-M. Muller) and D. E. Knuth.", []string{"By (A. Vaswani et al., J.-M. Muller) and D. E. Knuth."}},
		{" It is one of X. A column is not.", []string{"It is one of X.", "A column is not."}},
		{" See vol. 2, p. 3, eq. 4. Element p. The next.", []string{"See vol. 2, p. 3, eq. 4.", "Element p.", "The next."}},
		{" Sums, etc. of it, etc. Then more.", []string{"Sums, etc. of it, etc.", "Then more."}},
		{" (In brackets.) **Bold.** [Link.](u) \"Said.\" Plain.",
			[]string{"(In brackets.)", "**Bold.**", "[Link.](u)", "\"Said.\"", "Plain."}},
		{" It asks \"really?\" and goes on. No", []string{"It asks \"really?\" and goes on.", "No"}},
		{" The span `a. B c` is one, a ? b too.", []string{"The span `a. B c` is one, a ? b too."}},
		{" Of 1, 2, ... n there are n... Then … is it.", []string{"Of 1, 2, ... n there are n...", "Then … is it."}},
		{" Before:\n\n\tx. Code\n\n After.", []string{"Before:", "After."}},
		{" Before\n    x. Code\n After.", []string{"Before", "After."}},
		{" Of:\n   - one\n     goes on\n   - two\n  1. three\n after.", []string{"Of:", "one goes on", "two", "three", "after."}},
		{" - one\n goes on\n * two\n\n     code", []string{"one goes on", "two"}},
		{" # Heading\n Text\n | a | b |\n ------\n More", []string{"Heading", "Text", "More"}},
		{" Neither -1 nor\n + 2 is an item.", []string{"Neither -1 nor + 2 is an item."}},
	} {
		if got := split(c.text, false); !slices.Equal(got, c.want) {
			t.Errorf("%q:\n%q, want\n%q", c.text, got, c.want)
		}
	}
	const page = `# Heading
Text that
    goes on.

    code. Here

- item
  goes on
  - item of it

  with a paragraph

Text
| table. Of | it |
` + "```\nfenced. Code\n```" + `
~~~go
fenced. Code
~~~
1. end
`
	want := []string{"Heading", "Text that goes on.", "item goes on", "item of it", "with a paragraph", "Text", "end"}
	if got := split(page, true); !slices.Equal(got, want) {
		t.Errorf("a page:\n%q, want\n%q", got, want)
	}
}

// TestSentenceLines checks the line number of each sentence. It must be the line on which the
// sentence begins, even after a code span of two lines.
func TestSentenceLines(t *testing.T) {
	p := splitWords("One `a\nb` two.\nThree\nfour. Five.", 7)
	var got []int
	for _, s := range sentences(p) {
		got = append(got, s[0].line)
	}
	if want := []int{7, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("sentences begin at %d, want %d", got, want)
	}
}

func TestCountWords(t *testing.T) {
	for text, want := range map[string]int{
		"":                                  0,
		"Two words.":                        2,
		"A dash — is none, 1 is":            6,
		"The `go test ./...` is one":        4,
		"y = a·x + b is one":                3,
		"time ≥ max(FLOPs / peak, B / p) f": 2,
		"f(x, y) of [rows, columns, 1] is":  4,
		"in [0, n) and (a, b) alike":        6,
		"tensors [a.T], which go":           4,
		"an unclosed `span of four":         5,
		"!! != -> word":                     1,
	} {
		if got := countWords(splitWords(text, 1)); got != want {
			t.Errorf("%q: %d words, want %d", text, got, want)
		}
	}
}
