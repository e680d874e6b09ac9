package tensor

import (
	"errors"
	"fmt"
	"strings"
)

// ErrAnomaly is the kind of error that [DetectAnomaly] raises. errors.As finds the [Anomaly] in it.
var ErrAnomaly = errors.New("not a number")

// An AnomalyCheck is something that [DetectAnomaly] looks for besides NaN in gradients.
type AnomalyCheck uint8

const (
	// AnomalyInf reports infinities as anomalies too.
	AnomalyInf AnomalyCheck = 1 << iota
	// AnomalyForward checks the results of ops as well, so that the first NaN is found where it
	// arises.
	AnomalyForward

	anomalyGrad AnomalyCheck = 1 << 7
)

// DetectAnomaly makes a scope look for the first NaN, as torch.autograd.detect_anomaly does. It
// records the call site of every op. When Backward or [Gradients] starts from a result of the
// scope, every gradient that an op's VJP returns is checked. A NaN panics with an *[Error] that
// wraps an [Anomaly]. The Anomaly names the op, the operand whose gradient is NaN, and where the op
// was called. Each check waits for the device, so use this only to find a mistake.
func DetectAnomaly(also ...AnomalyCheck) Option {
	return func(m *modes) {
		m.sites = true
		m.anomaly = anomalyGrad
		for _, c := range also {
			m.anomaly |= c
		}
	}
}

// An Anomaly says where a NaN, or an infinity, was first seen.
type Anomaly struct {
	Op      string // the op whose result or gradient has the NaN or infinity
	Operand int    // operand whose gradient has the NaN or infinity; -1 if the op's result has it
	// file:line of the call of the op. It is "" if the op was called in a scope without
	// DetectAnomaly or RecordSites.
	Site  string
	Index []int   // position of the first NaN or infinity
	Value float64 // value of this first element: NaN or ±Inf
	Count int     // number of NaN elements; with AnomalyInf also of infinite elements
}

func (a *Anomaly) Error() string {
	var b strings.Builder
	if a.Operand < 0 {
		fmt.Fprintf(&b, "the result of %s", a.Op)
	} else {
		fmt.Fprintf(&b, "the gradient that %s gives its operand %d", a.Op, a.Operand)
	}
	fmt.Fprintf(&b, " is %v at %v", a.Value, a.Index)
	if a.Count > 1 {
		fmt.Fprintf(&b, ", the first of %d", a.Count)
	}
	if a.Site != "" {
		fmt.Fprintf(&b, "; %s was called at %s", a.Op, a.Site)
	}
	return b.String()
}

// Unwrap returns [ErrAnomaly].
func (a *Anomaly) Unwrap() error { return ErrAnomaly }

// anomaly searches x for a NaN, or also for an infinity if checks say so. It returns nil if it
// finds none.
func (x *Tensor) anomaly(checks AnomalyCheck) *Anomaly {
	if !x.dtype.IsFloat() || x.Size() == 0 {
		return nil
	}
	s := x.scope.child()
	defer s.recycle()
	s.modes.noGrad, s.modes.anomaly = true, 0
	d := x.detachedIn(s)
	bad := d.IsNaN
	if checks&AnomalyInf != 0 {
		bad = func() *Tensor { return d.IsFinite().LogicalNot() }
	}
	where := bad()
	if where.Any().Item() == 0 {
		return nil
	}
	a := &Anomaly{Operand: -1}
	for i, v := range where.Floats() {
		if v == 0 {
			continue
		}
		if a.Count++; a.Count > 1 {
			continue
		}
		a.Value = d.Floats()[i]
		for k := d.Rank() - 1; k >= 0; k-- {
			n := d.layout.Shape.At(k)
			a.Index = append([]int{i % n}, a.Index...)
			i /= n
		}
	}
	return a
}

// checkAnomaly panics if d, the gradient that n's VJP returned for its operand i, has an anomaly.
func (e *engine) checkAnomaly(n *node, i int, d *Tensor) {
	a := d.anomaly(e.checks)
	if a == nil {
		return
	}
	a.Op, a.Operand, a.Site = n.op, i, n.made.String()
	err := newError(e.op, a, nil, a.Error())
	if a.Site == "" {
		err.hint("call the op in a scope with DetectAnomaly to learn where")
	}
	for k, o := range n.operands {
		err.Operands = append(err.Operands, Operand{Shape: o.shape, Type: o.dtype, Device: o.dev.Name()})
		if from := n.inputs[k]; from.node != nil {
			err.Operands[k].Origin = from.node.origin()
		} else if from.leaf != nil {
			err.Operands[k].Origin = from.leaf.origin()
		}
	}
	panic(err)
}

// inspect panics if y, the result of op, has an anomaly. The error also says whether an operand had
// an anomaly already. Ops call inspect where the scope asks for [AnomalyForward].
func (y *Tensor) inspect(op string, checks AnomalyCheck, in []*Tensor) {
	a := y.anomaly(checks)
	if a == nil {
		return
	}
	a.Op, a.Site = op, deepSite().String()
	err := newError(op, a, in, a.Error())
	for i, t := range in {
		// After an op in place, y is itself an operand, but its old value is lost.
		if t != y && t.anomaly(checks) != nil {
			err.hint("operand %d has it already", i)
			break
		}
	}
	panic(err)
}
