package tensor

import (
	"runtime"

	"github.com/flambeau-go/flambeau/device"
)

// Raw runs f on the memory of tensors. It is for a program's own kernels and host code. f receives
// the stream on which it must queue its work, and the driver's views of the tensors. Views have the
// tensors' strides. Expanded tensors have strides of 0; [Tensor.Contiguous] makes them dense. f may
// read ins and write outs, but must not keep them. Its work is ordered with the work of ops on any
// stream. The contents of outs count as changed in place, even if f returns an error. If f returns
// an error, Raw panics with an *[Error] that wraps the error.
//
// All tensors must be on one device. On the CPU, a view's Buf.Host returns its memory. There f is
// called after the work queued on the stream is done, and may use the memory immediately. In a
// capture on the CPU f may queue ops on the stream. But if f calls Host, Host panics and Capture
// returns an error.
//
// Raw has no gradient: it panics if a gradient would be lost. Call it in Forward of a [Function],
// on a result that [Maker.Empty] makes in the Context's scope, or in a scope with [NoGrad].
func Raw(op string, outs, ins []*Tensor, f func(s device.Stream, outs, ins []device.View) error) {
	if len(outs) == 0 {
		fail(op, ErrValue, ins, "a computation without results has no effect")
	}
	if f == nil {
		fail(op, ErrValue, outs, "there is no function to run")
	}
	all := append(append([]*Tensor(nil), outs...), ins...)
	s := youngest(op, all)
	dev := sameDevice(op, all)
	if wantsGrad(op, s, all) {
		e := newError(op, ErrGrad, all, "an operand requires a gradient, and a computation on raw memory has none")
		panic(e.hint("call it in Forward of a Function, through Apply, or in a NoGrad scope"))
	}
	for _, y := range outs {
		y.writable(op, all...)
	}
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanDirect, op, s, ins))
	}
	to := s.route(op, dev)
	guard, guards := to.stream.(device.HostGuard)
	guards = guards && to.graph != nil
	views := func(list []*Tensor) []device.View {
		v := make([]device.View, len(list))
		for i, t := range list {
			if v[i] = t.deviceView(); guards {
				v[i].Buf = guard.Guard(v[i].Buf)
			}
		}
		return v
	}
	for _, x := range ins {
		x.st.read(op, to)
	}
	for _, y := range outs {
		y.st.write(op, to)
		y.st.version.Add(1)
	}
	if dev.Info().Host && !guards {
		check(op, to.stream.Synchronize(), all...)
	}
	check(op, recordable(func() error { return f(to.stream, views(outs), views(ins)) }), all...)
	runtime.KeepAlive(all)
}

// recordable calls f. If f panics because its work cannot be recorded, recordable returns the
// error.
func recordable(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *device.RecordError:
			err = r
		default:
			panic(r)
		}
	}()
	return f()
}
