package models_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func tinyBERT() models.BERTConfig {
	return models.BERTConfig{Vocab: 9, Context: 8, Layers: 1, Heads: 2, Width: 4}
}

// Texts of different lengths form one batch. A mask marks the padding.
func ExampleBERT() {
	w, err := text.NewWordPiece([]string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "lamp", "sea", "lit"}, text.WordPieceOptions{})
	if err != nil {
		log.Fatal(err)
	}
	m := nn.Eval(models.NewBERT(tinyBERT()))
	tensor.Do(func(s *tensor.Scope) {
		var seqs [][]int
		for _, t := range []string{"the lamp lit the sea", "the sea"} {
			ids, _, err := w.Pair(t, "", 8)
			if err != nil {
				log.Fatal(err)
			}
			seqs = append(seqs, ids)
		}
		ids, mask, err := text.Pad(s, seqs, 0)
		if err != nil {
			log.Fatal(err)
		}
		x := m.Features(ids, models.BERTInput{Mask: mask})
		fmt.Println(x.Shape(), m.Pool(x).Shape())
	})
	// Output: [2, 7, 4] [2, 4]
}

// A label of -100 marks a token that was not masked and has no loss.
func ExampleMaskedLM() {
	m := nn.Eval(models.NewMaskedLM(tinyBERT()))
	ids, labels := tensor.From([]int64{2, 5, 4, 3}, 1, 4), tensor.From([]int64{-100, -100, 6, -100}, 1, 4)
	fmt.Println(m.Forward(ids).Shape(), m.Loss(ids, labels, models.BERTInput{}).Shape())
	// Output: [1, 4, 9] []
}

// The program adds its own head to the pretrained weights.
func ExampleSequenceClassifier() {
	trained := map[string]*tensor.Tensor{}
	for _, p := range nn.Named(models.NewBERT(tinyBERT())) {
		trained["bert."+p.Name] = p.Tensor
	}
	m := models.NewSequenceClassifier(tinyBERT(), 3)
	fmt.Println(m.Bert.LoadStateDict(trained))
	fmt.Println(m.Forward(tensor.From([]int64{2, 5, 3}, 1, 3)).Shape())
	// Output:
	// <nil>
	// [1, 3]
}
