package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
)

// A CollectiveKind says what ranks do together. n is the number of elements of one rank's part, W
// the number of ranks.
type CollectiveKind uint8

// The kinds.
const (
	KindAllReduce CollectiveKind = iota // each out is the combination of all ins: n → n
	KindBroadcast                       // each out is the root's in: n → n
	KindAllGather                       // each out is all ins, by rank: n → W·n
	// out r is part r of the combination of all ins: W·n → n
	KindReduceScatter
	KindAllToAll // part p of out r is part r of in p: W·n → W·n
	KindGather   // the root's out is all ins, by rank: n → W·n
	KindScatter  // out r is part r of the root's in: W·n → n
	KindSendRecv // the peer's out is the root's in: n → n
)

var collectiveNames = [...]string{"all reduce", "broadcast", "all gather", "reduce scatter",
	"all to all", "gather", "scatter", "send"}

// String reads like "all reduce".
func (k CollectiveKind) String() string {
	if int(k) < len(collectiveNames) {
		return collectiveNames[k]
	}
	return fmt.Sprintf("CollectiveKind(%d)", uint8(k))
}

// A Combine says how the ranks' elements become one.
type Combine uint8

// The ways to combine. The mean is of floats; with max and min NaN wins, as in PyTorch's amax.
const (
	CombineSum Combine = iota
	CombineMean
	CombineMax
	CombineMin
	CombineProduct
)

var combineNames = [...]string{"sum", "mean", "max", "min", "product"}

// String reads like "sum".
func (c Combine) String() string {
	if int(c) < len(combineNames) {
		return combineNames[c]
	}
	return fmt.Sprintf("Combine(%d)", uint8(c))
}

// A Collective is work that several devices do together: torch.distributed's collectives, each
// rank's operands in one value. Views are contiguous. An out may be the same view as its rank's in
// where both have the same size; else they do not overlap.
type Collective struct {
	Kind    CollectiveKind
	Combine Combine // of KindAllReduce and KindReduceScatter
	Root    int     // of KindBroadcast, KindGather and KindScatter; the sender of KindSendRecv
	Peer    int     // the receiver of KindSendRecv
	// Weights, where given, say by rank how much an in counts for CombineSum and CombineMean: Σ
	// w·in, and for the mean divided by Σ w. A weight that is not above 0 leaves the rank's in
	// out.
	Weights []float64
	Outs    []View // by rank; absent where a rank gets nothing: see [CollectiveKind.MayMiss]
	Ins     []View // by rank; absent where a rank gives nothing: see [CollectiveKind.MayLack]
}

// Reduces reports whether elements are combined.
func (k CollectiveKind) Reduces() bool { return k == KindAllReduce || k == KindReduceScatter }

// MayLack reports whether a rank may have no operands at all. Where nothing is combined, others
// find zeros in the place of its part.
func (k CollectiveKind) MayLack() bool {
	return k.Reduces() || k == KindAllGather || k == KindGather || k == KindAllToAll
}

// MayMiss reports whether a rank may have no out, though others of its kind get one.
func (k CollectiveKind) MayMiss() bool { return k == KindBroadcast || k == KindScatter }

// Gives reports whether a rank has an in.
func (c *Collective) Gives(rank int) bool {
	switch c.Kind {
	case KindBroadcast, KindScatter, KindSendRecv:
		return rank == c.Root
	}
	return true
}

// Gets reports whether a rank has an out.
func (c *Collective) Gets(rank int) bool {
	switch c.Kind {
	case KindGather:
		return rank == c.Root
	case KindSendRecv:
		return rank == c.Peer
	}
	return true
}

// Parts returns how many parts of n elements an in and an out have, of W ranks.
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

// Check says which operand of which rank is wrong, and why; the reason is empty where all fit.
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

// A Communicator runs collectives of a fixed list of devices, the ranks.
type Communicator interface {
	// Name says what carries the data: "in-process", "nccl".
	Name() string
	// Collect queues c, which has passed its Check, on each rank's stream, and returns when that is
	// done. Work queued there earlier comes before, later work after it. Calls are made one
	// after the other. After an error that is not an errors.ErrUnsupported the communicator is
	// of no use.
	Collect(streams []Stream, c *Collective) error
	// Close gives back what it holds. Abort ends what hangs, from any goroutine.
	Close() error
	Abort() error
}

// A Connector is satisfied by devices whose driver has collectives of its own, from a library.
type Connector interface {
	// Connect returns a communicator of these devices, of this driver, rank by rank. The error
	// is an *[UnavailableError] where the library is not there.
	Connect(devices []Device) (Communicator, error)
}
