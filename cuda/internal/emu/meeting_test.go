package emu

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

type twoDevices struct {
	*rig
	ctx   [2]cu.Context
	queue [2]cu.Stream
	word  [2]cu.DevicePtr
}

func newTwoDevices(t *testing.T, cfg Config) *twoDevices {
	r, other := newPair(t, cfg)
	p := &twoDevices{rig: r, ctx: [2]cu.Context{r.ctx, other}}
	for i := range 2 {
		r.ok(r.CtxSetCurrent(p.ctx[i]))
		p.queue[i], p.word[i] = r.stream(), r.alloc(4)
	}
	r.ok(r.CtxSetCurrent(r.ctx))
	return p
}

func (p *twoDevices) put(i int, v uint32) {
	p.Helper()
	p.withContext(p.ctx[i], func() { p.ok(p.MemsetD32Async(p.word[i], v, 1, p.queue[i])) })
}

func (p *twoDevices) get(i int) (v uint32, err error) {
	var b [4]byte
	p.withContext(p.ctx[i], func() { err = p.MemcpyDtoHAsync(unsafe.Pointer(&b[0]), p.word[i], 4, p.queue[i]) })
	return binary.LittleEndian.Uint32(b[:]), err
}

// sum returns a meeting of two devices that replaces one word on each device by the sum of the two
// words.
func (p *twoDevices) sum() *Meeting {
	return NewMeeting("sum", 2, 4, func(m *Shared) error {
		var total uint32
		for _, w := range p.word {
			b, err := m.Read(w, 4)
			if err != nil {
				return err
			}
			total += binary.LittleEndian.Uint32(b)
		}
		for _, w := range p.word {
			b, err := m.Write(w, 4)
			if err != nil {
				return err
			}
			binary.LittleEndian.PutUint32(b, total)
		}
		return nil
	})
}

// TestMeeting checks that the parts of a meeting run together, each after the earlier work of its
// stream. Later work of either stream must see the effect, in every schedule.
func TestMeeting(t *testing.T) {
	for seed := range uint64(20) {
		p := newTwoDevices(t, Config{Memory: 4 << 20, Seed: seed, QueueDepth: 1 + int(seed%3)})
		want := [2]uint32{}
		for k := range uint32(5) {
			for i := range 2 {
				want[i] += 10*k + uint32(i)
				p.put(i, want[i])
			}
			m := p.sum()
			if k%2 == 0 {
				p.ok(p.Meet(m, []int{1, 0}, []cu.Stream{p.queue[1], p.queue[0]}))
			} else { // queues the two parts in two calls
				p.ok(p.Meet(m, []int{0}, p.queue[:1]))
				p.ok(p.Meet(m, []int{1}, p.queue[1:]))
			}
			want[0] += want[1]
			want[1] = want[0]
		}
		for i := range 2 {
			if got, err := p.get(i); err != nil || got != want[i] {
				t.Fatalf("seed %d: device %d has %d (%v), want %d", seed, i, got, err, want[i])
			}
		}
	}
}

// TestMeetingTakesTheTimeOfTheLast gives the parts of a meeting different times. All must end
// together, when the slowest ends.
func TestMeetingTakesTheTimeOfTheLast(t *testing.T) {
	p := newTwoDevices(t, Config{Memory: 4 << 20, Latency: func(o Op) time.Duration {
		if o.Kind == KindMemset && o.Device == 1 {
			return time.Second
		}
		return 0
	}})
	var start, end cu.Event
	start, end = p.event(), p.event()
	p.ok(p.EventRecord(start, p.queue[0]))
	p.put(0, 1)
	p.put(1, 2)
	p.ok(p.Meet(p.sum(), []int{0, 1}, p.queue[:]))
	p.ok(p.EventRecord(end, p.queue[0]))
	p.ok(p.StreamSynchronize(p.queue[0]))
	if d := must(p.EventElapsed(start, end))(t); d < time.Second || d > 2*time.Second {
		t.Errorf("device 0 was done after %v", d)
	}
}

// TestMeetingNobodyComesTo waits for a part of a meeting whose partner is not queued. The error
// must name the partner. Waiting for two meetings whose parts wait for each other must fail too.
func TestMeetingNobodyComesTo(t *testing.T) {
	p := newTwoDevices(t, Config{Memory: 4 << 20})
	p.put(0, 1)
	p.ok(p.Meet(p.sum(), []int{0}, p.queue[:1]))
	err := p.StreamSynchronize(p.queue[0])
	var m *MeetingError
	if !errors.Is(err, cu.ErrLaunchTimeout) || !errors.As(err, &m) || m.Device != 0 || m.Name != "sum" || m.Why != "part 1 is not queued" {
		t.Errorf("%v", err)
	}
	if err := p.StreamSynchronize(p.queue[1]); err != nil {
		t.Errorf("the other device: %v", err)
	}

	p = newTwoDevices(t, Config{Memory: 4 << 20, Seed: 3})
	a, b := p.sum(), p.sum()
	p.ok(p.Meet(a, []int{0}, p.queue[:1]))
	p.ok(p.Meet(b, []int{0, 1}, p.queue[:]))
	p.ok(p.Meet(a, []int{1}, p.queue[1:]))
	if err := p.StreamSynchronize(p.queue[1]); !errors.As(err, &m) || !strings.Contains(err.Error(), "behind another collective on device") {
		t.Errorf("crossed: %v", err)
	}
}

// TestCancelledMeeting queues work after a meeting that is cancelled. The work must run, and the
// meeting must have no effect.
func TestCancelledMeeting(t *testing.T) {
	p := newTwoDevices(t, Config{Memory: 4 << 20})
	p.put(0, 5)
	p.put(1, 6)
	m := p.sum()
	p.ok(p.Meet(m, []int{0}, p.queue[:1]))
	p.Cancel(m)
	p.ok(p.Meet(m, []int{1}, p.queue[1:]))
	for i, want := range []uint32{5, 6} {
		if got, err := p.get(i); err != nil || got != want {
			t.Errorf("device %d has %d (%v), want %d", i, got, err, want)
		}
	}
}

// TestMeetingChecks makes wrong meetings: with memory that was never written, with wrong or
// captured streams, and with a part that is queued twice. Each must return an error.
func TestMeetingChecks(t *testing.T) {
	p := newTwoDevices(t, Config{Memory: 4 << 20})
	p.put(0, 1)
	p.withContext(p.ctx[1], func() { p.BlockAllocated(p.queue[1], p.word[1], 4, 4, "a block") })
	p.ok(p.Meet(p.sum(), []int{0, 1}, p.queue[:]))
	var a *AccessError
	for i := range 2 {
		if err := p.StreamSynchronize(p.queue[i]); !errors.As(err, &a) || !strings.Contains(err.Error(), "not initialised") {
			t.Errorf("device %d: %v", i, err)
		}
	}

	p = newTwoDevices(t, Config{Memory: 4 << 20})
	m := p.sum()
	if err := p.Meet(m, []int{0}, []cu.Stream{4711}); !errors.Is(err, cu.ErrInvalidHandle) {
		t.Errorf("no stream: %v", err)
	}
	p.ok(p.StreamBeginCapture(p.queue[0]))
	if err := p.Meet(m, []int{0}, p.queue[:1]); !errors.Is(err, cu.ErrStreamCaptureUnsupported) {
		t.Errorf("a capture: %v", err)
	}
	if err := p.Meet(m, []int{1, 1}, []cu.Stream{p.queue[1], p.queue[1]}); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("twice: %v", err)
	}
	p.ok(p.Meet(m, []int{1}, p.queue[1:]))
	if err := p.Meet(m, []int{1}, p.queue[1:]); !errors.Is(err, cu.ErrInvalidValue) {
		t.Errorf("again: %v", err)
	}
}

// TestMeetingsOfMeta runs meetings in meta mode. They must take time but access no memory.
func TestMeetingsOfMeta(t *testing.T) {
	p := newTwoDevices(t, Config{Meta: true, Memory: 1 << 30})
	m := NewMeeting("nothing", 2, 1<<20, func(*Shared) error { panic("an effect") })
	p.ok(p.Meet(m, []int{0, 1}, p.queue[:]))
	p.ok(p.StreamSynchronize(p.queue[1]))
	if d := p.CurrentDevice(); d != 0 {
		t.Errorf("device %d is current", d)
	}
	if d := p.StreamDevice(p.queue[1]); d != 1 {
		t.Errorf("a stream of device %d", d)
	}
	if d := p.MemoryDevice(p.word[1], 4); d != 1 {
		t.Errorf("memory of device %d", d)
	}
	if p.MemoryDevice(p.word[1], 1<<32) != -1 || p.MemoryDevice(5, 4) != -1 || p.StreamDevice(4711) != -1 {
		t.Error("what is not there is of a device")
	}
}
