// Command sequences times recurrent and attention layers on the CPU. Each line of its standard
// input names a case. It runs one step of the case, and answers with the seconds. The script
// compare.py in the same folder runs PyTorch and this program alternately, and prints the medians
// of the ratios. Quote only these medians:
//
//	go build -o /tmp/sequences ./bench/sequences
//	python3 bench/sequences/compare.py /tmp/sequences
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// sequences returns the step of a case. mode is "train" or "infer". inputs and hidden are numbers
// of features.
func sequences(kind, mode string, length, batch, inputs, hidden int) (func(), error) {
	var forward func(x *tensor.Tensor) *tensor.Tensor
	var model any
	o := nn.RecurrentOptions{}
	switch kind {
	case "rnn":
		l := nn.NewRNN(inputs, hidden, o)
		model, forward = l, func(x *tensor.Tensor) *tensor.Tensor { y, _ := l.Forward(x, nil); return y }
	case "gru":
		l := nn.NewGRU(inputs, hidden, o)
		model, forward = l, func(x *tensor.Tensor) *tensor.Tensor { y, _ := l.Forward(x, nil); return y }
	case "lstm":
		l := nn.NewLSTM(inputs, hidden, o)
		model, forward = l, func(x *tensor.Tensor) *tensor.Tensor { y, _, _ := l.Forward(x, nil, nil); return y }
	case "encoder":
		l := nn.NewTransformerEncoderLayer(inputs, 8, nn.TransformerOptions{FeedForward: hidden})
		model, forward = l, l.Forward
	case "attention":
		l := nn.NewMultiheadAttention(inputs, 8, nn.MultiheadOptions{})
		model, forward = l, func(x *tensor.Tensor) *tensor.Tensor {
			y, _ := l.Forward(x, x, x, nn.AttendOptions{})
			return y
		}
	default:
		return nil, fmt.Errorf("there is no kind %q", kind)
	}
	x := tensor.Root().Randn(length, batch, inputs)
	if mode == "infer" {
		nn.Eval(model)
		return func() { tensor.Do(func(s *tensor.Scope) { forward(x.In(s)) }, tensor.NoGrad()) }, nil
	}
	x.RequiresGrad()
	return func() {
		tensor.Do(func(s *tensor.Scope) { forward(x.In(s)).Sum().Backward() })
		nn.ZeroGrad(model)
		x.ZeroGrad()
	}, nil
}

func main() {
	log.SetFlags(0)
	steps := map[string]func(){}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		name := strings.TrimSpace(in.Text())
		step := steps[name]
		if step == nil {
			var kind, mode string
			var length, batch, features, hidden int
			if _, err := fmt.Sscan(name, &kind, &mode, &length, &batch, &features, &hidden); err != nil {
				log.Fatalf("case %q: %v", name, err)
			}
			var err error
			if step, err = sequences(kind, mode, length, batch, features, hidden); err != nil {
				log.Fatal(err)
			}
			steps[name] = step
			step()
		}
		t := time.Now()
		step()
		fmt.Println(time.Since(t).Seconds())
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}
