package optest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// nextLine returns the position of the line after its call, as file:line in the form that errors
// use.
func nextLine() string {
	_, _, n, _ := runtime.Caller(1)
	return fmt.Sprintf("optest/anomaly_test.go:%d", n+1)
}

func TestDetectAnomaly(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		var at string
		for _, c := range []struct {
			what   string
			checks []tensor.AnomalyCheck
			f      func(s *tensor.Scope, x *tt) // x is the leaf [[1, 0], [-1, 4]]
			// the op that the error names; "" if there is no error
			op      string
			operand int
			index   []int
			value   float64
			count   int
			also    string // further text that the message must contain
		}{
			{"0·∞ in the gradient of sqrt", nil, func(s *tensor.Scope, x *tt) {
				y := x.Abs()
				at = nextLine()
				z := y.Sqrt()
				z.MulScalar(0).Sum().Backward() // the gradient of the square root is 0/√0
			}, "sqrt", 0, []int{0, 1}, math.NaN(), 1, "abs at optest"},
			{"by the second operand", nil, func(s *tensor.Scope, x *tt) {
				w := s.Ones(2, 2).RequiresGrad()
				at = nextLine()
				y := w.Mul(x.Log().Detach()) // log x is NaN where x < 0
				y.Sum().Backward()
			}, "mul", 0, []int{1, 0}, math.NaN(), 1, ""},
			{"a gradient that Gradients returns", nil, func(s *tensor.Scope, x *tt) {
				at = nextLine()
				y := tensor.Where(x.GtScalar(0), x.Log(), s.Zeros(2, 2)).PowScalar(0.3)
				tensor.Gradients(y.Sum().MulScalar(0), []*tt{x})
			}, "pow_scalar", 0, []int{0, 0}, math.NaN(), 3, ""},
			{"an infinity is none", nil, func(s *tensor.Scope, x *tt) { x.Log().Sum().Backward() }, "", 0, nil, 0, 0, ""},
			{"unless it is asked for", []tensor.AnomalyCheck{tensor.AnomalyInf}, func(s *tensor.Scope, x *tt) {
				at = nextLine()
				y := x.Abs().Log()
				y.Sum().Backward()
			}, "log", 0, []int{0, 1}, math.Inf(1), 1, ""},
			{"a result", []tensor.AnomalyCheck{tensor.AnomalyForward}, func(s *tensor.Scope, x *tt) {
				at = nextLine()
				x.Log()
			}, "log", -1, []int{1, 0}, math.NaN(), 1, ""},
			{"a result that is infinite", []tensor.AnomalyCheck{tensor.AnomalyForward, tensor.AnomalyInf}, func(s *tensor.Scope, x *tt) {
				at = nextLine()
				x.Abs().Log()
			}, "log", -1, []int{0, 1}, math.Inf(-1), 1, ""},
			{"a result of a heavy op, with an operand that has it", []tensor.AnomalyCheck{tensor.AnomalyForward}, func(s *tensor.Scope, x *tt) {
				bad := s.From([][]float32{{1}, {float32(math.NaN())}})
				at = nextLine()
				x.MatMul(bad)
			}, "matmul", -1, []int{0, 0}, math.NaN(), 2, "operand 1 has it already"},
			{"a reduction", []tensor.AnomalyCheck{tensor.AnomalyForward}, func(s *tensor.Scope, x *tt) {
				bad := s.From([]float32{1, float32(math.NaN())})
				at = nextLine()
				bad.Sum()
			}, "sum", -1, nil, math.NaN(), 1, "operand 0 has it already"},
			{"in place", []tensor.AnomalyCheck{tensor.AnomalyForward}, func(s *tensor.Scope, x *tt) {
				y := x.MulScalar(1)
				at = nextLine()
				y.LogInPlace()
			}, "log", -1, []int{1, 0}, math.NaN(), 1, ""},
			{"in place without a gradient", []tensor.AnomalyCheck{tensor.AnomalyForward}, func(s *tensor.Scope, x *tt) {
				y := x.Detach().Clone()
				at = nextLine()
				y.LogInPlace()
			}, "log", -1, []int{1, 0}, math.NaN(), 1, ""},
			{"a second derivative", nil, func(s *tensor.Scope, x *tt) {
				y := x.Abs().PowScalar(1.5)
				at = nextLine()
				g := tensor.Gradients(y.Sum(), []*tt{x}, tensor.CreateGraph())[0]
				// the derivative of the power is 0·x^-½, which is NaN at x = 0
				tensor.Gradients(g.MulScalar(0).Sum(), []*tt{x})
			}, "pow_scalar.grad", 0, []int{0, 1}, math.NaN(), 1, ""},
			{"what is right", []tensor.AnomalyCheck{tensor.AnomalyForward, tensor.AnomalyInf}, func(s *tensor.Scope, x *tt) {
				x.Softmax(-1).Square().Sum().Backward()
			}, "", 0, nil, 0, 0, ""},
		} {
			err := tensor.Try(func() {
				s.Do(func(s *tensor.Scope) { c.f(s, s.From([][]float32{{1, 0}, {-1, 4}}).RequiresGrad()) }, tensor.DetectAnomaly(c.checks...))
			})
			if c.op == "" {
				if err != nil {
					t.Errorf("%s: %v", c.what, err)
				}
				continue
			}
			var a *tensor.Anomaly
			if !errors.Is(err, tensor.ErrAnomaly) || !errors.As(err, &a) {
				t.Errorf("%s: %v", c.what, err)
				continue
			}
			if a.Site != at {
				t.Errorf("%s: site %s, want %s", c.what, a.Site, at)
			}
			same := a.Value == c.value || a.Value != a.Value && c.value != c.value
			if a.Op != c.op || a.Operand != c.operand || !slices.Equal(a.Index, c.index) || !same || a.Count != c.count {
				t.Errorf("%s: %+v", c.what, *a)
			}
			if msg := err.Error(); !strings.Contains(msg, c.also) || !strings.Contains(msg, a.Site) {
				t.Errorf("%s: the message is %q, without %q or the site", c.what, msg, c.also)
			}
		}
		x := s.From([]float32{0}).RequiresGrad()
		y := x.Sqrt().MulScalar(0)
		// Here only Backward runs with DetectAnomaly, so the line that called the op is not known.
		// The message says so.
		err := tensor.Try(func() {
			s.Do(func(c *tensor.Scope) { y.In(c).Sum().Backward() }, tensor.DetectAnomaly())
		})
		if err == nil || !strings.Contains(err.Error(), "call the op in a scope with DetectAnomaly") {
			t.Errorf("without a site: %v", err)
		}
	})
}
