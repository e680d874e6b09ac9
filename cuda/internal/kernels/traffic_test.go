package kernels

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A traffic describes a kernel whose speed is limited by memory bandwidth, on rows as long as those
// of GPT-2. The field operands lists everything that the kernel must read or write. An operand that
// is read and written is listed twice.
type traffic struct {
	name string
	plan func(m *machine) (operands []Operand, list []Launch, err error)
	// limit is the largest allowed ratio of the moved bytes to the least possible number. The
	// default 0 means 1.05. Where it is larger, a comment gives the reason.
	limit float64
	// loose allows accesses to touch more sectors than they need, including sectors beyond the ends
	// of rows. Where it is set, a comment gives the reason.
	loose bool
}

// A block is assumed to have a cache of 32 KiB for the memory that it accesses. That is at most a
// block's share of a multiprocessor's cache, on all supported GPUs. Operands of up to keptBytes are
// assumed to be read from memory once, because all blocks find them in the L2 cache: for example
// the weights of a norm, or a table of addresses.
const (
	blockBytes = 32 << 10
	keptBytes  = 32 << 10
)

// moved runs launches. It returns the number of bytes that pass between memory and the caches of
// blocks, and the least number that must pass.
func moved(m *machine, list []Launch, err error, operands []Operand) (bytes, minimum int, s ptxvm.Stats) {
	m.traffic = &ptxvm.Traffic{Cached: blockBytes / 32}
	for _, o := range operands {
		size := span(o)
		minimum += size
		if size <= keptBytes {
			m.traffic.Ranges = append(m.traffic.Ranges, ptxvm.RangeTraffic{Addr: o.start() &^ 31, Bytes: uint64(size+31) &^ 31})
			bytes += size
		}
	}
	s = m.run(list, err)
	bytes += 32 * int(m.traffic.Sectors)
	for _, r := range m.traffic.Ranges {
		bytes -= 32 * int(r.Sectors)
	}
	return bytes, minimum, s
}

// fillSmall fills o with a few small values, which is faster than random values.
func fillSmall(m *machine, o Operand) Operand {
	var few [7]uint64
	for k := range few {
		few[k] = expr.Encode(o.Type, float64(k+1)/4)
	}
	return m.fill(o, func(i int) uint64 { return few[i%len(few)] })
}

// span returns the bytes of an operand in memory. A dimension of stride 0 counts as one element.
func span(o Operand) int {
	n := o.Type.Size()
	for d := range o.Shape.Rank() {
		if o.Strides.At(d) != 0 {
			n *= o.Shape.At(d)
		}
	}
	return n
}

// traffics lists the kernels of a training step of GPT-2 whose speed is limited by memory
// bandwidth. The operands have fewer rows than in a real step.
func traffics(t *testing.T) []traffic {
	const rows, width, vocab = 64, 768, 50257
	f, h, whole := dtype.F32, dtype.BF16, dtype.I64
	// maps returns a function that plans the program p over operands with the given layouts. An
	// operand without a layout is dense, with the shape [rows, columns].
	maps := func(p *expr.Program, columns int, layouts ...shape.Layout) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			out := m.tensor(p.Out[0], dense(rows, columns), 0)
			var in []Operand
			for k, typ := range p.In {
				l := dense(rows, columns)
				if k < len(layouts) {
					l = layouts[k]
				}
				in = append(in, fillSmall(m, m.tensor(typ, l, 0)))
			}
			list, err := Map(p, []Operand{out}, in, make([]uint64, len(p.Params)))
			return append(in, out), list, err
		}
	}
	keep := expr.RandomKeeps(expr.Param(0, whole), expr.Param(1, whole), expr.Index(whole), expr.Param(2, dtype.U32))
	drop := func(typ dtype.Type) *expr.Program {
		return program(t, []dtype.Type{typ}, []dtype.Type{typ}, keep.Select(x0.Mul(expr.Param(3, f)), expr.C(0)))
	}
	one := func(to, from dtype.Type, e *expr.Expr) *expr.Program {
		return program(t, []dtype.Type{to}, []dtype.Type{from}, e)
	}
	two := func(to, a, b dtype.Type) *expr.Program {
		return program(t, []dtype.Type{to}, []dtype.Type{a, b}, x0.Add(x1))
	}
	softmax := func(typ dtype.Type, columns int, log, grad bool) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			x := func() Operand { return fillSmall(m, m.tensor(typ, dense(8, columns), 0)) }
			a, b, out := x(), x(), m.tensor(typ, dense(8, columns), 0)
			if grad {
				list, err := SoftmaxGrad(out, a, b, log)
				return []Operand{a, b, out}, list, err
			}
			list, err := Softmax(out, a, log)
			return []Operand{a, out}, list, err
		}
	}
	norm := func(typ, affine dtype.Type, grad bool) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			n := device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1}
			c := normCase{typ: typ, affine: affine, rows: rows, columns: width, weight: true, bias: true, n: n}
			forward, back := c.operands(m)
			if grad {
				fillSmall(m, back.Rstd)
				fillSmall(m, back.Mean)
				list, err := NormGrad(back, n, m.scratch)
				return []Operand{back.X, back.Grad, back.Out, back.Mean, back.Rstd, back.Weight}, list, err
			}
			list, err := Norm(forward, n)
			return []Operand{forward.X, forward.Out, forward.Mean, forward.Rstd, forward.Weight, forward.Bias}, list, err
		}
	}
	entropy := func(typ dtype.Type, columns int, grad bool) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			x := fillSmall(m, m.tensor(typ, dense(8, columns), 0))
			target := m.fill(m.tensor(whole, dense(8), 0), func(i int) uint64 { return uint64(i * 4099) })
			v := func() Operand { return fillSmall(m, m.tensor(f, dense(8), 0)) }
			a, b, c := v(), v(), v()
			if grad {
				dx := m.tensor(typ, dense(8, columns), 0)
				list, err := CrossEntropyGrad(dx, x, a, b, target, c, Operand{}, -100)
				return []Operand{x, dx, a, b, c, target}, list, err
			}
			list, err := CrossEntropy(a, b, c, x, target, -100, m.fault().Addr, 0)
			return []Operand{x, a, b, c, target}, list, err
		}
	}
	reduce := func(typ dtype.Type, out, in []int) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			x, y := fillSmall(m, m.tensor(typ, dense(in...), 0)), m.tensor(typ, dense(out...), 0)
			list, err := Reduce(&device.Reduction{Kind: device.Sum, Map: identity(t, typ)}, y, []Operand{x}, nil, m.scratch)
			return []Operand{x, y}, list, err
		}
	}
	// weights plans the gradient of the weights of a norm: the sum over rows of g·(x - mean)·rstd.
	weights := func(m *machine) ([]Operand, []Launch, error) {
		const rows = 2048
		full, column := dense(rows, width), strided([]int{rows, width}, []int{1, 0})
		var in []Operand
		for _, l := range []shape.Layout{full, full, column, column} {
			in = append(in, fillSmall(m, m.tensor(f, l, 0)))
		}
		p := program(t, []dtype.Type{f}, []dtype.Type{f, f, f, f}, x0.Mul(x1.Sub(expr.X(2)).Mul(expr.X(3))))
		out := m.tensor(f, dense(1, width), 0)
		list, err := Reduce(&device.Reduction{Kind: device.Sum, Map: p}, out, in, nil, m.scratch)
		return append(in, out), list, err
	}
	// activated plans a product whose speed is limited by the traffic of its result and of its
	// activation's second operand.
	activated := func(m *machine) ([]Operand, []Launch, error) {
		o := ProductOperands{Out: m.tensor(h, dense(1, rows, width), 0), A: fillSmall(m, m.tensor(h, dense(1, rows, 16), 0)),
			B: fillSmall(m, m.tensor(h, dense(1, 16, width), 0)), With: fillSmall(m, m.tensor(h, dense(1, rows, width), 0)), Act: geluGradient(h)}
		list, err := MatMulSplit(a100, o, m.scratch)
		return []Operand{o.Out, o.A, o.B, o.With}, list, err
	}
	// steps returns a function that plans the program p over tensors of 32,768 elements, in place.
	steps := func(p *expr.Program, checked bool) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			slots := m.fill(m.tensor(whole, dense(len(p.Params)), 0), func(int) uint64 { return expr.Encode(f, 0.5) })
			var in []Operand
			for _, typ := range p.In {
				in = append(in, fillSmall(m, m.tensor(typ, dense(4*8192), 0)))
			}
			table, blocks, err := MultiMapTable(p, [][]Operand{in[:len(p.Out)]}, [][]Operand{in})
			if err != nil {
				return nil, nil, err
			}
			at := m.fill(m.tensor(dtype.U8, dense(len(table)), 0), func(i int) uint64 { return uint64(table[i]) })
			found := Operand{}
			if checked {
				found = m.fill(m.tensor(f, dense(1), 0), func(int) uint64 { return 0 })
			}
			list, err := MultiMap(p, at.start(), blocks, slots, found)
			return append(append(in, in[:len(p.Out)]...), at, slots), list, err
		}
	}
	row := strided([]int{rows, 3 * width}, []int{0, 1})
	// turns returns a function that plans a rotation of the queries of 6 heads by given angles. The
	// queries are a part of rows that also contain keys and values.
	turns := func(typ dtype.Type, step int) func(m *machine) ([]Operand, []Launch, error) {
		return func(m *machine) ([]Operand, []Launch, error) {
			const heads, half = 6, 64
			c, s := expr.X(2), expr.X(3)
			p := expr.MustLower([]*expr.Expr{x0.Mul(c).Sub(x1.Mul(s)), x1.Mul(c).Add(x0.Mul(s))}, []dtype.Type{typ, typ}, []dtype.Type{typ, typ, f, f}, -1)
			parts := func(x Operand, pitch int) []Operand {
				// the two elements that are rotated together are half a row of a head apart, or
				// neighbours if step is 2
				x.Layout = strided([]int{heads, rows, half}, []int{2 * half, pitch, step})
				y := x
				y.Offset += half + (1-half)*(step-1)
				return []Operand{x, y}
			}
			angles := func() Operand {
				return fillSmall(m, m.tensor(f, strided([]int{heads, rows, half}, []int{0, half, 1}), 0))
			}
			whole := fillSmall(m, m.tensor(typ, dense(rows, 3*heads*2*half), 0))
			in := append(parts(whole, 3*heads*2*half), angles(), angles())
			out := parts(m.tensor(typ, dense(rows, heads*2*half), 0), heads*2*half)
			list, err := Map(p, out, in, nil)
			return append(append([]Operand{}, in...), out...), list, err
		}
	}
	return []traffic{
		{name: "residual added, float32", plan: maps(two(f, f, f), width)},
		{name: "residual added, float32 and bfloat16", plan: maps(two(f, f, h), width)},
		{name: "bias added, bfloat16", plan: maps(two(h, h, h), 3*width, dense(rows, 3*width), row)},
		{name: "cast to bfloat16", plan: maps(one(h, f, x0), 4*width)},
		{name: "cast to float32", plan: maps(one(f, h, x0), 4*width)},
		{name: "cast of logits to float32", plan: maps(one(f, h, x0), vocab)},
		{name: "erf, bfloat16", plan: maps(one(h, h, expr.Call("erf", x0)), 4*width)},
		{name: "a third of columns, bfloat16", plan: maps(one(h, h, x0), width, strided([]int{rows, width}, []int{3 * width, 1}))},
		{name: "features turned in halves, bfloat16", plan: turns(h, 1)},
		{name: "features turned in pairs, bfloat16", plan: turns(h, 2)},
		{name: "features turned in pairs, float32", plan: turns(f, 2)},
		{name: "dropout, float32", plan: maps(drop(f), width)},
		{name: "dropout, bfloat16", plan: maps(drop(h), width)},
		{name: "softmax, float32", plan: softmax(f, 1024, false, false)},
		{name: "softmax, bfloat16", plan: softmax(h, 1024, false, false)},
		{name: "softmax gradient, float32", plan: softmax(f, 1024, false, true)},
		{name: "log softmax of logits, float32", plan: softmax(f, vocab, true, false)},
		{name: "log softmax of logits, bfloat16", plan: softmax(h, vocab, true, false)},
		{name: "log softmax gradient of logits, float32", plan: softmax(f, vocab, true, true)},
		{name: "log softmax gradient of logits, bfloat16", plan: softmax(h, vocab, true, true)},
		// In the gradient, a block can keep half of the row of each operand. In the softmax of
		// 128256 classes, it can keep 52 % of the row. It reads the rest twice.
		{name: "softmax gradient of logits, float32", limit: 1.34, plan: softmax(f, vocab, false, true)},
		{name: "softmax of 128256 classes, bfloat16", limit: 1.24, plan: softmax(h, 128256, false, false)},
		{name: "layer norm, float32", plan: norm(f, f, false)},
		{name: "layer norm, bfloat16 by float32", plan: norm(h, f, false)},
		{name: "layer norm gradient, float32", plan: norm(f, f, true)},
		{name: "layer norm gradient, bfloat16 by float32", plan: norm(h, f, true)},
		// Rows of an odd length are misaligned. Their ends are the elements before the first whole
		// sector, and the elements after the last vector.
		{name: "cross-entropy, float32", plan: entropy(f, vocab, false)},
		{name: "cross-entropy, bfloat16", plan: entropy(h, vocab, false)},
		{name: "cross-entropy gradient, float32", plan: entropy(f, vocab, true)},
		{name: "cross-entropy gradient, bfloat16", plan: entropy(h, vocab, true)},
		{name: "cross-entropy, 50304 classes", plan: entropy(f, 50304, false)},
		{name: "cross-entropy gradient, 50304 classes", plan: entropy(f, 50304, true)},
		{name: "bias gradient, bfloat16", plan: reduce(h, []int{1, width}, []int{8192, width})},
		{name: "bias gradient, float32", plan: reduce(f, []int{1, width}, []int{2048, width})},
		{name: "gradient of an activation in a product, bfloat16", plan: activated},
		{name: "weight gradient of a norm, float32", plan: weights},
		{name: "sum of all, float32", plan: reduce(f, []int{1, 1}, []int{rows, 8 * width})},
		{name: "tokens looked up", plan: func(m *machine) ([]Operand, []Launch, error) {
			index := m.indices(m.tensor(whole, strided([]int{rows, width}, []int{1, 0}), 0), rows, false)
			src, out := fillSmall(m, m.tensor(f, dense(rows, width), 0)), m.tensor(f, dense(rows, width), 0)
			list, err := Gather(out, src, index, 0, m.fault().Addr, 0)
			return []Operand{src, out, index}, list, err
		}},
		// The index of a sorted position is read for this position and for its neighbours. The
		// elements of src at the position are read once.
		{name: "gradients of tokens added up", plan: func(m *machine) ([]Operand, []Launch, error) {
			const tokens, table = 1024, 48
			index := m.indices(m.tensor(whole, strided([]int{tokens, width}, []int{1, 0}), 0), table, false)
			src, dst := fillSmall(m, m.tensor(f, dense(tokens, width), 0)), fillSmall(m, m.tensor(f, dense(table, width), 0))
			list, err := Scatter(device.ScatterAdd, dst, src, index, 0, false, m.fault().Addr, 0, m.scratch)
			return []Operand{src, dst, dst, index}, list, err
		}},
		{name: "the first 50 of logits, float32", loose: true, plan: func(m *machine) ([]Operand, []Launch, error) {
			// bank conflicts occur, because a warp accesses the counters of the digits of its keys
			m.conflicts = true
			x, out := m.random(m.tensor(f, dense(4, vocab), 0)), m.tensor(whole, dense(4, 50), 0)
			list, err := Argsort(out, x, true, m.scratch)
			return []Operand{x, out}, list, err
		}},
		// Counting reads 4 bytes of each key. Then come four passes. The first reads 4 bytes and
		// writes 8, the next two read 8 and write 8, and the last reads 8 and writes a position
		// of 8 bytes. That is 64 bytes for each element, and the least possible number is 12.
		// Communication between tiles adds about 2 bytes. A run of elements with the same digit
		// may begin within a sector. Such a sector is written twice.
		{name: "sorted, float32", limit: 7, loose: true, plan: func(m *machine) ([]Operand, []Launch, error) {
			// bank conflicts occur, because the digits of the keys decide where elements are stored
			m.conflicts = true
			x, out := m.random(m.tensor(f, dense(1, 1<<16), 0)), m.tensor(whole, dense(1, 1<<16), 0)
			list, err := Argsort(out, x, false, m.scratch)
			return []Operand{x, out}, list, err
		}},
		{name: "AdamW, float32", plan: steps(adamW(t, f), false)},
		{name: "AdamW, bfloat16", plan: steps(adamW(t, h), false)},
		{name: "gradients unscaled", plan: steps(unscale(t, f), true)},
	}
}

// TestTraffic counts the bytes that memory-bound kernels move. They may move at most a twentieth
// more than they must, unless a case allows more. The option -v prints the counts.
func TestTraffic(t *testing.T) {
	t.Logf("%-42s %9s %9s %6s %8s", "kernels", "least", "moved", "ratio", "sectors")
	for _, c := range traffics(t) {
		m := newMachine(t)
		operands, list, err := c.plan(m)
		bytes, least, s := moved(m, list, err, operands)
		ratio, sectors := float64(bytes)/float64(least), float64(s.Sectors)/float64(s.IdealSectors)
		t.Logf("%-42s %9d %9d %6.3f %8.3f", c.name, least, bytes, ratio, sectors)
		most := c.limit
		if most == 0 {
			most = 1.05
		}
		if ratio > most || ratio < 0.999 {
			t.Errorf("%s: %d bytes are moved, %.3f times the least", c.name, bytes, ratio)
		}
		if c.loose != (sectors > 1.005) {
			t.Errorf("%s: requests touch %.3f times the sectors of as many neighbouring bytes", c.name, sectors)
		}
	}
}
