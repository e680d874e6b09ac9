//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"math"
	"time"
)

func (d *driver) StreamCreate(f StreamFlags, priority int) (Stream, error) {
	s, r := get1(d.fn.streamCreateWithPriority, uintptr(f), uintptr(priority))
	return Stream(s), failf(r, "cuStreamCreateWithPriority", "flags %#x, priority %d", uint32(f), priority)
}

func (d *driver) StreamDestroy(s Stream) error {
	return fail(call1(d.fn.streamDestroy, uintptr(s)), "cuStreamDestroy")
}

func (d *driver) StreamSynchronize(s Stream) error {
	return fail(call1(d.fn.streamSynchronize, uintptr(s)), "cuStreamSynchronize")
}

func (d *driver) StreamQuery(s Stream) (bool, error) {
	return query(call1(d.fn.streamQuery, uintptr(s)), "cuStreamQuery")
}

func (d *driver) StreamWaitEvent(s Stream, e Event) error {
	return fail(call3(d.fn.streamWaitEvent, uintptr(s), uintptr(e), 0), "cuStreamWaitEvent")
}

func (d *driver) EventCreate(f EventFlags) (Event, error) {
	e, r := get1(d.fn.eventCreate, uintptr(f))
	return Event(e), failf(r, "cuEventCreate", "flags %#x", uint32(f))
}

func (d *driver) EventDestroy(e Event) error {
	return fail(call1(d.fn.eventDestroy, uintptr(e)), "cuEventDestroy")
}

func (d *driver) EventRecord(e Event, s Stream) error {
	return fail(call2(d.fn.eventRecord, uintptr(e), uintptr(s)), "cuEventRecord")
}

func (d *driver) EventQuery(e Event) (bool, error) {
	return query(call1(d.fn.eventQuery, uintptr(e)), "cuEventQuery")
}

func (d *driver) EventSynchronize(e Event) error {
	return fail(call1(d.fn.eventSynchronize, uintptr(e)), "cuEventSynchronize")
}

func (d *driver) EventElapsed(start, end Event) (time.Duration, error) {
	v, r := get1(d.fn.eventElapsed, uintptr(start), uintptr(end))
	ms := math.Float32frombits(uint32(v)) // a C float, in milliseconds
	return time.Duration(float64(ms) * float64(time.Millisecond)), fail(r, "cuEventElapsedTime")
}

// query converts the result of a query, for which ErrNotReady is not an error.
func query(r Result, call string) (bool, error) {
	if r == ErrNotReady {
		return false, nil
	}
	return r == 0, fail(r, call)
}
