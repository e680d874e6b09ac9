// Command bert trains a small BERT to classify sentences as friendly or unfriendly. The program
// generates the sentences, which contain negations, so counting words is not enough.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

var (
	subjects = []string{"the film", "this book", "our host", "the soup", "her song"}
	praise   = []string{"good", "warm", "clever", "lovely"}
	blame    = []string{"bad", "cold", "dull", "awful"}
)

// sentence returns a random sentence, and 1 if it is friendly, else 0.
func sentence(rng *rand.Rand) (string, int64) {
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	kind, not := rng.IntN(2), rng.IntN(2)
	word := pick([][]string{blame, praise}[kind])
	verb := []string{"was", "was not"}[not]
	return pick(subjects) + " " + verb + " " + pick([]string{"very ", "so ", ""}) + word, int64(kind ^ not)
}

// batch returns n sentences, padded to one length, and their classes.
func batch(s *tensor.Scope, words *text.WordPiece, rng *rand.Rand, n int) (ids, mask, labels *tensor.Tensor) {
	seqs, kinds := make([][]int, n), make([]int64, n)
	for i := range seqs {
		var line string
		line, kinds[i] = sentence(rng)
		seq, _, err := words.Pair(line, "", 16)
		if err != nil {
			log.Fatal(err)
		}
		seqs[i] = seq
	}
	ids, mask, err := text.Pad(s, seqs, 0)
	if err != nil {
		log.Fatal(err)
	}
	return ids, mask, s.From(kinds)
}

func main() {
	log.SetFlags(0)
	steps := flag.Int("steps", 120, "steps of the optimizer")
	flag.Parse()

	vocabulary := strings.Fields("[PAD] [UNK] [CLS] [SEP] [MASK] was not very so " +
		strings.Join(subjects, " ") + " " + strings.Join(praise, " ") + " " + strings.Join(blame, " "))
	seen := map[string]bool{}
	var unique []string
	for _, w := range vocabulary {
		if !seen[w] {
			seen[w] = true
			unique = append(unique, w)
		}
	}
	words, err := text.NewWordPiece(unique, text.WordPieceOptions{})
	if err != nil {
		log.Fatal(err)
	}
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	config := models.BERTConfig{Vocab: len(unique), Context: 16, Layers: 2, Heads: 2, Width: 32, Dropout: 0.1}
	model := nn.To(models.NewSequenceClassifier(config, 2), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 2e-3})
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range *steps {
		tensor.Do(func(s *tensor.Scope) {
			ids, mask, labels := batch(s, words, rng, 32)
			loss := nn.CrossEntropy(model.Logits(ids, models.BERTInput{Mask: mask}), labels)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			if step%30 == 29 || step == *steps-1 {
				fmt.Printf("step %d: loss %.4f\n", step+1, loss.Item())
			}
		}, tensor.On(dev))
	}

	nn.Eval(model)
	tensor.Do(func(s *tensor.Scope) {
		ids, mask, labels := batch(s, words, rng, 200)
		right := model.Logits(ids, models.BERTInput{Mask: mask}).Argmax(-1).Eq(labels).Sum().Item()
		fmt.Printf("%.0f of 200 new sentences right\n", right)
	}, tensor.On(dev), tensor.NoGrad())
}
