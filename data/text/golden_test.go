package text_test

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/data/text"
)

// recorded holds results of Hugging Face's tokenizers, which _golden/text.py wrote.
type recorded struct {
	Corpus     []string           `json:"corpus"`
	Texts      []string           `json:"texts"`
	JSON       string             `json:"tokenizer_json"`
	BPE        [][]int            `json:"bpe"`
	Merges     int                `json:"merges"`
	Vocab      []string           `json:"wordpiece_vocab"`
	WordPiece  map[string][][]int `json:"wordpiece"`
	WordPieces []string           `json:"wordpiece_decoded"`
}

func load(t testing.TB) *recorded {
	t.Helper()
	f, err := os.Open("testdata/tokens.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorded{}
	if err := json.NewDecoder(z).Decode(r); err != nil {
		t.Fatal(err)
	}
	if len(r.Texts) < 100 || len(r.BPE) != len(r.Texts) || r.Merges < 150 || len(r.WordPiece) != 5 {
		t.Fatalf("%d texts, %d of them tokenized, %d merges", len(r.Texts), len(r.BPE), r.Merges)
	}
	return r
}

func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bpe(t testing.TB, r *recorded) *text.BPE {
	t.Helper()
	b, err := text.LoadTokenizerJSON(write(t, "tokenizer.json", r.JSON))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func encode(t testing.TB, k text.Tokenizer, s string) []int {
	t.Helper()
	ids, err := k.Encode(s)
	if err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return ids
}

func TestBPEEqualsTokenizers(t *testing.T) {
	r := load(t)
	b := bpe(t, r)
	for i, s := range r.Texts {
		if got := encode(t, b, s); !slices.Equal(got, r.BPE[i]) {
			t.Errorf("%q: %v, want %v", s, got, r.BPE[i])
		}
		if back, err := b.Decode(r.BPE[i]); back != s {
			t.Errorf("%q comes back as %q, %v", s, back, err)
		}
	}
}

func TestWordPieceEqualsTokenizers(t *testing.T) {
	r := load(t)
	options := map[string]text.WordPieceOptions{"uncased": {}, "cased": {Cased: true}, "accents": {KeepAccents: true}, "stripcased": {Cased: true, StripCased: true}, "nochinese": {NoChinese: true}}
	if len(options) != len(r.WordPiece) {
		t.Fatal(slices.Collect(maps.Keys(r.WordPiece)))
	}
	for name, o := range options {
		w, err := text.NewWordPiece(r.Vocab, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range r.Texts {
			if got := encode(t, w, s); !slices.Equal(got, r.WordPiece[name][i]) {
				t.Errorf("%s %q: %v, want %v", name, s, got, r.WordPiece[name][i])
			}
			if got, err := w.Decode(r.WordPiece["uncased"][i]); got != r.WordPieces[i] {
				t.Errorf("%q, decoded: %q, want %q, %v", s, got, r.WordPieces[i], err)
			}
		}
	}
}

// TrainBPE learns the same vocabulary and merges as the tokenizers library from the same texts. The
// test compares the contents of tokenizer.json.
func TestTrainBPEEqualsTokenizers(t *testing.T) {
	r := load(t)
	b, err := text.TrainBPE(r.Corpus, text.TrainOptions{Vocab: 560, Special: []string{"<|endoftext|>", "<|pad|>", "<|pad|>>"}})
	if err != nil {
		t.Fatal(err)
	}
	want := bpe(t, r)
	if b.Vocab() != want.Vocab() || b.Vocab() != 256+3+r.Merges {
		t.Errorf("%d tokens, want %d", b.Vocab(), want.Vocab())
	}
	for id := range want.Vocab() {
		got, _ := b.Decode([]int{id})
		if w, _ := want.Decode([]int{id}); got != w {
			t.Fatalf("token %d is %q, want %q", id, got, w)
		}
	}
	for i, s := range r.Texts {
		if got := encode(t, b, s); !slices.Equal(got, r.BPE[i]) {
			t.Errorf("%q: %v, want %v", s, got, r.BPE[i])
		}
	}
}
