package dist

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// fails checks that Run fails with an *Error of the given kind, whose text contains the string
// what.
func fails(t *testing.T, name string, kind error, what string, f func(g *Group)) {
	t.Helper()
	err := Run(context.Background(), Devices("cpu", "cpu"), func(_ context.Context, g *Group) error {
		f(g)
		return nil
	}, InProcess())
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || !strings.Contains(err.Error(), what) {
		t.Errorf("%s: %v\nwant %q", name, err, what)
	}
}

// unshardable is an optimizer that does not implement optim.Sharder. An optimizer of another
// package may also lack the methods of that interface.
type unshardable struct{ optim.Optimizer }

func TestZeROErrors(t *testing.T) {
	adam := func(list ...*tensor.Tensor) optim.Optimizer { return optim.NewAdam(list, optim.AdamConfig{LR: 0.1}) }
	param := func(g *Group, dims ...int) *tensor.Tensor {
		return tensor.Root().On(g.Device()).Typed(dtype.F32).Ones(dims...).RequiresGrad()
	}
	fails(t, "sizes", ErrMismatch, "parameter 1 of rank 1 is float32 of shape [4], in group 0; of rank 0 it is float32 of shape [3], in group 0", func(g *Group) {
		NewZeRO(g, adam(param(g, 2), param(g, 3+g.Rank())))
	})
	fails(t, "counts", ErrMismatch, "rank 1 has 2 parameters, rank 0 has 1", func(g *Group) {
		list := []*tensor.Tensor{param(g, 2), param(g, 3)}
		NewZeRO(g, adam(list[:1+g.Rank()]...))
	})
	fails(t, "rules", ErrMismatch, "the optimizer of rank 1 is a *optim.SGD, that of rank 0 a *optim.Adam", func(g *Group) {
		opt := adam(param(g, 2))
		if g.Rank() == 1 {
			opt = optim.NewSGD([]*tensor.Tensor{param(g, 2)}, optim.SGDConfig{LR: 1})
		}
		NewZeRO(g, opt)
	})
	fails(t, "device", tensor.ErrDevice, "parameter 1, of shape [3], is on cpu", func(g *Group) {
		NewZeRO(g, adam(param(g, 2), tensor.Root().Ones(3).RequiresGrad()))
	})
	fails(t, "no sharder", tensor.ErrValue, "a dist.unshardable cannot be shared by ranks", func(g *Group) {
		NewZeRO(g, unshardable{adam(param(g, 2))})
	})
	fails(t, "type", tensor.ErrType, "parameter 0 is float64 of shape [2] now", func(g *Group) {
		p := param(g, 2)
		z := NewZeRO(g, adam(p))
		p.CastInPlace(dtype.F64)
		z.Step()
	})
	fails(t, "one rank alone asks for the state", ErrLeft, "zero consolidate", func(g *Group) {
		z := NewZeRO(g, adam(param(g, 2)))
		if g.Rank() == 0 {
			z.StateDict()
		}
	})
	fails(t, "ranks gather for others", ErrMismatch, "rank 1 gathers for ranks [1], rank 0 for [0]", func(g *Group) {
		NewZeRO(g, adam(param(g, 2))).Consolidate(g.Rank())
	})
	fails(t, "no rank", tensor.ErrValue, "there is no rank 2 of 2", func(g *Group) {
		NewZeRO(g, adam(param(g, 2))).Consolidate(2)
	})
	fails(t, "gradients on one rank", ErrMismatch, "rank 1 has a state and rank 0 has none", func(g *Group) {
		p := param(g, 1000)
		z := NewZeRO(g, adam(p))
		if g.Rank() == 1 {
			p.SetGrad(param(g, 1000).Detach())
		}
		z.Step()
		z.StateDict()
	})
}

// TestZeROMisuse checks errors for misuse. If the optimizer is wrong, the error must name it.
func TestZeROMisuse(t *testing.T) {
	run(t, Devices("cpu", "cpu"), func(g *Group) {
		p := tensor.Root().On(g.Device()).Ones(10).RequiresGrad()
		opt := optim.NewAdam([]*tensor.Tensor{p}, optim.AdamConfig{LR: 0.1})
		z := NewZeRO(g, opt)
		var e *optim.Error
		err := tensor.Try(func() {
			opt.AddGroup([]*tensor.Tensor{tensor.Root().On(g.Device()).Ones(3).RequiresGrad()}, optim.AdamConfig{LR: 1})
		})
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "it is sharded, and its groups are given before") {
			t.Errorf("a group is added: %v", err)
		}
		err = tensor.Try(func() { NewZeRO(g, opt) })
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "it is sharded already") {
			t.Errorf("it is shared twice: %v", err)
		}
		var s *optim.StateError
		if err := z.LoadStateDict(map[string]any{}); !errors.As(err, &s) {
			t.Errorf("an empty tree: %v", err)
		}
		if got, want := z.String(), "ZeRO over 2 ranks of Adam(1 parameters in 1 groups, lr 0.1)"; got != want {
			t.Errorf("String is %q, want %q", got, want)
		}
	})
}

// TestZeROCapture captures a step of ZeRO on one rank. This must be an error, because such a
// capture contains only one rank's work.
func TestZeROCapture(t *testing.T) {
	run(t, lists(t, 1)["cuda×1"], func(g *Group) {
		p := tensor.Root().On(g.Device()).Ones(10).RequiresGrad()
		z := NewZeRO(g, optim.NewAdam([]*tensor.Tensor{p}, optim.AdamConfig{LR: 0.1}))
		_, err := tensor.Capture(g.Device(), func(s *tensor.Scope) {
			p.In(s).Sum().Backward()
			z.Step()
		})
		if !errors.Is(err, tensor.ErrCapture) || !strings.Contains(err.Error(), "the parts of other ranks are not in the capture") {
			t.Error(err)
		}
	})
}

// TestZeROOutOfMemory lets a rank run out of memory in a step. Its state must stay unchanged: the
// rank must be able to repeat the step.
func TestZeROOutOfMemory(t *testing.T) {
	run(t, lists(t, 2)["cuda×2"], func(g *Group) {
		s := tensor.Root().On(g.Device()).Typed(dtype.F32)
		var lists [2][]*tensor.Tensor
		for i := range lists {
			for _, n := range []int{400_000, 300_000} {
				p := s.Full(0.5, n).RequiresGrad()
				p.SetGrad(s.Full(0.25, n))
				lists[i] = append(lists[i], p)
			}
		}
		plain := optim.NewAdam(lists[0], optim.AdamConfig{LR: 0.1})
		plain.Step()
		z := NewZeRO(g, optim.NewAdam(lists[1], optim.AdamConfig{LR: 0.1}))
		failed := 0
		for free := 0; ; free += 1 << 20 { // leave more memory free in each attempt
			var fill []*tensor.Tensor
			for _, size := range []int{8 << 20, 1 << 20, 1 << 18} {
				for tensor.Try(func() { fill = append(fill, s.Empty(size/4)) }) == nil {
				}
			}
			for n := 0; n < free && len(fill) > 0; {
				last := fill[len(fill)-1]
				n += last.Size() * 4
				last.Free()
				fill = fill[:len(fill)-1]
			}
			err := tensor.Try(z.Step)
			for _, x := range fill {
				x.Free()
			}
			if err == nil {
				break
			}
			if failed++; !errors.Is(err, device.ErrOutOfMemory) {
				t.Fatal(err)
			}
			if n := z.Steps(); n != 0 {
				t.Errorf("%v: a step that failed counts", g)
			}
		}
		if failed == 0 {
			t.Errorf("%v: no step lacked memory", g)
		}
		sameBits(t, g.String(), lists[1], lists[0])
	})
}

// TestPartition checks random partitions. Each element must have exactly one rank. Where parameters
// can be cut, the ranks must have equal shares, up to the rounding of cuts to multiples of the
// grain.
func TestPartition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		world := 1 + rng.IntN(9)
		var members []member
		for range 1 + rng.IntN(12) {
			n := rng.IntN(1 << rng.IntN(12))
			members = append(members, member{shape: shape.Of(n), typ: []dtype.Type{dtype.F32, dtype.BF16}[rng.IntN(2)], frozen: rng.IntN(5) == 0, dense: rng.IntN(6) > 0})
		}
		splits := rng.IntN(4) > 0
		next := make([]int, len(members)) // the next element of each parameter
		seen := make([]int, len(members))
		load := make([]int, world)
		for _, sp := range newPartition(members, world, splits).spaces {
			for rank, runs := range sp.ranks {
				n := 0
				for _, r := range runs {
					m := members[r.param]
					if m.typ != sp.typ || m.frozen != sp.frozen || r.part.From != next[r.param] || r.part.To > m.shape.Size() || r.size() == 0 && m.shape.Size() > 0 {
						t.Fatalf("part %+v of %v", r, m)
					}
					if whole := r.size() == m.shape.Size(); !whole && (!splits || !m.dense || r.part.From%grain != 0) {
						t.Fatalf("part %+v of %v is cut", r, m)
					}
					next[r.param] = r.part.To
					seen[r.param]++
					n += r.size()
				}
				if n > sp.width {
					t.Fatalf("a rank has %d elements, width %d", n, sp.width)
				}
				load[rank] += n * sp.typ.Size()
			}
		}
		// most bounds the bytes that rounded cuts add to a rank. In each of the four spaces that
		// can be cut, these are up to grain+1 elements of up to 4 bytes.
		total, most := 0, 4*(grain+1)*4
		largest := 0
		for i, m := range members {
			bytes := m.shape.Size() * m.typ.Size()
			if total += bytes; !splits || !m.dense {
				largest = max(largest, bytes)
			}
			if next[i] != m.shape.Size() || seen[i] == 0 || seen[i] > 1 && m.shape.Size() == 0 {
				t.Fatalf("%d elements of parameter %d, %v, have a rank", next[i], i, m)
			}
		}
		for rank, n := range load {
			if n > total/world+most+largest {
				t.Fatalf("rank %d of %d has %d of %d bytes: %v", rank, world, n, total, members)
			}
		}
	}
}
