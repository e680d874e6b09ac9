// Command hotpath compares the cost of single ops in two builds of itself. Ops on small tensors
// show the overhead around the kernels, and larger tensors are measured too. The two builds run
// alternately, so that other load on the machine affects both.
//
//	go build -o new ./bench/hotpath
//	(in the tree before the change) go build -o old ./bench/hotpath
//	./new -before ./old [-rounds 31] [-only REGEXP]
//
// For each op, size and direction it prints the ratio new/old of the times, as the median over the
// rounds. It also prints the number of allocations per call in the old and in the new build.
// Finally it prints the geometric mean of the medians. Without -before it prints one round: a line
// with name, nanoseconds and allocations for each case.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An op computes a result from the operands. The operands x, y and index have the shape [rows,
// columns]; targets has one value for each row.
type op struct {
	name string
	call func(c *operands) *tensor.Tensor
	once bool // whether the op has no gradient
}

type operands struct {
	x, y, w, index, targets, factor, shift, kernel *tensor.Tensor
}

var ops = []op{
	{"add", func(c *operands) *tensor.Tensor { return c.x.Add(c.y) }, false},
	{"mul", func(c *operands) *tensor.Tensor { return c.x.Mul(c.y) }, false},
	{"mul_scalar", func(c *operands) *tensor.Tensor { return c.x.MulScalar(1.5) }, false},
	{"relu", func(c *operands) *tensor.Tensor { return c.x.Relu() }, false},
	{"gelu", func(c *operands) *tensor.Tensor { return c.x.Gelu() }, false},
	{"add_row", func(c *operands) *tensor.Tensor { return c.x.Add(c.shift) }, false},
	{"cast", func(c *operands) *tensor.Tensor { return c.x.Cast(dtype.BF16) }, false},
	{"sum", func(c *operands) *tensor.Tensor { return c.x.Sum() }, false},
	{"mean_rows", func(c *operands) *tensor.Tensor { return c.x.Mean(1) }, false},
	{"argmax", func(c *operands) *tensor.Tensor { return c.x.Argmax(1) }, true},
	{"matmul", func(c *operands) *tensor.Tensor { return c.x.MatMul(c.w) }, false},
	{"softmax", func(c *operands) *tensor.Tensor { return c.x.Softmax(-1) }, false},
	{"log_softmax", func(c *operands) *tensor.Tensor { return c.x.LogSoftmax(-1) }, false},
	{"cross_entropy", func(c *operands) *tensor.Tensor {
		return c.x.CrossEntropy(c.targets, tensor.CrossEntropyOptions{})
	}, false},
	{"layer_norm", func(c *operands) *tensor.Tensor {
		return c.x.LayerNorm([]int{c.x.Dim(1)}, c.factor, c.shift, 1e-5)
	}, false},
	{"conv1d", func(c *operands) *tensor.Tensor {
		return c.x.Unsqueeze(1).Conv1d(c.kernel, nil, tensor.ConvOptions{})
	}, false},
	{"max_pool1d", func(c *operands) *tensor.Tensor {
		return c.x.Unsqueeze(1).MaxPool1d(tensor.MaxPoolOptions{Kernel: []int{2}})
	}, false},
	{"gather", func(c *operands) *tensor.Tensor { return c.x.Gather(1, c.index) }, false},
	{"scatter_add", func(c *operands) *tensor.Tensor { return c.x.ScatterAdd(1, c.index, c.y) }, false},
	{"cumsum", func(c *operands) *tensor.Tensor { return c.x.CumSum(1) }, false},
	{"argsort", func(c *operands) *tensor.Tensor { return c.x.Argsort(1, false) }, true},
	{"add_in_place", func(c *operands) *tensor.Tensor { return c.y.AddInPlace(c.shift) }, true},
}

// sizes are numbers of rows and columns, for tensors of 32 and of 64K elements.
var sizes = [][2]int{{4, 8}, {256, 256}}

func made(s *tensor.Scope, rows, columns int, grad bool) *operands {
	c := &operands{x: s.Randn(rows, columns), y: s.Randn(rows, columns), w: s.Randn(columns, columns), factor: s.Randn(columns), shift: s.Randn(columns), kernel: s.Randn(1, 1, 3)}
	c.index = s.Typed(dtype.I64).Arange(columns).Flip(0).Expand(rows, columns).Contiguous()
	c.targets = s.Typed(dtype.I64).Zeros(rows)
	if grad {
		c.x.RequiresGrad()
	}
	return c
}

// A result holds the time and the allocations per call of one case, as measured in one round.
type result struct {
	name   string
	ns     float64
	allocs float64
}

// measure runs f in several time spans. It returns the time per call in nanoseconds in the fastest
// span, and the allocations per call in the last one.
func measure(f func()) (ns, allocs float64) {
	for range 3 {
		f()
	}
	n, span := 1, 2*time.Millisecond
	for {
		start := time.Now()
		for range n {
			f()
		}
		if d := time.Since(start); d > span/2 || n > 1<<20 {
			break
		}
		n *= 2
	}
	ns = math.Inf(1)
	var before, after runtime.MemStats
	for range 5 {
		runtime.ReadMemStats(&before)
		start := time.Now()
		for range n {
			f()
		}
		d := time.Since(start)
		runtime.ReadMemStats(&after)
		ns = min(ns, float64(d.Nanoseconds())/float64(n))
		allocs = float64(after.Mallocs-before.Mallocs) / float64(n)
	}
	return ns, allocs
}

func round(only *regexp.Regexp) (list []result) {
	tensor.Seed(1)
	for _, size := range sizes {
		for _, grad := range []bool{false, true} {
			for _, o := range ops {
				name := fmt.Sprintf("%s/%d", o.name, size[0]*size[1])
				if grad {
					name += "/gradient"
				}
				if grad && o.once || !only.MatchString(name) {
					continue
				}
				tensor.Do(func(s *tensor.Scope) {
					c := made(s, size[0], size[1], grad)
					ns, allocs := measure(func() {
						y := o.call(c)
						if grad {
							y.Sum().Backward()
							c.x.ZeroGrad()
						}
						if y != c.y {
							y.Free()
						}
					})
					list = append(list, result{name, ns, allocs})
				})
			}
		}
	}
	return list
}

// runBuild runs the other build of this command for one round.
func runBuild(path, only string) []result {
	out, err := exec.Command(path, "-only", only).Output()
	if err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	var list []result
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r result
		if _, err := fmt.Sscan(lines.Text(), &r.name, &r.ns, &r.allocs); err != nil {
			log.Fatalf("%s: %q: %v", path, lines.Text(), err)
		}
		list = append(list, r)
	}
	return list
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func main() {
	log.SetFlags(0)
	before := flag.String("before", "", "the build to compare with")
	rounds := flag.Int("rounds", 31, "")
	only := flag.String("only", "", "names to measure, a regular expression")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	if *before == "" {
		for _, r := range round(match) {
			fmt.Printf("%s %.1f %.1f\n", r.name, r.ns, r.allocs)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	ratios, allocs := map[string][]float64{}, map[string][2][]float64{}
	var names []string
	for i := range *rounds {
		var runs [2][]result // results of the old build and of the new build
		for k := range 2 {
			which := (k + i) % 2
			runs[which] = runBuild([2]string{*before, self}[which], *only)
		}
		for j, r := range runs[1] {
			if runs[0][j].name != r.name {
				log.Fatalf("the builds measure different things: %s and %s", runs[0][j].name, r.name)
			}
			if i == 0 {
				names = append(names, r.name)
			}
			ratios[r.name] = append(ratios[r.name], r.ns/runs[0][j].ns)
			a := allocs[r.name]
			a[0], a[1] = append(a[0], runs[0][j].allocs), append(a[1], r.allocs)
			allocs[r.name] = a
		}
	}
	logs := 0.0
	fmt.Printf("%-32s %8s %16s\n", "op/elements", "ratio", "allocations")
	for _, name := range names {
		m := median(ratios[name])
		logs += math.Log(m)
		fmt.Printf("%-32s %8.3f %7.1f → %6.1f\n", name, m, median(allocs[name][0]), median(allocs[name][1]))
	}
	fmt.Printf("%-32s %8.3f\n", "geometric mean", math.Exp(logs/float64(len(names))))
}
