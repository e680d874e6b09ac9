package ptx_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/ptx"
)

// body builds a kernel with f, and returns the instructions between the parameter loads and the
// final ret.
func body(t *testing.T, f func(b *ptx.Builder, p ptx.Ptr, n ptx.Value)) string {
	t.Helper()
	b := ptx.New("k")
	p := b.Pointer("p", ptx.U32)
	f(b, p, b.Param("n", ptx.U32))
	k, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(k.Text) {
		line = strings.TrimSpace(line)
		if strings.HasSuffix(line, ";") && !strings.HasPrefix(line, ".") && !strings.HasPrefix(line, "ld.param") && !strings.HasPrefix(line, "cvta") || strings.HasSuffix(line, ":") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[:len(lines)-1], "\n")
}

func TestPasses(t *testing.T) {
	type maker = func(b *ptx.Builder, p ptx.Ptr, n ptx.Value)
	tests := []struct {
		name string
		make maker
		want string
	}{
		{"constants fold through chains", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			c := b.U32(6).Mul(ptx.Int(7)).Sub(ptx.Int(2)).Shr(ptx.Int(3))
			p.Store(n.Add(c).Add(ptx.Int(5)).Sub(ptx.Int(0)).Mul(ptx.Int(1)))
		}, "add.u32 %r2, %r1, 10;\nst.global.u32 [%rd2], %r2;"},
		{"powers of two become shifts", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			p.Store(n.Mul(ptx.Int(8)).Div(ptx.Int(4)).Rem(ptx.Int(16)))
		}, "shl.b32 %r2, %r1, 3;\nshr.u32 %r3, %r2, 2;\nand.b32 %r4, %r3, 15;\nst.global.u32 [%rd2], %r4;"},
		{"constant offsets move into addresses", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			b.GlobalPtr(p.At(n).Address().Add(ptx.Int(16)), ptx.U32).At(ptx.Int(-2)).Store(ptx.Int(3))
		}, "mad.wide.u32 %rd3, %r1, 4, %rd2;\nadd.u64 %rd4, %rd3, 16;\nst.global.u32 [%rd5+-8], 3;"},
		{"equal expressions are computed once", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			x := n.Mul(n)
			b.If(n.Gt(ptx.Int(3)), func() { p.Store(n.Mul(n).Add(x)) })
		}, "mul.lo.u32 %r2, %r1, %r1;\nsetp.gt.u32 %p1, %r1, 3;\n@!%p1 bra $L1_end;\nadd.u32 %r3, %r2, %r2;\nst.global.u32 [%rd2], %r3;\n$L1_end:"},
		{"siblings do not share", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			b.IfElse(n.Gt(ptx.Int(3)), func() { p.Store(n.Mul(n)) }, func() { p.At(ptx.Int(1)).Store(n.Mul(n)) })
		}, "setp.gt.u32 %p1, %r1, 3;\n@!%p1 bra $L1_else;\nmul.lo.u32 %r2, %r1, %r1;\nst.global.u32 [%rd2], %r2;\nbra $L1_end;\n$L1_else:\nmul.lo.u32 %r3, %r1, %r1;\nst.global.u32 [%rd2+4], %r3;\n$L1_end:"},
		{"dead code and dead loops go", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			v := b.Var(n)
			b.For(n, ptx.Int(10), ptx.Int(1), func(i ptx.Value, l ptx.Loop) {
				v.Set(v.Get().Add(i))
				l.BreakIf(v.Get().Gt(ptx.Int(5)))
			})
			p.Load()
			p.Store(n)
		}, "st.global.u32 [%rd2], %r1;"},
		{"known branches are spliced in", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			b.IfElse(b.U32(3).Lt(ptx.Int(4)), func() { p.Store(n) }, func() { p.Store(ptx.Int(0)) })
		}, "st.global.u32 [%rd2], %r1;"},
		{"invariants leave loops, variables are updated in place", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			sum := b.Var(b.U32(0))
			b.For(b.U32(0), ptx.Int(10), ptx.Int(1), func(i ptx.Value, _ ptx.Loop) {
				sum.Set(sum.Get().Add(i.Xor(n.Mul(n))))
			})
			p.Store(sum)
		}, "mov.b32 %r2, 0;\nmov.b32 %r3, 0;\nmul.lo.u32 %r4, %r1, %r1;\n$L1_loop:\nxor.b32 %r5, %r3, %r4;\nadd.u32 %r2, %r2, %r5;\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, 10;\n@%p1 bra $L1_loop;\n$L1_end:\nst.global.u32 [%rd2], %r2;"},
		{"a snapshot outlives a later Set", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			v := b.Var(n)
			old := v.Get()
			v.Set(old.Add(ptx.Int(1)))
			p.StoreVec(old, v.Get())
		}, "mov.b32 %r2, %r1;\nmov.b32 %r3, %r2;\nadd.u32 %r2, %r3, 1;\nst.global.v2.u32 [%rd2], {%r3, %r2};"},
		{"swapping variables keeps both", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			x, y := b.Var(n), b.Var(n.Add(ptx.Int(1)))
			b.For(b.U32(0), n, ptx.Int(1), func(_ ptx.Value, _ ptx.Loop) {
				s, t := x.Get(), y.Get()
				x.Set(t)
				y.Set(s)
			})
			p.StoreVec(x.Get(), y.Get())
		}, "mov.b32 %r2, %r1;\nadd.u32 %r3, %r1, 1;\nsetp.gt.u32 %p1, %r1, 0;\n@!%p1 bra $L1_end;\nmov.b32 %r4, 0;\n$L2_loop:\nmov.b32 %r5, %r2;\nmov.b32 %r2, %r3;\nmov.b32 %r3, %r5;\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p2, %r4, %r1;\n@%p2 bra $L2_loop;\n$L2_end:\n$L1_end:\nst.global.v2.u32 [%rd2], {%r2, %r3};"},
		{"a break between keeps the old value", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			v := b.Var(n)
			b.Loop(func(l ptx.Loop) {
				next := v.Get().Shr(ptx.Int(1))
				l.BreakIf(n.Eq(ptx.Int(7)))
				v.Set(next)
			})
			p.Store(v)
		}, "mov.b32 %r2, %r1;\nsetp.eq.u32 %p1, %r1, 7;\n$L1_loop:\nshr.u32 %r3, %r2, 1;\n@%p1 bra $L1_end;\nmov.b32 %r2, %r3;\nbra $L1_loop;\n$L1_end:\nst.global.u32 [%rd2], %r2;"},
		{"constants get registers in vectors", func(b *ptx.Builder, p ptx.Ptr, n ptx.Value) {
			p.StoreVec(b.U32(7), n)
		}, "mov.b32 %r2, 7;\nst.global.v2.u32 [%rd2], {%r2, %r1};"},
	}
	for _, test := range tests {
		if got := body(t, test.make); got != test.want {
			t.Errorf("%s:\n%s\nwant:\n%s", test.name, got, test.want)
		}
	}
}
