package optim

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// StateDict returns the state as a tree with torch's form and names. As in torch, all state belongs
// to the first parameter. Vectors share memory with the optimizer.
func (o *LBFGS) StateDict() map[string]any {
	tree := o.base.StateDict()
	m := &o.m
	if m.evals == 0 {
		return tree
	}
	state := map[string]any{"func_evals": int64(m.evals), "n_iter": int64(m.iterations)}
	tree["state"] = map[int64]any{0: state}
	if m.d == nil {
		return tree
	}
	number := func(v float64) *tensor.Tensor {
		return tensor.Typed(o.groups[0].Params[0].Type()).From(v)
	}
	vectors := func(list []*tensor.Tensor) []any {
		out := make([]any, len(list))
		for i, t := range list {
			out[i] = t.Detach()
		}
		return out
	}
	ro := make([]any, len(m.ro))
	for i, v := range m.ro {
		ro[i] = number(v)
	}
	state["d"], state["t"], state["old_dirs"], state["old_stps"], state["ro"] = m.d.Detach(), m.t, vectors(m.dirs), vectors(m.steps), ro
	state["H_diag"], state["prev_flat_grad"], state["prev_loss"] = number(m.scale), m.grad.Detach(), m.loss
	return tree
}

// LoadStateDict loads the state from a tree made by StateDict or by torch, and copies vectors to
// the device and type of the parameters. If the tree does not fit, the error is a *[StateError],
// and nothing was changed.
func (o *LBFGS) LoadStateDict(tree map[string]any) error {
	l := &loader{b: &o.base}
	m, groups, err := o.read(l, tree)
	if err != nil {
		for _, t := range l.made {
			t.Free()
		}
		return err
	}
	g, n := o.groups[0], groups[0]
	g.LR, g.InitialLR, g.Extra, g.config = n.LR, n.InitialLR, n.Extra, n.config
	o.m.free()
	o.m = *m
	return nil
}

func (o *LBFGS) read(l *loader, tree map[string]any) (*memory, []*Group, error) {
	groups, ids, err := l.groups(tree)
	if err != nil {
		return nil, nil, err
	}
	m := &memory{}
	all, _ := tree["state"].(map[int64]any)
	if s, empty := tree["state"].(map[string]any); all == nil && !(empty && len(s) == 0) {
		return nil, nil, l.bad(`["state"]`, "is %s, want a map of numbers", describe(tree["state"]))
	}
	first := int64(-1)
	for id, p := range ids {
		if p == o.groups[0].Params[0] {
			first = id
		}
	}
	for id := range all {
		if id != first {
			return nil, nil, l.bad(fmt.Sprintf("state[%d]", id), "is not the state of the first parameter, where all of it is")
		}
	}
	if len(all) == 0 {
		return m, groups, nil
	}
	path := fmt.Sprintf("state[%d]", first)
	s, ok := all[first].(map[string]any)
	if !ok {
		return nil, nil, l.bad(path, "is %s, want a map", describe(all[first]))
	}
	r := &reader{l: l, path: path, m: s, like: o.groups[0].Params[0]}
	for _, p := range o.Params() {
		r.n += p.Size()
	}
	m.evals, m.iterations = int(r.number("func_evals")), int(r.number("n_iter"))
	if r.err == nil && (m.evals < 0 || m.iterations < 0) {
		return nil, nil, l.bad(path, "has negative counts")
	}
	if s["d"] != nil {
		m.d, m.t, m.grad, m.loss, m.scale = r.vector("d", s["d"]), r.number("t"), r.vector("prev_flat_grad", s["prev_flat_grad"]), r.number("prev_loss"), r.number("H_diag")
		m.dirs, m.steps = r.vectors("old_dirs"), r.vectors("old_stps")
		for i, v := range r.list("ro") {
			f, ok := number(v)
			if !ok {
				r.fail(fmt.Sprintf("ro][%d", i), v, "a number")
			}
			m.ro = append(m.ro, f)
		}
		if r.err == nil && (len(m.dirs) != len(m.steps) || len(m.dirs) != len(m.ro)) {
			return nil, nil, l.bad(path, "has %d old_dirs, %d old_stps and %d ro", len(m.dirs), len(m.steps), len(m.ro))
		}
	} else if m.iterations > 0 {
		r.fail("d", nil, "a tensor")
	}
	if r.err != nil {
		return nil, nil, r.err
	}
	return m, groups, nil
}

// A reader reads entries of a saved state, and stores the first error.
type reader struct {
	l    *loader
	path string
	m    map[string]any
	like *tensor.Tensor // tensor whose device and type the vectors get
	n    int            // number of elements of a vector
	err  error
}

func (r *reader) fail(name string, v any, want string) {
	if r.err == nil {
		r.err = r.l.bad(fmt.Sprintf("%s[%s]", r.path, name), "is %s, want %s", describe(v), want)
	}
}

func (r *reader) number(name string) float64 {
	f, ok := number(r.m[name])
	if !ok {
		r.fail(name, r.m[name], "a number")
	}
	return f
}

func (r *reader) list(name string) []any {
	v, ok := r.m[name].([]any)
	if !ok || len(v) > 1<<20 {
		r.fail(name, r.m[name], "a list")
	}
	return v
}

func (r *reader) vectors(name string) (out []*tensor.Tensor) {
	for i, v := range r.list(name) {
		out = append(out, r.vector(fmt.Sprintf("%s][%d", name, i), v))
	}
	return out
}

func (r *reader) vector(name string, v any) *tensor.Tensor {
	t, ok := v.(*tensor.Tensor)
	if !ok || t == nil || t.Rank() != 1 || t.Size() != r.n {
		r.fail(name, v, fmt.Sprintf("a vector of %d", r.n))
		return nil
	}
	if r.err != nil {
		return nil
	}
	var c *tensor.Tensor
	err := tensor.Try(func() {
		c = r.like.Scope().On(r.like.Device()).Typed(r.like.Type()).Empty(r.n)
		r.l.made = append(r.l.made, c)
		r.like.Scope().Do(func(s *tensor.Scope) { c.In(s).Copy(t) }, tensor.NoGrad())
	})
	if err != nil {
		r.err = &StateError{r.l.b.name, r.path + "[" + name + "]", "cannot be copied: " + err.Error(), err}
	}
	return c
}
