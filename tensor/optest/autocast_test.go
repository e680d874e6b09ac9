package optest

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// autocastCase describes how autocast treats an op. floats marks the floating point operands, which
// autocast casts. Autocast does not change other operands.
type autocastCase struct {
	name   string // name of the method or function, as in _golden/amp.py
	op     string
	floats []bool
	run    func(s *tensor.Scope, w *walk, types []dtype.Type, grad bool) (y *tt, leaves []*tt)
	class  tensor.AutocastClass
	only   []dtype.Type // types that the row of the table accepts
	// true if the row computes more than the op; the type of its result is then not compared
	mixed bool
}

// autocastCases lists every op of the registry: the declared elementwise ops and reductions, the
// rows of the tables, and the in-place forms.
func autocastCases() []autocastCase {
	var list []autocastCase
	add := func(name, op string, floats []bool, class tensor.AutocastClass, sampled func(k int) array, call func(x []*tt) *tt) {
		list = append(list, autocastCase{name, op, floats, func(s *tensor.Scope, w *walk, types []dtype.Type, grad bool) (*tt, []*tt) {
			var x, leaves []*tt
			for k, ty := range types {
				a := sampled(k)
				v := w.put(s, &a, ty, contiguous)
				if floats[k] && grad {
					leaves = append(leaves, v.RequiresGrad())
				}
				x = append(x, v)
			}
			return call(x), leaves
		}, class, nil, false})
	}
	all := func(n int) []bool {
		f := make([]bool, n)
		for i := range f {
			f[i] = true
		}
		return f
	}
	for _, e := range tensor.Declared() {
		m, ok := methods[e.Name]
		if !ok || e.Result == tensor.Integral {
			continue
		}
		floats := all(e.Arity)
		for i := range floats {
			floats[i] = e.Fixed>>i&1 == 0
		}
		add(m.name, e.Name, floats, e.Autocast, func(k int) array {
			d := e.Domain[min(k, len(e.Domain)-1)]
			dims := []int{3, 4}
			if e.Name == "prelu" && k == 1 {
				dims = []int{1}
			}
			return sample(random(e.Name), dtype.BF16, d[0], d[1], dims...)
		}, func(x []*tt) *tt { return m.call(x, e.Params) })
	}
	for _, r := range tensor.Reductions() {
		m := reduceMethods[r.Name]
		add(m.name, r.Name, all(1), r.Autocast, func(int) array { return sample(random(r.Name), dtype.BF16, r.Domain[0], r.Domain[1], 3, 4) },
			func(x []*tt) *tt { return m.call(x[0], 1) })
	}
	for _, r := range table() {
		floats := all(len(r.in))
		for k := range r.index {
			floats[k] = false
		}
		name := r.op
		if len(r.methods) > 0 {
			name = r.methods[0]
		} else if r.op == "conv large" {
			name = "Conv1d"
		}
		in := r.operands(dtype.BF16)
		add(name, r.String(), floats, tensor.AutocastThrough, func(k int) array { return in[k] }, func(x []*tt) *tt {
			y := r.call(x)
			if r.noGrad {
				return y.Detach()
			}
			return y
		})
		list[len(list)-1].only = r.only
		if c := &list[len(list)-1]; r.only != nil || r.text != "" || r.op == "matrix_power" || slices.Contains([]string{"rfloor_divide_scalar", "rremainder_scalar", "rxlogy_scalar"}, r.op) {
			c.mixed = true
		} else if c.op == "interpolate [[1 2 5 3]]" { // this mode is area, an average pool
			c.name = "AdaptiveAvgPool2d"
		}
	}
	for _, f := range inPlaceForms {
		if f.integer {
			continue
		}
		add(f.name+"InPlace", f.name+" in place", all(f.arity), tensor.AutocastThrough, func(k int) array { return sample(random(f.name), dtype.BF16, 0.3, 0.9, 3, 4) },
			func(x []*tt) *tt { return f.inPlace(append([]*tt{x[0].Clone()}, x[1:]...)) })
	}
	return list
}

// TestAutocastTypes runs every op of the registry under autocast to both types. The result has the
// type that PyTorch's dispatcher chooses on CUDA, and the gradients have the types of the leaves.
// For an op that PyTorch does not list, autocast changes nothing.
func TestAutocastTypes(t *testing.T) {
	text, err := os.ReadFile("testdata/autocast.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]json.RawMessage
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	w := &walk{dev: hostDevice()}
	used := map[string]bool{}
	for _, c := range autocastCases() {
		// with -short test only some ops; the race detector is too slow to test all of them
		if testing.Short() && !someOps(c.op) {
			continue
		}
		want := map[string]string{}
		if raw, ok := golden["op "+c.name]; ok {
			used["op "+c.name] = true
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
		} else if c.class != tensor.AutocastThrough {
			t.Errorf("%s has autocast class %d and no golden type", c.name, c.class)
		}
		for _, low := range []dtype.Type{dtype.F16, dtype.BF16} {
			for _, how := range "fhm" {
				types, n := make([]dtype.Type, len(c.floats)), 0
				for k, float := range c.floats {
					switch {
					case !float:
						types[k] = dtype.I64
					case how == 'h' || how == 'm' && n == 0:
						types[k] = low
					default:
						types[k] = dtype.F32
					}
					if float {
						n++
					}
				}
				if how == 'm' && n < 2 || how != 'f' && c.only != nil && !slices.Contains(c.only, low) || want[string(how)] == "error" {
					continue
				}
				c.check(t, w, low, types, want[string(how)], want)
			}
		}
	}
	for name := range golden {
		if strings.HasPrefix(name, "op ") && !used[name] && !testing.Short() {
			t.Errorf("no op of the registry is called %s", name)
		}
	}
}

func (c *autocastCase) check(t *testing.T, w *walk, low dtype.Type, types []dtype.Type, want string, golden map[string]string) {
	t.Helper()
	fixed := append([]dtype.Type(nil), types...)
	if c.op == "where" || c.op == "masked_fill" {
		for k, float := range c.floats {
			if !float {
				fixed[k] = dtype.Bool
			}
		}
	}
	plain := dtype.Invalid
	refused := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { y, _ := c.run(s, w, fixed, false); plain = y.Type() })
	})
	mixed := slices.Contains(types, low) && slices.Contains(types, dtype.F32)
	if refused != nil && (want == "" || want == "other" || want == "low" && mixed && golden["f"] == "f32" || strings.HasSuffix(c.name, "InPlace")) {
		return // the op refuses such operands; autocast does not cast for in-place ops
	}
	result := plain
	switch {
	case refused == nil && !plain.IsFloat(): // the indices of an op that also returns values
	case want == "low":
		result = low
	case want == "f32":
		result = dtype.F32
	}
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			y, leaves := c.run(s, w, fixed, true)
			if y.Type() != result && !c.mixed {
				t.Errorf("%s (%s) of %v under autocast to %v: %v, want %v", c.name, c.op, fixed, low, y.Type(), result)
			}
			if !y.NeedsGrad() {
				return
			}
			y.Sum().Backward()
			for _, x := range leaves {
				if g := x.Grad(); g != nil && g.Type() != x.Type() {
					t.Errorf("%s of %v under autocast to %v: a gradient is %v", c.name, fixed, low, g.Type())
				}
			}
		}, tensor.Autocast(low))
	})
	if err != nil {
		t.Errorf("%s (%s) of %v under autocast to %v: %v", c.name, c.op, fixed, low, err)
	}
}
