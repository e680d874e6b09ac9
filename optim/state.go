package optim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// A StateError says which part of a tree does not fit the optimizer that loads it. The optimizer
// was not changed.
type StateError struct {
	Optimizer string
	Path      string // path in the tree, such as `state[3]["exp_avg"]`
	Msg       string
	Err       error // the cause, if there is one
}

func (e *StateError) Error() string {
	where := ""
	if e.Path != "" {
		where = e.Path + " "
	}
	return "optim: " + e.Optimizer + ": cannot load the state: " + where + e.Msg
}

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// StateDict returns the state as a tree with the structure and the names of torch's state_dict:
//
//	{"state": map[int64]any{0: map[string]any{"step": …, "exp_avg": …}, …},
//	 "param_groups": []any{map[string]any{
//		"lr": …, "betas": []any{…}, …, "params": []any{int64(0), …}}, …}}
//
// Parameters are numbered through all groups. A parameter that was never updated has no state, even
// if a capture has allocated it. Tensors with a parameter's shape share memory with the optimizer.
// Scalars are new tensors without dimensions on the CPU.
func (b *base) StateDict() map[string]any {
	b.settle()
	states := map[int64]any{}
	var list []any
	k := int64(0)
	for _, g := range b.groups {
		tree := g.tree()
		var ids []any
		for _, p := range g.Params {
			if st := b.state[p]; st != nil && !st.unused {
				if t := b.stateTree(st); len(t) > 0 {
					states[k] = t
				}
			}
			ids = append(ids, k)
			k++
		}
		tree["params"] = ids
		list = append(list, tree)
	}
	return map[string]any{"state": states, "param_groups": list}
}

// tree returns the group's options as a tree.
func (g *Group) tree() map[string]any {
	tree := map[string]any{}
	for name, v := range g.Extra {
		c, msg := plain(v, 0)
		if msg != "" {
			panic(&Error{g.optimizer, fmt.Sprintf("Extra[%q] %s", name, msg)})
		}
		tree[name] = c
	}
	for _, o := range g.config.options() {
		tree[o.name] = o.tree()
	}
	tree["lr"] = g.LR
	if g.InitialLR != 0 {
		tree["initial_lr"] = g.InitialLR
	}
	return tree
}

func (b *base) stateTree(st *state) map[string]any {
	tree := map[string]any{}
	for i, t := range st.tensors {
		if t != nil {
			tree[b.schema.tensors[i]] = t.Detach()
		}
	}
	for i, s := range st.scalars {
		tree[b.schema.scalars[i]] = s.tensor()
	}
	if !b.schema.stepless {
		tree["step"] = tensor.From(float32(st.step))
	}
	return tree
}

// tensor returns the number as a tensor without dimensions, as torch stores it.
func (s scalar) tensor() *tensor.Tensor {
	if s.wide {
		return tensor.From(s.v)
	}
	return tensor.From(float32(s.v))
}

// A loader reads a tree for an optimizer.
type loader struct {
	b    *base
	made []*tensor.Tensor // new tensors, to be freed if loading fails
}

func (l *loader) bad(path, format string, a ...any) error {
	return &StateError{Optimizer: l.b.name, Path: path, Msg: fmt.Sprintf(format, a...)}
}

// LoadStateDict loads the state from a tree made by StateDict or by torch. The state consists of
// the groups' options and learning rates, and of the state of each parameter. As in torch, tensors
// are copied to their parameter's device and type. Parameters are matched by their order in the
// groups. The numbers in the tree say which state belongs to which parameter. A flag that the tree
// of an older PyTorch lacks keeps its value. Any other option must be present.
//
// If the tree does not fit, the error is a *[StateError], and nothing was changed.
func (b *base) LoadStateDict(tree map[string]any) error {
	b.settle()
	l := &loader{b: b}
	groups, ids, err := l.groups(tree)
	if err == nil {
		var states map[*tensor.Tensor]*state
		if states, err = l.states(tree, ids, groups); err == nil {
			old := b.state
			for i, g := range b.groups {
				g.LR, g.InitialLR, g.Extra, g.config = groups[i].LR, groups[i].InitialLR, groups[i].Extra, groups[i].config
			}
			b.state = states
			for _, st := range old {
				st.free()
			}
			return nil
		}
	}
	for _, t := range l.made {
		t.Free()
	}
	return err
}

func (st *state) free() {
	for _, t := range st.tensors {
		if t != nil {
			t.Free()
		}
	}
}

// groups reads the options of all groups. It also returns a map from each number in the tree to the
// parameter.
func (l *loader) groups(tree map[string]any) ([]*Group, map[int64]*tensor.Tensor, error) {
	list, ok := tree["param_groups"].([]any)
	if !ok {
		return nil, nil, l.bad(`["param_groups"]`, "is %s, want a list of groups", describe(tree["param_groups"]))
	}
	if len(list) != len(l.b.groups) {
		return nil, nil, l.bad(`["param_groups"]`, "has %d groups, the optimizer %d", len(list), len(l.b.groups))
	}
	ids := map[int64]*tensor.Tensor{}
	out := make([]*Group, len(list))
	for i, v := range list {
		path := fmt.Sprintf("param_groups[%d]", i)
		m, ok := v.(map[string]any)
		if !ok {
			return nil, nil, l.bad(path, "is %s, want a map", describe(v))
		}
		g, err := l.group(path, m, l.b.groups[i])
		if err != nil {
			return nil, nil, err
		}
		params, ok := m["params"].([]any)
		if !ok {
			return nil, nil, l.bad(path+`["params"]`, "is %s, want a list of numbers", describe(m["params"]))
		}
		if len(params) != len(g.Params) {
			return nil, nil, l.bad(path+`["params"]`, "has %d parameters, the optimizer's group %d", len(params), len(g.Params))
		}
		for k, v := range params {
			id, ok := v.(int64)
			if !ok {
				return nil, nil, l.bad(fmt.Sprintf(`%s["params"][%d]`, path, k), "is %s, want an int64", describe(v))
			}
			if ids[id] != nil {
				return nil, nil, l.bad(fmt.Sprintf(`%s["params"][%d]`, path, k), "is %d, which stands there twice", id)
			}
			ids[id] = g.Params[k]
		}
		out[i] = g
	}
	return out, ids, nil
}

// group reads the options of one group into a copy of current, and returns the copy.
func (l *loader) group(path string, m map[string]any, current *Group) (*Group, error) {
	g := &Group{Params: current.Params, config: current.config.clone()}
	known := map[string]bool{"lr": true, "initial_lr": true, "params": true}
	lr, ok := number(m["lr"])
	if !ok {
		return nil, l.bad(path+`["lr"]`, "is %s, want a number", describe(m["lr"]))
	}
	if msg := checkNotNegative("the learning rate", lr); msg != "" {
		return nil, l.bad(path, "%s", msg)
	}
	g.LR = lr
	if v, ok := m["initial_lr"]; ok {
		if g.InitialLR, ok = number(v); !ok {
			return nil, l.bad(path+`["initial_lr"]`, "is %s, want a number", describe(v))
		}
	}
	for _, o := range g.config.options() {
		known[o.name] = true
		v, ok := m[o.name]
		if !ok {
			switch o.place.(type) {
			case *bool, negated, fixed:
				continue
			}
			return nil, l.bad(path, "has no %q", o.name)
		}
		if msg := o.set(v); msg != "" {
			return nil, l.bad(fmt.Sprintf("%s[%q]", path, o.name), "%s", msg)
		}
	}
	if msg := g.config.check(); msg != "" {
		return nil, l.bad(path, "holds options that do not go: %s", msg)
	}
	for name, v := range m {
		if known[name] {
			continue
		}
		c, msg := plain(v, 0)
		if msg != "" {
			return nil, l.bad(fmt.Sprintf("%s[%q]", path, name), "%s", msg)
		}
		if g.Extra == nil {
			g.Extra = map[string]any{}
		}
		g.Extra[name] = c
	}
	return g, nil
}

// plain returns a copy of v, a value of a group's Extra, or says why v is not allowed.
func plain(v any, depth int) (any, string) {
	if depth > 16 {
		return nil, "is nested too deep"
	}
	switch v := v.(type) {
	case nil, bool, int64, float64, string, *tensor.Tensor:
		return v, ""
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			c, msg := plain(e, depth+1)
			if msg != "" {
				return nil, msg
			}
			out[i] = c
		}
		return out, ""
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			c, msg := plain(e, depth+1)
			if msg != "" {
				return nil, msg
			}
			out[k] = c
		}
		return out, ""
	}
	return nil, "holds " + describe(v) + ", which has no place in a tree"
}

func (l *loader) states(tree map[string]any, ids map[int64]*tensor.Tensor, groups []*Group) (map[*tensor.Tensor]*state, error) {
	out := map[*tensor.Tensor]*state{}
	configs := map[*tensor.Tensor]config{}
	for _, g := range groups {
		for _, p := range g.Params {
			configs[p] = g.config
		}
	}
	var all map[int64]any
	switch v := tree["state"].(type) {
	case map[int64]any:
		all = v
	case map[string]any: // an empty map may have keys of any type
		if len(v) > 0 {
			return nil, l.bad(`["state"]`, "has names as keys, want the numbers of parameters")
		}
	default:
		return nil, l.bad(`["state"]`, "is %s, want a map of numbers", describe(v))
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		path := fmt.Sprintf("state[%d]", id)
		p := ids[id]
		if p == nil {
			return nil, l.bad(path, "belongs to no parameter of a group")
		}
		m, ok := all[id].(map[string]any)
		if !ok {
			return nil, l.bad(path, "is %s, want a map", describe(all[id]))
		}
		st, err := l.state(path, m, p, configs[p])
		if err != nil {
			return nil, err
		}
		if st != nil && l.b.updates(p) {
			out[p] = st
		}
	}
	return out, nil
}

// state reads the state of one parameter. It returns nil if there is none.
func (l *loader) state(path string, m map[string]any, p *tensor.Tensor, c config) (*state, error) {
	s := &l.b.schema
	st := &state{tensors: make([]*tensor.Tensor, len(s.tensors)), scalars: make([]scalar, len(s.scalars))}
	if len(m) == 0 {
		return nil, nil
	}
	found := 0
	for _, name := range slices.Sorted(maps.Keys(m)) {
		v, at := m[name], fmt.Sprintf("%s[%q]", path, name)
		i, k := s.tensor(name), s.scalar(name)
		switch {
		case i >= 0 && v == nil: // torch writes None for a buffer that was never used
		case i >= 0:
			t, ok := v.(*tensor.Tensor)
			if !ok || t == nil {
				return nil, l.bad(at, "is %s, want a tensor", describe(v))
			}
			want, used := p.Shape(), true
			if s.shape != nil {
				want, used = s.shape(want, i)
			}
			if !used {
				return nil, l.bad(at, "is nothing that %s remembers of a parameter of shape %v", l.b.name, p.Shape())
			}
			if t.Shape() != want {
				return nil, l.bad(at, "has shape %v, its parameter %v", t.Shape(), p.Shape())
			}
			c, err := l.copy(at, t, p)
			if err != nil {
				return nil, err
			}
			st.tensors[i] = c
		case k >= 0 || name == "step" && !s.stepless:
			f, ok := number(v)
			if !ok {
				return nil, l.bad(at, "is %s, want a number", describe(v))
			}
			if k < 0 {
				if !(f >= 0) || f > 1<<53 {
					return nil, l.bad(at, "is %v, want a count of steps", f)
				}
				st.step = f
			} else { // when loading, torch converts the scalar to the parameter's type
				st.scalars[k] = scalar{wide: p.Type().Size() == 8}.round(f)
			}
			found++
		default:
			return nil, l.bad(at, "is nothing that %s remembers", l.b.name)
		}
	}
	want := len(s.scalars)
	if !s.stepless {
		want++
	}
	if found != want {
		return nil, l.bad(path, "is not complete: numbers %q are wanted", append([]string{"step"}, s.scalars...))
	}
	for i := range st.tensors {
		if s.shape == nil {
			break
		}
		if _, used := s.shape(p.Shape(), i); used && st.tensors[i] == nil {
			return nil, l.bad(path, "has no %q", s.tensors[i])
		}
	}
	if l.b.needs != nil {
		for _, i := range l.b.needs(c) {
			if st.tensors[i] == nil {
				return nil, l.bad(path, "has no %q", s.tensors[i])
			}
		}
	}
	return st, nil
}

// copy copies t, a state tensor of parameter p, to p's device and type. A sharded optimizer copies
// only its part of p. If it has no part of p, copy returns t itself.
func (l *loader) copy(path string, t, p *tensor.Tensor) (c *tensor.Tensor, err error) {
	if !l.b.updates(p) {
		return t, nil
	}
	err = tensor.Try(func() {
		if part, ok := l.b.shard.split(p); ok {
			t = part.view(t, (*tensor.Tensor).Reshape)
			defer t.Free()
		}
		c = p.Scope().On(p.Device()).Typed(p.Type()).Empty(t.Shape().Slice()...)
		l.made = append(l.made, c)
		p.Scope().Do(func(s *tensor.Scope) { c.In(s).Copy(t) }, tensor.NoGrad())
	})
	if err != nil {
		return nil, &StateError{l.b.name, path, "cannot be copied: " + err.Error(), err}
	}
	return c, nil
}
