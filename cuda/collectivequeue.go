package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/device"
)

// collection holds the state of a collective while its work is being queued.
type collection struct {
	c       *communicator
	k       *device.Collective
	op      string
	streams []*stream
	own     []*scratch // scratch memory of this collective, by rank
	ins     []uint64   // input addresses by rank; 0 for a rank without an input
	outs    []uint64
	bytes   uint64 // size in bytes of the part that each rank contributes
	red     reduction
}

// Collect queues k on the stream of each rank; see [device.Communicator]. It refuses streams whose
// work is being recorded. For views of 0 elements it queues nothing.
func (c *communicator) Collect(streams []device.Stream, k *device.Collective) error {
	c.queue.Lock()
	defer c.queue.Unlock()
	if err := c.usable(); err != nil {
		return err
	}
	q := &collection{c: c, k: k, op: k.Kind.String()}
	if err := q.resolve(streams); err != nil || q.bytes == 0 {
		return err
	}
	if t := device.Tracing(); t != nil {
		return q.traced(t)
	}
	return q.run()
}

func (c *communicator) usable() error {
	c.calls.Lock()
	defer c.calls.Unlock()
	return c.ended
}

// resolve converts streams and views to handles and addresses, and checks that they fit the
// collective. It queues nothing.
func (q *collection) resolve(streams []device.Stream) error {
	k, devs := q.k, q.c.devs
	if len(streams) != len(devs) || len(k.Outs) != len(devs) || len(k.Ins) != len(devs) {
		return devs[0].refusal(q.op, "streams", fmt.Sprintf("%d streams, %d ins and %d outs for %d ranks", len(streams), len(k.Ins), len(k.Outs), len(devs)))
	}
	q.ins, q.outs = make([]uint64, len(devs)), make([]uint64, len(devs))
	inParts, outParts := k.Kind.Parts(len(devs))
	var first *device.View
	for r, d := range devs {
		s, err := d.stream(q.op, streams[r])
		if err != nil {
			return err
		}
		if err := s.refuse(q.op, "the other ranks have graphs of their own"); err != nil {
			return err
		}
		q.streams = append(q.streams, s)
		q.own = append(q.own, &scratch{d: d, s: s, op: q.op})
		for _, o := range [...]struct {
			name  string
			view  *device.View
			there bool
			addr  *uint64
			parts int
		}{{"in", &k.Ins[r], k.Gives(r), &q.ins[r], inParts}, {"out", &k.Outs[r], k.Gets(r), &q.outs[r], outParts}} {
			if !o.there || o.view.Absent() {
				continue
			}
			if why := device.Outside(d, o.view); why != "" {
				return d.refusal(q.op, fmt.Sprintf("%s of rank %d", o.name, r), why)
			}
			*o.addr = firstOf(o.view)
			if first == nil {
				first = o.view
				q.bytes = uint64(o.view.Size() / o.parts * o.view.Type.Size())
			}
		}
	}
	if q.bytes == 0 || !k.Kind.Reduces() {
		return nil
	}
	return q.planReduction(first.Type)
}

func (q *collection) run() error {
	defer func() {
		for _, t := range q.own {
			t.free() // the stream reuses the scratch memory only after the work queued here
		}
	}()
	call, err := q.plan()
	if err != nil {
		return err
	}
	if call != nil {
		if err := q.c.group(q.op, call); err != nil {
			return err
		}
		if err := q.release(); err != nil {
			return err
		}
	}
	for r, s := range q.streams {
		if q.c.devs[r].p.sync {
			if err := s.synchronize(); err != nil {
				return err
			}
		}
	}
	return nil
}

// plan queues copies that must precede the collective. It returns a function that makes the
// library's calls for one rank, or nil if there is nothing to call.
func (q *collection) plan() (call func(rank int) error, err error) {
	lib, k, root, n := q.c.lib, q.k, q.k.Root, int(q.bytes)
	switch k.Kind {
	case device.KindAllReduce, device.KindReduceScatter:
		return q.reduce()
	case device.KindBroadcast:
		return func(r int) error {
			in := q.ins[r]
			if r != root {
				in = q.outs[r] // NCCL ignores the input of every rank except the root
			}
			return lib.Broadcast(in, q.outs[r], n, nccl.Uint8, root, q.c.comms[r], q.streams[r].handle)
		}, nil
	case device.KindAllGather:
		return func(r int) error {
			return lib.AllGather(q.ins[r], q.outs[r], n, nccl.Uint8, q.c.comms[r], q.streams[r].handle)
		}, nil
	}
	return q.exchange()
}

// exchange plans collectives that some versions of NCCL do not have. The ranks send their parts to
// each other as one NCCL group. A part that a rank sends to itself is copied on its device.
func (q *collection) exchange() (call func(rank int) error, err error) {
	world := len(q.streams)
	if q.k.Kind == device.KindAllToAll {
		if err := q.setAside(); err != nil {
			return nil, err
		}
	}
	for r, s := range q.streams {
		from, to, ok := q.route(r, r)
		if !ok || from == to {
			continue
		}
		if err := s.dev.move(s, to, from, q.bytes); err != nil {
			return nil, err
		}
	}
	if world == 1 {
		return nil, nil
	}
	lib, n := q.c.lib, int(q.bytes)
	return func(r int) error {
		for other := range world {
			if other == r {
				continue
			}
			if from, _, ok := q.route(r, other); ok {
				if err := lib.Send(from, n, nccl.Uint8, other, q.c.comms[r], q.streams[r].handle); err != nil {
					return err
				}
			}
			if _, to, ok := q.route(other, r); ok {
				if err := lib.Recv(to, n, nccl.Uint8, other, q.c.comms[r], q.streams[r].handle); err != nil {
					return err
				}
			}
		}
		return nil
	}, nil
}

// route returns the source and destination addresses of the part that rank sender sends to rank
// receiver. If the collective sends no such part, ok is false.
func (q *collection) route(sender, receiver int) (src, dst uint64, ok bool) {
	part := func(base uint64, i int) uint64 { return base + uint64(i)*q.bytes }
	switch q.k.Kind {
	case device.KindAllToAll:
		return part(q.ins[sender], receiver), part(q.outs[receiver], sender), true
	case device.KindGather:
		return q.ins[sender], part(q.outs[receiver], sender), receiver == q.k.Root
	case device.KindScatter:
		return part(q.ins[sender], receiver), q.outs[receiver], sender == q.k.Root
	}
	return q.ins[sender], q.outs[receiver], sender == q.k.Root && receiver == q.k.Peer
}

// setAside copies inputs that overlap outputs to scratch memory. Otherwise a part that arrives
// could overwrite a part that has not been sent yet.
func (q *collection) setAside() error {
	size := q.bytes * uint64(len(q.streams))
	for r, s := range q.streams {
		if q.ins[r] != q.outs[r] || len(q.streams) == 1 {
			continue
		}
		at, err := q.own[r].alloc(int(size))
		if err != nil {
			return err
		}
		if err := s.dev.move(s, at, q.ins[r], size); err != nil {
			return err
		}
		q.ins[r] = at
	}
	return nil
}

// traced queues the collective and reports it to the tracer: one kernel for each rank that takes
// part.
func (q *collection) traced(t device.Tracer) error {
	events := make([]device.KernelEvent, len(q.streams))
	run := q.run
	for r, s := range q.streams {
		if q.ins[r] == 0 && q.outs[r] == 0 {
			continue
		}
		v := &q.k.Outs[r]
		if v.Absent() {
			v = &q.k.Ins[r]
		}
		e := &events[r]
		*e = device.KernelEvent{Device: s.dev, Stream: s, Primitive: q.op, Work: device.Work{Bytes: q.touched(r)}, Type: v.Type,
			Launches: []device.LaunchEvent{{Kernel: "nccl " + q.op, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}}}
		if t.Wants().KernelShapes {
			for _, v := range [...]*device.View{&q.k.Outs[r], &q.k.Ins[r]} {
				if !v.Absent() {
					e.Shapes = append(e.Shapes, v.Shape)
				}
			}
		}
		inner := run
		run = func() (err error) {
			e.Launches[0].Time, err = s.dev.timed(s, inner)
			return err
		}
	}
	start := device.Now()
	if err := run(); err != nil {
		return err
	}
	end := device.Now()
	for i := range events {
		if e := &events[i]; e.Device != nil {
			e.Start, e.End, e.Launches[0].Start, e.Launches[0].End = start, end, start, end
			t.Kernel(*e)
		}
	}
	return nil
}

// touched returns the number of bytes that rank r reads and writes.
func (q *collection) touched(r int) int {
	ins, outs := q.k.Kind.Parts(len(q.streams))
	n := 0
	if q.ins[r] != 0 {
		n += ins
	}
	if q.outs[r] != 0 {
		n += outs
	}
	return n * int(q.bytes)
}
