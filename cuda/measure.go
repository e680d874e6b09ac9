package cuda

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
)

// The kernels are measured alternately in several rounds, so that other work on the device slows
// all of them equally.
const (
	// number of rounds after the first one; an emulated GPU needs only the first one, because its
	// clock is exact
	measuredRounds = 7
	// least total time of the launches that are measured together
	measuredSample = 200 * time.Microsecond
	measuredAtOnce = 32 // largest number of launches that are measured together
	// a form replaces the planned form if its time is less than this fraction of the time of the
	// planned form
	measuredGain = 0.97
)

// arena allocates memory from base upwards, without a way to free it.
type arena struct {
	base  uint64
	taken int
}

// alloc returns the address of the next bytes of the arena. It is a [kernels.Scratch].
func (a *arena) alloc(bytes int) (uint64, error) {
	at := a.base + uint64(a.taken)
	a.taken += (bytes + 255) &^ 255
	return at, nil
}

var errNoRoom = errors.New("there is no room for a measurement")

// measuredForm is one way (form) to compute a matrix product, with its measured times.
type measuredForm struct {
	form     kernels.Form
	launches []kernels.Launch
	times    []time.Duration
	err      error
}

// measure times the forms of a matrix product on the stream, after the work that is queued there.
// If it cannot measure now, ok is false.
func (t *scratch) measure(c *kernels.Choice) (r tunedRecord, ok bool) {
	d := t.d
	if !d.measuring.TryLock() {
		// Waiting for the lock could cause a deadlock, because the goroutine that measures may wait
		// for work of this goroutine.
		return r, false
	}
	defer d.measuring.Unlock()
	forms := c.Forms()
	r = tunedRecord{Product: c.Product().String(), Form: forms[0], Planned: forms[0]}
	own := &scratch{d: d, s: t.s, op: t.op + ", measured"}
	defer own.free()
	list, err := own.trials(c, forms)
	if err != nil {
		return r, false
	}
	if list, err = own.preloaded(list); err == nil {
		list, err = own.timed(list)
	}
	if err != nil {
		return r, false
	}
	median := func(l *measuredForm) float64 {
		slices.Sort(l.times)
		return l.times[len(l.times)/2].Seconds()
	}
	r.PlannedSeconds = median(list[0])
	r.Seconds = r.PlannedSeconds
	for _, l := range list[1:] {
		if s := median(l); s < r.Seconds && s < measuredGain*r.PlannedSeconds {
			r.Form, r.Seconds = l.form, s
		}
	}
	return r, true
}

// trials plans the launches of each form. The first form is the choice of the cost model. All forms
// write their results to the same memory, because they run one after the other.
func (t *scratch) trials(c *kernels.Choice, forms []kernels.Form) (list []*measuredForm, err error) {
	// a placeholder address for plans that only count the memory that they need
	const nowhere = 1 << 40
	need := 0
	for _, f := range forms {
		a := arena{base: nowhere}
		if _, err := c.Trial(f, a.alloc); err != nil {
			return nil, err
		}
		need = max(need, a.taken)
	}
	// Memory is checked before it is allocated. A failed allocation would empty the pool's caches
	// again for each product.
	free, _ := backing{t.d}.Capacity()
	s := t.d.pool.Stats()
	reserved, allocated := uint64(s.ReservedBytes.Current), uint64(s.AllocatedBytes.Current)
	if limit := t.d.pool.Limit(); limit > 0 {
		free = min(free, limit-min(limit, reserved))
	}
	if uint64(need) > free+reserved-allocated {
		return nil, errNoRoom
	}
	base, err := t.alloc(need)
	if err != nil {
		return nil, err
	}
	for _, f := range forms {
		a := arena{base: base}
		l, err := c.Trial(f, a.alloc)
		if err != nil {
			return nil, err
		}
		list = append(list, &measuredForm{form: f, launches: l})
	}
	return list, nil
}

// preloaded loads the kernels of all trials in parallel. It leaves out trials whose kernels cannot
// be loaded. If the kernels of the first trial cannot be loaded, it returns that trial's error.
func (t *scratch) preloaded(list []*measuredForm) ([]*measuredForm, error) {
	err := parallel(context.Background(), len(list), nil, func(i int) error {
		for _, l := range list[i].launches {
			if list[i].err = t.d.preload(l.Kernel); list[i].err != nil {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return remaining(list)
}

// remaining returns the trials without an error. If the first trial has an error, it returns that
// error.
func remaining(list []*measuredForm) ([]*measuredForm, error) {
	if err := list[0].err; err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(l *measuredForm) bool { return l.err != nil }), nil
}

// timed measures the trials. After the first round, it drops trials that take more than twice the
// least time, but never the first trial.
func (t *scratch) timed(list []*measuredForm) ([]*measuredForm, error) {
	for _, l := range list { // the first launch may take longer, so it is not measured
		l.err = t.d.queue(t.s, l.launches)
	}
	list, err := remaining(list)
	if err != nil {
		return nil, err
	}
	if err := t.measureOnce(list, 1); err != nil {
		return nil, err
	}
	least := list[0].times[0]
	for _, l := range list {
		least = min(least, l.times[0])
	}
	own := list[0]
	list = slices.DeleteFunc(list, func(l *measuredForm) bool { return l != own && l.times[0] > 2*least })
	inner := min(measuredAtOnce, max(1, int(measuredSample/max(1, least))))
	for range t.d.p.rounds {
		if err := t.measureOnce(list, inner); err != nil {
			return nil, err
		}
		// Each round reverses the order, so that no trial always runs first or always follows the
		// same trial.
		slices.Reverse(list)
	}
	if list[0] != own {
		slices.Reverse(list)
	}
	return list, nil
}

// measureOnce launches each trial the given number of times, and appends the average time of a
// launch to the trial. The host queues all launches before it waits. The device therefore does not
// wait for the host, unless kernels are very short.
func (t *scratch) measureOnce(list []*measuredForm, launches int) (err error) {
	d := t.d
	marks := make([]cu.Event, 0, len(list)+1)
	defer func() { d.putTiming(marks...) }()
	mark := func() error {
		if err := d.enter(); err != nil {
			return err
		}
		defer d.leave()
		e, err := d.stamp(t.s)
		if err != nil {
			return d.fault("", err)
		}
		marks = append(marks, e)
		return nil
	}
	// this launch keeps the device busy until the first event is queued
	if err := d.queue(t.s, list[0].launches); err != nil {
		return err
	}
	if err := mark(); err != nil {
		return err
	}
	for _, l := range list {
		for range launches {
			if err := d.queue(t.s, l.launches); err != nil {
				return err
			}
		}
		if err := mark(); err != nil {
			return err
		}
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := d.api.EventSynchronize(marks[len(marks)-1]); err != nil {
		return d.fault("", err)
	}
	for i, l := range list {
		took, err := d.api.EventElapsed(marks[i], marks[i+1])
		if err != nil {
			return d.fault("", err)
		}
		l.times = append(l.times, took/time.Duration(launches))
	}
	return nil
}
