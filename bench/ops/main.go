// Command ops times the library's ops on the CPU for bench/ops/compare.py, which also times
// PyTorch's ops and prints ratios. This program has the table of cases: their operands, their call,
// and the same call in PyTorch as a Python expression.
//
//	ops list     prints a line of JSON for each case and size
//	ops serve    reads lines "case size forward|backward 4ms wall|cpu", and answers each with a
//	             line of JSON; "drop" forgets the operands made so far
//
// The time of a call includes allocating and freeing its results, and its share of a scope's cost.
// As in a program, several calls share a scope: sixteen with up to 1K elements, four with up to 1M.
// Each result is freed before the next call, as in PyTorch's loop. "backward" measures the op and
// the gradients of its operands. The scope keeps what a gradient needs, so large calls with
// gradients have a scope of their own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

type T = tensor.Tensor

// A bench is a case: an op with its operands.
type bench struct {
	name string
	in   string // operands as "kind:dims/layout", separated by spaces
	grad string // operands whose gradients are computed, as letters of "abcd"
	call string // call in PyTorch, as an expression of a, b, c and d
	f    func(x []*T) *T
	// sizes lists the sizes at which the case runs: t for tiny, m for medium, l for large, h for
	// the large size of an expensive op, f for fixed dimensions.
	sizes string
}

// dims has the values of the letters in operands' dimensions, for each size.
var dims = map[byte]map[string]int{
	't': {"n": 32, "R": 4, "C": 8, "B": 2, "S": 4, "D": 4, "M": 4, "V": 16, "K": 2},
	'm': {"n": 1 << 16, "R": 256, "C": 256, "B": 4, "S": 64, "D": 256, "M": 128, "V": 1000, "K": 16},
	'l': {"n": 1 << 22, "R": 4096, "C": 1024, "B": 16, "S": 256, "D": 1024, "M": 512, "V": 30000, "K": 64},
	'h': {"n": 1 << 20, "R": 1024, "C": 1024, "B": 4, "S": 256, "D": 1024, "M": 512, "V": 30000, "K": 64},
	'f': {},
}

var sizeNames = map[byte]string{'t': "tiny", 'm': "medium", 'l': "large", 'h': "large", 'f': "fixed"}

// An operand describes a tensor that both this program and PyTorch's side make.
type operand struct {
	// Kind is one of normal, positive, unit, ones, half (bfloat16), int8, index, bool and spd.
	Kind  string `json:"kind"`
	Dims  []int  `json:"dims"`
	Bound int    `json:"bound,omitempty"` // upper bound of an index
	// Layout is the memory layout: "t" for transposed, and "s" for every second element of the
	// rows.
	Layout string `json:"layout,omitempty"`
}

var kinds = map[string]string{"f": "normal", "p": "positive", "u": "unit", "1": "ones", "h": "half", "8": "int8", "o": "bool", "q": "spd", "g": "long"}

func operands(in string, size byte) []operand {
	value := func(s string) int {
		if v, ok := dims[size][s]; ok {
			return v
		}
		v, err := strconv.Atoi(s)
		if err != nil {
			log.Fatalf("no dimension %q in %q", s, in)
		}
		return v
	}
	var list []operand
	for _, field := range strings.Fields(in) {
		kind, rest, _ := strings.Cut(field, ":")
		shape, layout, _ := strings.Cut(rest, "/")
		o := operand{Kind: kinds[kind], Layout: layout, Dims: []int{}}
		if bound, ok := strings.CutPrefix(kind, "i"); ok {
			o.Kind, o.Bound = "index", value(bound)
		}
		if o.Kind == "" {
			log.Fatalf("no kind %q in %q", kind, in)
		}
		for s := range strings.SplitSeq(shape, ",") {
			if s != "" {
				o.Dims = append(o.Dims, value(s))
			}
		}
		list = append(list, o)
	}
	return list
}

// make returns the operand's tensor, in scope s.
func (o operand) make(s *tensor.Scope) *T {
	shape := append([]int{}, o.Dims...)
	switch o.Layout {
	case "t":
		for i := range shape {
			shape[i] = o.Dims[len(shape)-1-i]
		}
	case "s":
		shape[len(shape)-1] *= 2
	}
	var x *T
	switch o.Kind {
	case "normal":
		x = s.Randn(shape...)
	case "positive":
		x = s.Rand(shape...).AddScalar(0.1)
	case "unit":
		x = s.Rand(shape...).MulScalar(1.8).SubScalar(0.9)
	case "ones":
		x = s.Ones(shape...)
	case "int8":
		x = s.RandInt(-128, 128, shape...).Cast(dtype.I8)
	case "half":
		x = s.Randn(shape...).BFloat16()
	case "bool":
		x = s.Rand(shape...).LtScalar(0.5)
	case "index":
		x = s.RandInt(0, o.Bound, shape...)
	case "long":
		x = s.RandInt(-1000, 1000, shape...)
	case "spd":
		a := s.Randn(shape...)
		n := shape[len(shape)-1]
		x = a.MatMul(a.Transpose(-1, -2)).Add(s.Typed(dtype.F32).Eye(n).MulScalar(float64(n)))
	}
	switch o.Layout {
	case "t":
		order := make([]int, len(shape))
		for i := range order {
			order[i] = len(order) - 1 - i
		}
		return x.Permute(order...)
	case "s":
		return x.Slice(-1, 0, shape[len(shape)-1], 2)
	}
	return x
}

// answer is one line of the output of "ops serve".
type answer struct {
	Seconds float64 `json:"seconds"`
	Allocs  float64 `json:"allocs"`
	Bytes   float64 `json:"bytes"`
	Error   string  `json:"error,omitempty"`
}

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 2 && os.Args[1] == "list":
		list()
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve()
	default:
		log.Fatal("usage: ops list|serve")
	}
}

func list() {
	out := json.NewEncoder(os.Stdout)
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.name] {
			log.Fatalf("two cases %q", c.name)
		}
		seen[c.name] = true
		for i := range len(c.sizes) {
			size := c.sizes[i]
			err := out.Encode(struct {
				Case     string    `json:"case"`
				Size     string    `json:"size"`
				Operands []operand `json:"operands"`
				Grad     string    `json:"grad"`
				Call     string    `json:"call"`
				Batch    int       `json:"batch"`
			}{c.name, sizeNames[size], operands(c.in, size), c.grad, c.call, c.batch(size)})
			if err != nil {
				log.Fatal(err)
			}
		}
	}
}

// batch returns how many calls of the case share a scope. That is 16 for calls with up to 1K
// elements, and four for calls with up to 1M elements, because these calls take less than a
// millisecond. Each larger call has a scope of its own.
func (c *bench) batch(size byte) int {
	elements := 0
	for _, o := range operands(c.in, size) {
		n := 1
		for _, d := range o.Dims {
			n *= d
		}
		elements += n
	}
	switch {
	case elements <= 1<<10 && (size == 't' || size == 'f'):
		return 16
	case elements <= 1<<20 && size != 'h':
		return 4
	}
	return 1
}

// data has the operands made so far, by their description.
type data struct {
	scope    *tensor.Scope
	operands map[string]*T
}

func (d *data) drop() {
	if d.scope != nil {
		d.scope.Close()
	}
	d.scope, d.operands = tensor.NewScope(), map[string]*T{}
}

// operand returns the k-th operand with the given description.
func (d *data) operand(o operand, k int, grad bool) *T {
	key := fmt.Sprint(o, k, grad)
	x := d.operands[key]
	if x == nil {
		x = o.make(d.scope)
		if grad {
			x = x.Detach().RequiresGrad()
		}
		d.operands[key] = x
	}
	return x
}

func serve() {
	tensor.ManualSeed(1)
	byName := map[string]*bench{}
	for i := range cases {
		byName[cases[i].name] = &cases[i]
	}
	var d data
	d.drop()
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		f := strings.Fields(in.Text())
		if len(f) == 1 && f[0] == "drop" {
			d.drop()
			runtime.GC()
			continue
		}
		c := byName[f[0]]
		if len(f) != 5 || c == nil {
			log.Fatalf("no case %q", in.Text())
		}
		least, err := time.ParseDuration(f[3])
		if err != nil {
			log.Fatal(err)
		}
		var size byte
		for i := range len(c.sizes) {
			if sizeNames[c.sizes[i]] == f[1] {
				size = c.sizes[i]
			}
		}
		var a answer
		if err := tensor.Try(func() { a = c.measure(&d, size, f[2] == "backward", least, f[4] == "cpu") }); err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			log.Fatal(err)
		}
	}
}

// measure measures calls for at least minTime. It reports the elapsed time, or the CPU time if cpu
// is set.
func (c *bench) measure(d *data, size byte, backward bool, minTime time.Duration, cpu bool) (a answer) {
	var x []*T
	var leaves []*T
	for i, o := range operands(c.in, size) {
		grad := backward && strings.IndexByte(c.grad, byte('a'+i)) >= 0
		x = append(x, d.operand(o, i, grad))
		if grad {
			leaves = append(leaves, x[i])
		}
	}
	// Everything that a measurement allocates is freed at its end, so that the next one finds the
	// same free memory.
	own := d.scope.New()
	defer own.Close()
	local := make([]*T, len(x))
	for i := range x {
		local[i] = x[i].In(own)
	}
	var g *T
	if backward { // ones in the memory order of the result, as torch.ones_like makes them
		g = c.f(local).Detach().PowScalar(0)
	}
	per := c.batch(size)
	if backward && per < 16 {
		per = 1
	}
	step := func() {
		own.Do(func(s *tensor.Scope) {
			for i := range x {
				local[i] = x[i].In(s)
			}
			for range per {
				y := c.f(local)
				if backward {
					tensor.Gradients(y, leaves, tensor.GradOutput(g))
				} else if !slices.Contains(local, y) { // ops in place return their operand
					y.Free()
				}
			}
		})
	}
	step()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	start := time.Now()
	clock := func() time.Duration { return time.Since(start) }
	if cpu {
		clock = processTime
	}
	for began := clock(); n == 0 || a.Seconds < minTime.Seconds(); a.Seconds = (clock() - began).Seconds() {
		step()
		n += per
	}
	runtime.ReadMemStats(&after)
	k := float64(n)
	return answer{Seconds: a.Seconds / k, Allocs: float64(after.Mallocs-before.Mallocs) / k, Bytes: float64(after.TotalAlloc-before.TotalAlloc) / k}
}
