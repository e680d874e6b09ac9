package dist

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// wholeState is the state of all ranks in host memory. It is valid until the next step.
type wholeState struct {
	ranks  []int // ranks for which the state was gathered
	states map[int64]any
}

// pieces is the optimizer's state for one rank's part of the parameters, in host memory.
type pieces struct {
	states map[int64]any
	parts  map[int]optim.Part // the rank's parts of the parameters, by index of the parameter
}

// Consolidate copies the state of all ranks into host memory of the named ranks: torch's
// consolidate_state_dict. If no rank is named, all ranks get the state. All ranks call it with the
// same list. The named ranks can then call StateDict without the other ranks, until the next Step
// or LoadStateDict.
func (z *ZeRO) Consolidate(ranks ...int) {
	const op = "zero consolidate"
	for _, r := range ranks {
		z.g.ranked(op, r)
	}
	if len(ranks) == 0 {
		for r := range z.g.World() {
			ranks = append(ranks, r)
		}
	}
	mine := pieces{map[int64]any{}, map[int]optim.Part{}}
	for _, sp := range z.split.spaces {
		for _, r := range sp.ranks[z.g.Rank()] {
			mine.parts[r.param] = r.part
		}
	}
	states, _ := z.sharder.StateDict()["state"].(map[int64]any)
	for k, v := range states {
		m := map[string]any{}
		for name, x := range v.(map[string]any) {
			m[name] = x
			if t, ok := x.(*tensor.Tensor); ok {
				m[name] = onHost(t)
				t.Free()
			}
		}
		mine.states[k] = m
	}
	type offer struct {
		ranks string
		pieces
	}
	merged := z.g.exchange(op, offer{fmt.Sprint(ranks), mine}, func(values []any) (whole any, err error) {
		all := make([]pieces, len(values))
		for r, v := range values {
			o, first := v.(offer), values[0].(offer)
			if o.ranks != first.ranks {
				return nil, fmt.Errorf("%w: rank %d gathers for ranks %s, rank 0 for %s", ErrMismatch, r, o.ranks, first.ranks)
			}
			all[r] = o.pieces
		}
		if e := tensor.Try(func() { whole, err = merge(z.split.members, all) }); e != nil {
			err = e
		}
		return whole, err
	})
	z.fullState = &wholeState{ranks: ranks}
	if slices.Contains(ranks, z.g.Rank()) {
		z.fullState.states = merged[0].(map[int64]any)
	}
}

func onHost(x *tensor.Tensor) (c *tensor.Tensor) {
	tensor.Do(func(s *tensor.Scope) {
		c = host(s).Typed(x.Type()).Empty(x.Shape().Slice()...).Copy(x)
		s.Close(c)
	}, tensor.NoGrad())
	return c
}

func host(s *tensor.Scope) tensor.Maker {
	d, err := device.Open("cpu")
	if err != nil {
		panic(err)
	}
	return s.On(d)
}

// merge combines the pieces of all ranks into the state for whole parameters, by index of the
// parameter.
func merge(members []member, list []pieces) (map[int64]any, error) {
	whole := map[int64]any{}
	for i, m := range members {
		var states []map[string]any
		var parts []optim.Part
		with, without := -1, -1
		for r, p := range list {
			part, owns := p.parts[i]
			if !owns {
				continue
			}
			st, ok := p.states[int64(i)].(map[string]any)
			if !ok {
				without = r
				continue
			}
			with, states, parts = r, append(states, st), append(parts, part)
		}
		switch {
		case with < 0:
		case without >= 0:
			return nil, fmt.Errorf("%w: of parameter %d, %v, rank %d has a state and rank %d has none, as if it had no gradient", ErrMismatch, i, m, with, without)
		case len(states) == 1:
			whole[int64(i)] = states[0]
		default:
			st, err := joined(m, states, parts)
			if err != nil {
				return nil, fmt.Errorf("%w: of parameter %d, %v, %w", ErrMismatch, i, m, err)
			}
			whole[int64(i)] = st
		}
	}
	return whole, nil
}

// joined returns the state of a parameter whose elements were divided among several ranks. It
// concatenates values that have one entry for each element. All other values are equal on all
// ranks.
func joined(m member, states []map[string]any, parts []optim.Part) (map[string]any, error) {
	whole := map[string]any{}
	for name, v := range states[0] {
		whole[name] = v
		first, ok := v.(*tensor.Tensor)
		if !ok || first.Rank() == 0 {
			continue
		}
		tensor.Do(func(s *tensor.Scope) {
			x := host(s).Typed(first.Type()).Empty(m.shape.Slice()...)
			whole[name] = x
			s.Close(x)
		})
	}
	for k, st := range states {
		if len(st) != len(whole) {
			return nil, fmt.Errorf("ranks remember %q and %q", slices.Sorted(maps.Keys(states[0])), slices.Sorted(maps.Keys(st)))
		}
		for name, v := range st {
			x, ok := v.(*tensor.Tensor)
			if !ok || x.Rank() == 0 {
				continue
			}
			to, ok := whole[name].(*tensor.Tensor)
			if !ok || x.Size() != parts[k].To-parts[k].From {
				return nil, fmt.Errorf("%q is not remembered alike of %d elements and of others", name, x.Size())
			}
			to.Scope().Do(func(s *tensor.Scope) {
				to.In(s).View(-1).Narrow(0, parts[k].From, x.Size()).Copy(x)
			}, tensor.NoGrad())
			x.Free()
		}
	}
	return whole, nil
}

// StateDict returns the state of the whole optimizer, in the same form as the wrapped optimizer
// without ZeRO. Its tensors are in host memory that the ranks share, so no rank may change them.
// All ranks must call StateDict. After [ZeRO.Consolidate], however, each of the named ranks may
// call it alone.
func (z *ZeRO) StateDict() map[string]any {
	if z.fullState == nil {
		z.Consolidate()
	}
	if !slices.Contains(z.fullState.ranks, z.g.Rank()) {
		panic(z.g.misuse("zero state", tensor.ErrValue, fmt.Sprintf("the state was gathered for ranks %v alone", z.fullState.ranks)))
	}
	tree := z.sharder.StateDict()
	own, _ := tree["state"].(map[int64]any)
	states := make(map[int64]any, len(z.fullState.states))
	for k, v := range z.fullState.states {
		st := map[string]any{}
		for name, x := range v.(map[string]any) {
			st[name] = x
			if t, ok := x.(*tensor.Tensor); ok {
				st[name] = t.Detach()
			}
		}
		states[k] = st
	}
	tree["state"] = states
	for _, v := range own {
		for _, x := range v.(map[string]any) {
			if t, ok := x.(*tensor.Tensor); ok {
				t.Free()
			}
		}
	}
	return tree
}
