package ptx_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/ptx"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// integers returns a kernel with the integer and bit instructions.
func integers() *ptx.Builder {
	b := ptx.New("integers")
	b.MaxThreads(64)
	in, out := b.Pointer("in", ptx.S32), b.Pointer("out", ptx.S32)
	wide := b.Pointer("wide", ptx.U64)
	i := b.GlobalID()
	x := in.At(i).Load()
	u := x.Bitcast(ptx.U32)
	y := in.At(i).At(ptx.Int(64)).Load()
	put := func(v ptx.Value) { x = x.Xor(v.Bitcast(ptx.S32)) }
	for _, v := range []ptx.Value{x.Add(y), x.Sub(y), x.Mul(y), x.MulHi(y), u.MulHi(ptx.Int(0x2c1b3c6d)),
		x.Div(y), x.Rem(ptx.Int(7)), u.Div(ptx.Int(8)), u.Rem(ptx.Int(8)), u.Mul(ptx.Int(16)), x.Mad(y, x),
		x.Min(y), x.Max(y), u.Min(ptx.Int(9)), x.Neg(), u.Neg(), x.Abs(), u.And(ptx.Int(255)), u.Or(ptx.Int(1)),
		u.Not(), u.Shl(ptx.Int(3)), x.Shr(ptx.Int(3)), u.Shr(u.And(ptx.Int(31))), u.Popc(), u.Clz(), u.FindHighest(),
		u.ReverseBits(), u.ExtractBits(ptx.Int(4), ptx.Int(8)), x.ExtractBits(ptx.Int(4), ptx.Int(8)),
		u.Permute(ptx.Int(0), ptx.Int(0x0123)), x.Lt(y).Select(x, ptx.Int(-5)), u.Cvt(ptx.U8), x.Cvt(ptx.S8),
		u.Cvt(ptx.U16).Cvt(ptx.U32), x.Cvt(ptx.S64).Shr(ptx.Int(7)).Cvt(ptx.S32)} {
		put(v)
	}
	out.At(i).Store(x)
	p := u.MulWide(ptx.Int(3))
	lo, hi := p.Split(ptx.U32)
	wide.At(i).Store(b.Join(ptx.U64, hi, lo).Add(x.MadWide(y, x.Cvt(ptx.S64)).Bitcast(ptx.U64)))
	return b
}

// floats returns a kernel with arithmetic, rounding, conversions and the approximations.
func floats() *ptx.Builder {
	b := ptx.New("floats")
	b.MaxThreads(64)
	f, d := b.Pointer("f", ptx.F32), b.Pointer("d", ptx.F64)
	h, bf := b.Pointer("h", ptx.F16), b.Pointer("bf", ptx.BF16)
	i := b.GlobalID()
	x, y := f.At(i).Load(), f.At(i).At(ptx.Int(1)).Load()
	z := x
	for _, v := range []ptx.Value{x.Sub(y), x.Mul(y), x.Div(y), x.FMA(y, x), x.Neg(), x.Abs(), x.Sqrt(), x.Rcp(),
		x.Min(y), x.Max(y), x.MinNaN(y), x.MaxNaN(ptx.Float(0)), x.Ex2Approx(), x.Lg2Approx(), x.RcpApprox(),
		x.RsqrtApprox(), x.SqrtApprox(), x.SinApprox(), x.CosApprox(), x.TanhApprox(), x.DivApprox(y),
		x.Floor(), x.Ceil(), x.Trunc(), x.RoundEven(), x.IsNaN().Select(y, x), x.Ne(y).Or(x.Ge(y)).Select(x, ptx.Float(2)),
		x.Cvt(ptx.S32).Cvt(ptx.F32), x.Cvt(ptx.U64).Cvt(ptx.F32), x.Cvt(ptx.U8).Cvt(ptx.F32),
		x.Cvt(ptx.F64).Cvt(ptx.F32), x.TF32().Bitcast(ptx.F32), b.Pack2(ptx.BF16, x, y).Bitcast(ptx.F32),
		b.Pack2(ptx.F16, x, y).Bitcast(ptx.F32)} {
		z = z.Add(v)
	}
	b.Barrier() // wait until the neighbour has read what this thread will overwrite
	f.At(i).Store(z)
	e := d.At(i).Load()
	d.At(i).Store(e.MaxNaN(x.Cvt(ptx.F64)).Sqrt().FMA(ptx.Float(0.5), e).Div(e.Round(ptx.Up)))
	h.At(i).Store(h.At(i).Load().Cvt(ptx.F32).Add(z).Cvt(ptx.F16))
	bf.At(i).Store(bf.At(i).Load().Cvt(ptx.F32).Add(h.At(i).Load().Cvt(ptx.F32)).Cvt(ptx.BF16))
	return b
}

// cooperation returns a kernel that uses shared memory, warp-level instructions, atomics and
// fences.
func cooperation() *ptx.Builder {
	b := ptx.New("cooperation")
	b.MaxThreads(16, 16)
	b.MinBlocks(2)
	x, total := b.Pointer("x", ptx.F32), b.Pointer("total", ptx.U32)
	cfg := b.ParamBytes("cfg", 24, 8)
	tile := b.Shared("tile", ptx.F32, 256)
	extra := b.DynamicShared("extra", ptx.U32)
	scratch := b.Local("scratch", ptx.U32, 4)
	t := b.ThreadID(1).Mad(ptx.Int(16), b.ThreadID(0))
	tile.At(t).CopyAsync(x.At(t), 4)
	b.CommitGroup()
	tile.At(t).At(ptx.Int(0)).CopyAsyncPartial(x.At(t), 4, cfg.As(ptx.U32).Load().Min(ptx.Int(4)))
	b.CommitGroup()
	b.WaitGroup(0)
	b.Barrier()
	v := tile.At(t.Xor(ptx.Int(16))).Load()
	p := v.Gt(ptx.Float(0))
	scratch.At(t.And(ptx.Int(3))).Store(p.Ballot())
	extra.At(t).Store(v.Cvt(ptx.U32).Redux(ptx.ReduxMax))
	b.WarpBarrier()
	b.NamedBarrier(1, 256)
	w := extra.At(t).At(ptx.Int(-1)).Volatile().Load()
	w = w.Add(v.Bitcast(ptx.U32).ShuffleWidth(ptx.ShuffleUp, ptx.Int(1), 16))
	w = w.Add(cfg.As(ptx.U64).At(ptx.Int(1)).Load().Shuffle(ptx.ShuffleIndex, b.LaneID().Xor(ptx.Int(1))).Cvt(ptx.U32))
	w = w.Add(p.Any().And(p.Not().All()).Select(b.U32(1), ptx.Int(2)))
	w = w.Add(p.Shuffle(ptx.ShuffleDown, ptx.Int(2)).Select(b.U32(3), ptx.Int(4)))
	w = w.Add(total.At(t).Atomic(ptx.AtomicAdd, w)).Add(total.CompareAndSwap(ptx.Int(0), w))
	w = w.Add(extra.Atomic(ptx.AtomicExchange, w)).Add(scratch.At(w.And(ptx.Int(3))).Load())
	w = w.Add(total.At(t).AtomicOrdered(ptx.AtomicInc, w)).Add(p.AnyOfBlock().Select(b.U32(5), ptx.Int(6)))
	x.Reduce(ptx.AtomicAdd, v)
	b.Fence(ptx.DeviceScope)
	b.Fence(ptx.BlockScope)
	b.Fence(ptx.SystemScope)
	total.At(ptx.Int(2)).Streaming().StoreVec(w, b.U32(0))
	return b
}

// flow returns a kernel with nested control flow.
func flow() *ptx.Builder {
	b := ptx.New("flow")
	b.MaxThreads(32)
	b.Comment("Collatz lengths, and primes by trial division")
	x, y := b.Pointer("x", ptx.U32), b.Pointer("y", ptx.U32)
	n := b.Param("n", ptx.U32)
	b.For(b.GlobalID(), n, b.GridDim(0).Mul(b.BlockDim(0)), func(i ptx.Value, outer ptx.Loop) {
		v := b.Var(x.At(i).Load())
		outer.ContinueIf(v.Get().Eq(ptx.Int(0)))
		steps := b.Var(b.U32(0))
		b.While(func() ptx.Value { return v.Get().Gt(ptx.Int(1)) }, func(inner ptx.Loop) {
			now := v.Get()
			b.IfElse(now.And(ptx.Int(1)).Eq(ptx.Int(0)),
				func() { v.Set(now.Shr(ptx.Int(1))) },
				func() { v.Set(now.Mul(ptx.Int(3)).Add(ptx.Int(1))) })
			steps.Set(steps.Get().Add(ptx.Int(1)))
			b.If(steps.Get().Gt(ptx.Int(500)), func() { inner.Break() })
		})
		y.At(i).Store(steps)
		d := b.Var(b.U32(2))
		b.Loop(func(l ptx.Loop) {
			q := d.Get()
			l.BreakIf(q.Mul(q).Gt(i))
			b.If(i.Rem(q).Eq(ptx.Int(0)), func() {
				y.At(i).Store(ptx.Int(0))
				l.Break()
			})
			d.Set(q.Add(ptx.Int(1)))
		})
	})
	b.ReturnIf(n.Eq(ptx.Int(0)))
	b.If(b.ThreadID(0).Eq(ptx.Int(0)), func() { y.At(n).Store(n) })
	return b
}

// tensorCore returns a kernel that multiplies one tile.
func tensorCore() *ptx.Builder {
	b := ptx.New("tensor_core")
	b.MaxThreads(32)
	x, out := b.Pointer("x", ptx.BF16), b.Pointer("out", ptx.F32)
	tile := b.Shared("tile", ptx.BF16, 16*16+16*8)
	lane := b.LaneID()
	tile.At(lane.Shl(ptx.Int(3))).CopyAsync(x.At(lane.Shl(ptx.Int(3))), 16)
	b.If(lane.Lt(ptx.Int(16)), func() {
		tile.At(ptx.Int(256)).At(lane.Shl(ptx.Int(3))).CopyAsync(x.At(ptx.Int(256)).At(lane.Shl(ptx.Int(3))), 16)
	})
	b.CommitGroup()
	b.WaitGroup(0)
	b.WarpBarrier()
	row := lane.And(ptx.Int(15)).Mad(ptx.Int(16), lane.Shr(ptx.Int(4)).Shl(ptx.Int(3)))
	a := tile.At(row).LoadMatrix(4, false)
	w := tile.At(ptx.Int(256)).At(lane.And(ptx.Int(15)).Shl(ptx.Int(3))).LoadMatrix(2, true)
	zero := []ptx.Value{b.F32(0), b.F32(0), b.F32(0), b.F32(0)}
	c := b.MMA(ptx.BF16, a, w, zero)
	c = b.MMA(ptx.F16, a, w, c)
	c = b.MMA(ptx.F32, a, w, c)
	out.At(lane.Shl(ptx.Int(2))).StoreVec(c...)
	return b
}

// hopper returns a kernel with instructions that need sm_90 or later.
func hopper() *ptx.Builder {
	b := ptx.New("hopper")
	b.MaxThreads(32)
	x := b.Pointer("x", ptx.F32)
	b.GridDependencyWait()
	x.At(b.LaneID().Shl(ptx.Int(2))).AddVec(b.F32(1), b.F32(2), b.F32(1), b.LaneID().Cvt(ptx.F32))
	b.GridDependencyLaunch()
	return b
}

// hopperAlone returns a kernel with instructions that only sm_90a has.
func hopperAlone() *ptx.Builder {
	b := ptx.New("hopper_alone")
	b.Target(ptx.SM90a)
	b.MaxThreads(128)
	x := b.Pointer("x", ptx.F32)
	i := b.GlobalID()
	b.ShrinkRegisters(24)
	v := x.At(i).Load()
	b.GrowRegisters(240)
	x.At(i).Store(v.Mul(v))
	return b
}

var golden = []func() *ptx.Builder{hopper, hopperAlone, vectorAdd, warpSoftmax, integers, floats, cooperation, flow, tensorCore}

func TestGolden(t *testing.T) {
	for _, f := range golden {
		b := f()
		k, err := b.Build()
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		path := filepath.Join("testdata", k.Name+".ptx")
		if *update {
			if err := os.WriteFile(path, []byte(k.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Split(k.Text, "\n"); k.Text != string(want) {
			for i, w := range strings.Split(string(want), "\n") {
				if i >= len(got) || got[i] != w {
					t.Errorf("%s differs from line %d on (run with -update to accept):\n-%s\n+%s", path, i+1, w, got[min(i, len(got)-1)])
					break
				}
			}
		}
		version, target := 70, 80
		switch k.Name {
		case "hopper":
			version, target = 81, 90
		case "hopper_alone":
			version, target = 80, 90
		}
		if k.Version != version || k.Target != target || k.Exact != (k.Name == "hopper_alone") {
			t.Errorf("%s: version %d target %d, want the lowest, %d and %d", k.Name, k.Version, k.Target, version, target)
		}
	}
}

// TestMisuse misuses the builder in every way. Each misuse must be reported with its own message,
// and with its line in this file.
func TestMisuse(t *testing.T) {
	type test struct {
		want string
		do   func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr)
	}
	tests := []test{
		{"mul.lo: mixed types u32 and f32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Mul(f) }},
		{"fma is not defined for u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.FMA(u, u) }},
		{"and is not defined for f32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { f.And(f) }},
		{"constant 2.5 where u32 is wanted", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Add(ptx.Float(2.5)) }},
		{"constant 4294967296 does not fit u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Add(ptx.Int(1 << 32)) }},
		{"condition is u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.If(u, func() {}) }},
		{"region that has ended", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) {
			var inner ptx.Value
			b.If(u.Eq(ptx.Int(0)), func() { inner = u.Add(u) })
			p.Store(inner.Cvt(ptx.F32))
		}},
		{"Break outside of its loop", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) {
			var l ptx.Loop
			b.Loop(func(m ptx.Loop) { l = m; m.Break() })
			l.Break()
		}},
		{"mixed types: memory of f32, value of u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { p.Store(u) }},
		{"read-only", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { p.NC().Store(f) }},
		{"no vector of 3 f32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { p.LoadVec(3) }},
		{"x is declared twice", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.Param("x", ptx.U32) }},
		{"static shared memory grows to 65536", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.Shared("s", ptx.F32, 16384) }},
		{"belongs to kernel other", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Add(ptx.New("other").U32(1)) }},
		{"width 12", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.ShuffleWidth(ptx.ShuffleXor, ptx.Int(1), 12) }},
		{"step must be positive", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.For(u, u, ptx.Int(0), func(ptx.Value, ptx.Loop) {}) }},
		{"cvt from b32 to f32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Bitcast(ptx.B32).Cvt(ptx.F32) }},
		{"bitcast from u32 to f64", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Bitcast(ptx.F64) }},
		{"1 to 1024 threads", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.MaxThreads(64, 64) }},
		{"mixed types f32 and u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.Var(f).Set(u) }},
		{"atom.min is not defined for f32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { p.Atomic(ptx.AtomicMin, f) }},
		{"operand 1 is the zero Value", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.Pack2(ptx.F16, ptx.Value{}, f) }},
		{"mixed pointers to global f32 and global u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { u.Eq(u).SelectPtr(p, p.As(ptx.U32)) }},
		{"address of type u32", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { p.MovedTo(u) }},
		{"constant indices only", func(b *ptx.Builder, u, f ptx.Value, p ptx.Ptr) { b.ParamBytes("q", 8, 4).At(u) }},
	}
	for _, test := range tests {
		b := ptx.New("misuse")
		p := b.Pointer("x", ptx.F32)
		u, f := b.Param("u", ptx.U32), b.Param("f", ptx.F32)
		test.do(b, u, f, p)
		_, err := b.Build()
		var e *ptx.Error
		if !errors.As(err, &e) {
			t.Errorf("want a problem with %q, got %v", test.want, err)
			continue
		}
		if q := e.Problems[0]; !strings.Contains(q.Msg, test.want) || filepath.Base(q.File) != "ptx_test.go" || len(e.Problems) != 1 {
			t.Errorf("want one problem with %q here, got %v", test.want, err)
		}
	}
}

// TestParamLayout compares the offsets of parameters with those of the C ABI.
func TestParamLayout(t *testing.T) {
	b := ptx.New("layout")
	b.Param("a", ptx.U32)
	b.Pointer("p", ptx.F32)
	b.ParamBytes("s", 10, 2)
	b.Param("z", ptx.F64)
	k, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	want := []int{0, 8, 16, 32}
	for i, p := range k.Params {
		if p.Offset != want[i] {
			t.Errorf("%s at %d, want %d", p.Name, p.Offset, want[i])
		}
	}
	if k.ParamSize != 40 {
		t.Errorf("size %d, want 40", k.ParamSize)
	}
}

// TestCommentIsASCII prints a comment with characters beyond ASCII. These must be escaped, because
// not every assembler accepts them.
func TestCommentIsASCII(t *testing.T) {
	b := ptx.New("k")
	b.MaxThreads(32)
	b.Comment("h·z, %s\nand 😀", "µ")
	b.Pointer("out", ptx.U32).At(b.ThreadID(0)).Store(b.U32(0))
	k, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(k.Text, `// h\u00b7z, \u00b5 and \U0001f600`+"\n") {
		t.Error(k.Text)
	}
}
