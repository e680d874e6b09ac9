// Command optimizers times optimizer steps on the CPU for bench/optimizers/compare.py, which also
// times PyTorch's optimizers and prints ratios. It reads lines with the names of an optimizer and
// of a set of parameters ("adamw small"), and answers with the seconds of one step. This lets
// compare.py measure the two libraries alternately, so that other load on the machine affects both.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// sets are the sets of parameters, by name. A set is a list of pairs: a number of parameters, and
// their size.
var sets = map[string][][2]int{
	"small": {{400, 256}},
	"mixed": {{60, 64}, {60, 4096}, {40, 36864}},
	"large": {{4, 1 << 20}},
}

var optimizers = map[string]func(params []*tensor.Tensor) func(){
	"sgd": func(p []*tensor.Tensor) func() {
		return optim.NewSGD(p, optim.SGDConfig{LR: 1e-4, Momentum: 0.9}).Step
	},
	"adamw": func(p []*tensor.Tensor) func() {
		return optim.NewAdamW(p, optim.AdamConfig{LR: 1e-4, WeightDecay: 0.01}).Step
	},
	"rmsprop":  func(p []*tensor.Tensor) func() { return optim.NewRMSprop(p, optim.RMSpropConfig{LR: 1e-4}).Step },
	"adadelta": func(p []*tensor.Tensor) func() { return optim.NewAdadelta(p, optim.AdadeltaConfig{LR: 1e-4}).Step },
	"clip": func(p []*tensor.Tensor) func() {
		return func() {
			tensor.Do(func(s *tensor.Scope) { optim.ClipGradNorm(p, 1e6, optim.InScope(s)) })
		}
	},
}

func main() {
	log.SetFlags(0)
	steps := map[string]func(){}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		line := in.Text()
		name, set, _ := strings.Cut(line, " ")
		if optimizers[name] == nil || sets[set] == nil {
			log.Fatalf("no case %q", line)
		}
		step := steps[line]
		if step == nil {
			var params []*tensor.Tensor
			for _, group := range sets[set] {
				for range group[0] {
					p := tensor.Root().Randn(group[1]).RequiresGrad()
					p.SetGrad(tensor.Root().Randn(group[1]))
					params = append(params, p)
				}
			}
			step = optimizers[name](params)
			steps[line] = step
			step()
		}
		start, n := time.Now(), 0
		for ; n < 3 || time.Since(start) < 100*time.Millisecond; n++ {
			step()
		}
		fmt.Println(time.Since(start).Seconds() / float64(n))
	}
	if err := in.Err(); err != nil {
		log.Fatal(err)
	}
}
