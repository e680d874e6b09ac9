package tensor

import (
	"errors"
	"runtime"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A LateItem is a number that [Tensor.ItemLater] copies from a device to the host. Only one
// goroutine may use it at a time.
type LateItem struct {
	t    dtype.Type
	buf  device.Buffer
	ev   device.Event
	v    float64
	here bool
}

// ItemLater starts to copy the current value of the only element of x to the host. On a GPU it
// copies to page-locked memory and returns without waiting. On other devices, and if no page-locked
// memory is left, it waits as [Tensor.Item] does. [LateItem.Item] later waits for the work that is
// queued now, not for work that is queued after this call.
func (x *Tensor) ItemLater() *LateItem {
	const op = "item_later"
	x.use(op)
	if x.Size() != 1 {
		fail(op, ErrShape, []*Tensor{x}, "the tensor has %d elements, not 1", x.Size())
	}
	x.scope.uncapturable(op, "the number would be that of now, and not of a replay")
	p := x.pinner(hostDevice())
	if p == nil {
		return &LateItem{v: x.Item(), here: true}
	}
	size := x.dtype.Size()
	buf, err := p.AllocPinned(size, device.Origin{Op: op, Shape: x.layout.Shape, Type: x.dtype})
	if err != nil {
		return &LateItem{v: x.Item(), here: true}
	}
	l := &LateItem{t: x.dtype, buf: buf}
	from := x.scope.route(op, x.st.dev)
	x.st.read(op, from)
	if err = p.DownloadPinned(from.stream, buf, 0, x.st.buf, x.layout.Offset*size, size); err == nil {
		l.ev, err = from.stream.Record()
	}
	runtime.KeepAlive(x)
	if err != nil {
		buf.Free()
		check(op, err, x)
	}
	return l
}

// Done reports whether the number has arrived, so that Item will not wait.
func (l *LateItem) Done() bool { return l.here || l.ev.Done() }

// Item returns the number. It waits until the work that was queued when ItemLater was called is
// done.
func (l *LateItem) Item() float64 {
	if l.here {
		return l.v
	}
	err := l.ev.Wait()
	var index *device.IndexError
	// an index error does not prevent the copy, so a second call returns the number
	if err == nil || errors.As(err, &index) {
		l.v = expr.Decode(l.t, element(l.t, l.buf.Host()))
	}
	l.Drop()
	check("item_later", err)
	l.here = true
	return l.v
}

// Drop discards a number that is not needed any more. Item then returns 0, or the number if Item
// returned it before.
func (l *LateItem) Drop() {
	if l == nil {
		return
	}
	if l.buf != nil {
		l.ev.Release()
		l.buf.Free()
		l.buf = nil
	}
	l.here = true
}
