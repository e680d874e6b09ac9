// Command convolutions times convolutions, pooling, batch normalisation and training steps on the
// CPU. Each line of its standard input names a case. It runs the case once, and answers with the
// seconds of CPU time. The script compare.py in the same folder runs PyTorch and this program
// alternately, and prints the medians of the ratios. Quote only these medians:
//
//	go build -o /tmp/convolutions ./bench/convolutions
//	python3 bench/convolutions/compare.py /tmp/convolutions
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// layer returns the function to measure for an op f with one operand and an optional weight. pass
// selects the forward pass or one of the gradients.
func layer(pass string, x, w *tensor.Tensor, f func(x, w *tensor.Tensor) *tensor.Tensor) (func(), error) {
	if pass == "forward" {
		return func() { tensor.Do(func(s *tensor.Scope) { f(x.In(s), w) }, tensor.NoGrad()) }, nil
	}
	of := x
	if pass == "weight" {
		of = w
	}
	if of == nil || pass != "data" && pass != "weight" {
		return nil, fmt.Errorf("there is no part %q", pass)
	}
	of.RequiresGrad()
	home := tensor.NewScope()
	y := f(x.In(home), w)
	g := y.Detach().RandnLike()
	return func() {
		home.Do(func(s *tensor.Scope) {
			tensor.Gradients(y.In(s), []*tensor.Tensor{of}, tensor.GradOutput(g), tensor.RetainGraph())
		})
	}, nil
}

// makeCase parses the name of a case, which consists of a kind, a part and sizes. It returns the
// function to measure.
func makeCase(name string) (func(), error) {
	var kind, part string
	var n, in, size, out, kernel, stride, groups int
	if _, err := fmt.Sscan(name, &kind, &part, &n, &in, &size, &out, &kernel, &stride, &groups); err != nil {
		return nil, err
	}
	x := tensor.Root().Randn(n, in, size, size)
	switch kind {
	case "conv":
		w := tensor.Root().Randn(out, in/groups, kernel, kernel)
		o := tensor.ConvOptions{Stride: []int{stride}, Padding: []int{kernel / 2}, Groups: groups}
		return layer(part, x, w, func(x, w *tensor.Tensor) *tensor.Tensor { return x.Conv2d(w, nil, o) })
	case "max":
		o := tensor.MaxPoolOptions{Kernel: []int{kernel}, Stride: []int{stride}, Padding: []int{(kernel - 1) / 2}}
		return layer(part, x, nil, func(x, _ *tensor.Tensor) *tensor.Tensor { return x.MaxPool2d(o) })
	case "avg":
		o := tensor.AvgPoolOptions{Kernel: []int{kernel}, Stride: []int{stride}, Padding: []int{(kernel - 1) / 2}}
		return layer(part, x, nil, func(x, _ *tensor.Tensor) *tensor.Tensor { return x.AvgPool2d(o) })
	case "adaptive":
		return layer(part, x, nil, func(x, _ *tensor.Tensor) *tensor.Tensor { return x.AdaptiveAvgPool2d(out) })
	case "relu":
		return layer(part, x, nil, func(x, _ *tensor.Tensor) *tensor.Tensor { return x.Relu() })
	case "norm":
		m := nn.NewBatchNorm2d(in)
		return layer(part, x, nil, func(x, _ *tensor.Tensor) *tensor.Tensor { return m.Forward(x) })
	case "cnn", "lenet", "resnet":
		return model(kind, part, x)
	}
	return nil, fmt.Errorf("there is no kind %q", kind)
}

// model returns a function that runs a training step of a model, or its inference if pass is
// "forward".
func model(kind, pass string, x *tensor.Tensor) (func(), error) {
	n, in, size := x.Dim(0), x.Dim(1), x.Dim(2)
	var m interface {
		nn.Module
		Forward(x *tensor.Tensor) *tensor.Tensor
	}
	switch kind {
	case "cnn":
		m = models.NewCNN(in, 10)
	case "lenet":
		m = models.NewLeNet(size, in, 10)
	default:
		m = models.ResNet18(1000, in)
	}
	if pass == "forward" {
		nn.Eval(m)
		return func() { tensor.Do(func(s *tensor.Scope) { m.Forward(x.In(s)) }, tensor.NoGrad()) }, nil
	}
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4})
	return func() {
		tensor.Do(func(s *tensor.Scope) {
			logits := m.Forward(s.Randn(n, in, size, size))
			defer logits.Free()
			nn.CrossEntropy(logits, s.RandInt(0, 10, n)).Backward()
		})
		opt.Step()
		opt.ZeroGrad()
	}, nil
}

func main() {
	log.SetFlags(0)
	cases := map[string]func(){}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name := strings.TrimSpace(in.Text())
		f := cases[name]
		if f == nil {
			var err error
			if f, err = makeCase(name); err != nil {
				log.Fatalf("case %q: %v", name, err)
			}
			cases[name] = f
			f()
			runtime.GC()
		}
		start := processorTime()
		f()
		fmt.Println(processorTime() - start)
	}
}
