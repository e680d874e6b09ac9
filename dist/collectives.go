package dist

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// These constants say how a collective combines the ranks' elements.
const (
	Sum     = device.CombineSum
	Mean    = device.CombineMean // the mean, for floating-point types only
	Max     = device.CombineMax  // the maximum; NaN if an element is NaN
	Min     = device.CombineMin
	Product = device.CombineProduct
)

// Combine says how a collective combines the ranks' elements: [Sum], [Mean], [Max], [Min],
// [Product].
type Combine = device.Combine

// Work is a collective that has begun. A program need not call Wait: ops on the collective's
// tensors wait for the collective automatically.
type Work struct {
	core *core
	slot *slot
	call *call
}

// Done reports whether all ranks have called the collective and its work is queued.
func (w *Work) Done() bool {
	select {
	case <-w.slot.done:
		return w.slot.void == nil
	default:
		return false
	}
}

// Wait blocks until all ranks have called the collective and its work is queued. On the CPU it
// blocks until the work is done. Wait panics with an *[Error] if the run ends while it waits.
func (w *Work) Wait() {
	if err := w.err(); err != nil {
		panic(err)
	}
}

func (w *Work) err() error { return w.core.wait(w.slot, w.call) }

// waitQueued waits until the collective is queued, for an op that needs one of its tensors. If the
// collective was dropped because its step became void, and this rank has already ended that step,
// waitQueued returns no error.
func (w *Work) waitQueued() error {
	err := w.err()
	if err != nil && w.core.dropped(w.slot, w.call.rank) {
		return nil
	}
	return err
}

// messages identifies the messages from rank src to rank dst. It is the owner under which a pending
// message holds its tensors.
type messages struct {
	core     *core
	src, dst int
}

// begin registers this rank's call of a collective. dst or src may be nil, and both may be the same
// tensor.
func (g *Group) begin(a signature, operands string, dst, src *tensor.Tensor, weight float64) *Work {
	g.member(a.op)
	k := &call{rank: g.rank, operands: operands, weight: weight}
	w := &Work{core: g.core, call: k}
	inParts, outParts := a.kind.Parts(g.World())
	a.part = -1
	for _, o := range [...]struct {
		name  string
		t     *tensor.Tensor
		parts int
		hold  **tensor.Hold
		write bool
	}{{"out", dst, outParts, &k.dst, true}, {"in", src, inParts, &k.src, false}} {
		if o.name == "in" && src == dst && src != nil {
			continue
		}
		if o.t == nil {
			if a.gives(g.rank, o.write) {
				panic(g.misuse(a.op, tensor.ErrValue, o.name+" is nil"))
			}
			continue
		}
		if o.t.Device() != g.Device() {
			panic(g.misuse(a.op, tensor.ErrDevice, fmt.Sprintf("%s is on %s", o.name, o.t.Device().Name())))
		}
		if o.t.Size()%o.parts != 0 {
			panic(g.misuse(a.op, tensor.ErrShape, fmt.Sprintf("%s has shape %v, whose elements are no %d equal parts", o.name, o.t.Shape(), o.parts)))
		}
		part := o.t.Size() / o.parts
		if a.part >= 0 && (part != a.part || o.t.Type() != a.typ) {
			panic(g.misuse(a.op, tensor.ErrShape, fmt.Sprintf("in has parts of %d %v, out of %d %v", part, o.t.Type(), a.part, a.typ)))
		}
		a.part, a.typ = part, o.t.Type()
	}
	k.what = a
	var graph *tensor.Graph
	if t := g.capture(); t != nil {
		graph = t.graph
	}
	// Only collectives of the same owner are queued in the order of the calls. The owner is the
	// group or, for messages, the pair of ranks.
	owner := any(g.core)
	if a.kind == device.KindSendRecv {
		owner = messages{g.core, a.root, a.peer}
	}
	hold := func(t *tensor.Tensor, write bool) *tensor.Hold {
		return t.Hold(a.op, write, graph, owner, w.waitQueued)
	}
	if dst != nil {
		k.dst, k.inPlace = hold(dst, true), src == dst
	}
	if src != nil && src != dst {
		done := false
		defer func() {
			if !done {
				k.release()
			}
		}()
		k.src = hold(src, false)
		done = true
	}
	w.slot = g.core.call(k)
	return w
}

// AllReduce replaces x by the combination of all ranks' x: torch's all_reduce. x must be
// contiguous.
func (g *Group) AllReduce(x *tensor.Tensor, c Combine) *Work {
	return g.begin(signature{op: "all reduce", kind: device.KindAllReduce, combine: c}, "", x, x, 1)
}

// Broadcast replaces x by the x of rank root.
func (g *Group) Broadcast(x *tensor.Tensor, root int) *Work {
	a := signature{op: "broadcast", kind: device.KindBroadcast, root: g.ranked("broadcast", root)}
	return g.begin(a, "", x, x, 1)
}

// AllGather concatenates the tensors x of all ranks, in the order of ranks, into the tensor out:
// torch's all_gather_into_tensor. The tensor out has World times as many elements as x.
func (g *Group) AllGather(out, x *tensor.Tensor) *Work {
	return g.begin(signature{op: "all gather", kind: device.KindAllGather}, "", out, x, 1)
}

// ReduceScatter combines the tensors x of all ranks, and divides the result into World parts. It
// copies this rank's part into the tensor out: torch's reduce_scatter_tensor. The tensor x has
// World times as many elements as out.
func (g *Group) ReduceScatter(out, x *tensor.Tensor, c Combine) *Work {
	return g.begin(signature{op: "reduce scatter", kind: device.KindReduceScatter, combine: c}, "", out, x, 1)
}

// AllToAll sends part r of x to rank r, for each r. It copies the part that rank r sends into part
// r of the tensor out: torch's all_to_all_single with equal parts.
func (g *Group) AllToAll(out, x *tensor.Tensor) *Work {
	return g.begin(signature{op: "all to all", kind: device.KindAllToAll}, "", out, x, 1)
}

// Gather concatenates the tensors x of all ranks, in the order of ranks, into the tensor out of
// rank root. On every other rank, out must be nil.
func (g *Group) Gather(out, x *tensor.Tensor, root int) *Work {
	a := signature{op: "gather", kind: device.KindGather, root: g.ranked("gather", root)}
	return g.begin(a, "", g.checkRoot(a.op, "out", root, out), x, 1)
}

// Scatter divides the x of rank root into World parts. On each rank it copies the rank's part into
// the tensor out. On every rank except root, x must be nil.
func (g *Group) Scatter(out, x *tensor.Tensor, root int) *Work {
	a := signature{op: "scatter", kind: device.KindScatter, root: g.ranked("scatter", root)}
	return g.begin(a, "", out, g.checkRoot(a.op, "in", root, x), 1)
}

// Send sends x to rank peer, which calls [Group.Recv]. Messages between two ranks arrive in order.
// A Recv into x waits until x has been sent. If two ranks send to each other, each therefore needs
// one tensor to send and another to receive.
func (g *Group) Send(x *tensor.Tensor, peer int) *Work {
	g.member("send")
	return g.begin(g.message("send", g.rank, peer), "", nil, x, 1)
}

// Recv replaces x by the tensor that rank from sends with [Group.Send]. That tensor must have the
// type and size of x.
func (g *Group) Recv(x *tensor.Tensor, from int) *Work {
	g.member("receive")
	return g.begin(g.message("receive", from, g.rank), "", x, nil, 1)
}

func (g *Group) message(op string, from, to int) signature {
	if from == to {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("rank %d is this one", from)))
	}
	return signature{op: "send", kind: device.KindSendRecv, root: g.ranked(op, from), peer: g.ranked(op, to)}
}

// ranked returns r. It panics if the group has no rank r.
func (g *Group) ranked(op string, r int) int {
	g.member(op)
	if r < 0 || r >= g.World() {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("there is no rank %d of %d", r, g.World())))
	}
	return r
}

// checkRoot checks that x is given on rank root and nil on every other rank. It returns x.
func (g *Group) checkRoot(op, name string, root int, x *tensor.Tensor) *tensor.Tensor {
	if (x != nil) != (g.rank == root) {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("%s is given by rank %d and no other", name, root)))
	}
	return x
}

// Barrier blocks until all ranks have called it. It also waits for the work that each rank queued
// on its device's default stream before the call.
func (g *Group) Barrier() {
	if err := g.Device().DefaultStream().Synchronize(); err != nil {
		panic(g.misuse("barrier", err, err.Error()))
	}
	g.exchange("barrier", nil, nil)
}

// Exchange sends v to all ranks and returns the values of all ranks, in the order of ranks: torch's
// all_gather_object. Values are not copied, so all ranks share the memory that v points to.
func Exchange[T any](g *Group, v T) []T {
	all := g.exchange("exchange", v, nil)
	list := make([]T, len(all))
	for i, x := range all {
		list[i], _ = x.(T)
	}
	return list
}

// exchange returns the values v of all ranks, by rank. If the function agree is not nil, it is
// called once with these values, and its result is returned in place of the values.
func (g *Group) exchange(op string, v any, agree func(values []any) (any, error)) []any {
	g.member(op)
	k := &call{rank: g.rank, what: signature{op: op, host: true}, value: v, agree: agree}
	sl := g.core.call(k)
	if err := g.core.wait(sl, k); err != nil {
		panic(err)
	}
	return sl.values
}
