package emu

import (
	"slices"
	"time"
)

// The engines of a device. Each engine does one thing at a time, and different engines work at the
// same time.
const (
	engineCompute = iota
	engineIn
	engineOut
	engines
)

// engine returns the calendar of the engine or link that an operation occupies while it runs. It is
// nil for an operation that occupies neither. The caller holds d.mu.
//
// A copy between devices occupies the link from the source to the destination. There is a link for
// each ordered pair of devices: NVLink is full duplex, and a copy to one peer does not slow down a
// copy to a second peer. (A switch between the devices would slow it down, but is not modelled. In
// a model of a switch, the copies of two ranks would share a link. Their times would depend on
// which rank called first.) A copy through the host occupies an engine of the stream's device. If
// the copy goes to this device, that is the engine for copies from the host. Otherwise it is the
// engine for copies to the host.
//
// Kernels take turns too, although hardware runs small kernels at the same time. Small kernels
// share the device, so two at once take about as long as one after the other.
func (d *Driver) engine(o *op) *calendar {
	dev := o.stream.ctx.dev
	switch o.Kind {
	case KindKernel, KindMemset, KindCopyDtoD:
		return &dev.engines[engineCompute]
	case KindCopyHtoD:
		return &dev.engines[engineIn]
	case KindCopyDtoH:
		return &dev.engines[engineOut]
	case KindCopyPeer:
		switch {
		case !o.Staged:
			return d.link(o.From, o.To)
		case o.To == dev.ordinal:
			return &dev.engines[engineIn]
		}
		return &dev.engines[engineOut]
	}
	return nil
}

// link returns the link from device src to device dst. The caller holds d.mu.
func (d *Driver) link(src, dst int) *calendar {
	k := [2]int{src, dst}
	l := d.links[k]
	if l == nil {
		if d.links == nil {
			d.links = map[[2]int]*calendar{}
		}
		l = &calendar{}
		d.links[k] = l
	}
	return l
}

// calendar holds the times at which an engine or a link is free. Each operation reserves time from
// the moment at which it is ready. So an operation that waits for an event does not delay
// operations of later calls. They may use the free time before the waiting operation begins.
type calendar struct {
	idle []span        // free intervals before end, in order of time
	end  time.Duration // the time from which on everything is free
}

type span struct{ from, to time.Duration }

// maxIdle is the largest number of free intervals in a calendar. If there are more, the oldest one
// counts as occupied.
const maxIdle = 256

// reserve occupies free time of total length cost, not before the time ready. It returns the
// beginning and the end of the occupied time.
func (c *calendar) reserve(ready, cost time.Duration) (start, end time.Duration) {
	start = -1
	i, _ := slices.BinarySearchFunc(c.idle, ready, func(s span, t time.Duration) int {
		if s.to <= t {
			return -1
		}
		return 1
	})
	for i < len(c.idle) {
		s := c.idle[i]
		from := max(s.from, ready)
		end = from + min(cost, s.to-from)
		if start < 0 {
			start = from
		}
		cost -= end - from
		var left []span
		for _, l := range []span{{s.from, from}, {end, s.to}} {
			if l.from < l.to {
				left = append(left, l)
			}
		}
		c.idle = slices.Replace(c.idle, i, i+1, left...)
		if cost == 0 {
			return start, end
		}
		// The operation has used this interval up to its end, so at most its beginning is still
		// free.
		i += len(left)
	}
	from := max(c.end, ready)
	if from > c.end {
		c.idle = append(c.idle, span{c.end, from})
		if len(c.idle) > maxIdle {
			c.idle = slices.Delete(c.idle, 0, maxIdle/2)
		}
	}
	if start < 0 {
		start = from
	}
	c.end = from + cost
	return start, c.end
}
