package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// randomKernel emits a kernel of random integer arithmetic, variables, branches and loops. Each
// thread starts from its element of x. The kernel stores the final values of its variables in y.
// Equal seeds give equal kernels.
type randomKernel struct {
	*ptx.Builder
	rng    *rand.Rand
	values []ptx.Value // values that later code may use
	vars   []*ptx.Var
	x, y   ptx.Ptr
}

func newRandomKernel(seed uint64) *ptx.Builder {
	b := ptx.New("random")
	b.MaxThreads(32)
	k := &randomKernel{Builder: b, rng: rand.New(rand.NewPCG(seed, 9))}
	k.x, k.y = b.Pointer("x", ptx.U32), b.Pointer("y", ptx.U32)
	k.values = []ptx.Value{b.ThreadID(0), k.x.At(b.ThreadID(0)).Load(), b.Param("n", ptx.U32), b.U32(0), b.U32(1), b.U32(8), b.U32(0x9e3779b9)}
	for range 3 {
		k.vars = append(k.vars, b.Var(k.pick()))
	}
	k.statements(6, 3)
	for i, v := range k.vars {
		k.y.At(b.ThreadID(0).Mad(num(4), b.U32(uint32(i)))).Store(v)
	}
	k.y.At(b.ThreadID(0).Mad(num(4), b.U32(3))).Store(k.pick())
	return b
}

func (k *randomKernel) pick() ptx.Value {
	if i := k.rng.IntN(len(k.values) + len(k.vars)); i < len(k.vars) {
		v := k.vars[i].Get()
		k.values = append(k.values, v) // the variable's current value, which much later code may use
		return v
	}
	return k.values[k.rng.IntN(len(k.values))]
}

func (k *randomKernel) condition() ptx.Value {
	return k.pick().Compare(ptx.Relation(k.rng.IntN(6)), k.pick())
}

// expression emits a random expression and returns its value.
func (k *randomKernel) expression() ptx.Value {
	a, c := k.pick(), k.pick()
	switch k.rng.IntN(16) {
	case 0:
		return a.Add(c)
	case 1:
		return a.Sub(c)
	case 2:
		return a.Mul(c)
	case 3:
		return a.Mul(num(1 << k.rng.IntN(5)))
	case 4:
		return a.Div(num(1 << k.rng.IntN(5)))
	case 5:
		return a.Rem(num(1 + k.rng.IntN(9)))
	case 6:
		return a.Mad(c, k.pick())
	case 7:
		return a.And(c)
	case 8:
		return a.Or(c)
	case 9:
		return a.Xor(c)
	case 10:
		return a.Shl(num(k.rng.IntN(40)))
	case 11:
		return a.Bitcast(ptx.S32).Shr(num(k.rng.IntN(40))).Bitcast(ptx.U32)
	case 12:
		return a.Min(c).Add(a.Max(num(7)))
	case 13:
		return k.condition().Select(a, c)
	case 14:
		return a.MulWide(c).Shr(num(16)).Cvt(ptx.U32)
	}
	return k.x.At(a.And(num(15))).At(num(k.rng.IntN(16))).Load()
}

func (k *randomKernel) statements(n, depth int) {
	for range n {
		visible := len(k.values)
		body := func() {
			k.statements(3, depth-1)
			k.values = k.values[:visible]
		}
		kind := k.rng.IntN(8)
		if depth == 0 {
			kind = k.rng.IntN(4)
		}
		switch kind {
		case 4:
			k.If(k.condition(), body)
		case 5:
			k.IfElse(k.condition(), body, body)
		case 6:
			k.For(k.U32(uint32(k.rng.IntN(3))), k.pick().And(num(3)), num(1+k.rng.IntN(2)), func(i ptx.Value, l ptx.Loop) {
				k.values = append(k.values, i)
				body()
				if k.rng.IntN(2) == 0 {
					l.BreakIf(k.condition())
				} else {
					l.ContinueIf(k.condition())
				}
				k.vars[0].Set(k.vars[0].Get().Add(i))
				k.values = k.values[:visible]
			})
		case 7:
			count := k.Var(k.U32(0))
			k.While(func() ptx.Value { return count.Get().Lt(num(3)) }, func(l ptx.Loop) {
				count.Set(count.Get().Add(num(1)))
				body()
			})
		case 0:
			a, c := k.rng.IntN(3), k.rng.IntN(3)
			s, t := k.vars[a].Get(), k.vars[c].Get()
			k.vars[a].Set(t)
			k.vars[c].Set(s)
		case 1, 2:
			k.vars[k.rng.IntN(3)].Set(k.expression())
		default:
			k.values = append(k.values, k.expression())
		}
	}
}

// TestPassesPreserveMeaning builds random kernels with and without the builder's optimisation
// passes. Both must compute the same values.
func TestPassesPreserveMeaning(t *testing.T) {
	shorter := 0
	for seed := range uint64(150) {
		var results [2][]uint64
		var lengths [2]int
		for i, build := range []func(*ptx.Builder) (*ptx.Kernel, error){(*ptx.Builder).BuildPlain, (*ptx.Builder).Build} {
			kern, err := build(newRandomKernel(seed))
			if err != nil {
				t.Fatal(err)
			}
			mod, err := ptxvm.Parse(kern.Text)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, kern.Text)
			}
			m := newMachine(t)
			x, y := m.tensor(dtype.I32, dense(32), 0), m.tensor(dtype.I32, dense(128), 0)
			m.fill(x, func(i int) uint64 { return uint64(i*i*i) * 0x9e3779b1 & 0xffffffff >> (i % 32) })
			p := packer{}
			p.u64(x.Addr)
			p.u64(y.Addr)
			p.u32(uint32(seed))
			l := ptxvm.Launch{Entry: mod.Entry("random"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Params: p, Mem: m.mem, SM: 80, Workers: 1}
			if _, err := l.Run(); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, kern.Text)
			}
			results[i], lengths[i] = m.read(y), len(kern.Text)
		}
		if fmt.Sprint(results[0]) != fmt.Sprint(results[1]) {
			plain, _ := newRandomKernel(seed).BuildPlain()
			good, _ := newRandomKernel(seed).Build()
			t.Fatalf("seed %d: the passes change the result\n%v\n%v\n%s\n%s", seed, results[0], results[1], plain.Text, good.Text)
		}
		if lengths[1] < lengths[0] {
			shorter++
		}
	}
	if shorter < 140 {
		t.Errorf("only %d of 150 kernels became shorter", shorter)
	}
}
