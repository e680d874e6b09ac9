package ptx_test

import (
	"fmt"
	"math"
	"strings"

	"github.com/flambeau-go/flambeau/ptx"
)

// vectorAdd adds two float32 vectors. A thread adds four elements, and accesses each vector 16
// bytes at a time. Some threads of the last block add the remaining elements one by one.
func vectorAdd() *ptx.Builder {
	b := ptx.New("vector_add")
	b.MaxThreads(256)
	x := b.Pointer("x", ptx.F32).NC()
	y := b.Pointer("y", ptx.F32).NC()
	z := b.Pointer("z", ptx.F32)
	n := b.Param("n", ptx.U32)

	first := b.GlobalID().Shl(ptx.Int(2))
	last := first.Add(ptx.Int(4))
	b.IfElse(last.Le(n), func() {
		b.Comment("four at once")
		p, q := x.At(first).LoadVec(4), y.At(first).LoadVec(4)
		for i := range p {
			p[i] = p[i].Add(q[i])
		}
		z.At(first).StoreVec(p...)
	}, func() {
		b.Comment("the tail, one by one")
		b.For(first, n, ptx.Int(1), func(i ptx.Value, _ ptx.Loop) {
			z.At(i).Store(x.At(i).Load().Add(y.At(i).Load()))
		})
	})
	return b
}

// warpSoftmax computes the softmax of each row. A warp computes one row.
func warpSoftmax() *ptx.Builder {
	b := ptx.New("warp_softmax")
	b.MaxThreads(128)
	x := b.Pointer("x", ptx.F32)
	y := b.Pointer("y", ptx.F32)
	rows := b.Param("rows", ptx.U32)
	cols := b.Param("cols", ptx.U32)

	row := b.BlockID(0).Mad(ptx.Int(4), b.WarpID())
	b.ReturnIf(row.Ge(rows))
	start := row.MulWide(cols)
	x, y = x.At(start), y.At(start)
	lane := b.LaneID()
	each := func(f func(i ptx.Value)) {
		b.For(lane, cols, ptx.Int(32), func(i ptx.Value, _ ptx.Loop) { f(i) })
	}

	b.Comment("the row's maximum")
	top := b.Var(b.F32(float32(math.Inf(-1))))
	each(func(i ptx.Value) { top.Set(top.Get().MaxNaN(x.At(i).Load())) })
	peak := top.Get().WarpReduce(func(p, q ptx.Value) ptx.Value { return p.MaxNaN(q) })

	b.Comment("the sum of exponentials")
	exp := func(v ptx.Value) ptx.Value { return v.Sub(peak).Mul(ptx.Float(1.4426950408889634)).Ex2Approx() }
	sum := b.Var(b.F32(0))
	each(func(i ptx.Value) { sum.Set(sum.Get().Add(exp(x.At(i).Load()))) })
	scale := sum.Get().WarpReduce(func(p, q ptx.Value) ptx.Value { return p.Add(q) }).Rcp()

	b.Comment("the quotients")
	each(func(i ptx.Value) { y.At(i).Store(exp(x.At(i).Load()).Mul(scale)) })
	return b
}

// The example prints some lines of a kernel's text: the comments, and the accesses to four elements
// at once.
func Example() {
	k, err := vectorAdd().Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	for line := range strings.Lines(k.Text) {
		if strings.Contains(line, ".v4") || strings.Contains(line, "//") {
			fmt.Print(strings.TrimPrefix(line, "\t"))
		}
	}
	fmt.Println(k.ParamSize, "bytes of parameters")
	// Output:
	// // four at once
	// ld.global.nc.v4.f32 {%r8, %r9, %r10, %r11}, [%rd7];
	// ld.global.nc.v4.f32 {%r12, %r13, %r14, %r15}, [%rd8];
	// st.global.v4.f32 [%rd9], {%r16, %r17, %r18, %r19};
	// // the tail, one by one
	// 28 bytes of parameters
}

func ExampleValue_WarpReduce() {
	k, err := warpSoftmax().Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.Count(k.Text, "shfl.sync.bfly"), "shuffles for two reductions")
	// Output: 10 shuffles for two reductions
}

func ExampleError() {
	b := ptx.New("mixed")
	n := b.Param("n", ptx.U32)
	x := b.Param("x", ptx.F32)
	x.Add(n)
	_, err := b.Build()
	_, what, _ := strings.Cut(err.Error(), ": add")
	fmt.Println("add" + what)
	// Output: add: mixed types f32 and u32
}
