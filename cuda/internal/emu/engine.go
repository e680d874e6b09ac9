package emu

import (
	"slices"
	"time"
)

// The engines of a device. It computes and copies at once; each engine does one thing at a time.
const (
	engineCompute = iota
	engineIn
	engineOut
	engines
)

// engine returns what an operation occupies while it runs, nil for nothing. d.mu is held.
//
// A copy between devices takes the link from the one to the other. There is a link for each ordered
// pair of devices: NVLink is full duplex, and what a device sends to one peer does not slow down
// what it sends to another. (Behind a switch it would; but then copies of two ranks would have to
// share, and their times would depend on which rank was first to call.) A copy that is staged goes
// over the link of the host, with the copies between host and device, on the side of the device in
// whose stream it is.
//
// Kernels take turns too, though hardware runs small ones beside each other: they share what the
// device has, so that two together take about the time of one after the other.
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

// link returns the link between two devices, in that direction. d.mu is held.
func (d *Driver) link(from, to int) *calendar {
	k := [2]int{from, to}
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

// calendar is the time that an engine or a link has left. Operations take it in the order of the
// calls, each from the moment that it is ready. So one that still waits for an event holds up
// nobody: what is issued later runs before it, and goes on behind it if it takes longer.
type calendar struct {
	idle []span        // before end, in order of time
	end  time.Duration // from here on all is free
}

// span is a stretch of time.
type span struct{ from, to time.Duration }

// maxIdle is how many stretches a calendar remembers. Of more it takes the oldest for busy.
const maxIdle = 256

// take takes so much of the free time from ready on, and returns the first and the last moment.
func (c *calendar) take(ready, cost time.Duration) (start, end time.Duration) {
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
		i += len(left) // without time left behind it, as it took all of that
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
