package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
)

// Owner describes all live and pending blocks of one origin: they were allocated at the same call
// site for the same shape.
type Owner struct {
	Origin
	Blocks int
	Bytes  uint64 // sum of the rounded sizes
	Each   uint64 // rounded size of the largest block
}

// String returns a line such as "1.50 GiB in 3 blocks: [64 784] float32, matmul at train.go:31".
func (o Owner) String() string {
	if o.Blocks == 1 {
		return fmt.Sprintf("%s: %s", human(o.Bytes), o.Describe())
	}
	return fmt.Sprintf("%s in %d blocks: %s", human(o.Bytes), o.Blocks, o.Describe())
}

// Largest returns the n owners whose blocks have the most bytes.
func (p *Pool) Largest(n int) []Owner {
	p.mu.Lock()
	p.settleLocked()
	owners := p.ownersLocked()
	p.mu.Unlock()
	return largest(owners, n)
}

func (p *Pool) ownersLocked() map[ownerKey]*Owner {
	owners := map[ownerKey]*Owner{}
	for _, seg := range p.segments {
		for b := seg.first; b != nil; b = b.next {
			if b.state == stateFree {
				continue
			}
			k := b.ownerKey()
			o := owners[k]
			if o == nil {
				o = &Owner{Origin: b.origin}
				owners[k] = o
			}
			o.Blocks++
			o.Bytes += b.size
			o.Each = max(o.Each, b.size)
		}
	}
	return owners
}

func largest(owners map[ownerKey]*Owner, n int) []Owner {
	// Merge origins with equal descriptions: two allocations at one call site may have different
	// values of Where.
	alike := map[string]*Owner{}
	for _, o := range owners {
		text := o.Origin.Describe()
		if a := alike[text]; a != nil {
			a.Blocks += o.Blocks
			a.Bytes += o.Bytes
			a.Each = max(a.Each, o.Each)
			continue
		}
		c := *o
		alike[text] = &c
	}
	out := make([]Owner, 0, len(alike))
	for _, o := range alike {
		out = append(out, *o)
	}
	slices.SortFunc(out, func(a, b Owner) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.PC, b.PC), cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Scope, b.Scope), slices.Compare(a.Shape[:], b.Shape[:]))
	})
	return out[:max(0, min(n, len(out)))]
}

// OOMError says why an allocation failed, and which origins occupy the memory. It wraps
// Options.ErrOOM and the backing's error.
type OOMError struct {
	Device      string
	Asked       uint64
	Stream      StreamID
	For         Origin
	Total, Free uint64 // memory of the device; 0 if unknown
	Limit       uint64 // limit of the pool; 0 if none
	Reserved    uint64 // number of bytes in segments
	Allocated   uint64 // number of bytes in live blocks
	Pending     uint64 // number of bytes in freed blocks that wait for other streams
	LargestFree uint64 // size in bytes of the largest free block that the request's stream can use
	FreeCached  uint64 // number of bytes in the free blocks of all streams
	Owners      []Owner
	streamText  string // describes Stream: "on the default stream"
	sentinel    error
	cause       error
}

// Unwrap returns Options.ErrOOM and the backing's error, for errors.Is.
func (e *OOMError) Unwrap() []error {
	out := make([]error, 0, 2)
	for _, err := range []error{e.sentinel, e.cause} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// Error returns the numbers in the first line, and one owner in each further line.
func (e *OOMError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "out of memory on %s: asked for %s (%d bytes) for %s", e.Device, human(e.Asked), e.Asked, e.For.Describe())
	if e.Total > 0 {
		fmt.Fprintf(&s, "; capacity %s, free %s", human(e.Total), human(e.Free))
	} else {
		s.WriteString("; capacity unknown")
	}
	if e.Limit > 0 {
		fmt.Fprintf(&s, ", limit %s", human(e.Limit))
	}
	fmt.Fprintf(&s, "; reserved %s, of which allocated %s, waiting for other streams %s, cached %s; largest free block %s %s",
		human(e.Reserved), human(e.Allocated), human(e.Pending), human(e.FreeCached), e.streamText, human(e.LargestFree))
	if e.cause != nil {
		fmt.Fprintf(&s, " (%v)", e.cause)
	}
	if len(e.Owners) > 0 {
		s.WriteString("\nlargest owners:")
		for _, o := range e.Owners {
			fmt.Fprintf(&s, "\n  %s", o)
		}
	}
	return s.String()
}

// outOfMemory returns the error for a request that is larger than any device.
func (p *Pool) outOfMemory(size uint64, stream StreamID, origin *Origin, cause error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.OOMs++
	return p.oomLocked(size, stream, origin, cause)
}

// oomLocked returns the error of a failed allocation. It releases the lock while it asks the
// backing for its capacity.
func (p *Pool) oomLocked(size uint64, stream StreamID, origin *Origin, cause error) error {
	if cause == nil {
		cause = ErrNoMemory
	}
	s := &p.stats
	e := &OOMError{
		Device: p.o.Name, Asked: size, Stream: stream, For: *origin, Limit: p.limit,
		Reserved: s.ReservedBytes.Current, Allocated: s.AllocatedBytes.Current,
		Pending:    s.ActiveBytes.Current - s.AllocatedBytes.Current,
		streamText: "of the recording",
		sentinel:   p.o.ErrOOM, cause: cause,
	}
	small, held := size <= p.o.SmallMax, p.arenaLocked(stream).held
	for _, seg := range p.segments {
		for b := seg.first; b != nil; b = b.next {
			if b.state != stateFree {
				continue
			}
			e.FreeCached += b.size
			if seg.home.stream == stream && seg.small == small {
				e.LargestFree = max(e.LargestFree, b.size)
			}
		}
	}
	e.Owners = largest(p.ownersLocked(), 10)
	p.mu.Unlock()
	e.Free, e.Total = p.backing.Capacity()
	// a held stream belongs to a recording, and the driver does not know its number
	if !held {
		e.streamText = "on " + p.streamName(stream)
	}
	p.mu.Lock()
	if p.history != nil {
		p.history.oomLocked(size, stream, origin, e.Free)
	}
	return e
}

// streamName returns the name of a stream for messages.
func (p *Pool) streamName(s StreamID) string {
	if p.o.StreamName != nil {
		return p.o.StreamName(s)
	}
	return fmt.Sprintf("stream %d", s)
}

// human returns a text for a number of bytes, such as "1.50 GiB".
func human(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/(1<<10), 0
	for ; v >= 1024 && unit < 5; unit++ {
		v /= 1024
	}
	return fmt.Sprintf("%.2f %ciB", v, "KMGTPE"[unit])
}

var _ device.ShortageError = (*OOMError)(nil)

// Shortage returns the numbers of the error as a device.Shortage.
func (e *OOMError) Shortage() device.Shortage {
	s := device.Shortage{Device: e.Device, Asked: int(e.Asked), For: e.For.Describe(), Total: int(e.Total), Free: int(e.Free), Limit: int(e.Limit),
		Reserved: int(e.Reserved), Allocated: int(e.Allocated + e.Pending)}
	for _, o := range e.Owners {
		s.Owners = append(s.Owners, o.String())
	}
	return s
}
