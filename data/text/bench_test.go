package text_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/text"
)

// BenchmarkEncode encodes a text in which words repeat, as in natural text.
func BenchmarkEncode(b *testing.B) {
	r := load(b)
	all := strings.Repeat(strings.Join(r.Corpus, "\n"), 50)
	w, err := text.NewWordPiece(r.Vocab, text.WordPieceOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for name, k := range map[string]text.Tokenizer{"bpe": bpe(b, r), "wordpiece": w} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(all)))
			for b.Loop() {
				encode(b, k, all)
			}
		})
	}
}

// The text is a single word of 105,000 bytes, which is too long for the cache of words.
func BenchmarkLongWord(b *testing.B) {
	k, word := bpe(b, load(b)), strings.Repeat("thelamp", 15_000)
	b.SetBytes(int64(len(word)))
	for b.Loop() {
		encode(b, k, word)
	}
}
