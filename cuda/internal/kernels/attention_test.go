package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// attentionCase is one call of [Attention]. Its results are compared with a computation in float64.
type attentionCase struct {
	typ                                           dtype.Type
	batch, heads, shared, queries, keys, features int
	values                                        int // columns of v; 0 means as many as features
	form                                          string
	// number of elements between an aligned address and the start of each operand
	skip    int
	causal  bool
	lengths []int
	mask    dtype.Type
	// for each dimension of the mask, whether it has its full size; otherwise it is broadcast
	maskDims [4]bool
	drop     float64
	numbers  bool
	scale    float64
	lse      bool
	launches int // expected number of launches; 0 means 1
	spoil    func(c attentionCase, q, k, v, mask Operand, m *machine)
}

func (c attentionCase) String() string {
	return fmt.Sprintf("%v %d×%d(%d)×%d×%d×%d(%d) %s causal %v lengths %v mask %v%v drop %v scale %v", c.typ, c.batch, c.heads,
		c.shared, c.queries, c.keys, c.features, c.values, c.form, c.causal, c.lengths, c.mask, c.maskDims, c.drop, c.scale)
}

// headLayout returns the layout of an operand [batch, heads, length, columns]. The argument form
// names the order of its dimensions in memory.
func headLayout(form string, b, h, n, c int) shape.Layout {
	d := []int{b, h, n, c}
	switch form {
	case "tokens": // in memory, the order is [batch, length, 3, heads, columns]
		return strided(d, []int{n * 3 * h * c, c, 3 * h * c, 1})
	case "turned": // in memory, the order is [batch, heads, columns, length]
		return strided(d, []int{h * n * c, n * c, 1, n})
	case "steps":
		return strided(d, []int{h * n * c * 6, n * c * 6, 3 * c, 2})
	}
	return dense(d...)
}

func decoded(t dtype.Type, bits []uint64) []float64 {
	list := make([]float64, len(bits))
	for i, v := range bits {
		list[i] = expr.Decode(t, v)
	}
	return list
}

func (c *attentionCase) operands(m *machine) AttentionOperands {
	if c.values == 0 {
		c.values = c.features
	}
	if c.shared == 0 {
		c.shared = c.heads
	}
	if c.scale == 0 {
		c.scale = 1 / math.Sqrt(float64(max(1, c.features)))
	}
	make4 := func(h, n, cols int) Operand { return m.tensor(c.typ, headLayout(c.form, c.batch, h, n, cols), c.skip) }
	o := AttentionOperands{Q: m.random(make4(c.heads, c.queries, c.features)), K: m.random(make4(c.shared, c.keys, c.features)),
		V: m.random(make4(c.shared, c.keys, c.values)), Out: make4(c.heads, c.queries, c.values)}
	o.Scale, o.Causal, o.Drop, o.Seed, o.Offset = c.scale, c.causal, c.drop, 0x1234567890abcdef, 1<<40+3
	if c.lse {
		o.LSE = m.tensor(dtype.F32, dense(c.batch, c.heads, c.queries), 0)
	}
	if c.lengths != nil {
		o.Lengths = m.fill(m.tensor(dtype.I64, strided([]int{c.batch}, []int{2}), 0), func(i int) uint64 { return uint64(c.lengths[i]) })
	}
	if c.numbers {
		o.Numbers = m.fill(m.tensor(dtype.I64, dense(2), 0), func(i int) uint64 { return uint64(77 + 5*i) })
	}
	if c.mask != dtype.Invalid {
		full := []int{c.batch, c.heads, c.queries, c.keys}
		strides, n := make([]int, 4), 1
		for d := 3; d >= 0; d-- {
			if c.maskDims[d] {
				strides[d] = n
				n *= full[d]
			}
		}
		o.Mask = m.random(m.tensor(c.mask, strided(full, strides), 0))
	}
	if c.spoil != nil {
		c.spoil(*c, o.Q, o.K, o.V, o.Mask, m)
	}
	return o
}

// weightOf returns the factor by which dropout multiplies weight i: 0 or 1/(1-drop).
func (c *attentionCase) weightOf(o AttentionOperands, i int) float64 {
	if c.drop == 0 {
		return 1
	}
	seed, offset := o.Seed, o.Offset
	if c.numbers {
		seed, offset = 77, offset+82
	}
	number := i/c.keys*device.RowNumbers(c.keys) + i%c.keys
	if uint32(expr.Draw{}.Value(seed, offset, int64(number))) <= expr.DropLimit(c.drop) {
		return 0
	}
	return 1 / (1 - c.drop)
}

// reference returns the expected results and LSE in float64, with error bounds. A float32 sum of n
// products has an error of at most (n/8+2)·2⁻²³ times the sum of the products' magnitudes. The
// relative error of an exponential is the error of its score plus 2⁻²⁰. With 16-bit floats, each
// weight is divided by the row's greatest weight and then rounded. For float16 the rounding error
// of a small weight is 2⁻²⁵.
func (c *attentionCase) reference(m *machine, o AttentionOperands) (want, bound, lse, lseBound []float64) {
	q, k, v := decoded(c.typ, m.read(o.Q)), decoded(c.typ, m.read(o.K)), decoded(c.typ, m.read(o.V))
	var mask []float64
	if c.mask != dtype.Invalid {
		mask = decoded(c.mask, m.read(o.Mask))
	}
	unit := map[dtype.Type]float64{dtype.F32: 0, dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8}[c.typ]
	for row := range c.batch * c.heads * c.queries {
		i, h, b := row%c.queries, row/c.queries%c.heads, row/c.queries/c.heads
		kv := b*c.shared + h/(c.heads/c.shared)
		seen := c.keys
		if c.lengths != nil {
			seen = max(0, min(seen, c.lengths[b]))
		}
		if c.causal {
			seen = min(seen, i+1)
		}
		scores, most, worst := make([]float64, seen), math.Inf(-1), 0.0
		for j := range scores {
			var s, size float64
			for f := range c.features {
				x := q[row*c.features+f] * k[(kv*c.keys+j)*c.features+f]
				s += x
				size += math.Abs(x)
			}
			s *= c.scale
			at := row*c.keys + j
			if mask != nil && c.mask == dtype.Bool {
				if mask[at] == 0 {
					s = math.Inf(-1)
				}
			} else if mask != nil {
				s += mask[at]
				size += math.Abs(mask[at])
			}
			if !math.IsInf(s, 0) {
				worst = max(worst, float64(c.features/8+4)*0x1p-23*(size*math.Abs(c.scale)+1))
			}
			scores[j], most = s, max(most, s)
		}
		var sum float64
		for _, s := range scores {
			sum += math.Exp(s - most)
		}
		for f := range c.values {
			var y, size, all float64
			for j, s := range scores {
				p := math.Exp(s-most) / sum * c.weightOf(o, row*c.keys+j)
				x := v[(kv*c.keys+j)*c.values+f]
				y += p * x
				size += p * math.Abs(x)
				all += math.Abs(x) * c.weightOf(o, row*c.keys+j)
			}
			if math.IsInf(most, -1) {
				y, size, all = 0, 0, 0
			}
			tiny := 0.0
			if c.typ == dtype.F16 {
				tiny = 0x1p-25 * (1 + all/sum)
			}
			want = append(want, y)
			bound = append(bound, size*(2*worst+0x1p-20+unit+float64(c.keys/8+2)*0x1p-23)+unit*math.Abs(y)+tiny)
		}
		l := most + math.Log(sum)
		if math.IsInf(most, -1) {
			l = math.Inf(1)
		}
		lse = append(lse, l)
		lseBound = append(lseBound, worst+0x1p-20+0x1p-22*math.Abs(l))
	}
	return want, bound, lse, lseBound
}

func near(got, want, bound float64) bool {
	return got == want || math.IsNaN(got) && math.IsNaN(want) || math.Abs(got-want) <= bound
}

// check runs the case and returns the launches and the stored bits.
func (c attentionCase) check(t *testing.T) ([]Launch, []uint64) {
	t.Helper()
	m := newMachine(t)
	o := c.operands(m)
	// copies of less than 16 bytes may have bank conflicts
	for _, x := range []Operand{o.Q, o.K, o.V, o.Out} {
		m.conflicts = m.conflicts || rowVector(x)*x.Type.Size() < 16
	}
	list, err := Attention(a100, o, m.scratch)
	m.run(list, err)
	if len(list) != max(1, c.launches) {
		t.Errorf("%v: %d launches", c, len(list))
	}
	want, bound, lse, lseBound := c.reference(m, o)
	stored := m.read(o.Out)
	bad := 0
	report := func(what string, i int, got, want, bound float64) {
		if !near(got, want, bound) && bad < 3 {
			bad++
			t.Errorf("%v: %s %d is %v, want %v ± %v", c, what, i, got, want, bound)
		}
	}
	for i, got := range decoded(c.typ, stored) {
		report("element", i, got, want[i], bound[i])
	}
	if c.lse {
		for i, got := range decoded(dtype.F32, m.read(o.LSE)) {
			report("logarithm", i, got, lse[i], lseBound[i])
		}
	}
	return list, stored
}

func TestAttention(t *testing.T) {
	f, h := dtype.F32, dtype.BF16
	for _, typ := range []dtype.Type{h, dtype.F16, f} {
		for _, c := range []attentionCase{
			{batch: 1, heads: 2, queries: 65, keys: 63, features: 64, lse: true},
			{batch: 2, heads: 2, queries: 7, keys: 1, features: 40, lse: true, form: "tokens"},
			{batch: 1, heads: 4, shared: 2, queries: 5, keys: 129, features: 80, lse: true, causal: true},
			{batch: 1, heads: 6, shared: 1, queries: 33, keys: 200, features: 16, values: 32, form: "turned", lse: true},
			{batch: 1, heads: 1, queries: 129, keys: 7, features: 128, causal: true, form: "tokens", lse: true},
			{batch: 1, heads: 1, queries: 20, keys: 70, features: 256, causal: true},
			{batch: 1, heads: 1, queries: 3, keys: 40, features: 160, values: 33, skip: 1, scale: -0.3},
			{batch: 1, heads: 2, queries: 9, keys: 11, features: 33, form: "steps", skip: 1},
			{batch: 1, heads: 1, queries: 9, keys: 11, features: 36, skip: 2},
			{batch: 4, heads: 2, queries: 17, keys: 80, features: 32, lengths: []int{0, 1, 80, 65}, lse: true},
			{batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: dtype.Bool, maskDims: [4]bool{true, false, true, true}},
			{batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: f, maskDims: [4]bool{false, true, false, true}, lse: true},
			{batch: 2, heads: 2, queries: 17, keys: 33, features: 96, mask: typ, maskDims: [4]bool{true, true, true, false}, causal: true},
			{batch: 2, heads: 2, queries: 17, keys: 33, features: 32, mask: dtype.Bool, lengths: []int{33, 20}},
			{batch: 2, heads: 2, queries: 17, keys: 33, features: 32, drop: 0.3, lse: true},
			{batch: 1, heads: 2, queries: 17, keys: 70, features: 64, drop: 0.6, numbers: true, causal: true},
			{batch: 1, heads: 1, queries: 3, keys: 9, features: 16, drop: 1},
			{batch: 1, heads: 1, queries: 3, keys: 0, features: 16, lse: true},
			{batch: 1, heads: 1, queries: 3, keys: 5, features: 0, values: 16, lse: true},
			{batch: 2, heads: 64, queries: 3, keys: 70, features: 16, lse: true, causal: true},
		} {
			c.typ = typ
			c.check(t)
		}
	}
}

// spoiled writes v to the elements of o for whose row and column the function pick returns true.
func spoiled(m *machine, o Operand, v float64, pick func(row, column int) bool) {
	n, c := o.Shape.At(2), o.Shape.At(3)
	forEach(o, func(i int, addr uint64) {
		if pick(i/c%n, i%c) {
			p, _ := m.mem.Bytes(addr, uint64(o.Type.Size()))
			bits := expr.Encode(o.Type, v)
			for k := range p {
				p[k] = byte(bits >> (8 * k))
			}
		}
	})
}

// TestAttentionSpecial puts NaN and infinities into queries, keys and values. Queries that do not
// see these values must keep their results. All other results must agree with the reference. The
// results of a query that sees no key must be 0.
func TestAttentionSpecial(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F32} {
		base := attentionCase{typ: typ, batch: 2, heads: 2, queries: 20, keys: 70, features: 32, lse: true}
		hidden := base
		hidden.lengths = []int{66, 3}
		hidden.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
			for _, o := range []Operand{k, v} {
				spoiled(m, o, nan, func(row, _ int) bool { return row >= 66 })
			}
		}
		hidden.check(t)
		causal := base
		causal.causal = true
		causal.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
			spoiled(m, k, nan, func(row, _ int) bool { return row >= 15 })
		}
		causal.check(t)
		shown := base
		shown.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
			spoiled(m, q, nan, func(row, column int) bool { return row == 3 && column == 2 })
			spoiled(m, q, inf, func(row, column int) bool { return row == 4 && column == 2 })
			spoiled(m, k, 0, func(row, column int) bool { return column == 2 && row != 7 })
			spoiled(m, k, 1, func(row, column int) bool { return column == 2 && row == 7 })
		}
		shown.check(t)
		for _, mt := range []dtype.Type{dtype.Bool, dtype.F32} {
			none := base
			none.mask, none.maskDims = mt, [4]bool{false, false, true, true}
			none.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
				v0 := math.Inf(-1)
				if mt == dtype.Bool {
					v0 = 0
				}
				spoiled(m, mask, v0, func(row, column int) bool { return row == 5 || column < 65 && row == 6 })
			}
			none.check(t)
		}
		// The most negative float32 in a mask does not hide a key, but -Inf does.
		least := base
		least.mask, least.maskDims = dtype.F32, [4]bool{false, false, true, true}
		least.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
			spoiled(m, mask, -math.MaxFloat32, func(row, column int) bool { return row == 2 })
			spoiled(m, q, 0, func(row, _ int) bool { return row == 2 })
		}
		least.check(t)
	}
}

// TestAttentionSplit computes attention with few queries and many keys, for all types, layouts and
// masks. Blocks must divide the keys. Heads of queries that share one head of keys become rows of
// one tile.
func TestAttentionSplit(t *testing.T) {
	f := dtype.F32
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F16, f} {
		for _, c := range []attentionCase{
			{batch: 1, heads: 2, queries: 1, keys: 700, features: 64, lse: true},
			{batch: 2, heads: 4, shared: 2, queries: 1, keys: 300, features: 40, form: "tokens"},
			{batch: 1, heads: 8, shared: 1, queries: 2, keys: 513, features: 128, values: 33, lse: true},
			{batch: 1, heads: 4, shared: 2, queries: 7, keys: 260, features: 80, form: "tokens"},
			{batch: 1, heads: 1, queries: 16, keys: 270, features: 256, values: 8, form: "steps", skip: 1},
			{batch: 4, heads: 2, shared: 1, queries: 1, keys: 400, features: 32, lengths: []int{0, 1, 400, 257}, lse: true},
			{batch: 2, heads: 4, shared: 2, queries: 1, keys: 280, features: 32, mask: dtype.Bool, maskDims: [4]bool{true, false, true, true}},
			{batch: 2, heads: 4, shared: 2, queries: 3, keys: 280, features: 32, mask: f, maskDims: [4]bool{false, true, false, true}},
			{batch: 2, heads: 4, shared: 2, queries: 1, keys: 280, features: 64, drop: 0.3, numbers: true},
		} {
			c.typ, c.launches = typ, 2
			c.check(t)
		}
	}
	c := attentionCase{typ: f, batch: 1, heads: 2, queries: 2, keys: 300, features: 32, launches: 2, lse: true}
	c.mask, c.maskDims = dtype.Bool, [4]bool{false, false, true, true}
	c.spoil = func(c attentionCase, q, k, v, mask Operand, m *machine) {
		spoiled(m, mask, 0, func(row, column int) bool { return row == 0 || column < 200 })
		spoiled(m, q, math.NaN(), func(row, column int) bool { return row == 1 && column == 3 })
	}
	c.check(t)
	// with so few keys, blocks do not divide them, because each part would be too short
	small := attentionCase{typ: f, batch: 1, heads: 2, queries: 2, keys: 200, features: 32}
	small.check(t)
}

// TestAttentionDeterministic calls attention twice with the same operands. The results must have
// the same bits.
func TestAttentionDeterministic(t *testing.T) {
	c := attentionCase{typ: dtype.BF16, batch: 1, heads: 2, queries: 40, keys: 90, features: 64, causal: true, drop: 0.2}
	_, first := c.check(t)
	if _, again := c.check(t); !slices.Equal(first, again) {
		t.Error("the bits differ")
	}
}

func TestAttentionGolden(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F32} {
		x := fake(typ, 8, 16, 2048, 64)
		o := AttentionOperands{Out: x, LSE: fake(dtype.F32, 8, 16, 2048), Q: x, K: x, V: x}
		o.Scale, o.Causal = 0.125, true
		list, err := Attention(a100, o, nil)
		golden(t, "attention_"+typ.String(), list, err)
	}
}

// TestAttentionRefuses checks that Attention returns an error for operands for which there is no
// kernel. Without results it must plan no launches.
func TestAttentionRefuses(t *testing.T) {
	of := func(typ dtype.Type, d ...int) AttentionOperands {
		x := fake(typ, d...)
		return AttentionOperands{Out: x, Q: x, K: x, V: x}
	}
	for _, o := range []AttentionOperands{of(dtype.F64, 1, 1, 4, 8), of(dtype.F32, 1, 1, 4, 257), of(dtype.BF16, 1<<15, 1<<8, 1<<8, 8)} {
		if _, err := Attention(a100, o, nil); err == nil || AttentionReason(o) == "" {
			t.Errorf("%v %v is not refused", o.Q.Type, o.Q.Shape)
		}
	}
	for _, o := range []AttentionOperands{of(dtype.F32, 0, 1, 4, 8), of(dtype.BF16, 1, 1, 0, 8)} {
		if list, err := Attention(a100, o, nil); err != nil || len(list) != 0 {
			t.Errorf("%v: %d launches, %v", o.Q.Shape, len(list), err)
		}
	}
}
