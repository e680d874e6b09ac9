// Command transformer trains a small transformer (A. Vaswani et al., arXiv:1706.03762) on the
// characters of a text. Then it generates text. The file main.py in the same folder is this program
// in PyTorch.
//
//	go run ./examples/transformer book.txt
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

const length, features = 64, 128

// LanguageModel maps each character of a text to logits for the next character.
type LanguageModel struct {
	Embedding *nn.Embedding
	Position  *tensor.Tensor `nn:"position"`
	Encoder   *nn.TransformerEncoder
	Head      *nn.Linear
}

func newLanguageModel(characters int) *LanguageModel {
	o := nn.TransformerOptions{FeedForward: 4 * features, Dropout: 0.1, BatchFirst: true, NormFirst: true}
	return &LanguageModel{
		Embedding: nn.NewEmbedding(characters, features),
		Position:  nn.Parameter(tensor.Randn(length, features).MulScalar(0.02)),
		Encoder:   nn.NewTransformerEncoder(features, 4, 2, o),
		Head:      nn.NewLinear(features, characters),
	}
}

// Forward maps tokens [batch, n] to logits [batch, n, characters].
func (m *LanguageModel) Forward(tokens *tensor.Tensor) *tensor.Tensor {
	x := m.Embedding.Forward(tokens).Add(m.Position.Narrow(0, 0, tokens.Dim(1)))
	return m.Head.Forward(m.Encoder.ForwardMasked(x, nn.Masks{Causal: true}))
}

func (m *LanguageModel) write(tokens *tensor.Tensor, count int) *tensor.Tensor {
	for range count {
		logits := nn.Infer(m, tokens.Slice(1, -length, tensor.End, 1)).Select(1, -1)
		next := logits.DivScalar(0.8).Softmax(-1).Multinomial(1, false)
		tokens = tensor.Cat(1, tokens, next)
	}
	return tokens
}

func main() {
	steps := flag.Int("steps", 500, "steps of training")
	size := flag.Int("batch", 32, "pieces of text in a step")
	count := flag.Int("write", 200, "characters to write at the end")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: transformer [flags] TEXT")
	}

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	corpus := must(os.ReadFile(flag.Arg(0)))
	characters := must(text.NewChars(string(corpus)))
	tokens := must(characters.Encode(string(corpus)))
	blocks := must(text.NewBlocks(tokens, length, 1)) // stride 1: a block begins at every character
	loader := must(data.NewLoader(blocks, data.Config{Batch: *size, Shuffle: true, DropLast: true, Device: dev, Pin: true}))

	model := nn.To(newLanguageModel(characters.Vocab()), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	for opt.Steps() < *steps {
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			logits := model.Forward(step.X)
			loss := nn.CrossEntropy(logits.Flatten(0, 1), step.Y.Flatten(0, 1))
			opt.ZeroGrad()
			loss.Backward()
			optim.ClipGradNorm(opt.Params(), 1)
			opt.Step()
			if opt.Steps()%50 == 0 || opt.Steps() == *steps {
				fmt.Printf("step %d: loss %.3f\n", opt.Steps(), loss.Item())
			}
			if opt.Steps() == *steps {
				break
			}
		}
	}
	var written []int
	first := tensor.Root().On(dev).Full(float64(tokens[0]), 1, 1).Long()
	for _, id := range tensor.Data[int64](model.write(first, *count)) {
		written = append(written, int(id))
	}
	fmt.Println(must(characters.Decode(written)))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
