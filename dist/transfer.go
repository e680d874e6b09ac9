package dist

import (
	"errors"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// transfer runs one collective between GPUs, by copies from device to device.
type transfer struct {
	*inProcess
	streams []device.Stream
	op      *device.Collective
}

// meet makes later work on every rank's stream wait for the work that is now queued on all ranks'
// streams.
func (t *transfer) meet() error {
	if len(t.streams) == 1 {
		return nil
	}
	events := make([]device.Event, 0, len(t.streams))
	defer func() {
		for _, ev := range events {
			ev.Release()
		}
	}()
	for _, s := range t.streams {
		ev, err := s.Record()
		if err != nil {
			return err
		}
		events = append(events, ev)
	}
	for i, s := range t.streams {
		for k, ev := range events {
			if i == k {
				continue
			}
			if err := s.Wait(ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// copy queues a copy on the stream of the receiving rank.
func (t *transfer) copy(m move) error {
	return t.devices[m.dst].CopyFrom(t.streams[m.dst], m.dstView.Buf, m.dstOffset, m.srcView.Buf, m.srcOffset, m.bytes)
}

// clear fills a part of an operand of rank dst with zeros.
func (t *transfer) clear(dst int, part device.View) error {
	return zero(t.devices[dst], t.streams[dst], part)
}

// reduce combines the ranks' elements in rounds. In each round, each rank copies its part of the
// elements from all other ranks and combines them. Then the other ranks copy the combined elements.
func (t *transfer) reduce() error {
	var givers, getters []int
	var weights []float64
	for r := range t.op.Outs {
		if v := t.op.Ins[r]; !v.Absent() && (t.op.Weights == nil || t.op.Weights[r] > 0) {
			givers = append(givers, r)
			if t.op.Weights != nil {
				weights = append(weights, t.op.Weights[r])
			}
		}
		if !t.op.Outs[r].Absent() {
			getters = append(getters, r)
		}
	}
	if len(getters) == 0 {
		return nil
	}
	if len(givers) == 0 {
		return errNoGiver
	}
	size := t.op.Ins[givers[0]].Type.Size()
	n := t.op.Outs[getters[0]].Size()
	round := staged / size
	if t.op.Kind == device.KindReduceScatter {
		round, err := t.stage(min(round, n), size, getters, givers)
		if err != nil {
			return err
		}
		for at := 0; at < n; at += round {
			for _, r := range getters {
				part := min(round, n-at)
				if err := t.combine(r, r*n+at, at, part, givers, weights); err != nil {
					return err
				}
			}
		}
		return nil
	}
	// The length of a part is a multiple of 64 elements. Kernels can then use wide loads.
	part, err := t.stage(min(round, ((n+len(getters)-1)/len(getters)+63)&^63), size, getters, givers)
	if err != nil {
		return err
	}
	for at := 0; at < n; at += part * len(getters) {
		if at > 0 {
			if err := t.meet(); err != nil {
				return err
			}
		}
		for i, r := range getters {
			if lo := at + i*part; lo < n {
				if err := t.combine(r, lo, lo, min(part, n-lo), givers, weights); err != nil {
					return err
				}
			}
		}
		if err := t.meet(); err != nil {
			return err
		}
		for _, dst := range getters {
			for i, src := range getters {
				lo := at + i*part
				if dst == src || lo >= n {
					continue
				}
				to, from := t.op.Outs[dst], t.op.Outs[src]
				m := move{dstView: to, srcView: from, dst: dst, dstOffset: (to.Offset + lo) * size, srcOffset: (from.Offset + lo) * size, bytes: min(part, n-lo) * size}
				if err := t.copy(m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

type shortageError struct {
	rank int
	err  error
}

func (e *shortageError) Error() string { return e.err.Error() }
func (e *shortageError) Unwrap() error { return e.err }

// stage allocates staging memory on each rank that combines, for parts of n elements from the other
// ranks. If memory is short, it makes the parts shorter. It returns the length of a part. The
// length does not affect the bits of the results.
func (t *transfer) stage(n, size int, getters, givers []int) (int, error) {
	for i := 0; i < len(getters); {
		r := getters[i]
		others := len(givers)
		if slices.Contains(givers, r) {
			others--
		}
		need := others * n * size
		b := t.room[r]
		if need == 0 || b != nil && b.Size() >= need {
			i++
			continue
		}
		room, err := t.devices[r].Alloc(need, t.streams[r], device.Origin{Op: "combine ranks", Type: t.op.Outs[r].Type})
		switch {
		case err == nil:
			if b != nil {
				b.Free()
			}
			t.room[r] = room
		case n > 64 && errors.Is(err, device.ErrOutOfMemory):
			n, i = (n/2+63)&^63, 0
		default:
			return 0, &shortageError{r, err}
		}
	}
	return n, nil
}

// combine computes n elements of rank r's output from the inputs of the ranks in givers. src is the
// index of the first element in the inputs. dst is the index of the first element in the output.
func (t *transfer) combine(r, src, dst, n int, givers []int, weights []float64) error {
	d, s := t.devices[r], t.streams[r]
	size := t.op.Outs[r].Type.Size()
	ins := make([]device.View, len(givers))
	k := 0
	for i, g := range givers {
		v := t.op.Ins[g]
		if g == r {
			ins[i] = slice(v, src, n)
			continue
		}
		at := k * n * size
		k++
		if err := d.CopyFrom(s, t.room[r], at, v.Buf, (v.Offset+src)*size, n*size); err != nil {
			return err
		}
		ins[i] = device.View{Buf: t.room[r], Type: v.Type}
		ins[i] = slice(ins[i], at/size, n)
	}
	return combine(d, s, t.op.Combine, weights, []device.View{slice(t.op.Outs[r], dst, n)}, ins)
}
