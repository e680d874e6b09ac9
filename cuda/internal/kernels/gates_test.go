package kernels

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A gate is a kernel with typical operands, and the properties that it must have. The kernel must
// cause no bank conflicts, access whole sectors, and use accesses of 16 bytes if it is vectorised.
// A matrix product must also do enough multiply-adds for each read of shared memory.
type gate struct {
	name string
	plan func(m *machine) ([]Launch, error)
	// wide is a fraction of the bytes that the kernel moves from or to global memory. At least this
	// fraction must move in accesses of 16 bytes. It is 0 for kernels that access their elements
	// one by one. Neighbouring threads of such a kernel access neighbouring elements, so they also
	// use whole sectors.
	wide float64
	// spread is the number of sectors that an access may touch in addition to the number that its
	// bytes need. Where it is not 0, a comment gives the reason.
	spread float64
	// fma is the least number of multiply-adds of a thread for each instruction that reads shared
	// memory, in the main loop.
	fma float64
}

// globalAccess matches an instruction that accesses global memory. Its groups capture the width.
var globalAccess = regexp.MustCompile(`\b(?:ld|st)\.(?:volatile\.)?global(?:\.nc)?(?:\.(v[24]))?\.[bfsu](8|16|32|64)\b|\bcp\.async\.c[ag]\.shared\.global\b[^;]*, (16|8|4)(?:,|;)`)

func accessBytes(line string) int {
	m := globalAccess.FindStringSubmatch(line)
	switch {
	case m == nil:
		return 0
	case m[3] != "":
		n, _ := strconv.Atoi(m[3])
		return n
	}
	bits, _ := strconv.Atoi(m[2])
	n := bits / 8
	if m[1] != "" {
		n *= int(m[1][1] - '0')
	}
	return n
}

var (
	loopLabel  = regexp.MustCompile(`^(\$\w+):`)
	loopBranch = regexp.MustCompile(`\bbra(?:\.uni)? (\$\w+);`)
	multiply   = regexp.MustCompile(`^\s*(?:fma|mma)\.`)
	sharedRead = regexp.MustCompile(`^\s*(?:ld\.shared|ldmatrix)\b`)
)

// mainLoop finds the loop with the most multiply-adds in a kernel's text. It returns their number,
// and the number of instructions in the loop that read shared memory.
func mainLoop(text string) (multiplies, reads int) {
	lines := strings.Split(text, "\n")
	start := map[string]int{}
	for i, line := range lines {
		if m := loopLabel.FindStringSubmatch(line); m != nil {
			start[m[1]] = i
		}
		m := loopBranch.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		from, ok := start[m[1]]
		if !ok {
			continue // a forward branch does not begin a loop
		}
		a, b := 0, 0
		for _, l := range lines[from:i] {
			if multiply.MatchString(l) {
				a++
			}
			if sharedRead.MatchString(l) {
				b++
			}
		}
		if a > multiplies {
			multiplies, reads = a, b
		}
	}
	return multiplies, reads
}

func gates(t *testing.T) []gate {
	f, h := dtype.F32, dtype.BF16
	add := program(t, []dtype.Type{f}, []dtype.Type{f, f}, x0.Add(x1))
	addHalf := program(t, []dtype.Type{h}, []dtype.Type{h, h}, x0.Add(x1))
	gelu := program(t, []dtype.Type{f}, []dtype.Type{f}, expr.Call("erf", x0))
	elementwise := func(p *expr.Program, n int) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			var ins []Operand
			for _, typ := range p.In {
				ins = append(ins, m.random(m.tensor(typ, dense(n), 0)))
			}
			return Map(p, []Operand{m.tensor(p.Out[0], dense(n), 0)}, ins, nil)
		}
	}
	sum := func(typ dtype.Type) *device.Reduction {
		return &device.Reduction{Kind: device.Sum, Map: identity(t, typ)}
	}
	reduce := func(r *device.Reduction, out, in []int) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			typ := r.Map.In[0]
			rows := typ
			if r.Kind == device.ArgMax {
				rows = dtype.I64
			}
			return Reduce(r, m.tensor(rows, dense(out...), 0), []Operand{m.random(m.tensor(typ, dense(in...), 0))}, nil, m.scratch)
		}
	}
	softmax := func(rows, columns int, log, grad bool) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			x := func() Operand { return m.random(m.tensor(f, dense(rows, columns), 0)) }
			if grad {
				return SoftmaxGrad(m.tensor(f, dense(rows, columns), 0), x(), x(), log)
			}
			return Softmax(m.tensor(f, dense(rows, columns), 0), x(), log)
		}
	}
	entropy := func(columns int, grad bool) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			target := m.fill(m.tensor(dtype.I64, dense(8), 0), func(i int) uint64 { return uint64(i) })
			v := func() Operand { return m.random(m.tensor(f, dense(8), 0)) }
			x := m.random(m.tensor(h, dense(8, columns), 0))
			if grad {
				return CrossEntropyGrad(m.tensor(h, dense(8, columns), 0), x, v(), v(), target, v(), Operand{}, -100)
			}
			return CrossEntropy(v(), v(), v(), x, target, -100, m.fault().Addr, 0)
		}
	}
	norm := func(typ, affine dtype.Type, columns int, n device.RowNorm, grad bool) func(m *machine) ([]Launch, error) {
		n.Eps = 1e-5
		return func(m *machine) ([]Launch, error) {
			c := normCase{typ: typ, affine: affine, rows: 8, columns: columns, weight: true, bias: !n.RMS, n: n}
			forward, backward := c.operands(m)
			if grad {
				m.random(backward.Rstd)
				if !n.RMS {
					m.random(backward.Mean)
				}
				return NormGrad(backward, n, m.scratch)
			}
			return Norm(forward, n)
		}
	}
	sums := func(typ, grad dtype.Type, columns int, n device.RowNorm, add bool) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			random := func(t dtype.Type, dims ...int) Operand { return m.random(m.tensor(t, dense(dims...), 0)) }
			acc := typ.Compute()
			o := NormOperands{Out: m.tensor(typ, dense(64, columns), 0), X: random(typ, 64, columns), Grad: random(grad, 64, columns),
				Rstd: random(acc, 64), Weight: random(acc, columns), DWeight: m.tensor(acc, dense(columns), 0)}
			if !n.RMS {
				o.Mean, o.DBias = random(acc, 64), m.tensor(acc, dense(columns), 0)
			}
			if add {
				o.Add = random(typ, 64, columns)
			}
			return NormGrad(o, n, m.scratch)
		}
	}
	layer := device.RowNorm{Period: 1, Inner: 1}
	rms := device.RowNorm{RMS: true, Period: 1, Inner: 1}
	groups := device.RowNorm{Period: 2, Inner: 128}
	product := func(s gemmSpec) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			const k = 64
			a, b := dense(1, s.tile.bm, k), dense(1, k, s.tile.bn)
			if s.a == vectorsAlongOuter {
				a = strided([]int{1, s.tile.bm, k}, []int{k * s.tile.bm, 1, s.tile.bm})
			}
			if s.b == vectorsAlongK {
				b = strided([]int{1, k, s.tile.bn}, []int{k * s.tile.bn, 1, k})
			}
			o := ProductOperands{Out: m.tensor(s.out, dense(1, s.tile.bm, s.tile.bn), 0), A: m.random(m.tensor(s.typ, a, 0)), B: m.random(m.tensor(s.typ, b, 0))}
			return launchMatMul(s, o)
		}
	}
	tf32 := func(first, second string) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			in := func(order string) Operand { return m.random(m.tensor(f, matrixLayout(order, 1, 64, 64), 0)) }
			return MatMulSplit(a100, ProductOperands{Out: m.tensor(f, dense(1, 64, 64), 0), A: in(first), B: in(second), TF32: true}, nil)
		}
	}
	gemm := func(tile gemmTile, a, b tileLoad) gemmSpec {
		return gemmSpec{typ: f, out: f, tile: tile, a: a, b: b, vectorOut: true}
	}
	attend := func(typ, mask dtype.Type, columns int, causal bool) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			c := attentionCase{typ: typ, batch: 1, heads: 2, queries: 128, keys: 128, features: columns, causal: causal, lse: true,
				mask: mask, maskDims: [4]bool{false, false, false, true}}
			return Attention(a100, c.operands(m), m.scratch)
		}
	}
	attendGrad := func(typ dtype.Type, columns int) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			c := attentionCase{typ: typ, batch: 1, heads: 2, queries: 96, keys: 96, features: columns, lse: true}
			o := c.operands(m)
			like := func() Operand { return m.tensor(typ, o.Out.Layout, 0) }
			return AttentionGrad(AttentionGradOperands{DQ: like(), DK: like(), DV: like(), G: m.random(like()), Q: o.Q, K: o.K, V: o.V,
				Out: m.random(o.Out), LSE: m.random(o.LSE), AttentionWeighing: o.AttentionWeighing}, m.scratch)
		}
	}
	decode := func(typ dtype.Type) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			c := attentionCase{typ: typ, batch: 1, heads: 8, shared: 2, queries: 1, keys: 512, features: 128}
			return Attention(a100, c.operands(m), m.scratch)
		}
	}
	sorts := func(typ dtype.Type, rows, n int) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			m.conflicts = n > sortRun
			return Argsort(m.tensor(dtype.I64, dense(rows, n), 0), m.random(m.tensor(typ, dense(rows, n), 0)), false, m.scratch)
		}
	}
	// adds returns a function that plans a Scatter. The Scatter adds 300 rows to the rows of a
	// matrix with the given number of rows.
	adds := func(typ dtype.Type, rows int) func(m *machine) ([]Launch, error) {
		return func(m *machine) ([]Launch, error) {
			index := m.indices(m.tensor(dtype.I64, strided([]int{300, 128}, []int{1, 0}), 0), rows, false)
			dst, src := m.random(m.tensor(typ, dense(rows, 128), 0)), m.random(m.tensor(typ, dense(300, 128), 0))
			return Scatter(device.ScatterAdd, dst, src, index, 0, false, m.fault().Addr, 0, m.scratch)
		}
	}
	return []gate{
		{name: "attention bfloat16, decoding", plan: decode(h), wide: 0.9},
		{name: "attention float32, decoding", plan: decode(f), wide: 0.9},
		// lse and delta are read element by element.
		{name: "attention gradient float32, 64 features", plan: attendGrad(f, 64), wide: 0.96},
		{name: "attention gradient float32, 128 features", plan: attendGrad(f, 128), wide: 0.96},
		{name: "attention gradient float32, 256 features", plan: attendGrad(f, 256), wide: 0.96},
		{name: "attention gradient bfloat16, 64 features", plan: attendGrad(h, 64), wide: 0.9},
		{name: "attention bfloat16, 64 features", plan: attend(h, dtype.Invalid, 64, false), wide: 0.98, fma: 3},
		{name: "attention bfloat16, 128 features, causal", plan: attend(h, dtype.Invalid, 128, true), wide: 0.98, fma: 2.5},
		{name: "attention bfloat16, 256 features", plan: attend(h, dtype.Invalid, 256, false), wide: 0.98, fma: 1.8},
		// A lane reads a mask element by element.
		{name: "attention bfloat16, 192 features, masked", plan: attend(h, f, 192, false), wide: 0.83},
		{name: "attention float32, 64 features", plan: attend(f, dtype.Invalid, 64, false), wide: 0.98},
		{name: "attention float32, 128 features, causal", plan: attend(f, dtype.Invalid, 128, true), wide: 0.98},
		{name: "elementwise float32", plan: elementwise(add, 4096), wide: 1},
		{name: "elementwise bfloat16", plan: elementwise(addHalf, 4096), wide: 1},
		{name: "elementwise, a long function", plan: elementwise(gelu, 4096), wide: 1},
		{name: "elementwise, a row added", wide: 1, plan: func(m *machine) ([]Launch, error) {
			row := m.random(m.tensor(f, strided([]int{8, 512}, []int{0, 1}), 0))
			return Map(add, []Operand{m.tensor(f, dense(8, 512), 0)}, []Operand{m.random(m.tensor(f, dense(8, 512), 0)), row}, nil)
		}},
		// A thread reads and writes single elements of the tile, first along one dimension and then
		// along the other.
		{name: "elementwise, turned in tiles", plan: func(m *machine) ([]Launch, error) {
			return Map(identity(t, f), []Operand{m.tensor(f, dense(64, 96), 0)}, []Operand{m.random(m.tensor(f, strided([]int{64, 96}, []int{1, 64}), 0))}, nil)
		}},
		// Threads also read the table of addresses, in accesses of less than 16 bytes.
		{name: "optimizer step", wide: 0.9, plan: func(m *machine) ([]Launch, error) {
			p := sgd(t)
			slots := m.fill(m.tensor(dtype.I64, dense(len(p.Params)), 0), func(int) uint64 { return expr.Encode(f, 0.5) })
			var in []Operand
			for _, typ := range p.In {
				in = append(in, m.random(m.tensor(typ, dense(8192), 0)))
			}
			table, blocks, err := MultiMapTable(p, [][]Operand{in[:len(p.Out)]}, [][]Operand{in})
			if err != nil {
				return nil, err
			}
			at := m.fill(m.tensor(dtype.U8, dense(len(table)), 0), func(i int) uint64 { return uint64(table[i]) })
			return MultiMap(p, at.start(), blocks, slots, Operand{})
		}},

		// Threads also read the table of addresses, in accesses of less than 16 bytes.
		{name: "gradients unscaled", wide: 0.85, plan: func(m *machine) ([]Launch, error) {
			p := unscale(t, f)
			slots := m.fill(m.tensor(dtype.I64, dense(1), 0), func(int) uint64 { return expr.Encode(f, 0.5) })
			found := m.fill(m.tensor(f, dense(1), 0), func(int) uint64 { return 0 })
			g := [][]Operand{{m.random(m.tensor(f, dense(8192), 0))}}
			table, blocks, err := MultiMapTable(p, g, g)
			if err != nil {
				return nil, err
			}
			at := m.fill(m.tensor(dtype.U8, dense(len(table)), 0), func(i int) uint64 { return uint64(table[i]) })
			return MultiMap(p, at.start(), blocks, slots, found)
		}},

		{name: "sums of rows, a warp each", plan: reduce(sum(f), []int{8, 1}, []int{8, 1024}), wide: 0.99},
		{name: "sums of rows, a block each", plan: reduce(sum(f), []int{4, 1}, []int{4, 4096}), wide: 0.99},
		{name: "sums of rows, bfloat16", plan: reduce(sum(h), []int{8, 1}, []int{8, 1024}), wide: 0.99},
		// the result of each column is stored separately
		{name: "sums of columns", plan: reduce(sum(f), []int{1, 256}, []int{300, 256}), wide: 0.93},
		{name: "sums of columns, bfloat16", plan: reduce(sum(h), []int{1, 256}, []int{300, 256}), wide: 0.93},
		// With so few columns, vector accesses would leave most lanes of a warp without work.
		{name: "sums of a few columns", plan: reduce(sum(f), []int{1, 64}, []int{300, 64})},
		{name: "sum of all", plan: reduce(sum(f), []int{1, 1}, []int{64, 1024}), wide: 0.99},
		{name: "argmax of rows", wide: 0.99, plan: reduce(&device.Reduction{Kind: device.ArgMax, Map: identity(t, f)}, []int{8, 1}, []int{8, 512})},

		{name: "softmax, a warp each", plan: softmax(8, 512, false, false), wide: 1},
		{name: "softmax, a block each", plan: softmax(2, 2048, false, false), wide: 1},
		{name: "softmax, in registers of a block", plan: softmax(1, 1<<14, false, false), wide: 1},
		{name: "softmax, in shared memory too", plan: softmax(1, 28<<10, false, false), wide: 1},
		{name: "log softmax gradient", plan: softmax(4, 2048, true, true), wide: 1},
		{name: "softmax gradient", plan: softmax(8, 512, false, true), wide: 1},
		// One request reads the elements at both ends of a row. The row may be misaligned.
		{name: "softmax, rows of an odd length", plan: softmax(8, 509, false, false), wide: 0.97, spread: 3},
		{name: "log softmax gradient, rows of an odd length", plan: softmax(2, 2049, true, true), wide: 0.98, spread: 3},
		{name: "cross-entropy, rows of an odd length", plan: entropy(1027, false), wide: 0.9, spread: 3},
		// All threads of a row also read a few values that belong to the row, such as its target.
		// In such a short row, these values take as many bytes as the elements that a thread reads.
		{name: "cross-entropy gradient, rows of an odd length", plan: entropy(1027, true), wide: 0.4, spread: 3},
		{name: "cross-entropy", wide: 0.95, plan: entropy(512, false)},
		{name: "rows gathered", wide: 0.8, plan: func(m *machine) ([]Launch, error) {
			index := m.indices(m.tensor(dtype.I64, strided([]int{6, 64}, []int{1, 0}), 0), 9, false)
			return Gather(m.tensor(f, dense(6, 64), 0), m.random(m.tensor(f, dense(9, 64), 0)), index, 0, m.fault().Addr, 0)
		}},

		{name: "layer norm, in registers of a warp", plan: norm(f, f, 768, layer, false), wide: 0.99},
		{name: "layer norm, in registers of a block", plan: norm(f, f, 4096, layer, false), wide: 0.99},
		{name: "layer norm, long rows", plan: norm(f, f, 12288, layer, false), wide: 0.99},
		{name: "layer norm, bfloat16", plan: norm(h, h, 1024, layer, false), wide: 0.99},
		{name: "layer norm, the result bfloat16", wide: 0.75, plan: func(m *machine) ([]Launch, error) {
			o, _ := normCase{typ: f, affine: f, rows: 8, columns: 768, weight: true, bias: true, n: layer}.operands(m)
			o.Out = m.tensor(h, dense(8, 768), 0)
			return Norm(o, layer)
		}},
		// all threads of a row read its mean and rstd at one address
		{name: "layer norm gradient", plan: norm(f, f, 768, layer, true), wide: 0.85},
		{name: "layer norm gradient, long rows", plan: norm(f, f, 12288, layer, true), wide: 0.99},
		// All threads of a row read its mean and rstd at one address. The sums of columns are
		// stored one by one.
		{name: "layer norm gradient and sums", plan: sums(f, f, 768, layer, false), wide: 0.8},
		{name: "layer norm gradient and sums, bfloat16", plan: sums(h, h, 768, layer, false), wide: 0.25},
		{name: "layer norm gradient and sums, the gradient bfloat16", plan: sums(f, h, 768, layer, true), wide: 0.6},
		{name: "layer norm gradient and sums, the most of a warp", plan: sums(f, f, 1024, layer, true), wide: 0.8},
		{name: "layer norm gradient and sums, the most of a block", plan: sums(f, f, 6144, layer, true), wide: 0.8},
		{name: "layer norm gradient and sums, float64", plan: sums(dtype.F64, dtype.F64, 512, layer, true), wide: 0.6},
		{name: "layer norm gradient and sums, odd", plan: sums(f, f, 767, layer, true), spread: 2},
		{name: "layer norm gradient and sums, odd, of a block", plan: sums(f, f, 6143, layer, true), spread: 2},
		{name: "layer norm gradient and sums, half of the registers", plan: sums(f, h, 512, layer, true), wide: 0.6},
		{name: "RMS norm gradient and sums, bfloat16", plan: sums(h, h, 4096, rms, true), wide: 0.1},
		{name: "RMS norm, bfloat16", plan: norm(h, h, 1024, rms, false), wide: 0.99},
		{name: "RMS norm gradient, bfloat16", plan: norm(h, h, 1024, rms, true), wide: 0.9},
		// Weights are read in accesses of 16 bytes. Elements are half as large as weights, and are
		// read in accesses of 8 bytes. This also holds for the cases with sums above.
		{name: "RMS norm, bfloat16 by float32", plan: norm(h, f, 1024, rms, false), wide: 0.49},
		// all elements of a vector share a weight, and a warp reads weights at one or two addresses
		{name: "group norm", plan: norm(f, f, 512, groups, false), wide: 0.6},
		{name: "group norm gradient", plan: norm(f, f, 512, groups, true), wide: 0.6},

		{name: "rows sorted by a block", plan: sorts(f, 2, 1000)},
		{name: "the first of long rows", spread: 8, plan: func(m *machine) ([]Launch, error) {
			// there are bank conflicts, because a warp accesses the counters of the digits of its
			// keys
			m.conflicts = true
			return Argsort(m.tensor(dtype.I64, dense(2, 5), 0), m.random(m.tensor(f, dense(2, 10000), 0)), true, m.scratch)
		}},
		{name: "the first of long rows of 64 bits", spread: 8, plan: func(m *machine) ([]Launch, error) {
			m.conflicts = true
			return Argsort(m.tensor(dtype.I64, dense(2, 5), 0), m.random(m.tensor(dtype.I64, dense(2, 5000), 0)), true, m.scratch)
		}},
		// The digits of the keys decide where elements are stored, and the elements of a digit may
		// begin at a misaligned address.
		{name: "rows sorted in a tile", spread: 8, plan: sorts(f, 2, 2500)},
		{name: "rows of 16 bits sorted in a tile", spread: 8, plan: sorts(h, 2, 2500)},
		{name: "rows sorted by digits", spread: 8, plan: sorts(f, 1, 20000)},
		{name: "rows of 64 bits sorted by digits", spread: 8, plan: sorts(dtype.F64, 1, 2500)},
		// All threads of a row read the same key. Sums of 16-bit floats are kept in float32, and
		// moved in two accesses that touch the same sectors.
		{name: "rows added by index", wide: 0.5, spread: 2, plan: adds(f, 9)},
		{name: "rows of 16 bits added by index", wide: 0.4, spread: 2, plan: adds(h, 2)},
		// Neighbouring threads read the elements around their points, and the points may lie
		// anywhere.
		{name: "images sampled at points", spread: 8, plan: func(m *machine) ([]Launch, error) {
			return GridSample(m.tensor(f, dense(1, 2, 8, 32), 0), m.random(m.tensor(f, dense(1, 2, 16, 16), 0)), m.random(m.tensor(f, dense(1, 8, 32, 2), 0)), device.GridSampling{})
		}},
		{name: "gradient of points", spread: 8, plan: func(m *machine) ([]Launch, error) {
			return GridSampleGrad(m.tensor(f, dense(1, 8, 32, 2), 0), m.random(m.tensor(f, dense(1, 2, 8, 32), 0)), m.random(m.tensor(f, dense(1, 2, 16, 16), 0)),
				m.random(m.tensor(f, dense(1, 8, 32, 2), 0)), device.GridSampling{Mode: device.GridBicubic, Padding: device.GridReflection})
		}},
		{name: "product 128×128", plan: product(gemm(largeTile, vectorsAlongK, vectorsAlongOuter)), wide: 1, fma: 16},
		{name: "product 128×128, both transposed", plan: product(gemm(largeTile, vectorsAlongOuter, vectorsAlongK)), wide: 1, fma: 16},
		{name: "product 64×64", plan: product(gemm(mediumTile, vectorsAlongK, vectorsAlongOuter)), wide: 1, fma: 16},
		{name: "product 32×64", plan: product(gemm(smallTile, vectorsAlongK, vectorsAlongOuter)), wide: 1, fma: 16},
		{name: "product on tensor cores, the gradient of an activation", wide: 1, plan: func(m *machine) ([]Launch, error) {
			o := ProductOperands{Out: m.tensor(h, dense(1, 64, 64), 0), A: m.random(m.tensor(h, dense(1, 64, 64), 0)), B: m.random(m.tensor(h, dense(1, 64, 64), 0)),
				With: m.random(m.tensor(h, dense(1, 64, 64), 0)), Act: geluGradient(h)}
			return MatMulSplit(a100, o, m.scratch)
		}},
		{name: "product on tensor cores", wide: 1, fma: 1, plan: func(m *machine) ([]Launch, error) {
			return MatMul(a100, m.tensor(h, dense(1, 64, 64), 0), m.random(m.tensor(h, dense(1, 64, 64), 0)), m.random(m.tensor(h, dense(1, 64, 64), 0)))
		}},
		// Four lanes store 16 bytes of a row at once, which is half a sector. The other half is
		// stored later.
		{name: "product on tensor cores, joined by all", spread: 2, wide: 0.9, plan: func(m *machine) ([]Launch, error) {
			o := ProductOperands{Out: m.tensor(h, dense(1, 64, 64), 0), A: m.random(m.tensor(h, dense(1, 64, 256), 0)), B: m.random(m.tensor(h, dense(1, 256, 64), 0)), Counters: m.counters}
			return []Launch{m.shared(o, tensorForm{64, 64, 32, 2, 2, 3, 4}, division{chunk: 64})}, nil
		}},
		// Pairs of sums are stored directly from registers. A factor that is contiguous along the
		// wrong dimension is read word by word.
		{name: "product of tf32", wide: 0.9, fma: 1, plan: tf32("N", "T")},
		{name: "product of tf32, by words", wide: 0.9, fma: 0.2, plan: tf32("T", "N")},
	}
}

// TestKernelGates checks the properties of every gate. The option -v prints the measured numbers.
func TestKernelGates(t *testing.T) {
	t.Logf("%-38s %8s %8s %8s %6s %9s %9s", "family", "requests", "sectors", "ideal", "wide", "conflicts", "fma/read")
	for _, g := range gates(t) {
		m := newMachine(t)
		m.lines = map[*Kernel]map[int]*ptxvm.LineStats{}
		list, err := g.plan(m)
		s := m.run(list, err) // the method run fails the test at the first bank conflict
		var all, wide float64
		kernels := []*Kernel{}
		for k, counts := range m.lines {
			kernels = append(kernels, k)
			text := strings.Split(k.PTX, "\n")
			for line, n := range counts {
				bytes := accessBytes(text[line-1])
				if float64(n.Sectors) > max(1, g.spread)*float64(n.IdealSectors) {
					t.Errorf("%s: %d sectors, %d would do: %s", g.name, n.Sectors, n.IdealSectors, strings.TrimSpace(text[line-1]))
				}
				if n.Sectors > 0 && bytes == 0 && !strings.Contains(text[line-1], "atom") && !strings.Contains(text[line-1], "red.") {
					t.Errorf("%s: an access of unknown width: %s", g.name, text[line-1])
				}
				all += float64(int64(bytes) * n.Lanes)
				if bytes == 16 {
					wide += float64(16 * n.Lanes)
				}
			}
		}
		slices.SortFunc(kernels, func(a, b *Kernel) int { return cmp.Compare(a.Name, b.Name) })
		ratio, text := 0.0, "-"
		if g.fma > 0 {
			a, b := mainLoop(kernels[0].PTX)
			ratio = float64(a) / float64(max(1, b))
			text = fmt.Sprintf("%.1f", ratio)
		}
		t.Logf("%-38s %8d %8d %8d %5.1f%% %9d %9s", g.name, s.GlobalLoads+s.GlobalStores, s.Sectors, s.IdealSectors, 100*wide/max(all, 1), s.BankConflicts, text)
		if s.Sectors == 0 {
			t.Errorf("%s: nothing was read or written", g.name)
		}
		if wide < g.wide*all {
			t.Errorf("%s: %.3f of the bytes move 16 at once, want %v", g.name, wide/all, g.wide)
		}
		if ratio < g.fma {
			t.Errorf("%s: %.1f multiply-adds for each read of shared memory, want %v", g.name, ratio, g.fma)
		}
	}
}
