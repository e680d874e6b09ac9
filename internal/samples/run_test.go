package samples

import (
	"bytes"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// An outcome says whether a sample succeeded, and what was compared.
type outcome struct {
	what string // what failed: one of the words in the package comment, or "" for success
	msg  string

	results, grads, seconds int // number of tensors that were compared
}

// These are the ways in which a sample can fail.
const (
	inResult  = "result"   // type, shape or values of a result differ
	inGrad    = "gradient" // a gradient of first order differs
	inSecond  = "second"   // a gradient of second order differs
	isRefused = "refused"  // the library returns a typed error, but PyTorch computes a result
	isTaken   = "taken"    // the library returns no error, but PyTorch does
	isLacking = "lacking"  // the library does not have an argument
	isBroken  = "broken"   // the library panics without a typed error; no row can permit this
)

// A call calls the library's function for an entry. It returns a tensor, a slice of tensors, or a
// list of tensors, numbers and booleans.
type call func(a *args) any

// A variant says in which type and memory layout a sample runs.
type variant struct {
	name   string
	double bool
	form   func(x *tensor.Tensor) *tensor.Tensor
	order  int // highest order of gradients that are compared

	unsigned bool // compare zeros without regard to their signs
}

// attempt runs f and turns a panic into an outcome.
func attempt(f func()) (out outcome) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case lack:
			out.what, out.msg = isLacking, string(r)
		case wrong:
			out.what, out.msg = isRefused, "by its type: "+string(r)
		case *tensor.Error:
			out.what, out.msg = isRefused, r.Op+": "+r.Msg
		case *nn.Error:
			out.what, out.msg = isRefused, r.Error()
		case *optim.Error:
			out.what, out.msg = isRefused, r.Error()
		default:
			out.what, out.msg = isBroken, fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	f()
	return out
}

// runs calls f with the arguments of r, in the variant w, and compares the results with PyTorch's.
func runs(f call, r *row, w variant, opts ...tensor.Option) (out outcome) {
	fail := func(what, format string, v ...any) {
		if out.what == "" {
			out.what, out.msg = what, fmt.Sprintf(format, v...)
		}
	}
	ended := attempt(func() {
		tensor.Do(func(s *tensor.Scope) {
			m := &maker{file: r.file, scope: s, double: w.double, form: w.form,
				isLeaf: map[int]bool{}}
			for _, i := range r.Leaves {
				m.isLeaf[i] = w.order > 0
			}
			a := &args{scope: s, double: w.double, kw: map[string]any{}, used: map[string]bool{}}
			for _, v := range r.Args {
				a.pos = append(a.pos, m.value(v))
			}
			for _, name := range sortedKeys(r.Kw) {
				a.kw[name] = m.value(r.Kw[name])
			}
			outs := flat(f(a))
			if u := a.unused(); u != "" {
				lacks("%s", u)
			}
			if r.From == "error" {
				return
			}
			if len(outs) != len(r.Out) {
				fail(inResult, "%d results, want %d", len(outs), len(r.Out))
				return
			}
			for k, want := range r.Out {
				if msg := diff(outs[k], want, r, w); msg != "" {
					fail(inResult, "result %d: %s", k, msg)
				}
				out.results++
			}
			if w.order < 1 || len(r.Grads) == 0 || r.Random {
				return
			}
			total := weightedSum(outs)
			// no result has a gradient, so all of PyTorch's gradients must be zero
			if total == nil {
				for k, want := range r.Grads {
					if msg := sameGrad(nil, want, r, w); msg != "" {
						fail(inGrad, "gradient %d: %s", k, msg)
					}
				}
				return
			}
			o := []tensor.GradOption{tensor.AllowUnused()}
			second := w.order > 1 && r.Seconds != nil
			if second {
				o = append(o, tensor.CreateGraph())
			}
			grads := tensor.Gradients(total, m.leaves, o...)
			// these gradients are sums, and the sign of a zero sum depends on the order
			w.unsigned = true
			for k, want := range r.Grads {
				if msg := sameGrad(grads[k], want, r, w); msg != "" {
					fail(inGrad, "gradient %d: %s", k, msg)
				}
				out.grads++
			}
			if !second {
				return
			}
			var list []any
			for _, g := range grads {
				list = append(list, g)
			}
			seconds := make([]*tensor.Tensor, len(m.leaves))
			if total := weightedSum(list); total != nil {
				seconds = tensor.Gradients(total, m.leaves, tensor.AllowUnused())
			}
			for k, want := range r.Seconds {
				if msg := sameGrad(seconds[k], want, r, w); msg != "" {
					fail(inSecond, "second gradient %d: %s", k, msg)
				}
				out.seconds++
			}
		}, opts...)
	})
	if ended.what == isRefused && len(r.Grads) > 0 && out.results == len(r.Out) && out.what == "" {
		ended.what = inGrad
		if out.grads == len(r.Grads) {
			ended.what = inSecond
		}
	}
	if ended.what != "" && out.what == "" {
		out.what, out.msg = ended.what, ended.msg
	}
	if r.From == "error" {
		switch out.what {
		case isRefused, isLacking:
			out.what = ""
		case "":
			out.what, out.msg = isTaken, "torch: "+r.Error
		}
	}
	return out
}

func flat(v any) (out []any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, flat(e)...)
		}
	case []*tensor.Tensor:
		for _, e := range v {
			out = append(out, e)
		}
	case nil:
	default:
		out = append(out, v)
	}
	return out
}

// weightedSum multiplies each result that requires a gradient by the numbers that the function seed
// returns, and returns the sum. It returns nil if no result requires a gradient.
func weightedSum(outs []any) (total *tensor.Tensor) {
	for k, o := range outs {
		y, _ := o.(*tensor.Tensor)
		if y == nil || !y.Type().IsFloat() || !y.NeedsGrad() {
			continue
		}
		p := y.Mul(seed(y.Scope(), y.Type(), k, y.Shape().Slice())).Sum()
		if total != nil {
			p = total.Cast(wider(total, p)).Add(p.Cast(wider(total, p)))
		}
		total = p
	}
	return total
}

func wider(x, y *tensor.Tensor) dtype.Type { return dtype.Promote(x.Type(), y.Type()) }

// sameGrad compares a gradient with PyTorch's and returns "" or the difference. A missing gradient
// counts as zero.
func sameGrad(g *tensor.Tensor, want *number, r *row, w variant) string {
	switch {
	case want == nil && g == nil:
		return ""
	case want == nil:
		for _, v := range g.Floats() {
			if v != 0 {
				return fmt.Sprintf("is %v, PyTorch has none", v)
			}
		}
		return ""
	case g == nil:
		ref := must(r.file.Tensor(want.Own))
		if slices.ContainsFunc(ref.Float64s(), func(v float64) bool { return v != 0 }) {
			return fmt.Sprintf("there is none, PyTorch has %v", ref.Float64s())
		}
		return ""
	}
	return diff(g, want, r, w)
}

// diff compares a result with PyTorch's and returns "" or the difference.
func diff(got any, want *number, r *row, w variant) string {
	if want == nil {
		return ""
	}
	y, isTensor := got.(*tensor.Tensor)
	if want.Value != nil {
		v := (&maker{file: r.file}).value(want.Value)
		if isTensor || fmt.Sprint(plain(got)) != fmt.Sprint(plain(v)) {
			return fmt.Sprintf("is %v, want %v", got, v)
		}
		return ""
	}
	if !isTensor {
		return fmt.Sprintf("is %v, want a tensor", got)
	}
	if want.Own == "" {
		t, err := dtype.Parse(want.Type)
		if w.double && err == nil && t.IsFloat() {
			t = dtype.F64
		}
		return sameForm(y, t, want.Shape)
	}
	own := must(r.file.Tensor(want.Own))
	t := stored[own.DType]
	if w.double && t.IsFloat() && want.To == "" {
		t = dtype.F64
	}
	if msg := sameForm(y, t, own.Shape); msg != "" {
		return msg
	}
	if !t.IsFloat() {
		if t == dtype.I64 {
			if got := tensor.Data[int64](y); !slices.Equal(got, own.Int64s()) && y.Size() > 0 {
				return fmt.Sprintf("is %v, want %v", brief(got), brief(own.Int64s()))
			}
			return ""
		}
		if got := y.Floats(); !slices.Equal(got, own.Float64s()) && y.Size() > 0 {
			return fmt.Sprintf("is %v, want %v", brief(got), brief(own.Float64s()))
		}
		return ""
	}
	ref := own
	if want.Ref != "" {
		ref = must(r.file.Tensor(want.Ref))
	}
	var rule golden.Rule
	if want.Terms != "" {
		rule.Terms = terms(must(r.file.Tensor(want.Terms)))
	}
	if w.unsigned && y.Size() > 0 {
		rule.Torn = zeros(ref)
	}
	if w.double && want.To == "" {
		own = ref
	}
	return rule.WrongIn(precision[t], y.Floats(), own, ref)
}

// zeros returns a mask for [golden.Rule.Torn] that permits any sign for each zero.
func zeros(ref golden.Tensor) *golden.Tensor {
	return &golden.Tensor{DType: "BOOL", Shape: ref.Shape, Data: bytes.Repeat([]byte{1}, ref.Len())}
}

var precision = map[dtype.Type]golden.Precision{
	dtype.F64: golden.Double, dtype.F32: golden.Single, dtype.F16: golden.Half,
	dtype.BF16: golden.BFloat,
}

func plain(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case []int:
		var out []any
		for _, e := range v {
			out = append(out, float64(e))
		}
		return out
	case []any:
		var out []any
		for _, e := range v {
			out = append(out, plain(e))
		}
		return out
	}
	return v
}

func sameForm(y *tensor.Tensor, t dtype.Type, dims []int) string {
	if y.Type() != t {
		return fmt.Sprintf("type is %v, want %v", y.Type(), t)
	}
	if !slices.Equal(y.Shape().Slice(), dims) && len(dims)+y.Rank() > 0 {
		return fmt.Sprintf("shape is %v, want %v", y.Shape(), dims)
	}
	return ""
}

func brief(v any) string {
	s := fmt.Sprint(v)
	if len(s) > 120 {
		return s[:120] + "…"
	}
	return s
}

func must(t golden.Tensor, err error) golden.Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
