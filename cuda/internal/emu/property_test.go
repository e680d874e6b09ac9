package emu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestRandomProgramsAgreeWithSequence runs random programs on several buffers and streams, in which
// events order all dependent operations. Under each schedule the results must be those of the
// operations run one after the other. The test derives the events from the dependencies (read after
// write, write after read, write after write), independently of the driver.
func TestRandomProgramsAgreeWithSequence(t *testing.T) {
	const buffers, streamCount, words, length = 4, 3, 32, 60
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, Config{Seed: seed, Workers: 1, QueueDepth: 1 + rng.IntN(40)})
		var streams [streamCount]cu.Stream
		for i := range streams {
			// Under some seeds stream 0 of the program is the legacy default stream. Each other
			// stream is blocking or non-blocking, at random.
			if i > 0 || seed%3 == 0 {
				streams[i] = must(r.StreamCreate(cu.StreamFlags(rng.IntN(2)), 0))(t)
			}
		}
		// access is one use of a buffer: its stream, and an event recorded after it.
		type access struct {
			stream int
			event  cu.Event
		}
		var (
			dev     [buffers]cu.DevicePtr
			model   [buffers]uint32
			writer  [buffers]access
			readers [buffers][]access
		)
		for i := range dev {
			dev[i] = r.alloc(4 * words)
			r.ok(r.MemsetD32Async(dev[i], uint32(i), words, 0))
			model[i] = uint32(i)
		}
		r.ok(r.CtxSynchronize())
		wait := func(s int, a access) {
			if a.event != 0 && a.stream != s {
				r.ok(r.StreamWaitEvent(streams[s], a.event))
			}
		}
		for range length {
			s, dst, src := rng.IntN(streamCount), rng.IntN(buffers), rng.IntN(buffers)
			copying := dst != src && rng.IntN(2) == 0
			wait(s, writer[dst])
			for _, a := range readers[dst] {
				wait(s, a)
			}
			if copying {
				wait(s, writer[src])
				r.ok(r.MemcpyDtoDAsync(dev[dst], dev[src], 4*words, streams[s]))
				model[dst] = model[src]
			} else {
				a, b := rng.Uint32(), rng.Uint32()
				r.ok(r.affine(streams[s], dev[dst], words, a, b))
				model[dst] = a*model[dst] + b
			}
			e := r.event()
			r.ok(r.EventRecord(e, streams[s]))
			writer[dst], readers[dst] = access{s, e}, nil
			if copying {
				readers[src] = append(readers[src], access{s, e})
			}
			if rng.IntN(10) == 0 {
				if _, err := r.StreamQuery(streams[rng.IntN(streamCount)]); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range dev {
			r.ok(r.waitFor(writer[i].event))
			if v := r.read(streams[writer[i].stream], dev[i], words); !all(v, model[i]) {
				t.Fatalf("seed %d: buffer %d is %v, want %v", seed, i, v[0], model[i])
			}
		}
		r.ok(r.PrimaryCtxRelease(0))
	}
}

// waitFor waits for the event e, unless e is 0.
func (r *rig) waitFor(e cu.Event) error {
	if e == 0 {
		return nil
	}
	return r.EventSynchronize(e)
}
