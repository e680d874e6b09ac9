package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var kinds = []device.ReduceKind{device.Sum, device.Prod, device.Max, device.Min, device.ArgMax, device.ArgMin}

// slowReduce reduces with plain loops. For each result it returns four things: the value in
// float64, the sum of magnitudes for the error bound, the position of the extreme, and the number
// of elements reduced. x holds the elements in row-major order, as values of the computing type.
func slowReduce(kind device.ReduceKind, dims, out shape.Dims, x []float64) (value, size []float64, position []int, counts []int) {
	n := out.Size()
	value, size = make([]float64, n), make([]float64, n)
	position, counts = make([]int, n), make([]int, n)
	strides := out.Contiguous()
	for i, v := range x {
		o, rest := 0, i
		for d := dims.Rank() - 1; d >= 0; d-- {
			if out.At(d) != 1 {
				o += rest % dims.At(d) * strides.At(d)
			}
			rest /= dims.At(d)
		}
		c := counts[o]
		counts[o]++
		size[o] += math.Abs(v)
		if c == 0 {
			value[o] = v
			continue
		}
		w := value[o]
		switch kind {
		case device.Sum:
			value[o] = w + v
		case device.Prod:
			value[o] = w * v
		case device.Max:
			value[o] = max(w, v)
		case device.Min:
			value[o] = min(w, v)
		case device.ArgMax:
			if v > w || v != v && w == w {
				value[o], position[o] = v, c
			}
		case device.ArgMin:
			if v < w || v != v && w == w {
				value[o], position[o] = v, c
			}
		}
	}
	return value, size, position, counts
}

// reduceCase reduces a random tensor to the shape out, and compares the results.
func reduceCase(t *testing.T, what string, r *device.Reduction, typ dtype.Type, in shape.Layout, out shape.Dims, skip int) []Launch {
	t.Helper()
	m := newMachine(t)
	to := typ
	if r.Kind == device.ArgMax || r.Kind == device.ArgMin {
		to = dtype.I64
	}
	if r.Finish != nil {
		to = r.Finish.Out[0]
	}
	y, x := m.tensor(to, shape.Dense(out), skip), m.random(m.tensor(typ, in, skip))
	if typ.IsFloat() && in.Size() > 10 && r.Kind != device.Sum && r.Kind != device.Prod {
		m.fill(m.oneElement(x, in.Size()/3), func(int) uint64 { return expr.Encode(typ, math.NaN()) })
	}
	list, err := Reduce(r, y, []Operand{x}, []uint64{expr.Encode(dtype.F32, 0.25)}, m.scratch)
	m.run(list, err)
	bits := m.read(x)
	values := make([]float64, len(bits))
	mapped := r.Map.Out[0]
	for i, v := range bits {
		values[i] = expr.Decode(mapped, r.Map.Eval(nil, []uint64{v}, []uint64{expr.Encode(dtype.F32, 0.25)}, int64(i))[0])
		if mapped.IsHalf() { // values are combined before they are rounded
			values[i] = expr.Decode(typ, v)
		}
	}
	value, size, position, counts := slowReduce(r.Kind, in.Shape, out, values)
	bad := 0
	for i, got := range m.read(y) {
		g, w := expr.Decode(to, got), value[i]
		switch {
		case r.Kind == device.ArgMax || r.Kind == device.ArgMin:
			w = float64(position[i])
		case counts[i] == 0 && r.Kind == device.Prod:
			w = 1
		case typ == dtype.Bool && w > 1:
			w = 1
		}
		if r.Finish != nil {
			w = expr.Decode(to, r.Finish.Eval(nil, []uint64{expr.Encode(r.Finish.In[0], w)}, []uint64{expr.Encode(dtype.F32, 0.25)}, 0)[0])
		}
		ok := g == w || g != g && w != w
		if to.IsFloat() && (r.Kind == device.Sum || r.Kind == device.Prod) {
			eps := map[dtype.Type]float64{dtype.F32: 0x1p-24, dtype.F64: 0x1p-53, dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8}[to]
			depth := 64.0 // sums of a few dozen elements are combined in pairs
			unit := max(0x1p-53, min(eps, 0x1p-24))
			bound := depth*unit*size[i] + eps*math.Abs(w)
			if r.Kind == device.Prod {
				bound = (float64(counts[i])*unit+eps)*math.Abs(w) + 1e-37
			}
			ok = math.Abs(g-w) <= bound || math.IsInf(w, 0) || math.Abs(w) > 3e38 || to == dtype.F16 && math.Abs(w) > 60000
		} else if to.IsInteger() && (r.Kind == device.Sum || r.Kind == device.Prod) {
			wrapped := expr.Store(to, uint64(int64(w)))
			ok = math.Abs(w) > 1<<52 || expr.Decode(to, wrapped) == g
		}
		if !ok {
			if bad++; bad < 4 {
				t.Errorf("%s (%s): result %d is %v, want %v", what, list[0].Kernel.Name, i, g, w)
			}
		}
	}
	return list
}

// oneElement returns a view of the element at row-major index i.
func (m *machine) oneElement(o Operand, i int) Operand {
	var at uint64
	forEach(o, func(k int, addr uint64) {
		if k == i {
			at = addr
		}
	})
	return Operand{Addr: at, Type: o.Type, Layout: shape.Dense(shape.Of())}
}

func identity(t testing.TB, typ dtype.Type) *expr.Program {
	return program(t, []dtype.Type{typ}, []dtype.Type{typ}, x0)
}

func TestReduceLayouts(t *testing.T) {
	r := &device.Reduction{Kind: device.Sum, Map: identity(t, dtype.F32)}
	tests := []struct {
		what string
		in   shape.Layout
		out  []int
		skip int
	}{
		{"all of one", dense(1), []int{1}, 0},
		{"scalar", dense(), nil, 0},
		{"all", dense(777), []int{1}, 0},
		{"all, chunked", dense(9001), []int{1}, 1},
		{"rows", dense(5, 100), []int{5, 1}, 0},
		{"long rows", dense(3, 2500), []int{3, 1}, 0},
		{"short rows", dense(70, 3), []int{70, 1}, 0},
		{"columns", dense(100, 50), []int{1, 50}, 0},
		{"tall columns", dense(1500, 33), []int{1, 33}, 0},
		{"middle", dense(3, 40, 5), []int{3, 1, 5}, 0},
		{"ends", dense(6, 4, 30), []int{1, 4, 1}, 0},
		{"transposed", strided([]int{20, 30}, []int{1, 20}), []int{20, 1}, 0},
		{"broadcast", strided([]int{20, 30}, []int{0, 1}), []int{1, 30}, 0},
		{"vectors of columns", dense(70, 132), []int{1, 132}, 0},
		{"vectors of columns, shifted", dense(10, 132), []int{1, 132}, 1},
		{"vectors of columns in chunks", dense(1100, 128), []int{1, 128}, 0},
		{"vectors of columns of slices", strided([]int{3, 9, 136}, []int{9 * 140, 140, 1}), []int{3, 1, 136}, 0},
		{"rows at odd places", strided([]int{5, 100}, []int{101, 1}), []int{5, 1}, 0},
		{"rows of rows", strided([]int{5, 7, 8}, []int{84, 12, 1}), []int{5, 1, 1}, 0},
		{"rows a tail of vectors", dense(2, 2052), []int{2, 1}, 0},
		{"no axis", dense(4, 5), []int{4, 5}, 0},
		{"eight dimensions", dense(2, 3, 2, 3, 2, 3, 2, 3), []int{2, 1, 2, 1, 2, 1, 2, 1}, 0},
		{"empty sums", dense(3, 0), []int{3, 1}, 0},
		{"no results", dense(0, 3), []int{0, 1}, 0},
	}
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for range 2 {
		for _, test := range tests {
			reduceCase(t, test.what, r, dtype.F32, test.in, shape.Of(test.out...), test.skip)
		}
		narrowLimit = 0
	}
}

func TestReduceKinds(t *testing.T) {
	for _, typ := range dtype.Types() {
		for _, kind := range kinds {
			r := &device.Reduction{Kind: kind, Map: identity(t, typ)}
			if typ == dtype.Bool && (kind == device.ArgMax || kind == device.ArgMin) {
				continue
			}
			what := fmt.Sprintf("%v of %v", kind, typ)
			reduceCase(t, what+" rows", r, typ, dense(9, 70), shape.Of(9, 1), 0)
			reduceCase(t, what+" columns", r, typ, dense(70, 9), shape.Of(1, 9), 0)
			reduceCase(t, what+" in vectors", r, typ, dense(5, 136), shape.Of(5, 1), 0)
			reduceCase(t, what+" in vectors of columns", r, typ, dense(18, 264), shape.Of(1, 264), 0)
			if typ == dtype.F32 || typ == dtype.I64 || typ == dtype.F16 {
				reduceCase(t, what+" in chunks", r, typ, dense(4500), shape.Of(1), 0)
				reduceCase(t, what+" in column chunks", r, typ, dense(2100, 2), shape.Of(1, 2), 0)
			}
		}
	}
}

// TestArgTies reduces rows with several equal extreme values. The first of them must be found,
// however chunks and lanes divide the row.
func TestArgTies(t *testing.T) {
	for _, n := range []int{1, 40, 1025, 9000} {
		for _, kind := range []device.ReduceKind{device.ArgMax, device.ArgMin} {
			for first := range 3 {
				m := newMachine(t)
				r := &device.Reduction{Kind: kind, Map: identity(t, dtype.F32)}
				want := n / 3 * first
				x := m.fill(m.tensor(dtype.F32, dense(n), 0), func(i int) uint64 {
					if i >= want && first > 0 {
						return expr.Encode(dtype.F32, math.NaN())
					}
					return expr.Encode(dtype.F32, math.Inf(1))
				})
				y := m.tensor(dtype.I64, dense(1), 0)
				list, err := Reduce(r, y, []Operand{x}, nil, m.scratch)
				m.run(list, err)
				if got := m.read(y)[0]; first > 0 && int(got) != want || first == 0 && got != 0 {
					t.Errorf("%v of %d: position %d, want %d", kind, n, got, want)
				}
			}
		}
	}
}

// TestReducePrograms reduces with programs for Map and Finish. One Map uses the index of the
// element, and Finish uses a scalar.
func TestReducePrograms(t *testing.T) {
	square := program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, x0.Mul(x0).Add(expr.Index(dtype.I64).Cvt(dtype.F32)))
	mean := program(t, []dtype.Type{dtype.F16}, []dtype.Type{dtype.F32}, x0.Mul(expr.Param(0)))
	for _, in := range []shape.Layout{dense(6, 50), strided([]int{6, 50}, []int{1, 6}), dense(5000, 2), dense(9, 256)} {
		for _, out := range []shape.Dims{shape.Of(in.Shape.At(0), 1), shape.Of(1, in.Shape.At(1))} {
			reduceCase(t, fmt.Sprint("program over ", in), &device.Reduction{Kind: device.Sum, Map: square, Finish: mean}, dtype.F32, in, out, 0)
		}
	}
	count := program(t, []dtype.Type{dtype.I64}, []dtype.Type{dtype.F32}, x0.Gt(expr.C(0)).Cvt(dtype.I64))
	m := newMachine(t)
	x, y := m.random(m.tensor(dtype.F32, dense(300), 0)), m.tensor(dtype.I64, dense(1), 0)
	list, err := Reduce(&device.Reduction{Kind: device.Sum, Map: count}, y, []Operand{x}, nil, m.scratch)
	m.run(list, err)
	want := uint64(0)
	for _, v := range m.read(x) {
		if expr.Decode(dtype.F32, v) > 0 {
			want++
		}
	}
	if got := m.read(y)[0]; got != want {
		t.Errorf("counted %d, want %d", got, want)
	}
}

// TestReduceUniform uses an operand with the same value for a whole vector of elements. It must be
// read once for the vector.
func TestReduceUniform(t *testing.T) {
	r := &device.Reduction{Kind: device.Sum, Map: program(t, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, x0.Mul(x1))}
	for _, test := range []struct {
		out    shape.Dims
		strong shape.Layout
	}{
		{shape.Of(6, 1), strided([]int{6, 256}, []int{1, 0})},
		{shape.Of(1, 256), strided([]int{6, 256}, []int{1, 0})},
		{shape.Of(6, 1), strided([]int{6, 256}, []int{0, 1})},
		{shape.Of(1, 256), strided([]int{6, 256}, []int{0, 1})},
	} {
		m := newMachine(t)
		x, w := m.random(m.tensor(dtype.F32, dense(6, 256), 0)), m.random(m.tensor(dtype.F32, test.strong, 0))
		y := m.tensor(dtype.F32, shape.Dense(test.out), 0)
		list, err := Reduce(r, y, []Operand{x, w}, nil, m.scratch)
		m.run(list, err)
		if !strings.Contains(list[0].Kernel.Name, "_v4") {
			t.Errorf("%s takes no vectors", list[0].Kernel.Name)
		}
		a, b := m.decode(x), m.decode(w)
		for i := range a {
			a[i] *= b[i]
		}
		value, size, _, _ := slowReduce(device.Sum, x.Shape, test.out, a)
		for i, g := range m.decode(y) {
			if math.Abs(g-value[i]) > 0x1p-20*size[i] {
				t.Errorf("%s: result %d is %v, want %v", list[0].Kernel.Name, i, g, value[i])
			}
		}
	}
}

func TestReduceGolden(t *testing.T) {
	r := &device.Reduction{Kind: device.Sum, Map: identity(t, dtype.F32)}
	scratch := func(int) (uint64, error) { return 1 << 30, nil }
	list, err := Reduce(r, fake(dtype.F32, 64, 1), []Operand{fake(dtype.F32, 64, 1000)}, nil, scratch)
	golden(t, "reduce_rows", list, err)
	list, err = Reduce(r, fake(dtype.F32, 1, 64), []Operand{fake(dtype.F32, 1000, 64)}, nil, scratch)
	golden(t, "reduce_columns", list, err)
	arg := &device.Reduction{Kind: device.ArgMax, Map: identity(t, dtype.F32)}
	list, err = Reduce(arg, fake(dtype.I64, 1), []Operand{fake(dtype.F32, 1<<20)}, nil, scratch)
	golden(t, "reduce_argmax", list, err)
	if _, err := Reduce(r, fake(dtype.F32, 3), []Operand{fake(dtype.F32, 4)}, nil, scratch); err == nil {
		t.Error("no error for shapes that do not fit")
	}
}

// TestSameOrderNeedsNoMoreScratch checks that SameOrder is false if the second reduction needs more
// scratch memory. Sums of integers do not depend on the order. But another map may divide the
// elements into other chunks, which may need more memory.
func TestSameOrderNeedsNoMoreScratch(t *testing.T) {
	cast := expr.MustLower([]*expr.Expr{expr.X(0).Cvt(dtype.I64)}, []dtype.Type{dtype.I64}, []dtype.Type{dtype.U8}, -1)
	plain := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.I64}, []dtype.Type{dtype.I64}, -1)
	same := 0
	for _, n := range []int{64, 8192} {
		dims := shape.Of(n, 256)
		out := Operand{Addr: 1 << 20, Type: dtype.I64, Layout: shape.Dense(dims.With(0, 1))}
		need := func(p *expr.Program, in dtype.Type) (*device.Reduction, []Operand, int) {
			r, ins, most := &device.Reduction{Kind: device.Sum, Map: p}, []Operand{{Addr: 1 << 30, Type: in, Layout: shape.Dense(dims)}}, 0
			_, err := Reduce(r, out, ins, nil, func(bytes int) (uint64, error) { most = bytes; return 1 << 25, nil })
			if err != nil {
				t.Fatal(err)
			}
			return r, ins, most
		}
		r, ins, has := need(plain, dtype.I64)
		other, otherIns, needs := need(cast, dtype.U8)
		if SameOrder(r, other, out, ins, otherIns) {
			if same++; needs > has {
				t.Errorf("%d rows: %d bytes of scratch memory, more than %d", n, needs, has)
			}
		}
	}
	if same != 1 {
		t.Errorf("%d sums take their map in, want 1", same)
	}
}
