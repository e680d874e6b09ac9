package tensor

import (
	"errors"
	"runtime"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A LateItem is a number on its way from a device to the host; see [Tensor.ItemLater]. It is used
// by one goroutine at a time.
type LateItem struct {
	t    dtype.Type
	buf  device.Buffer
	ev   device.Event
	v    float64
	here bool
}

// ItemLater begins to bring the only element of x, as it is now, to the host, and returns without
// waiting where the device has page-locked memory: on a GPU. Elsewhere, and where there is no such
// memory left, it is [Tensor.Item]. What [LateItem.Item] waits for later is the work that is queued
// now, not that behind.
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

// Done reports whether the number has come, so that Item will not wait.
func (l *LateItem) Done() bool { return l.here || l.ev.Done() }

// Item returns the number. It waits for the work that was queued when ItemLater was called, if that
// is still under way.
func (l *LateItem) Item() float64 {
	if l.here {
		return l.v
	}
	err := l.ev.Wait()
	var index *device.IndexError
	if err == nil || errors.As(err, &index) { // the number has come; a second call returns it
		l.v = expr.Decode(l.t, element(l.t, l.buf.Host()))
	}
	l.Drop()
	check("item_later", err)
	l.here = true
	return l.v
}

// Drop gives up a number that is not wanted any more; Item is 0 then unless it has been called
// before.
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
