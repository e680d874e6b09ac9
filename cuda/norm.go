package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Normer = (*Device)(nil)

// Norm brings each row of x to mean 0 and variance 1, or with RMS to mean square 1, scales and shifts it; see [device.Normer].
func (d *Device) Norm(s device.Stream, out, mean, rstd, x, weight, bias device.View, n device.Norm) error {
	const op = "norm"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	stats := []device.View{rstd, mean}
	if n.RMS {
		stats = stats[:1]
	}
	if err := d.checkNorm(op, n, append([]device.View{out}, stats...), []device.View{x}, []device.View{weight, bias}, []device.View{x, out}, stats); err != nil {
		return err
	}
	list, err := kernels.Norm(kernels.NormOperands{Out: operand(&out), Mean: given(&mean), Rstd: operand(&rstd), X: operand(&x), Weight: given(&weight), Bias: given(&bias)}, n)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.NormWork(n, out, mean, rstd, x, weight, bias), x.Type, []device.View{out, x, weight})
	}
	return d.launch(st, list)
}

// NormGrad sets dx from the gradient g of Norm's result; see [device.Normer].
func (d *Device) NormGrad(s device.Stream, dx, g, x, mean, rstd, weight device.View, n device.Norm) error {
	const op = "norm gradient"
	st, err := d.stream(op, s)
	if err != nil {
		return err
	}
	stats := []device.View{rstd, mean}
	if n.RMS {
		stats = stats[:1]
	}
	if err := d.checkNorm(op, n, []device.View{dx}, append([]device.View{g, x}, stats...), []device.View{weight}, []device.View{x, g, dx}, stats); err != nil {
		return err
	}
	list, err := kernels.NormGrad(kernels.NormOperands{Out: operand(&dx), Grad: operand(&g), Mean: given(&mean), Rstd: operand(&rstd), X: operand(&x), Weight: given(&weight)}, n)
	if err != nil {
		return err
	}
	if t := device.Tracing(); t != nil {
		return d.launchAs(t, op, st, list, device.NormGradWork(n, dx, g, x, mean, rstd, weight), x.Type, []device.View{dx, x, weight})
	}
	return d.launch(st, list)
}

// given is an operand that may be absent.
func given(v *device.View) kernels.Operand {
	if v.Buf == nil {
		return kernels.Operand{}
	}
	return operand(v)
}

// checkNorm checks the memory of the views, and what [device.Norm.Check] asks of them.
func (d *Device) checkNorm(op string, n device.Norm, outs, ins, affine, matrices, columns []device.View) error {
	for i := range outs {
		if err := d.out(op, "out", &outs[i]); err != nil {
			return err
		}
	}
	var weights []device.View
	for _, v := range affine {
		if v.Buf != nil {
			weights = append(weights, v)
		}
	}
	for _, list := range [][]device.View{ins, weights} {
		for i := range list {
			if err := d.in(op, "in", &list[i]); err != nil {
				return err
			}
		}
	}
	if why := n.Check(matrices, columns, weights); why != "" {
		return &ViewError{op, "operands", why}
	}
	return nil
}
