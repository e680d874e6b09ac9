package pool

import (
	"errors"
	"testing"
)

// following is a backing whose streams can wait for each other.
type following struct {
	*fakeDevice
	follows [][2]StreamID
	err     error
}

func (f *following) Follow(stream, before StreamID) error {
	if f.err == nil {
		f.follows = append(f.follows, [2]StreamID{stream, before})
	}
	return f.err
}

// TestHold checks that a held stream keeps its segments when Empty is called. The held stream
// must take over unused segments of other streams, and its later work must wait for these streams.
// Retire must give the held stream's segments to another stream.
func TestHold(t *testing.T) {
	f := &following{fakeDevice: newFake(1 << 30)}
	p := New(f, Options{})
	alloc := func(size uint64, s StreamID) *Block {
		t.Helper()
		b, err := p.Alloc(size, s, Origin{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	free := func(b *Block) { p.Free(b, b.Generation()) }
	used, small, large, huge := alloc(100, 1), alloc(1000, 2), alloc(12<<20, 1), alloc(40<<20, 1)
	small2 := alloc(2000, 1) // in the same segment as the first block
	free(small)
	free(large)
	free(huge)
	free(small2)
	before := p.Stats()
	const held = 9
	p.Hold(held)
	a, b := alloc(500, held), alloc(11<<20, held)
	if a.Addr() != small.Addr() && a.Addr() == used.Addr() || p.Stats().ReservedBytes.Current != before.ReservedBytes.Current {
		t.Errorf("a held stream asked for memory although others have some that they do not use")
	}
	if len(f.follows) != 2 || f.follows[0] != [2]StreamID{held, 2} || f.follows[1] != [2]StreamID{held, 1} {
		t.Errorf("it follows %v", f.follows)
	}
	free(a)
	free(b)
	segments := p.Stats().Segments.Current
	p.Empty()
	// Empty gives back only the segment of 40 MiB, which the held stream has not taken over.
	if n := p.Stats().Segments.Current; n != segments-1 {
		t.Errorf("%d of %d segments are left, want all but one", n, segments)
	}
	if c := alloc(500, held); c.Addr() != a.Addr() {
		t.Error("what a held stream freed does not serve it again")
	} else {
		free(c)
	}
	// If Follow fails, the held stream must not take over the segment.
	free(alloc(30<<20, 1))
	f.err = errors.New("no events")
	reserved := p.Stats().ReservedBytes.Current
	free(alloc(30<<20, held))
	if p.Stats().ReservedBytes.Current == reserved {
		t.Error("a segment was taken over without order")
	}
	p.Retire(held, 1)
	p.Empty()
	if n := p.Stats().Segments.Current; n != 1 { // only the segment of the first block is left
		t.Errorf("%d segments are left, want 1", n)
	}
	free(used)
}
