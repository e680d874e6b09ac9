package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// CollectiveKind names a collective operation. The comments on the kinds use this notation: n is
// the number of elements of one rank's part, and W is the number of ranks. For example, "n → W·n"
// says that each rank's input has n elements and each rank's output has W·n.
type CollectiveKind uint8

// These are the kinds of collectives.
const (
	KindAllReduce CollectiveKind = iota // every rank's output combines all inputs: n → n
	KindBroadcast                       // every rank's output is the root's input: n → n
	// every rank's output is the concatenation of all inputs, in the order of ranks: n → W·n
	KindAllGather
	// the output of rank r is part r of the combination of all inputs: W·n → n
	KindReduceScatter
	KindAllToAll // rank p sends part r of its input to rank r, as part p of its output: W·n → W·n
	KindGather   // the root's output is the concatenation of all inputs, by rank: n → W·n
	KindScatter  // the output of rank r is part r of the root's input: W·n → n
	KindSendRecv // the peer's output is the root's input: n → n
)

var collectiveNames = [...]string{"all reduce", "broadcast", "all gather", "reduce scatter",
	"all to all", "gather", "scatter", "send"}

// String returns a name such as "all reduce".
func (k CollectiveKind) String() string {
	if int(k) < len(collectiveNames) {
		return collectiveNames[k]
	}
	return fmt.Sprintf("CollectiveKind(%d)", uint8(k))
}

// Combine says how a collective combines the ranks' elements into one element.
type Combine uint8

// These are the ways to combine elements. CombineMean needs floating-point elements. If an element
// is NaN, the maximum and the minimum are NaN, as in PyTorch's amax.
const (
	CombineSum Combine = iota
	CombineMean
	CombineMax
	CombineMin
	CombineProduct
)

var combineNames = [...]string{"sum", "mean", "max", "min", "product"}

// String returns a name such as "sum".
func (c Combine) String() string {
	if int(c) < len(combineNames) {
		return combineNames[c]
	}
	return fmt.Sprintf("Combine(%d)", uint8(c))
}

// Collective describes one of torch.distributed's collectives, with the operands of all ranks.
// Views are contiguous. The input and the output of a rank may be the same view if they have the
// same size. Otherwise they must not overlap.
type Collective struct {
	Kind    CollectiveKind
	Combine Combine // how KindAllReduce and KindReduceScatter combine elements
	// the root's rank in KindBroadcast, KindGather and KindScatter; the sender's rank in
	// KindSendRecv
	Root int
	Peer int // the rank that receives in KindSendRecv
	// Weights, if given, holds one weight for the input of each rank, for CombineSum and
	// CombineMean. With weights w and inputs x, the sum is Σ w·x, and the mean is Σ w·x / Σ w. An
	// input whose weight is not positive is ignored.
	Weights []float64
	// outputs by rank; an output may be absent where [CollectiveKind.MayMiss] permits it
	Outs []View
	// inputs by rank; an input may be absent where [CollectiveKind.MayLack] permits it
	Ins []View
}

// Reduces reports whether the kind combines elements of several ranks into one.
func (k CollectiveKind) Reduces() bool { return k == KindAllReduce || k == KindReduceScatter }

// MayLack reports whether a rank may have neither an input nor an output. If the kind does not
// combine elements, zeros take the place of that rank's part in the other ranks' results.
func (k CollectiveKind) MayLack() bool {
	return k.Reduces() || k == KindAllGather || k == KindGather || k == KindAllToAll
}

// MayMiss reports whether a rank's output may be absent. It returns true for the kinds in which
// one root sends to all ranks, because a rank may ignore what it receives.
func (k CollectiveKind) MayMiss() bool { return k == KindBroadcast || k == KindScatter }

// Gives reports whether the given rank has an input.
func (c *Collective) Gives(rank int) bool {
	switch c.Kind {
	case KindBroadcast, KindScatter, KindSendRecv:
		return rank == c.Root
	}
	return true
}

// Gets reports whether the given rank has an output.
func (c *Collective) Gets(rank int) bool {
	switch c.Kind {
	case KindGather:
		return rank == c.Root
	case KindSendRecv:
		return rank == c.Peer
	}
	return true
}

// Parts returns the sizes of a rank's input and output, in multiples of n elements (see
// [CollectiveKind]).
func (k CollectiveKind) Parts(world int) (in, out int) {
	switch k {
	case KindAllGather, KindGather:
		return 1, world
	case KindReduceScatter, KindScatter:
		return world, 1
	case KindAllToAll:
		return world, world
	}
	return 1, 1
}

// Check checks the operands of all ranks. It returns the rank and the name of a wrong operand, and
// the reason. If all operands are valid, the reason is empty.
func (c *Collective) Check() (rank int, arg, reason string) {
	world := len(c.Outs)
	switch {
	case int(c.Kind) >= len(collectiveNames):
		return 0, "kind", c.Kind.String() + " is none"
	case int(c.Combine) >= len(combineNames):
		return 0, "combine", c.Combine.String() + " is none"
	case len(c.Ins) != world || world == 0:
		return 0, "ins", fmt.Sprintf("there are %d for %d outs", len(c.Ins), world)
	case c.Root < 0 || c.Root >= world:
		return 0, "root", fmt.Sprintf("there is no rank %d of %d", c.Root, world)
	case c.Kind == KindSendRecv && (c.Peer < 0 || c.Peer >= world || c.Peer == c.Root):
		return 0, "peer", fmt.Sprintf("rank %d cannot send to rank %d of %d", c.Root, c.Peer, world)
	}
	ins, outs := c.Kind.Parts(world)
	if c.Weights != nil && (len(c.Weights) != world || !c.Kind.Reduces() || c.Combine > CombineMean) {
		return 0, "weights", fmt.Sprintf("%d weights do not fit the %s of %d ranks", len(c.Weights), c.Combine, world)
	}
	part, typ, given := -1, dtype.Invalid, 0
	for r := range world {
		for _, o := range [...]struct {
			name  string
			view  *View
			there bool
			parts int
		}{{"in", &c.Ins[r], c.Gives(r), ins}, {"out", &c.Outs[r], c.Gets(r), outs}} {
			v := o.view
			if !o.there || v.Absent() && (c.Kind.MayLack() || o.name == "out" && c.Kind.MayMiss()) {
				continue
			}
			if o.name == "in" {
				given++
			}
			switch {
			case v.Absent():
				return r, o.name, "it is absent"
			case !v.Contiguous():
				return r, o.name, "it is not contiguous"
			case v.Size()%o.parts != 0:
				return r, o.name, fmt.Sprintf("%d elements are no %d equal parts", v.Size(), o.parts)
			case typ != dtype.Invalid && v.Type != typ:
				return r, o.name, fmt.Sprintf("it is %v, others are %v", v.Type, typ)
			case part >= 0 && v.Size()/o.parts != part:
				return r, o.name, fmt.Sprintf("a part has %d elements, those of others %d", v.Size()/o.parts, part)
			}
			part, typ = v.Size()/o.parts, v.Type
		}
	}
	if given == 0 {
		return 0, "ins", "no rank gives anything"
	}
	if c.Kind.Reduces() && c.Combine == CombineMean && !typ.IsFloat() {
		return 0, "combine", fmt.Sprintf("the mean of %v is not defined", typ)
	}
	return 0, "", ""
}

// Communicator runs collectives of a fixed list of devices. A device's index in the list is its
// rank.
type Communicator interface {
	// Name returns the name of the implementation that moves the data: "in-process" or "nccl".
	Name() string
	// Collect queues the collective c on the stream of each rank, streams[rank], and returns. The
	// caller has checked c with its method Check. The collective runs after earlier work on these
	// streams and before later work. Only one call of Collect may run at a time. After an error
	// that does not wrap errors.ErrUnsupported, the communicator cannot be used any more.
	Collect(streams []Stream, c *Collective) error
	// Close releases the communicator. Abort makes hanging calls of Collect and Close return, and
	// ends hanging kernels. Any goroutine may call Abort, even while another goroutine is in
	// Collect.
	Close() error
	Abort() error
}

// Connector is satisfied by devices whose driver has a library for collectives.
type Connector interface {
	// Connect returns a communicator in which devices[r] is rank r. All devices must belong to this
	// driver. If the library is missing, the error is an *[UnavailableError].
	Connect(devices []Device) (Communicator, error)
}
