package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

func TestConformance(t *testing.T) { devicetest.Run(t, Get()) }

// TestConformanceOfManyWorkers runs the conformance suite with more workers than cores. It also
// runs it with kernels in place of compiled loops.
func TestConformanceOfManyWorkers(t *testing.T) {
	d := newDevice(5)
	defer d.workers.dismiss()
	asKernels(func() { devicetest.Run(t, d) })
}

func TestRegistered(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil || d != Get() {
		t.Fatalf("Open: %v, %v", d, err)
	}
	i := d.Info()
	if i.Kind != "cpu" || i.SIMD != asm.Active() || i.Cores < 1 || i.Memory < 0 || i.Emulated {
		t.Fatalf("%+v", i)
	}
}

// TestResultsDoNotDependOnWorkers runs ops with 1, 2, 3 and 7 workers. The results must have the
// same bits.
func TestResultsDoNotDependOnWorkers(t *testing.T) {
	x := expr.X(0)
	shapes := [][]int{{300_000}, {700, 900}, {900, 7}, {7, 90_000}, {40, 30, 50}}
	var want [][]byte
	for _, workers := range []int{1, 2, 3, 7} {
		d := newDevice(workers)
		rnd := rand.New(rand.NewPCG(1, 2))
		var got [][]byte
		keep := func(v device.View) { got = append(got, bytes.Clone(v.Buf.Host())) }
		for _, s := range shapes {
			in := newView(t, d, dtype.F32, s...)
			for i := range at[float32](pointer(&in), in.Size()) {
				at[float32](pointer(&in), in.Size())[i] = rnd.Float32() - 0.3
			}
			out := newView(t, d, dtype.F32, s...)
			do(t, d, mapOf(unaryProgram(expr.Call("tanh", x)), out, in))
			keep(out)
			for mask := 1; mask < 1<<len(s); mask++ {
				r := append([]int(nil), s...)
				for k := range r {
					if mask>>k&1 == 1 {
						r[k] = 1
					}
				}
				for _, kind := range []device.ReduceKind{device.Sum, device.Prod, device.ArgMax} {
					ty := dtype.F32
					if kind == device.ArgMax {
						ty = dtype.I64
					}
					o := newView(t, d, ty, r...)
					do(t, d, reduceOf(kind, o, in))
					keep(o)
				}
			}
			if len(s) == 2 {
				o := newView(t, d, dtype.F32, s...)
				do(t, d, &device.Softmax{Out: o, X: in, Log: true})
				keep(o)
				mean, rstd := newView(t, d, dtype.F32, s[0]), newView(t, d, dtype.F32, s[0])
				norm := device.RowNorm{Eps: 1e-5, Period: 1, Inner: 1}
				do(t, d, &device.Norm{Out: o, Mean: mean, Rstd: rstd, X: in, RowNorm: norm})
				dx := newView(t, d, dtype.F32, s...)
				dw, db := newView(t, d, dtype.F32, s[1]), newView(t, d, dtype.F32, s[1])
				do(t, d, &device.NormGrad{DX: dx, DWeight: dw, DBias: db, G: o, X: in, Mean: mean, Rstd: rstd, RowNorm: norm})
				keep(dx)
				keep(dw)
				keep(db)
				table := newView(t, d, dtype.F32, 50, s[1])
				index := newView(t, d, dtype.I64, s[0])
				for i := range at[int64](pointer(&index), s[0]) {
					at[int64](pointer(&index), s[0])[i] = rnd.Int64N(50)
				}
				index.Layout = shape.Layout{Shape: in.Shape, Strides: shape.Of(1, 0)}
				do(t, d, &device.Scatter{Kind: device.ScatterAdd, Dst: table, Src: in, Index: index})
				keep(table)
				a, b := in, in
				a.Layout, b.Layout = in.Unsqueeze(0), in.Transpose(0, 1).Unsqueeze(0)
				c := newView(t, d, dtype.F32, 1, min(s[0], 300), min(s[0], 300))
				a.Layout, b.Layout = a.Narrow(1, 0, min(s[0], 300), 1), b.Narrow(2, 0, min(s[0], 300), 1)
				do(t, d, &device.MatMul{Out: c, A: a, B: b})
				keep(c)
			}
		}
		d.workers.dismiss()
		if want == nil {
			want = got
			continue
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%d workers: result %d differs from that of one", workers, i)
			}
		}
	}
}

// TestSumIsPairwise checks that long float32 sums stay precise. It sums 2²² elements of 0.1. If
// they were added one by one, the relative error would be about 4 %.
func TestSumIsPairwise(t *testing.T) {
	d := Get()
	for _, s := range [][]int{{1 << 22}, {1 << 20, 4}, {1 << 11, 1 << 11}, {4, 1 << 20}} {
		in := newView(t, d, dtype.F32, s...)
		h := at[float32](pointer(&in), in.Size())
		var want float64
		for i := range h {
			h[i] = 0.1
			want += float64(h[i])
		}
		ones := make([]int, len(s))
		for i := range ones {
			ones[i] = 1
		}
		out := newView(t, d, dtype.F32, ones...)
		do(t, d, reduceOf(device.Sum, out, in))
		got := float64(*(*float32)(pointer(&out)))
		if e := (got - want) / want; e > 1e-6 || e < -1e-6 {
			t.Errorf("%v: sum %v, want %v, relative error %.2g", s, got, want, e)
		}
		if len(s) > 1 {
			ones[1] = s[1]
			out := newView(t, d, dtype.F32, ones...)
			do(t, d, reduceOf(device.Sum, out, in))
			got := float64(*(*float32)(pointer(&out)))
			if e := (got - want/float64(s[1])) / want * float64(s[1]); e > 1e-6 || e < -1e-6 {
				t.Errorf("%v over dimension 0: relative error %.2g", s, e)
			}
		}
	}
}

// TestSmallCallsDoNotAllocate counts the allocations of Go memory by ops on few elements. There
// must be none.
func TestSmallCallsDoNotAllocate(t *testing.T) {
	if underRace {
		t.Skip("the race detector makes pools forget, so there is no steady state to measure")
	}
	d := Get()
	u, w := newView(t, d, dtype.F32, 16), newView(t, d, dtype.F32, 16)
	for name, op := range map[string]device.Op{
		"addition": mapOf(addProgram, w, u, u), "copy": mapOf(castProgram(dtype.F32, dtype.F32), w, u),
	} {
		if n := testing.AllocsPerRun(100, func() { do(t, d, op) }); n > 0 {
			t.Errorf("a %s of 16 elements allocates %v times", name, n)
		}
	}
}

// TestBadViewsAreRefused runs ops on operands that reach outside their memory or whose memory has
// been freed. The error must name the operand.
func TestBadViewsAreRefused(t *testing.T) {
	d := Get()
	good := newView(t, d, dtype.F32, 4, 6)
	out := newView(t, d, dtype.F32, 4, 6)
	p := castProgram(dtype.F32, dtype.F32)
	freed, err := d.Alloc(96, nil, device.Origin{})
	must(t, err)
	freed.Free()
	other := newDevice(1)
	for name, change := range map[string]func(v *device.View){
		"of invalid, want":        func(v *device.View) { v.Type = dtype.Invalid },
		"another device":          func(v *device.View) { *v = newView(t, other, dtype.F32, 4, 6) },
		"has been freed":          func(v *device.View) { v.Buf = freed },
		"not a buffer of the CPU": func(v *device.View) { v.Buf = nil },
		"do not lie in a buffer":  func(v *device.View) { v.Offset = 1 },
		"elements -1 to 22":       func(v *device.View) { v.Offset = -1 },
		"differ in length":        func(v *device.View) { v.Strides = shape.Of(1) },
		"want [4, 6] of float32":  func(v *device.View) { v.Layout = v.Narrow(0, 0, 3, 1) },
		"[4, 6] of int32, want":   func(v *device.View) { v.Type = dtype.I32 },
	} {
		bad := good
		change(&bad)
		err := device.Run(d, nil, mapOf(p, out, bad))
		var v *device.OperandError
		if !errors.As(err, &v) || v.Arg != "in" || !strings.Contains(v.Reason, name) {
			t.Errorf("want an OperandError that says %q, got %v", name, err)
		}
	}
	turned := newView(t, d, dtype.F32, 1, 4, 4)
	turned.Strides = turned.Strides.With(2, -1)
	turned.Offset = 3
	for arg, err := range map[string]error{
		"stream": device.Run(d, other.DefaultStream(), mapOf(p, out, good)),
		"b":      device.Run(d, nil, &device.MatMul{Out: newView(t, d, dtype.F32, 1, 4, 4), A: newView(t, d, dtype.F32, 1, 4, 4), B: turned}),
	} {
		var v *device.OperandError
		if !errors.As(err, &v) || v.Arg != arg {
			t.Errorf("want an OperandError for %s, got %v", arg, err)
		}
	}
	shared := out
	shared.Strides = shape.Of(0, 1)
	if err := device.Run(d, nil, mapOf(p, shared, good)); err == nil {
		t.Error("a result whose elements share memory: no error")
	}
	if err := device.Run(d, nil, &device.Map{Program: p, Ins: views(good)}); err == nil {
		t.Error("no view for a result: no error")
	}
	if err := device.Run(d, nil, mapOf(unaryProgram(expr.X(0).Mul(expr.Param(0))), out, good)); err == nil {
		t.Error("no value for a parameter: no error")
	}
}

// TestSupports calls Supports for an op without a kernel. It must return false, and Run must refuse
// the op.
func TestSupports(t *testing.T) {
	d := Get()
	wide, one := newView(t, d, dtype.F64, 1, 4, 4), newView(t, d, dtype.F32, 1)
	for _, op := range []device.Op{
		&device.Attention{Out: wide, Q: wide, K: wide, V: wide}, &device.Convolution{X: wide, W: wide, Y: wide},
		&device.SumWindows{Y: wide, X: wide}, &device.MaxPoolGrad{DX: wide, G: wide},
		&device.ChannelNorm{Out: wide, Mean: wide, Variance: wide, Rstd: wide, X: wide},
	} {
		if d.Supports(op) {
			t.Errorf("%s of float64 is supported", op.Name())
		}
	}
	m := &device.MultiMap{Program: addProgram, Params: wide, Found: one}
	if err := device.Run(d, nil, m); d.Supports(m) || !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a multi-map that finds infinities: %v", err)
	}
	if m.Found = (device.View{}); !d.Supports(m) {
		t.Error("a multi-map is not supported")
	}
}

// TestVariantsAgree runs ops with every variant of the block primitives. The results must have the
// same bits.
func TestVariantsAgree(t *testing.T) {
	d := Get()
	in := newView(t, d, dtype.F32, 5000)
	var want []byte
	for _, name := range asm.Variants() {
		func() {
			defer asm.Use(name)()
			var got []byte
			for _, f := range []string{"exp", "tanh", "erf"} {
				out := newView(t, d, dtype.F32, 5000)
				do(t, d, mapOf(unaryProgram(expr.Call(f, expr.X(0))), out, in))
				got = append(got, out.Buf.Host()...)
			}
			o := newView(t, d, dtype.F32, 1)
			do(t, d, reduceOf(device.Sum, o, in))
			got = append(got, o.Buf.Host()...)
			if want == nil {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Errorf("variant %s gives other bits than %s", name, asm.Variants()[0])
			}
		}()
	}
}

func TestTransposedMaps(t *testing.T) {
	d := Get()
	for _, ty := range []dtype.Type{dtype.U8, dtype.BF16, dtype.F32, dtype.F64} {
		for _, s := range [][]int{{8, 8}, {9, 33}, {70, 40}, {65, 130}, {3, 17, 41}} {
			n := len(s)
			in, out := newView(t, d, ty, s...), newView(t, d, ty, s...)
			h := in.Buf.Host()
			for i := range h {
				h[i] = byte(i * 7)
			}
			if ty.IsFloat() { // make floats positive and finite
				for i := range in.Size() {
					writeBits(at8ptr(h, i*ty.Size()), ty.Size(), expr.Encode(ty, float64(i%250)))
				}
			}
			in.Layout = in.Transpose(n-2, n-1)
			out.Layout = shape.Dense(in.Shape)
			do(t, d, mapOf(castProgram(ty, ty), out, in))
			r, c := in.Shape.At(n-2), in.Shape.At(n-1)
			for k := range in.Size() {
				b, i, j := k/(r*c), k/c%r, k%c
				want := readBits(at8ptr(h, ((b*c+j)*r+i)*ty.Size()), ty.Size())
				if got := readBits(at8ptr(out.Buf.Host(), k*ty.Size()), ty.Size()); got != want {
					t.Fatalf("%v %v: element %d is %#x, want %#x", ty, s, k, got, want)
				}
			}
		}
	}
}

// Example runs a primitive on a buffer of the CPU, without tensors.
func Example() {
	d := Get()
	b, err := d.Alloc(8, d.DefaultStream(), device.Origin{})
	if err != nil {
		panic(err)
	}
	defer b.Free()
	v := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(shape.Of(2))}
	fill := expr.MustLower([]*expr.Expr{expr.C(1.5)}, []dtype.Type{dtype.F32}, nil, -1)
	if err := device.Run(d, nil, &device.Map{Program: fill, Outs: []device.View{v}}); err != nil {
		panic(err)
	}
	fmt.Println(b.Host())
	// Output: [0 0 192 63 0 0 192 63]
}

func at8ptr(b []byte, i int) unsafe.Pointer { return unsafe.Pointer(&b[i]) }

// TestHalfScatterRoundsOnce adds 3000 ones, as 16-bit floats, to one element. The sum must be
// rounded only once. If it were rounded after each addition, it would stop growing at 256 in
// bfloat16 and at 2048 in float16.
func TestHalfScatterRoundsOnce(t *testing.T) {
	d := Get()
	for _, ty := range []dtype.Type{dtype.F16, dtype.BF16} {
		const n = 3000
		dst, src, index := newView(t, d, ty, 2), newView(t, d, ty, n), newView(t, d, dtype.I64, n)
		for i := range n {
			writeBits(at8ptr(src.Buf.Host(), 2*i), 2, expr.Encode(ty, 1))
		}
		do(t, d, &device.Scatter{Kind: device.ScatterAdd, Dst: dst, Src: src, Index: index})
		want := expr.Decode(ty, expr.Encode(ty, n))
		if got := expr.Decode(ty, readBits(pointer(&dst), 2)); got != want {
			t.Errorf("%v: %v ones add up to %v, want %v", ty, n, got, want)
		}
	}
}

// TestLostMemoryComesBack allocates three times the memory limit in buffers that the program drops
// without freeing them. Their memory must return to the pool.
func TestLostMemoryComesBack(t *testing.T) {
	d := newDevice(1)
	d.SetMemoryLimit(64 << 20)
	type owner struct{ b device.Buffer }
	for i := range 24 {
		b, err := d.Alloc(8<<20, nil, device.Origin{Op: "lost", Collected: true})
		if err != nil {
			t.Fatalf("buffer %d of 8 MiB: %v", i, err)
		}
		o := &owner{b}
		runtime.AddCleanup(o, func(b device.Buffer) { b.Queue() }, b)
	}
	held, err := d.Alloc(40<<20, nil, device.Origin{})
	must(t, err)
	if _, err := d.Alloc(40<<20, nil, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) {
		t.Fatalf("80 MiB under a limit of 64 MiB: %v", err)
	}
	held.Free()
}
