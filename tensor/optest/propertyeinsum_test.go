package optest

import (
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
	"pgregory.net/rapid"
)

// loops computes an equation by its definition. For all values of all letters, it adds the product
// of the operands' elements to the element of the result.
func loops(in []string, out string, sizes map[byte]int, x []array) array {
	letters := []byte{}
	for _, labels := range append(slices.Clone(in), out) {
		for i := range labels {
			if !slices.Contains(letters, labels[i]) {
				letters = append(letters, labels[i])
			}
		}
	}
	shapeOf := func(labels string) (dims []int) {
		for i := range labels {
			dims = append(dims, sizes[labels[i]])
		}
		return
	}
	y := newArray(shapeOf(out)...)
	each(shapeOf(string(letters)), func(_ int, values []int) {
		at := func(labels string) (idx []int) {
			for i := range labels {
				idx = append(idx, values[slices.Index(letters, labels[i])])
			}
			return
		}
		p := 1.0
		for k, labels := range in {
			p *= x[k].at(at(labels)...)
		}
		y.v[y.offset(at(out))] += p
	})
	return y
}

// TestEinsumIsLoops compares Einsum with plain loops, for any letters in any order, repeated or
// not. The gradients must be the adjoints of the equation.
func TestEinsumIsLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := map[byte]int{}
		for _, c := range []byte("abcde") {
			sizes[c] = rapid.IntRange(1, 3).Draw(t, "size")
		}
		if rapid.IntRange(0, 9).Draw(t, "empty") == 0 {
			sizes['c'] = 0
		}
		var in []string
		var arrays []array
		for range rapid.IntRange(1, 3).Draw(t, "operands") {
			labels := rapid.StringOfN(rapid.RuneFrom([]rune("abcde")), 0, 4, -1).Draw(t, "labels")
			var dims []int
			for i := range labels {
				dims = append(dims, sizes[labels[i]])
			}
			a := newArray(dims...)
			base := rapid.IntRange(-9, 9).Draw(t, "base")
			for i := range a.v {
				a.v[i] = float64((base+i*7)%11 - 5)
			}
			in, arrays = append(in, labels), append(arrays, a)
		}
		var out []byte
		all := strings.Join(in, "")
		for i := range all {
			if !slices.Contains(out, all[i]) && rapid.Bool().Draw(t, "kept") {
				out = append(out, all[i])
			}
		}
		out = rapid.Permutation(out).Draw(t, "order")
		eq := strings.Join(in, ",") + "->" + string(out)
		withLoops(t, eq, in, string(out), sizes, arrays)
	})
}

func withLoops(t *rapid.T, eq string, operands []string, out string, sizes map[byte]int, arrays []array) {
	in(t, func(s *tensor.Scope) {
		var x []*tt
		for _, a := range arrays {
			x = append(x, s.From(a.v).Reshape(a.dims...).RequiresGrad())
		}
		y := tensor.Einsum(eq, x...)
		want := loops(operands, out, sizes, arrays)
		same(t, eq, y.Detach(), want)
		// The result is linear in each operand: ⟨y, seed⟩ = ⟨x, gradient⟩.
		seed := newArray(want.dims...)
		left := 0.0
		for i := range seed.v {
			seed.v[i] = float64(i%5 - 2)
			left += seed.v[i] * want.v[i]
		}
		for k, g := range tensor.Gradients(y, x, tensor.GradOutput(s.From(seed.v).Reshape(seed.dims...))) {
			right := 0.0
			for i, v := range g.Floats() {
				right += v * arrays[k].v[i]
			}
			if left != right {
				t.Fatalf("%s: ⟨y, seed⟩ is %v, ⟨x, gradient⟩ of operand %d %v", eq, left, k, right)
			}
		}
	})
}

// TestCatOfSplit checks that Cat and Stack join the parts of Split, SplitSizes, Chunk and Unbind.
func TestCatOfSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 1, 4)
			x, a := drawView(t, s.From(a.v).Reshape(a.dims...), a)
			if len(a.dims) == 0 {
				return
			}
			d := rapid.IntRange(0, len(a.dims)-1).Draw(t, "along")
			n := rapid.IntRange(1, 6).Draw(t, "parts")
			same(t, "split", tensor.Cat(d, x.Split(n, d)...), a)
			same(t, "chunk", tensor.Cat(d, x.Chunk(n, d)...), a)
			var sizes []int
			for left := a.dims[d]; left > 0 || len(sizes) == 0; {
				k := rapid.IntRange(min(1, left), left).Draw(t, "size")
				sizes, left = append(sizes, k), left-k
			}
			same(t, "sizes", tensor.Cat(d, x.SplitSizes(sizes, d-len(a.dims))...), a)
			if rows := x.Unbind(d); len(rows) > 0 {
				same(t, "unbind", tensor.Stack(d, rows...), a)
			}
		})
	})
}

// TestOpsOnViewsAreThoseOnCopies runs ops of every kind on a view, and on a copy of the view.
// Values and gradients must be equal.
func TestOpsOnViewsAreThoseOnCopies(t *testing.T) {
	ops := map[string]func(x *tt) *tt{
		"gelu": (*tt).Gelu, "sum": func(x *tt) *tt { return x.Sum(-1) }, "prod": func(x *tt) *tt { return x.Prod(0) }, "softmax": func(x *tt) *tt { return x.Softmax(0) },
		"var": func(x *tt) *tt { return x.Var(0, -1) }, "amax": func(x *tt) *tt { return x.Amax(0) }, "logsumexp": func(x *tt) *tt { return x.LogSumExp(-1) },
		"flip": func(x *tt) *tt { return x.Flip(0) }, "roll": func(x *tt) *tt { return x.Roll([]int{1}, []int{0}) }, "repeat": func(x *tt) *tt { return x.RepeatInterleave(2, 0) },
		"pad": func(x *tt) *tt { return x.Pad(1, 1, 2) }, "where": func(x *tt) *tt { return tensor.Where(x.GtScalar(0), x, x.Square()) }, "matmul": func(x *tt) *tt { return x.Flatten(1, -1).MatMul(x.Flatten(1, -1).T()) },
	}
	names := []string{}
	for name := range ops {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		in(t, func(s *tensor.Scope) {
			a := drawArray(t, 2, 4)
			x, a := drawView(t, s.From(a.v).Reshape(a.dims...).MulScalar(0.0625), a)
			if len(a.dims) < 2 || len(a.v) == 0 {
				return
			}
			name := rapid.SampledFrom(names).Draw(t, "op")
			v, c := x.Detach().RequiresGrad(), x.Clone().Detach().RequiresGrad()
			y, z := ops[name](v), ops[name](c)
			near := func(what string, got, want *tt) {
				w := array{want.Shape().Slice(), want.Floats()}
				if msg := differs(got, want.Type(), w, func(i int) float64 { return 1e-12 * (1 + max(w.v[i], -w.v[i])) }); msg != "" {
					t.Fatalf("%s, %s: of a view %s", name, what, msg)
				}
			}
			near("value", y, z)
			near("gradient", tensor.Gradients(y.Square().Sum(), []*tt{v})[0], tensor.Gradients(z.Square().Sum(), []*tt{c})[0])
		})
	})
}
