package text_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/text"
)

// Errors name the invalid file, or the offset of the invalid byte.
func TestErrorsNameTheirFile(t *testing.T) {
	merges := write(t, "merges.txt", "a b\n")
	for _, vocab := range []string{`{"a":-1}`, `{"a":0,"b":0}`, `{"a":90000}`, `{"a":0}`} {
		if _, err := text.LoadBPE(write(t, "vocab.json", vocab), merges); err == nil || !strings.Contains(err.Error(), "vocab.json") {
			t.Errorf("%s: %v", vocab, err)
		}
	}
	b, err := text.TrainBPE([]string{"ab"}, text.TrainOptions{Vocab: 256})
	if err != nil {
		t.Fatal(err)
	}
	vocab := write(t, "vocab.json", "")
	if err := b.Save(vocab, write(t, "none.txt", "")); err != nil {
		t.Fatal(err)
	}
	if _, err := text.LoadBPE(vocab, merges); err == nil || !strings.Contains(err.Error(), "merges.txt: merge 0 joins") {
		t.Errorf("got %v", err)
	}
	c, err := text.NewChars("a\uFFFD")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Encode("a\xffa"); err == nil || !strings.Contains(err.Error(), "the byte 0xff at 1 is not UTF-8") {
		t.Errorf("got %v", err)
	}
}
