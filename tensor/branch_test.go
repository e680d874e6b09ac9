package tensor_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// branched computes 3·x² and exp(x) by two separate graphs.
type branched struct {
	leaves [2]*tensor.Tensor
	y      [2]*tensor.Tensor
	ended  int
}

func (*branched) Name() string { return "branched" }

func (b *branched) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	c.Save(in[0])
	c.SaveBranch(b.y[:]...)
	c.AtEnd(func() {
		b.ended++
		for _, x := range b.leaves {
			x.Free()
		}
	})
	return b.y[0].In(c.Scope()).Detach().Add(b.y[1].Detach())
}

func (b *branched) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	if c.NumSaved() != 1 || !slices.Equal(c.Saved(0).Shape().Slice(), c.Branch(1).Shape().Slice()) {
		panic("a branch is not a saved value")
	}
	if err := tensor.Try(func() { c.Saved(1) }); err == nil || !strings.Contains(err.Error(), "saved 1 values") {
		panic(fmt.Sprint("there is no value 1: ", err))
	}
	if err := tensor.Try(func() { c.Branch(2) }); err == nil || !strings.Contains(err.Error(), "no branch number 2") {
		panic(fmt.Sprint("there is no branch 2: ", err))
	}
	var parts [2]*tensor.Tensor
	var ways sync.WaitGroup
	var errs [2]error
	for i := range parts {
		y := c.Branch(i)
		ways.Go(func() {
			errs[i] = tensor.Try(func() { parts[i] = c.Gradients([]*tensor.Tensor{y}, []*tensor.Tensor{g}, b.leaves[:])[i] })
		})
	}
	ways.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		panic(errs[0])
	}
	return []*tensor.Tensor{parts[0].Add(parts[1])}
}

func branchedOf(x *tensor.Tensor) (*branched, *tensor.Tensor) {
	b := &branched{}
	s := x.Scope()
	for i := range b.y {
		s.Do(func(c *tensor.Scope) {
			leaf := x.In(c).Detach().Clone().RequiresGrad()
			y := leaf.Square().MulScalar(3)
			if i == 1 {
				y = leaf.Exp()
			}
			c.Close(y, leaf)
			b.leaves[i], b.y[i] = leaf, y
		})
	}
	return b, tensor.Apply(b, x)
}

// TestBranches checks a Function that keeps graphs. Its VJP runs Backward through them, as part of
// the run that called the VJP.
func TestBranches(t *testing.T) {
	want := func(x *tensor.Tensor) []float64 {
		return x.Detach().MulScalar(6).Add(x.Detach().Exp()).Floats()
	}
	equal := func(what string, got, want []float64) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2, -1}).RequiresGrad()
		b, y := branchedOf(x)
		y.Sum().Backward(tensor.RetainGraph())
		equal("once", x.Grad().Floats(), want(x))
		if b.ended != 0 {
			t.Error("the graph has ended, though it is retained")
		}
		x.ZeroGrad()
		y.Sum().Backward()
		equal("twice", x.Grad().Floats(), want(x))
		if err := tensor.Try(func() { y.Sum().Backward() }); b.ended != 1 || !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("ended %d times; %v", b.ended, err)
		}
		if err := tensor.Try(func() { b.leaves[0].Exp() }); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("a leaf: %v", err)
		}
		x.ZeroGrad()

		var kept *tensor.Tensor
		s.Do(func(c *tensor.Scope) { // the branches move to the parent scope with the result
			b, kept = branchedOf(x.In(c))
			c.Close(kept)
		})
		kept.Sum().Backward()
		equal("kept", x.Grad().Floats(), want(x))

		s.Do(func(c *tensor.Scope) { b, y = branchedOf(x.In(c)) })
		if b.ended != 1 {
			t.Errorf("ended %d times with its scope", b.ended)
		}
		b, y = branchedOf(x)
		err := tensor.Try(func() { tensor.Gradients(y.Sum(), []*tensor.Tensor{x}, tensor.CreateGraph()) })
		if !errors.Is(err, tensor.ErrGrad) || !strings.Contains(err.Error(), "second derivative") {
			t.Errorf("%v", err)
		}
		if b, y = branchedOf(s.From([]float64{1})); y.NeedsGrad() || b.ended != 1 {
			t.Errorf("without a graph the end is there when Apply returns: %d", b.ended)
		}
		plain := &branched{y: [2]*tensor.Tensor{s.Ones(1), s.Ones(1)}}
		if err := tensor.Try(func() { tensor.Apply(plain, x) }); !errors.Is(err, tensor.ErrGrad) {
			t.Errorf("%v", err)
		}
	})
}

func TestLeaves(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		a, b, c, no := s.Ones(2).RequiresGrad(), s.Ones(2).RequiresGrad(), s.Ones(2).RequiresGrad(), s.Ones(2)
		s.Do(func(s *tensor.Scope) {
			y := a.In(s).Mul(b).Add(a.Mul(no)).Exp()
			for _, v := range []struct{ got, want []*tensor.Tensor }{
				{tensor.Leaves(y), []*tensor.Tensor{a, b}},
				{tensor.Leaves(y, c.In(s), b.Exp()), []*tensor.Tensor{a, b, c}},
				{tensor.Leaves(no, y.Detach()), nil},
				{tensor.Leaves(), nil},
			} {
				if len(v.got) != len(v.want) {
					t.Fatalf("%d leaves, want %d", len(v.got), len(v.want))
				}
				for _, x := range v.want {
					if !slices.Contains(v.got, x) {
						t.Errorf("%v is not among them", x)
					}
				}
			}
		})
	})
}

func TestCheckpointed(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		var seen []bool
		y := tensor.Recompute(func(x []*tensor.Tensor) []*tensor.Tensor {
			seen = append(seen, x[0].Scope().Checkpointed())
			return []*tensor.Tensor{x[0].Exp()}
		}, s.Ones(2).RequiresGrad())[0]
		y.Sum().Backward()
		if s.Checkpointed() || !slices.Equal(seen, []bool{true, true}) {
			t.Errorf("%v", seen)
		}
	})
}
