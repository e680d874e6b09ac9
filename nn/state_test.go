package nn_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// tied is built like a language model. The embedding's weight is also the head's, and one layer
// occurs twice.
type tied struct {
	nn.Base
	Table *nn.Linear
	Norm  *nn.BatchNorm1d
	Again *nn.Linear
	Head  *nn.Linear
	Mask  *tensor.Tensor `nn:"mask,transient"`
}

func newTied(s *tensor.Scope) *tied {
	m := &tied{Table: nn.NewLinear(3, 3, nn.In(s)), Norm: nn.NewBatchNorm1d(3, nn.In(s)), Head: nn.NewLinear(3, 3, nn.NoBias(), nn.In(s)), Mask: s.Ones(2)}
	m.Again, m.Head.Weight = m.Table, m.Table.Weight
	return m
}

func (m *tied) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Head.Forward(m.Again.Forward(m.Norm.Forward(m.Table.Forward(x))))
}

func names(list []nn.Param) string {
	var out []string
	for _, p := range list {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func keys(sd map[string]*tensor.Tensor) string {
	return strings.Join(slices.Sorted(maps.Keys(sd)), " ")
}

// The names in a state dict equal those of PyTorch 2.15 for the same model.
func TestStateDict(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newTied(s)
		if got, want := names(nn.NamedParameters(m)), "table.weight table.bias norm.weight norm.bias"; got != want {
			t.Errorf("parameters %s", got)
		}
		if got, want := names(nn.NamedBuffers(m)), "norm.running_mean norm.running_var norm.num_batches_tracked mask"; got != want {
			t.Errorf("buffers %s", got)
		}
		if n := len(nn.Buffers(m)); n != 4 {
			t.Errorf("%d buffers", n)
		}
		sd := nn.StateDict(m)
		want := "again.bias again.weight head.weight norm.bias norm.num_batches_tracked norm.running_mean norm.running_var norm.weight table.bias table.weight"
		if got := keys(sd); got != want {
			t.Errorf("state dict %s", got)
		}
		if n := sd["norm.num_batches_tracked"]; n.Type() != dtype.I64 || n.Rank() != 0 {
			t.Errorf("the count of batches is %v %v", n.Type(), n.Shape())
		}
		if w := sd["head.weight"]; w.NeedsGrad() || !w.IsLeaf() {
			t.Error("the dict is detached")
		}
		s.Do(func(c *tensor.Scope) { m.Table.Weight.In(c).Fill(7) }, tensor.NoGrad())
		sd["again.weight"].Fill(8)
		if v := m.Head.Weight.Floats()[0]; v != 8 {
			t.Errorf("the dict shares the model's memory, the weight is %v", v)
		}
	})
}

func TestLoadStateDict(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		from, to := newTied(s), newTied(s)
		opt := optim.NewSGD(nn.Parameters(to), optim.SGDConfig{LR: 0.5})
		from.Forward(s.Rand(4, 3)) // changes the running statistics
		weight := to.Table.Weight
		if err := nn.LoadStateDict(to, nn.StateDict(from)); err != nil {
			t.Fatal(err)
		}
		for name, x := range nn.StateDict(from) {
			if !slices.Equal(x.Floats(), nn.StateDict(to)[name].Floats()) {
				t.Errorf("%s was not loaded", name)
			}
		}
		if to.Table.Weight != weight || !weight.NeedsGrad() || !weight.IsLeaf() {
			t.Error("the tensors stay")
		}
		before := weight.Floats()
		to.Forward(s.Rand(4, 3)).Sum().Backward()
		g := weight.Grad().Floats()
		opt.Step()
		for i, v := range weight.Floats() {
			if v != float64(float32(before[i])-float32(0.5)*float32(g[i])) {
				t.Fatalf("a step from %v by %v ends at %v", before[i], g[i], v)
			}
		}
		// The dict needs only one name of a tied tensor, and may lack num_batches_tracked.
		// LoadStateDict converts types. Tensors of a child scope load into a model of an outer
		// scope.
		sd := nn.StateDict(from)
		delete(sd, "table.weight")
		delete(sd, "again.weight")
		delete(sd, "again.bias")
		delete(sd, "norm.num_batches_tracked")
		s.Do(func(c *tensor.Scope) {
			sd["head.weight"] = c.Typed(dtype.F64).Full(1.5, 3, 3)
			sd["norm.bias"] = c.Typed(dtype.I64).Full(2, 3)
			if err := nn.LoadStateDict(to, sd); err != nil {
				t.Fatal(err)
			}
		})
		if w := to.Table.Weight; w.Type() != dtype.F32 || w.Floats()[8] != 1.5 || to.Norm.Bias.Floats()[0] != 2 {
			t.Errorf("loaded %v and %v", w, to.Norm.Bias)
		}
		if n := to.Norm.NumBatchesTracked.Item(); n != 2 {
			t.Errorf("the count is %v", n)
		}
		// The dict has different values under several names of a tensor. torch silently uses the
		// last value.
		sd["norm.bias"] = s.Ones(3)
		sd["table.weight"], sd["again.weight"], sd["head.weight"] = s.Full(1, 3, 3), s.Full(2, 3, 3), s.Full(3, 3, 3)
		var e *nn.StateError
		if err := nn.LoadStateDict(to, sd); !errors.As(err, &e) || len(e.Differing) != 2 || to.Table.Weight.Floats()[0] != 1.5 {
			t.Errorf("%v, the weight is %v", err, to.Table.Weight)
		}
	})
}

func TestLoadStateDictErrors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		from, to := newTied(s), newTied(s)
		before := to.Table.Bias.Floats()
		sd := nn.StateDict(from)
		delete(sd, "norm.weight")
		delete(sd, "norm.running_var")
		sd["extra"], sd["another"] = s.Ones(1), s.Ones(1)
		err := nn.LoadStateDict(to, sd)
		var e *nn.StateError
		if !errors.As(err, &e) || fmt.Sprint(e.Missing, e.Unexpected) != "[norm.weight norm.running_var] [another extra]" || len(e.Mismatched)+len(e.Unusable) > 0 {
			t.Fatalf("%v", err)
		}
		for _, part := range []string{"2 missing: norm.weight, norm.running_var", "2 unexpected: another, extra", "nn.Loose()"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %v", part, err)
			}
		}
		if !slices.Equal(to.Table.Bias.Floats(), before) {
			t.Error("something was written")
		}
		var found nn.StateError
		if err := nn.LoadStateDict(to, sd, nn.Loose(), nn.Report(&found)); err != nil || len(found.Missing) != 2 || len(found.Unexpected) != 2 {
			t.Errorf("%v, found %+v", err, found)
		}
		if !slices.Equal(to.Table.Bias.Floats(), from.Table.Bias.Floats()) {
			t.Error("nothing was loaded")
		}
		// Loose still refuses tensors whose shapes differ.
		to = newTied(s)
		freed := s.Ones(3)
		freed.Free()
		sd["table.bias"], sd["norm.bias"], sd["head.weight"] = freed, nil, s.Ones(3, 1)
		err = nn.LoadStateDict(to, sd, nn.Loose())
		if !errors.As(err, &e) || fmt.Sprint(e.Mismatched, e.Unusable) != "[{head.weight [3, 3] [3, 1]}] [table.bias norm.bias]" {
			t.Errorf("%v", err)
		}
		if !strings.Contains(err.Error(), "head.weight is [3, 3] in the model, [3, 1] in the dict") || strings.Contains(err.Error(), "Loose") {
			t.Error(err)
		}
		if e.Mismatched[0].Model != shape.Of(3, 3) {
			t.Errorf("%v", e.Mismatched)
		}
		if w := to.Norm.Weight.Floats(); slices.Contains(w, 0) {
			t.Errorf("something was written: %v", w)
		}
		long := map[string]*tensor.Tensor{}
		for i := range 25 {
			long[fmt.Sprintf("x%02d", i)] = s.Ones(1)
		}
		if err := nn.LoadStateDict(&nn.ReLU{}, long); !strings.Contains(err.Error(), "25 unexpected: x00") || !strings.HasSuffix(err.Error(), "in both") || !strings.Contains(err.Error(), "x09 and 15 more;") {
			t.Error(err)
		}
	})
}

// The error distinguishes names with a prefix, such as those that DataParallel or compile make,
// from the names of another model.
func TestLoadStateDictOfWrappedModel(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		to := newTied(s)
		wrapped, other := map[string]*tensor.Tensor{}, map[string]*tensor.Tensor{}
		for name, x := range nn.StateDict(newTied(s)) {
			wrapped["module."+name], other["m"+name] = x, x
		}
		if err := nn.LoadStateDict(to, wrapped); err == nil || !strings.Contains(err.Error(), `every unexpected name begins with "module."`) {
			t.Error(err)
		}
		if err := nn.LoadStateDict(to, other); err == nil || strings.Contains(err.Error(), "begins with") {
			t.Error(err)
		}
		holder := struct{ Net any }{to}
		if err := nn.LoadStateDict(&holder, nn.StateDict(to)); err == nil || !strings.Contains(err.Error(), `the unexpected names lack "net." in front`) {
			t.Error(err)
		}
	})
}

// LoadStateDict copies values between models on different devices.
func TestLoadStateDictAcrossDevices(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		from, to := newTied(s), newTied(s)
		nn.To(from, gpus[0])
		for range 2 {
			if err := nn.LoadStateDict(to, nn.StateDict(from)); err != nil {
				t.Fatal(err)
			}
			for name, x := range nn.StateDict(to) {
				if !slices.Equal(x.Floats(), nn.StateDict(from)[name].Floats()) {
					t.Errorf("%s was not loaded", name)
				}
			}
			from, to = to, newTied(s)
			nn.To(to, gpus[0])
		}
		if to.Table.Weight.Device() != gpus[0] {
			t.Error("the model stays where it is")
		}
	})
}

func TestCast(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newTied(s)
		w := m.Table.Weight
		m.Forward(s.Rand(4, 3)).Sum().Backward()
		g := w.Grad().Floats()
		if nn.Cast(m, dtype.F64) != m || m.Table.Weight != w || w.Type() != dtype.F64 || w.Grad().Type() != dtype.F64 || !w.NeedsGrad() || !slices.Equal(w.Grad().Floats(), g) {
			t.Errorf("the weight is %v, its gradient %v", w.Type(), w.Grad().Type())
		}
		if n := m.Norm; n.RunningMean.Type() != dtype.F64 || n.NumBatchesTracked.Type() != dtype.I64 || m.Mask.Type() != dtype.F64 {
			t.Error("buffers")
		}
		y := m.Forward(s.Typed(dtype.F64).Rand(4, 3))
		if y.Sum().Backward(); y.Type() != dtype.F64 {
			t.Error(y.Type())
		}
		if nn.Cast(m, dtype.BF16); w.Grad().Type() != dtype.BF16 || m.Forward(s.Typed(dtype.BF16).Rand(4, 3)).Type() != dtype.BF16 {
			t.Error("bfloat16")
		}
		mustPanic(t, "floating point types only, not to int64", func() { nn.Cast(m, dtype.I64) })
		for _, f := range []func(){
			func() { w.CastInPlace(dtype.I64) },
			func() { w.MulScalar(2).CastInPlace(dtype.F32) },
			func() { s.Do(func(c *tensor.Scope) { w.In(c).CastInPlace(dtype.F32) }) },
		} {
			if err := tensor.Try(f); err == nil || w.Type() != dtype.BF16 {
				t.Errorf("%v, the weight is %v", err, w.Type())
			}
		}
		x := s.From([]float32{1.5, -2})
		x.CastInPlace(dtype.I32)
		if x.Type() != dtype.I32 || !slices.Equal(x.Floats(), []float64{1, -2}) {
			t.Error(x)
		}
	})
}

func TestFreeze(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newTied(s)
		if nn.Freeze(m.Table) != m.Table || m.Head.Weight.NeedsGrad() || !m.Norm.Weight.NeedsGrad() {
			t.Error("the table is frozen, the norm not")
		}
		m.Forward(s.Rand(4, 3)).Sum().Backward()
		if m.Table.Weight.Grad() != nil || m.Norm.Weight.Grad() == nil {
			t.Error("gradients")
		}
		if nn.Unfreeze(m); !m.Head.Weight.NeedsGrad() || m.Norm.RunningMean.NeedsGrad() {
			t.Error("unfrozen")
		}
		if n := len(nn.Parameters(nn.Freeze(m))); n != 4 {
			t.Errorf("%d parameters", n)
		}
	})
}

func TestApplyAndModules(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := newTied(s)
		var order []string
		if nn.Apply(m, func(l any) { order = append(order, fmt.Sprintf("%T", l)) }) != m {
			t.Error("it returns the model")
		}
		if got := strings.Join(order, " "); got != "*nn.Linear *nn.BatchNorm1d *nn.Linear *nn_test.tied" {
			t.Error(got)
		}
		order = nil
		for name, l := range nn.Modules(nn.NewSequential(nn.ReLU{}, m)) {
			order = append(order, fmt.Sprintf("%s:%T", name, l))
		}
		if got := strings.Join(order, " "); got != ":*nn.Sequential 0:nn.ReLU 1:*nn_test.tied 1.table:*nn.Linear 1.norm:*nn.BatchNorm1d 1.head:*nn.Linear" {
			t.Error(got)
		}
		for range nn.Modules(m) {
			break
		}
	})
}

// mustPanic fails the test unless f panics with an *nn.Error that contains the given text.
func mustPanic(t *testing.T, says string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if e, ok := recover().(*nn.Error); !ok || !strings.Contains(e.Error(), says) {
			t.Errorf("got %v, want an error that says %q", e, says)
		}
	}()
	f()
}

type ring struct {
	nn.Base
	Fc   *nn.Linear
	Next *ring
}

func (r *ring) Forward(x *tensor.Tensor) *tensor.Tensor { return x }

type leftRight struct {
	Left  half
	Right half `nn:"left"`
}

type half struct {
	Fc *nn.Linear
}

// Functions such as Parameters and StateDict panic for these mistakes in a model's structure.
func TestUnsoundNames(t *testing.T) {
	w := func() *tensor.Tensor { return tensor.Ones(1).RequiresGrad() }
	r := &ring{Fc: nn.NewLinear(1, 1)}
	r.Next = &ring{Fc: r.Fc, Next: r}
	type base struct {
		W *tensor.Tensor `nn:"w"`
	}
	type clash struct {
		base
		W *tensor.Tensor `nn:"w"`
	}
	type inlineOne struct {
		Fc *nn.Linear `nn:"fc,inline"`
	}
	type wrong struct {
		Fc *nn.Linear `nn:"fc,buffer"`
	}
	type inlined struct {
		A []*nn.Linear `nn:",inline"`
		B []*nn.Linear `nn:",inline"`
	}
	type maybe struct {
		Fc *nn.Linear `nn:"fc,optional"`
		Ml nn.Module  `nn:",optional"`
	}
	type maybeList struct {
		Fc []*nn.Linear `nn:",optional"`
	}
	if n := len(nn.Parameters(&maybe{})) + len(nn.Parameters(&maybe{nn.NewLinear(1, 1), nn.NewLinear(1, 1)})); n != 4 {
		t.Errorf("%d parameters", n)
	}
	for says, m := range map[string]any{
		`Fc: unknown option "optional"`:                     &maybeList{},
		"next.next: the *nn_test.ring holds itself":         r,
		`Right: the name "left" is used twice`:              &leftRight{},
		"w: the name belongs to two tensors":                &clash{base{w()}, w()},
		"Fc: what is inline has no name of its own":         &inlineOne{nn.NewLinear(1, 1)},
		`Fc: unknown option "buffer" in the tag of a layer`: &wrong{nn.NewLinear(1, 1)},
		"0.weight: the name belongs to two tensors":         &inlined{[]*nn.Linear{nn.NewLinear(1, 1)}, []*nn.Linear{nn.NewLinear(1, 1)}},
		"2: the layer is nil":                               nn.NewSequential(nn.ReLU{}, nn.ReLU{}, nil),
		"1: the layer is nil":                               nn.NewSequential(nn.ReLU{}, (*nn.Linear)(nil)),
	} {
		mustPanic(t, says, func() { nn.Parameters(m) })
		mustPanic(t, says, func() { nn.StateDict(m) })
		mustPanic(t, says, func() { _ = nn.LoadStateDict(m, nil) })
		mustPanic(t, says, func() { nn.Freeze(m) })
		mustPanic(t, says, func() { nn.Cast(m, dtype.F16) })
	}
}

// As in torch's ParameterList, the parameters of a list have their indices as names.
func TestListsOfParameters(t *testing.T) {
	type listed struct {
		W []*tensor.Tensor `nn:"w"`
		B []*tensor.Tensor `nn:"b,buffer"`
	}
	tensor.Do(func(s *tensor.Scope) {
		m := &listed{[]*tensor.Tensor{s.Ones(1).RequiresGrad(), s.Ones(2).RequiresGrad()}, []*tensor.Tensor{s.Zeros(3)}}
		if got := names(nn.Named(m)); got != "w.0 w.1 b.0" || len(nn.Parameters(m)) != 2 {
			t.Error(got)
		}
		if o := nn.Summary(m); o.Trainable != 3 || o.Layers[0].Parameters != 3 || o.Buffers != 3 {
			t.Error(o)
		}
		type outer struct{ In listed }
		if n := len(nn.Parameters(&outer{*m})); n != 2 {
			t.Errorf("%d parameters inside", n)
		}
		m.W[1] = nil
		mustPanic(t, "w.1: the parameter is nil", func() { nn.Parameters(m) })
	})
}
