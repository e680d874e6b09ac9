package profile

import (
	"fmt"
	"sync"

	"github.com/flambeau-go/flambeau/device"
)

// A Profile is a recording, under way or done. Its reports are of the last cycle that ended, or of
// all from Start to Stop without a schedule.
type Profile struct {
	o Options

	mu      sync.Mutex
	step    int
	action  Action
	c       *collector // under way; nil while nothing is recorded
	mark    device.SpanID
	pending []pendingRun // of the steps before, whose times are not asked for yet
	seen    map[*gstate]seen
	stopped bool
	err     error
	data    *record // done
}

// seen is how much of a goroutine's work has been looked at.
type seen struct{ kernels, copies int }

// pendingRun is where a time on the device goes.
type pendingRun struct {
	from device.Interval
	to   func(interval)
}

// Start begins to record, or to wait for the first step of the schedule that is recorded. It fails
// with an *[Error]: of options that cannot be, and with [ErrRunning] while another profile runs.
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

// enter begins a step. p.mu is held, or p is nobody else's yet.
func (p *Profile) enter(a Action) error {
	if p.c != nil && p.action == Warmup && a != Warmup { // what was recorded is thrown away
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
		p.c, p.seen = c, map[*gstate]seen{}
	}
	if p.mark = 0; p.c != nil && p.o.Schedule != (Schedule{}) {
		p.mark = p.c.Begin(device.Span{Kind: device.SpanUser, Name: fmt.Sprintf("ProfilerStep#%d", p.step)})
	}
	return nil
}

// end takes the collector away. p.mu is held.
func (p *Profile) end() []*gstate {
	p.c.End(p.mark)
	device.SetTracer(nil)
	return p.c.finish()
}

// Step says that a step of the training loop is over: torch's prof.step(). It may end a cycle of
// the schedule and call OnTraceReady, whose error ends the profile and is returned.
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
		if p.stopped { // by the handler, or beside it
			return nil
		}
	}
	return p.enter(p.o.Schedule.Action(p.step))
}

// StepNumber returns how often Step has been called.
func (p *Profile) StepNumber() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// save ends a cycle. p.mu is held; OnTraceReady runs without it.
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

// Stop ends the recording, waits for the times of what is queued on devices, and calls OnTraceReady
// if a cycle was being recorded. Later calls do nothing and return the same.
func (p *Profile) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return p.err
	}
	defer p.stop() // also where the handler panics: the next profile can start
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

// stop makes room for another profile.
func (p *Profile) stop() {
	p.stopped = true
	running.Lock()
	if running.p == p {
		running.p = nil
	}
	running.Unlock()
}

// resolve asks for the times of what was queued before the last call, or with all of everything.
// Work that has no time, as it failed or was captured in a graph, is counted by the reports.
func (p *Profile) resolve(all bool) {
	if all {
		p.gather()
	}
	for _, r := range p.pending {
		start, end, err := r.from.Resolve()
		r.to(interval{start, end, err == nil})
	}
	p.pending = p.pending[:0]
	if !all {
		p.gather()
	}
}

// gather finds what has been queued since it was called last.
func (p *Profile) gather() {
	c := p.c
	c.mu.Lock()
	states := c.all
	c.mu.Unlock()
	for _, g := range states {
		g.mu.Lock()
		at := p.seen[g]
		for k := range g.kernels.from(at.kernels) {
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
		for t := range g.copies.from(at.copies) {
			if t.Time != nil {
				p.pending = append(p.pending, pendingRun{t.Time, func(v interval) { t.run = v }})
				t.Time = nil
			}
		}
		p.seen[g] = seen{g.kernels.len(), g.copies.len()}
		g.mu.Unlock()
	}
}

// Span opens a span of the program's own around what follows on this goroutine: torch's
// record_function, and what an NVTX range is used for. The function that it returns closes it, on
// the same goroutine:
//
//	defer profile.Span("augment")()
//
// Without a profile it costs nothing.
func Span(name string) func() {
	t := device.Tracing()
	if t == nil {
		return nothing
	}
	id := t.Begin(device.Span{Kind: device.SpanUser, Name: name})
	return func() { t.End(id) }
}

func nothing() {}

// record returns what has been recorded, empty while nothing has.
func (p *Profile) record() *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil {
		return &record{o: &p.o}
	}
	return p.data
}
