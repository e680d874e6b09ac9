package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// roomOfGather is the default of ZeRO.room in bytes. Two rounds are in progress at the same time,
// so a dense space has up to two buffers of this size.
const roomOfGather = 32 << 20

// gathering copies the elements that each rank has changed to all other ranks, in rounds. A round
// has three steps. A launch copies this rank's elements to a buffer. A collective exchanges the
// buffers. Another launch copies the other ranks' elements to the parameters. newGathering
// allocates all memory.
type gathering struct {
	z       *ZeRO
	s       *tensor.Scope
	rounds  []round
	slots   *tensor.Tensor // required by tensor.Update, although the copy has no scalars
	reserve *tensor.Tensor // reserves memory for the addresses of a launch
}

// round copies the elements start to start+n-1 of each rank's part of a space to all ranks.
type round struct {
	space    *space
	start, n int
	room     *tensor.Tensor // buffer of World·n elements; each rank provides n of them
}

// pair holds two views: param has some elements of a parameter, and room is the place for their
// copy in the buffer.
type pair struct{ param, room *tensor.Tensor }

// newGathering allocates the memory that a gathering needs.
func (z *ZeRO) newGathering(s *tensor.Scope) *gathering {
	t := &gathering{z: z, s: s}
	world := z.g.World()
	if world == 1 {
		return t
	}
	words := 0
	for _, sp := range z.split.spaces {
		if sp.width == 0 || sp.frozen && !z.changes(sp) {
			continue
		}
		n := sp.width
		if sp.dense { // the parameters of a space that is not dense are copied in one round
			n = min(n, max(1, z.room/(world*sp.typ.Size())))
		}
		var rooms [2]*tensor.Tensor
		for at := 0; at < sp.width; at += n {
			k := at / n % 2
			if rooms[k] == nil {
				rooms[k] = s.Typed(sp.typ).Empty(world * n)
			}
			part := min(n, sp.width-at)
			t.rounds = append(t.rounds, round{sp, at, part, rooms[k].Narrow(0, 0, world*part)})
		}
		tensor.PrepareUpdate("gather", copying(sp.typ), z.g.Device())
		for _, runs := range sp.ranks {
			for _, r := range runs {
				words += 4 + 2*(2+r.size()/4096)
			}
		}
	}
	t.slots = s.Typed(dtype.I64).Zeros(1)
	if !z.g.Device().Info().Host {
		t.reserve = s.Typed(dtype.I64).Empty(words)
	}
	return t
}

// changes reports whether this step changes any parameter of the space.
func (z *ZeRO) changes(sp *space) bool {
	for _, runs := range sp.ranks {
		for _, r := range runs {
			if z.params[r.param].Grad() != nil {
				return true
			}
		}
	}
	return false
}

// run runs all rounds. It begins each round before it waits for the previous round.
func (t *gathering) run() {
	for i := range t.rounds {
		if i == 0 {
			t.begin(0)
		}
		if i+1 < len(t.rounds) {
			t.begin(i + 1)
		}
		t.end(i)
	}
}

// begin copies this rank's elements of round i to the buffer and starts the collective.
func (t *gathering) begin(i int) {
	r, g := t.rounds[i], t.z.g
	t.s.Do(func(s *tensor.Scope) {
		t.copy(s, r, true, func(rank int) bool { return rank == g.Rank() })
		g.begin(signature{op: "all gather", kind: device.KindAllGather}, "parameters that the ranks have changed",
			r.room, r.room.In(s).Narrow(0, g.Rank()*r.n, r.n), 1)
	})
}

// end copies the other ranks' elements of round i from the buffer to the parameters.
func (t *gathering) end(i int) {
	t.s.Do(func(s *tensor.Scope) {
		t.copy(s, t.rounds[i], false, func(rank int) bool { return rank != t.z.g.Rank() })
	})
}

// copy copies elements of round r between the parameters and the buffer, in one launch. It copies
// the elements of those ranks for which the function ranks returns true. If gives is true, it
// copies from the parameters to the buffer.
func (t *gathering) copy(s *tensor.Scope, r round, gives bool, ranks func(rank int) bool) {
	var outs, ins [][]*tensor.Tensor
	for rank, runs := range r.space.ranks {
		if !ranks(rank) {
			continue
		}
		for _, p := range t.pairs(s, r, rank, runs) {
			if gives {
				outs, ins = append(outs, []*tensor.Tensor{p.room}), append(ins, []*tensor.Tensor{p.param})
			} else {
				outs, ins = append(outs, []*tensor.Tensor{p.param}), append(ins, []*tensor.Tensor{p.room})
			}
		}
	}
	if t.reserve != nil {
		t.reserve.Free()
		t.reserve = nil
	}
	tensor.Update("gather", copying(r.space.typ), outs, ins, t.slots, []uint64{0})
}

// pairs lists the views of a rank's elements that belong to round r, each with its view of the
// buffer. The ranges in runs are the rank's part of the space.
func (t *gathering) pairs(s *tensor.Scope, r round, rank int, runs []stretch) (list []pair) {
	at := 0 // offset of the current range in the rank's elements
	for _, run := range runs {
		from, to := max(run.part.From, run.part.From+r.start-at), min(run.part.To, run.part.From+r.start+r.n-at)
		if from < to {
			x := t.z.params[run.param].In(s).Detach()
			room := r.room.In(s).Narrow(0, rank*r.n+at+from-run.part.From-r.start, to-from)
			if (optim.Part{From: from, To: to}) == (optim.Part{To: x.Size()}) {
				room = room.Reshape(x.Shape().Slice()...)
			} else {
				x = x.View(-1).Narrow(0, from, to-from)
			}
			list = append(list, pair{x, room})
		}
		at += run.size()
	}
	return list
}
