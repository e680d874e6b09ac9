package profile

import (
	"fmt"
	"sync"

	"github.com/flambeau-go/flambeau/device"
)

// A Profile is a recording, in progress or finished. If it has a schedule, its reports cover the
// last finished cycle. Otherwise they cover everything from Start to Stop.
type Profile struct {
	o Options

	mu      sync.Mutex
	step    int
	action  Action
	c       *collector // collects events; nil while nothing is recorded
	mark    device.SpanID
	pending []pendingRun // device times of earlier steps that are not read yet
	seen    map[*gstate]progress
	stopped bool
	err     error
	data    *record // last finished recording
}

// progress says how many of a goroutine's kernels and copies the method gather has processed.
type progress struct{ kernels, copies int }

// pendingRun is a device time that is not read yet, and the variable in which to store it.
type pendingRun struct {
	from  device.Interval
	store func(interval)
}

// Start starts recording, or waits for the first recorded step of the schedule. Invalid options are
// an *[Error]. If another profile is running, the error is [ErrRunning].
func Start(o Options) (*Profile, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	running.Lock()
	defer running.Unlock()
	if running.p != nil {
		return nil, &Error{Op: "start", Msg: "another profile runs, which must be stopped first: there is one tracer in a process", Err: ErrRunning}
	}
	p := &Profile{o: o}
	if err := p.enter(o.Schedule.Action(0)); err != nil {
		return nil, err
	}
	running.p = p
	return p, nil
}

var running struct {
	sync.Mutex
	p *Profile
}

// enter begins a step. The caller holds p.mu, or no other goroutine knows p yet.
func (p *Profile) enter(a Action) error {
	if p.c != nil && p.action == Warmup && a != Warmup { // discard the events of the warm-up
		p.end()
		p.resolve(true)
		p.c = nil
	}
	p.action = a
	if a != None && p.c == nil {
		c := newCollector(&p.o)
		if !device.SetTracer(c) {
			return &Error{Op: "start", Msg: "another tracer listens to the devices; it must be taken away first", Err: ErrRunning}
		}
		p.c, p.seen = c, map[*gstate]progress{}
	}
	if p.mark = 0; p.c != nil && p.o.Schedule != (Schedule{}) {
		p.mark = p.c.Begin(device.Span{Kind: device.SpanUser, Name: fmt.Sprintf("ProfilerStep#%d", p.step)})
	}
	return nil
}

// end stops the collector. The caller holds p.mu.
func (p *Profile) end() []*gstate {
	p.c.End(p.mark)
	device.SetTracer(nil)
	return p.c.finish()
}

// Step ends a step of the training loop: torch's prof.step(). If the step was the last of a cycle
// of the schedule, Step calls OnTraceReady. An error of OnTraceReady ends the profile, and Step
// returns it.
func (p *Profile) Step() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return &Error{Op: "step", Msg: "the profile has been stopped", Err: ErrStopped}
	}
	if p.c != nil {
		p.c.End(p.mark)
		p.resolve(false)
	}
	p.step++
	if p.c != nil && p.action == RecordAndSave {
		if err := p.save(); err != nil {
			p.err = err
			p.stop()
			return err
		}
		if p.stopped { // the handler or another goroutine has stopped the profile
			return nil
		}
	}
	return p.enter(p.o.Schedule.Action(p.step))
}

// StepNumber returns the number of calls of Step.
func (p *Profile) StepNumber() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// save ends a cycle and calls OnTraceReady. The caller holds p.mu; save releases it while
// OnTraceReady runs.
func (p *Profile) save() error {
	states := p.end()
	p.resolve(true)
	p.data = newRecord(p.c, states, &p.o)
	p.c, p.action = nil, None
	if p.o.OnTraceReady == nil {
		return nil
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	return p.o.OnTraceReady(p)
}

// Stop ends the recording and waits for the times of queued device work. If a cycle was being
// recorded, it calls OnTraceReady. Later calls do nothing and return the same error.
func (p *Profile) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return p.err
	}
	// Another profile must be able to start even if the handler panics.
	defer p.stop()
	p.stopped = true
	switch {
	case p.c == nil:
	case p.action == Warmup:
		p.end()
		p.resolve(true)
		p.c = nil
	default:
		p.err = p.save()
	}
	return p.err
}

// stop removes the profile as the tracer: another profile can then start.
func (p *Profile) stop() {
	p.stopped = true
	running.Lock()
	if running.p == p {
		running.p = nil
	}
	running.Unlock()
}

// resolve reads the times of device work that are not read yet. If all is false, it reads only
// the times of work that was queued before the previous call. Work that failed, or that was
// captured in a graph, has no time. The reports count such work.
func (p *Profile) resolve(all bool) {
	if all {
		p.gather()
	}
	for _, r := range p.pending {
		start, end, err := r.from.Resolve()
		r.store(interval{start, end, err == nil})
	}
	p.pending = p.pending[:0]
	if !all {
		p.gather()
	}
}

// gather lists the device work that was queued since the previous call.
func (p *Profile) gather() {
	c := p.c
	c.mu.Lock()
	states := c.all
	c.mu.Unlock()
	for _, g := range states {
		g.mu.Lock()
		at := p.seen[g]
		for k := range g.kernels.entries(at.kernels) {
			l := k.gpu
			if l == nil {
				continue
			}
			l.runs = make([]interval, len(l.launches))
			for i := range l.launches {
				if t := l.launches[i].Time; t != nil {
					p.pending = append(p.pending, pendingRun{t, func(v interval) { l.runs[i] = v }})
					l.launches[i].Time = nil
				}
			}
		}
		for t := range g.copies.entries(at.copies) {
			if t.Time != nil {
				p.pending = append(p.pending, pendingRun{t.Time, func(v interval) { t.run = v }})
				t.Time = nil
			}
		}
		p.seen[g] = progress{g.kernels.len(), g.copies.len()}
		g.mu.Unlock()
	}
}

// Span opens a span of the program on this goroutine. It corresponds to torch's record_function.
// The returned function closes the span, and must be called on the same goroutine:
//
//	defer profile.Span("augment")()
//
// Without a profile, Span costs almost nothing.
func Span(name string) func() {
	t := device.Tracing()
	if t == nil {
		return nothing
	}
	id := t.Begin(device.Span{Kind: device.SpanUser, Name: name})
	return func() { t.End(id) }
}

func nothing() {}

// record returns the last finished recording, or an empty record if there is none.
func (p *Profile) record() *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return &record{o: &p.o}
	}
	return p.data
}
