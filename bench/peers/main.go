// Command peers compares this library with other Go libraries on the CPU, in a training step and a
// product of matrices. All libraries take turns in one run, and compute the same results from the
// same numbers:
//
//	go -C bench/peers run . [-rounds 9] [-seconds 0.2]
//
// The step trains a perceptron of 64, 128 and 10 features on a batch of 64, with Adam. GoMLX uses
// its backend in pure Go. The product is that of two matrices of 1024 by 1024. gonum is measured
// only with the product. For each library, the command prints the median ratio of its time to ours.
// If the ratio is above 1, ours is faster.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/gomlx/gomlx/backends/simplego"
	"github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/gomlx/gomlx/pkg/ml/context"
	"github.com/gomlx/gomlx/pkg/ml/train"
	"github.com/gomlx/gomlx/pkg/ml/train/losses"
	"github.com/gomlx/gomlx/pkg/ml/train/optimizers"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

const (
	batch, in, hidden, classes = 64, 64, 128, 10
	rate                       = 1e-3
	size                       = 1024
)

// A contender is one library's implementation of a step. Its result is a loss, or an element of a
// product.
type contender struct {
	name string
	step func() float64
}

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 9, "of each case")
	seconds := flag.Float64("seconds", 0.2, "of measuring, for each round of a library")
	flag.Parse()
	tensor.ManualSeed(1)
	compare("step of the perceptron", 50, 1e-3, *rounds, *seconds, perceptrons())
	compare("product of 1024", 1, 1e-2, *rounds, *seconds, products())
}

// compare runs each contender a few times, checks that their last results agree, and measures them
// in turns.
func compare(name string, steps int, tolerance float64, rounds int, seconds float64, list []contender) {
	results := make([]float64, len(list))
	for i, c := range list {
		for range steps {
			results[i] = c.step()
		}
		if math.Abs(results[i]-results[0]) > tolerance {
			log.Fatalf("%s: %s computes %v, ours %v", name, c.name, results[i], results[0])
		}
	}
	times, ratios := make([][]float64, len(list)), make([][]float64, len(list))
	for range rounds {
		for i, c := range list {
			n, start := 0, time.Now()
			for n == 0 || time.Since(start).Seconds() < seconds {
				c.step()
				n++
			}
			t := time.Since(start).Seconds() / float64(n)
			times[i] = append(times[i], t)
			ratios[i] = append(ratios[i], t/times[0][len(times[0])-1])
		}
	}
	for i, c := range list {
		fmt.Printf("%-24s %-10s %10.3f ms %8.2f times ours, result %.6f\n", name, c.name, 1e3*median(times[i]), median(ratios[i]), results[i])
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// perceptrons returns the contenders that train a perceptron, with the same weights and the same
// batch.
func perceptrons() []contender {
	home := tensor.Root()
	first, second := nn.NewLinear(in, hidden), nn.NewLinear(hidden, classes)
	m := nn.NewSequential(first, nn.ReLU{}, second)
	x, y := home.Randn(batch, in), home.RandInt(0, classes, batch)
	var weights []*tensors.Tensor
	for _, l := range []*nn.Linear{first, second} {
		weights = append(weights, copied(l.Weight.Detach().T().Contiguous()), copied(l.Bias.Detach()))
	}
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: rate})
	ours := func() (loss float64) {
		tensor.Do(func(s *tensor.Scope) {
			l := nn.CrossEntropy(m.Forward(x.In(s)), y)
			l.Backward()
			opt.Step()
			opt.ZeroGrad()
			loss = l.Item()
		})
		return loss
	}
	model := func(ctx *context.Context, _ any, inputs []*graph.Node) []*graph.Node {
		g, h := inputs[0].Graph(), inputs[0]
		for i := 0; i < len(weights); i += 2 {
			w := ctx.VariableWithValue(fmt.Sprint("weight", i), weights[i]).ValueGraph(g)
			b := ctx.VariableWithValue(fmt.Sprint("bias", i), weights[i+1]).ValueGraph(g)
			h = graph.Add(graph.Dot(h, w), graph.InsertAxes(b, 0))
			if i == 0 {
				h = graph.MaxScalar(h, 0.0)
			}
		}
		return []*graph.Node{h}
	}
	adam := optimizers.Adam().LearningRate(rate).Epsilon(1e-8).Done()
	trainer := train.NewTrainer(simplego.GetBackend(), context.New(), model, losses.SparseCategoricalCrossEntropyLogits, adam, nil, nil)
	inputs := []*tensors.Tensor{copied(x)}
	labels := []*tensors.Tensor{tensors.FromFlatDataAndDimensions(tensor.Data[int64](y), batch, 1)}
	theirs := func() float64 {
		told, err := trainer.TrainStep(nil, inputs, labels)
		if err != nil {
			log.Fatal(err)
		}
		return float64(tensors.ToScalar[float32](told[0]))
	}
	return []contender{{"ours", ours}, {"GoMLX", theirs}}
}

// copied returns a copy of a tensor as a GoMLX tensor.
func copied(x *tensor.Tensor) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(slices.Clone(tensor.Data[float32](x)), x.Shape().Slice()...)
}

func products() []contender {
	a, b := tensor.Root().Randn(size, size), tensor.Root().Randn(size, size)
	ours := func() (y float64) {
		tensor.Do(func(s *tensor.Scope) {
			c := a.In(s).MatMul(b)
			y = c.Select(0, 0).Select(0, 0).Item()
		}, tensor.NoGrad())
		return y
	}
	general := func(data []float32) blas32.General {
		return blas32.General{Rows: size, Cols: size, Stride: size, Data: data}
	}
	p, q, r := general(tensor.Data[float32](a)), general(tensor.Data[float32](b)), general(make([]float32, size*size))
	gonum := func() float64 {
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, p, q, 0, r)
		return float64(r.Data[0])
	}
	exec := graph.MustNewExec(simplego.GetBackend(), func(a, b *graph.Node) *graph.Node { return graph.Dot(a, b) })
	left, right := copied(a), copied(b)
	theirs := func() float64 {
		c := exec.MustExec(left, right)[0]
		var y float64
		tensors.MustConstFlatData(c, func(flat []float32) { y = float64(flat[0]) })
		if err := c.FinalizeAll(); err != nil {
			log.Fatal(err)
		}
		return y
	}
	return []contender{{"ours", ours}, {"GoMLX", theirs}, {"gonum", gonum}}
}
