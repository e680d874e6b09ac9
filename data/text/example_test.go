package text_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/tensor"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// A text becomes tokens, and the tokens become batches. In a batch, the target of each token is the
// next token.
func Example() {
	chars := must(text.NewChars("to be or not to be"))
	blocks := must(text.NewBlocks(must(chars.Encode("to be or not")), 5, 0))
	for batch, err := range must(data.NewLoader(blocks, data.Config{Batch: 1})).Batches() {
		if err != nil {
			log.Fatal(err)
		}
		tokens := func(x *tensor.Tensor) (ids []int) {
			for _, v := range x.Floats() {
				ids = append(ids, int(v))
			}
			return ids
		}
		fmt.Printf("%q %q\n", must(chars.Decode(tokens(batch.X))), must(chars.Decode(tokens(batch.Y))))
	}
	// Output:
	// "to be" "o be "
	// " or n" "or no"
}

// TrainBPE learns a vocabulary from texts. LoadBPE and LoadTokenizerJSON load a published
// vocabulary.
func ExampleTrainBPE() {
	b := must(text.TrainBPE([]string{"low lower lowest, slow slower slowest"}, text.TrainOptions{Vocab: 264}))
	ids := must(b.Encode("slowest 💡"))
	for _, id := range ids {
		fmt.Printf("%q ", must(b.Decode([]int{id})))
	}
	fmt.Println(must(b.Decode(ids)))
	// Output: "s" "lowe" "st" " " "\xf0" "\x9f" "\x92" "\xa1" slowest 💡
}

// Encode recognises special tokens in a text. EncodeOrdinary does not, so it is safe for untrusted
// text.
func ExampleBPE() {
	b := must(text.TrainBPE([]string{"a text"}, text.TrainOptions{Vocab: 257, Special: []string{"<|endoftext|>"}}))
	fmt.Println(len(must(b.Encode("a<|endoftext|>"))), len(b.EncodeOrdinary("a<|endoftext|>")))
	end, ok := b.Token("<|endoftext|>")
	fmt.Println(end, ok, b.Vocab())
	// Output:
	// 2 14
	// 0 true 257
}

// LoadWordPiece reads BERT's vocabulary, vocab.txt. This example uses a small vocabulary.
func ExampleWordPiece() {
	w := must(text.NewWordPiece([]string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "lamp", "##light", "cafe", "!"}, text.WordPieceOptions{}))
	fmt.Println(must(w.Encode("The LAMPLIGHT café!")))
	ids, types, err := w.Pair("the lamp", "the sea", 0)
	fmt.Println(ids, types, err)
	fmt.Println(must(w.Decode(ids)))
	// Output:
	// [4 5 6 7 8]
	// [2 4 5 3 4 1 3] [0 0 0 0 1 1 1] <nil>
	// [CLS] the lamp [SEP] the [UNK] [SEP]
}

// Every character of a text is a token.
func ExampleChars() {
	c := must(text.NewChars("hello"))
	ids := must(c.Encode("hole"))
	fmt.Println(c, ids, must(c.Decode(ids)))
	_, err := c.Encode("hall")
	fmt.Println(err)
	// Output:
	// ehlo [1 3 2 0] hole
	// text: the character 'a' at byte 1 is not among the 4 known ones
}

// Bytes needs no vocabulary.
func ExampleBytes() {
	fmt.Println(text.Bytes{}.Encode("é!"))
	// Output: [195 169 33] <nil>
}

// For each token of a block X, Y holds the next token.
func ExampleNewBlocks() {
	blocks := must(text.NewBlocks([]int{10, 11, 12, 13, 14, 15, 16}, 3, 0))
	loader := must(data.NewLoader(blocks, data.Config{Batch: 2}))
	for batch, err := range loader.Batches() {
		fmt.Println(batch.X.Floats(), batch.Y.Floats(), err)
	}
	// Output: [10 11 12 13 14 15] [11 12 13 14 15 16] <nil>
}

// Pad makes one batch from sequences of different lengths, with a mask of the tokens that are not
// padding.
func ExamplePad() {
	tensor.Do(func(s *tensor.Scope) {
		ids, mask, err := text.Pad(s, [][]int{{7, 8, 9}, {5}}, 0)
		fmt.Println(ids.Floats(), mask.Floats(), err)
	})
	// Output: [7 8 9 5 0 0] [1 1 1 1 0 0] <nil>
}
