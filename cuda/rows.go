package cuda

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

var (
	_ device.Softmaxer      = (*Device)(nil)
	_ device.CrossEntropyer = (*Device)(nil)
)

// Softmax sets out to softmax(x), or its logarithm, row by row; see [device.Softmaxer].
func (d *Device) Softmax(s device.Stream, out, x device.View, log bool) error {
	const op = "softmax"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkRows(op, "out x", &out, &x); err != nil {
		return err
	}
	list, err := kernels.Softmax(operand(&out), operand(&x), log)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.SoftmaxWork(out, x), x.Type, []device.View{out, x})
	}
	return d.launch(st, list)
}

// SoftmaxGrad sets dx from the result y of Softmax and its gradient g; see [device.Softmaxer].
func (d *Device) SoftmaxGrad(s device.Stream, dx, y, g device.View, log bool) error {
	const op = "softmax gradient"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkRows(op, "dx y g", &dx, &y, &g); err != nil {
		return err
	}
	list, err := kernels.SoftmaxGrad(operand(&dx), operand(&y), operand(&g), log)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.SoftmaxGradWork(dx, y, g, log), dx.Type, []device.View{dx, y, g})
	}
	return d.launch(st, list)
}

// CrossEntropy sets loss[i] = -log softmax(x)[i, target[i]], top[i] and rest[i]; see [device.CrossEntropyer]. A target outside the
// classes that is not ignore has loss 0, and comes out of the next wait for s.
func (d *Device) CrossEntropy(s device.Stream, loss, top, rest, x, target device.View, ignore int64, tag uint32) error {
	const op = "cross-entropy"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.in(op, "x", &x); err != nil {
		return err
	}
	if x.Shape.Rank() != 2 || !x.Type.IsFloat() {
		return &ViewError{op, "x", fmt.Sprintf("%v of %v, want [rows, classes] of a float type", x.Shape, x.Type)}
	}
	rows, t := x.Shape.At(0), x.Type.Compute()
	for i, v := range []*device.View{&loss, &top, &rest} {
		arg := []string{"loss", "top", "rest"}[i]
		if err := d.out(op, arg, v); err != nil {
			return err
		}
		if err := checkColumn(op, arg, v, t, rows); err != nil {
			return err
		}
	}
	if err := d.checkTarget(op, &target, rows); err != nil {
		return err
	}
	if rows > 0 && x.Shape.At(1) == 0 {
		return &ViewError{op, "x", "no classes"}
	}
	list, err := kernels.CrossEntropy(operand(&loss), operand(&top), operand(&rest), operand(&x), operand(&target), ignore, d.index.record(st.slot), tag)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.CrossEntropyWork(loss, top, rest, x, target), x.Type, []device.View{loss, x, target})
	}
	return d.launch(st, list)
}

// CrossEntropyGrad sets dx = (exp(x - top[i] - rest[i]) - onehot(target))·g[i]; see [device.CrossEntropyer]. Rows whose target is ignore, or
// no class, are 0.
func (d *Device) CrossEntropyGrad(s device.Stream, dx, x, top, rest, target, g device.View, ignore int64) error {
	const op = "cross-entropy gradient"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	if err := d.checkRows(op, "dx x", &dx, &x); err != nil {
		return err
	}
	rows, t := x.Shape.At(0), x.Type.Compute()
	for i, v := range []*device.View{&top, &rest, &g} {
		arg := []string{"top", "rest", "g"}[i]
		if err := d.in(op, arg, v); err != nil {
			return err
		}
		if err := checkColumn(op, arg, v, t, rows); err != nil {
			return err
		}
	}
	if err := d.checkTarget(op, &target, rows); err != nil {
		return err
	}
	list, err := kernels.CrossEntropyGrad(operand(&dx), operand(&x), operand(&top), operand(&rest), operand(&target), operand(&g), ignore)
	if err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil {
		return d.launchAs(tr, op, st, list, device.CrossEntropyGradWork(dx, x, top, rest, target, g), x.Type, []device.View{dx, x, target})
	}
	return d.launch(st, list)
}

// checkRows checks that the views, named in names, are of one rank-2 shape and float type, the first of them a result.
func (d *Device) checkRows(op, names string, views ...*device.View) error {
	first := views[0]
	for i, arg := range strings.Fields(names) {
		v := views[i]
		check := d.in
		if i == 0 {
			check = d.out
		}
		if err := check(op, arg, v); err != nil {
			return err
		}
		switch {
		case v.Shape.Rank() != 2 || v.Shape != first.Shape:
			return &ViewError{op, arg, fmt.Sprintf("shape %v, want [rows, columns] as all", v.Shape)}
		case v.Type != first.Type || !v.Type.IsFloat():
			return &ViewError{op, arg, fmt.Sprintf("of %v, want one float type for all", v.Type)}
		}
	}
	return nil
}

// checkColumn checks the shape of a view of one value a row.
func checkColumn(op, arg string, v *device.View, t dtype.Type, rows int) error {
	if v.Shape.Rank() != 1 || v.Shape.At(0) != rows || v.Type != t {
		return &ViewError{op, arg, fmt.Sprintf("%v of %v, want [%d] of %v", v.Shape, v.Type, rows, t)}
	}
	return nil
}

func (d *Device) checkTarget(op string, v *device.View, rows int) error {
	if err := d.in(op, "target", v); err != nil {
		return err
	}
	return checkColumn(op, "target", v, dtype.I64, rows)
}
