package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// TestReductionsOfManyOperands reduces the results of programs with many operands. Loops and
// kernels must give the same bits.
func TestReductionsOfManyOperands(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I16, dtype.U8, dtype.I64, dtype.Bool} {
		for _, n := range []int{1, 2, 7, 8, 9, 12, 70} {
			e := expr.X(0)
			for i := 1; i < n; i++ {
				if typ == dtype.Bool {
					e = e.Xor(expr.X(i))
				} else {
					e = e.Mul(expr.X(i)).Add(expr.X(i))
				}
			}
			var types []dtype.Type
			for range n {
				types = append(types, typ)
			}
			p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, types, -1)
			for _, s := range [][]int{{5, 3}, {4, 33}, {3, 1500}, {1, 3000}, {6, 1}, {70, 15}, {280, 40}, {2, 40000}} {
				if n > 9 && s[0]*s[1] > 6000 {
					continue
				}
				for layout := range 4 {
					var ins []device.View
					for i := range n {
						v := newView(t, d, typ, s...)
						h := v.Buf.Host()
						for k := range v.Size() {
							b := uint64(rnd.IntN(256))
							if typ == dtype.Bool {
								b &= 1
							} else if typ.IsFloat() || typ.IsHalf() {
								b = expr.Store(typ, expr.Encode(typ.Compute(), rnd.Float64()*2-1))
							}
							for j := range typ.Size() {
								h[k*typ.Size()+j] = byte(b >> (8 * j))
							}
						}
						switch {
						case layout == 1 && i%2 == 1: // one row, broadcast to all rows
							v.Layout = shape.Layout{Shape: v.Shape, Strides: shape.Of(0, 1)}
						case layout == 2 && i%2 == 1: // one value for each row, broadcast
							v.Layout = shape.Layout{Shape: v.Shape, Strides: shape.Of(1, 0)}
						case layout == 3: // transposed operands
							v.Layout = shape.Layout{Shape: v.Shape, Strides: shape.Of(1, s[0])}
						}
						ins = append(ins, v)
					}
					for kind := device.Sum; kind <= device.Min; kind++ {
						for axis := range 3 {
							to := append([]int(nil), s...)
							if axis != 1 {
								to[1] = 1
							}
							if axis != 0 {
								to[0] = 1
							}
							var want []byte
							way := 0
							inEachWay(func() {
								out := newView(t, d, typ, to...)
								do(t, d, &device.Reduce{Reduction: &device.Reduction{Kind: kind, Map: p}, Out: out, Ins: ins})
								if want == nil {
									want = bytes.Clone(out.Buf.Host())
								} else if !bytes.Equal(want, out.Buf.Host()) {
									t.Errorf("%s", fmt.Sprintf("%v, %d operands, shape %v, layout %d, kind %d, axis %d: way %d differs", typ, n, s, layout, kind, axis, way))
								}
								way++
							})
						}
					}
				}
			}
		}
	}
}

// TestReductionsOfRuns checks reductions of dimensions that are not adjacent. The bits must not
// depend on how the elements are read. Some operands have gaps between rows, and others repeat a
// row.
func TestReductionsOfRuns(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(5, 6))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64} {
		p := expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.X(1))}, []dtype.Type{typ}, []dtype.Type{typ, typ}, -1)
		for _, s := range [][]int{{4, 6, 256}, {3, 5, 300}, {9, 2, 1024}, {150, 2, 260}, {3, 2, 1100}, {5, 3, 255}} {
			for gaps := range 2 {
				x, y := newView(t, d, typ, s[0], s[1]+gaps, s[2]+gaps), newView(t, d, typ, s[0], s[2])
				for _, v := range []device.View{x, y} {
					for i := range v.Size() {
						b := expr.Store(typ, expr.Encode(typ.Compute(), rnd.Float64()*8-4))
						writeBits(unsafe.Add(pointer(&v), i*typ.Size()), typ.Size(), b)
					}
				}
				x.Layout = x.Narrow(1, 0, s[1], 1).Narrow(2, gaps, s[2], 1)
				y.Layout = shape.Layout{Shape: x.Shape, Strides: shape.Of(s[2], 0, 1)}
				for kind := device.Sum; kind <= device.Min; kind++ {
					var want []byte
					inEachWay(func() {
						out := newView(t, d, typ, 1, s[1], 1)
						do(t, d, &device.Reduce{Reduction: &device.Reduction{Kind: kind, Map: p}, Out: out, Ins: views(x, y)})
						if want == nil {
							want = bytes.Clone(out.Buf.Host())
						} else if !bytes.Equal(want, out.Buf.Host()) {
							t.Errorf("%v: reduction %d of %v differs, with gaps %d", typ, kind, s, gaps)
						}
					})
				}
			}
		}
	}
}

// TestReductionsOfSegments reduces rows of several segments. A loop, which reduces several segments
// in one call, must give the same bits as kernels. This includes NaN and zeros of both signs.
func TestReductionsOfSegments(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64, dtype.Bool} {
		p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{typ}, []dtype.Type{typ}, -1)
		for i, s := range [][]int{{1, 2 * rowSegment}, {1, 19*rowSegment + 77}, {3, 10 * rowSegment}, {2, 9*rowSegment - 1}} {
			x := newView(t, d, typ, s...)
			for k := range x.Size() {
				v := []float64{0, math.Copysign(0, -1), 1, rnd.Float64(), -rnd.Float64()}[rnd.IntN(2+i)]
				if rnd.IntN(8*rowSegment) == 0 {
					v = math.NaN()
				}
				if !typ.IsFloat() && !typ.IsHalf() {
					v = float64(rnd.IntN(2))
				}
				writeBits(unsafe.Add(pointer(&x), k*typ.Size()), typ.Size(), expr.Store(typ, expr.Encode(typ.Compute(), v)))
			}
			for kind := device.Sum; kind <= device.ArgMin; kind++ {
				result := typ
				if kind >= device.ArgMax {
					result = dtype.I64
				}
				var want []byte
				inEachWay(func() {
					out := newView(t, d, result, s[0], 1)
					do(t, d, &device.Reduce{Reduction: &device.Reduction{Kind: kind, Map: p}, Out: out, Ins: views(x)})
					got := bytes.Clone(out.Buf.Host())
					for k := 0; k < s[0] && result == typ; k++ { // one NaN for all
						at := unsafe.Pointer(&got[k*typ.Size()])
						if v := expr.Decode(typ.Compute(), expr.Load(typ, readBits(at, typ.Size()))); v != v {
							writeBits(at, typ.Size(), expr.Store(typ, expr.Encode(typ.Compute(), math.NaN())))
						}
					}
					if want == nil {
						want = got
					} else if !bytes.Equal(want, got) {
						t.Errorf("%v: reduction %d of %v differs", typ, kind, s)
					}
				})
			}
		}
	}
}

// TestSumsOfLongPrograms sums the results of long programs. The order of the additions must not
// depend on how many values a plan keeps in memory.
func TestSumsOfLongPrograms(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64} {
		e := expr.C(0.5)
		for i := range 60 {
			e = e.Mul(expr.X(0)).Add(expr.C(float64(i)/64 - 0.4))
		}
		for name, e := range map[string]*expr.Expr{"polynomial": e, "pow": expr.Call("pow", expr.X(0).Abs(), expr.C(0.3)), "tan": expr.X(0).Tan(), "gelu": expr.Call("gelu", expr.X(0))} {
			p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{typ}, []dtype.Type{typ}, -1)
			for _, s := range [][]int{{1, 3000}, {4, 700}, {3000, 4}, {3, 70000}} {
				in := newView(t, d, typ, s...)
				for i := range in.Size() {
					writeBits(unsafe.Add(pointer(&in), i*typ.Size()), typ.Size(), expr.Encode(typ, rnd.Float64()*2-1))
				}
				for axis := range 2 {
					to := append([]int(nil), s...)
					to[axis] = 1
					var want []byte
					inEachWay(func() {
						out := newView(t, d, typ, to...)
						do(t, d, &device.Reduce{Reduction: &device.Reduction{Map: p}, Out: out, Ins: views(in)})
						if want == nil {
							want = bytes.Clone(out.Buf.Host())
						} else if !bytes.Equal(want, out.Buf.Host()) {
							t.Errorf("%v: the sums of %s over dimension %d of %v differ", typ, name, axis, s)
						}
					})
				}
			}
		}
	}
}

// TestRunnersForgetMemory checks that a runner in its pool holds no pointer to operands or results.
// Such a pointer would keep their memory alive.
func TestRunnersForgetMemory(t *testing.T) {
	d := newDevice(1)
	defer d.workers.dismiss()
	e := expr.X(0).Mul(expr.X(1))
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
	x, y := newView(t, d, dtype.F32, 5, 300), newView(t, d, dtype.F32, 5, 300)
	out, all := newView(t, d, dtype.F32, 5, 1), newView(t, d, dtype.F32, 5, 300)
	inEachWay(func() {
		do(t, d, &device.Reduce{Reduction: &device.Reduction{Map: p}, Out: out, Ins: views(x, y)})
		do(t, d, mapOf(p, all, x, y))
		for _, f := range []form{stored, rawResults} {
			r := planFor(p, 0, f).pool.Get().(*runner)
			for i, q := range r.reg {
				for _, v := range views(x, y, out, all) {
					if lo := uintptr(pointer(&v)); uintptr(q)-lo < uintptr(v.Size()*4) {
						t.Errorf("form %d: register %d of %d has an address of the call's memory", f, i, len(r.reg))
					}
				}
			}
		}
	})
}

// TestUnitsOfFolds checks that one call of a reducing loop stays short, even if its program is
// long.
func TestUnitsOfFolds(t *testing.T) {
	if !fusing() {
		t.Logf("loops are not made here")
		return
	}
	e := expr.X(0)
	for _, n := range []int{1, 40, 4000} {
		for range n {
			e = e.FMA(e, expr.C(0.25))
		}
		pl := planFor(unaryProgram(e), 0, rawResults)
		if u := pl.foldUnit(); u*len(pl.folded.loop.Steps) > unitOfAProgram || u < 1 {
			t.Errorf("a program of %d steps reduces %d elements in a call", len(pl.folded.loop.Steps), u)
		}
	}
}

// TestFormulasWithoutLoop runs row operations while the system refuses memory for machine code. The
// bits must not change.
func TestFormulasWithoutLoop(t *testing.T) {
	if !fusing() {
		t.Logf("loops are not made here")
		return
	}
	d := newDevice(1)
	defer d.workers.dismiss()
	x, y := newView(t, d, dtype.F32, 3, 1030), newView(t, d, dtype.F32, 3, 1030)
	softmax := &device.Softmax{Out: y, X: x, Log: true}
	do(t, d, softmax)
	want := bytes.Clone(y.Buf.Host())
	f32 := rowOperand{t: dtype.F32}
	for _, pl := range []*plan{
		planFor(same.program(dtype.F32, []rowOperand{f32}), 0, rawResults),
		planFor(expLess.program(dtype.F32, []rowOperand{f32, f32}), 0, rawResults),
	} {
		codes := &pl.folded.codes
		codes.all.Range(func(k, code any) bool {
			codes.store(k.(foldKey), nil)
			t.Cleanup(func() { codes.store(k.(foldKey), code.(*entry[foldKey, *jit.Code]).value) })
			return true
		})
	}
	do(t, d, softmax)
	if !bytes.Equal(want, y.Buf.Host()) {
		t.Error("the bits differ")
	}
}

// TestSoftmaxOfWideRows computes softmax of wide rows. Here one call of a loop folds many blocks.
// The bits must be the same as with kernels.
func TestSoftmaxOfWideRows(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(9, 10))
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		for _, s := range [][]int{{1, 8 * maxBlock}, {2, 9000}, {3, 8*maxBlock + 1}, {1, 70000}} {
			x := newView(t, d, typ, s...)
			for i := range x.Size() {
				writeBits(unsafe.Add(pointer(&x), i*typ.Size()), typ.Size(), expr.Store(typ, expr.Encode(typ.Compute(), rnd.NormFloat64())))
			}
			for _, log := range []bool{false, true} {
				var want []byte
				inEachWay(func() {
					out := newView(t, d, typ, s...)
					do(t, d, &device.Softmax{Out: out, X: x, Log: log})
					if want == nil {
						want = bytes.Clone(out.Buf.Host())
					} else if !bytes.Equal(want, out.Buf.Host()) {
						t.Errorf("%v, shape %v, log %v: the bits differ", typ, s, log)
					}
				})
			}
		}
	}
}

// TestSumShortRows compares sums of short rows with those of foldAs. The sign of a sum of 0 may
// differ, because the reduction changes -0 to +0 afterwards.
func TestSumShortRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	negative := float32(math.Copysign(0, -1))
	special := []float32{negative, negative, 0, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e30, -1e30}
	for n := 2; n <= 4; n++ {
		const rows = 500
		x, sums := make([]float32, rows*n), make([]float32, rows)
		for i := range x {
			if x[i] = rnd.Float32() - 0.5; rnd.IntN(3) == 0 {
				x[i] = special[rnd.IntN(len(special))]
			}
		}
		if !sumShortRows(sums, x, n) {
			t.Fatalf("no sums of %d elements", n)
		}
		for i, got := range sums {
			want := foldAs(device.Sum, x[i*n:][:n])
			if math.Float32bits(got+0) != math.Float32bits(want) && (got == got || want == want) {
				t.Errorf("the sum of %v is %v, want %v", x[i*n:][:n], got, want)
			}
		}
	}
	if sumShortRows(nil, nil, 5) {
		t.Error("five elements are no short row")
	}
}
