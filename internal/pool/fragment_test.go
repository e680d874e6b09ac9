package pool

import (
	"math/rand/v2"
	"testing"
)

// unlimitedBacking is a Backing with pages of 2 MiB. It never runs out of memory, because it
// returns addresses without memory.
type unlimitedBacking struct{ next uintptr }

func (v *unlimitedBacking) take(size uint64) uintptr {
	a := v.next + 2<<20
	v.next = a + uintptr(size+(2<<20)-1)/(2<<20)*(2<<20)
	return a
}

type noEvent struct{}

func (noEvent) Release() {}

func (v *unlimitedBacking) Alloc(size uint64) (uintptr, error)      { return v.take(size), nil }
func (*unlimitedBacking) Free(uintptr, uint64)                      {}
func (*unlimitedBacking) Capacity() (free, total uint64)            { return 80 << 30, 80 << 30 }
func (*unlimitedBacking) Record(StreamID) (Event, error)            { return noEvent{}, nil }
func (*unlimitedBacking) Done(Event) bool                           { return true }
func (*unlimitedBacking) Wait(Event)                                {}
func (*unlimitedBacking) Granularity() uint64                       { return 2 << 20 }
func (v *unlimitedBacking) Reserve(size uint64) (uintptr, error)    { return v.take(size), nil }
func (*unlimitedBacking) Unreserve(uintptr, uint64)                 {}
func (*unlimitedBacking) Map(addr uintptr, size, page uint64) error { return nil }
func (*unlimitedBacking) Unmap(addr uintptr, size, page uint64)     {}

// transformer makes the same allocations as the training of a transformer in 16 bits. The
// parameters and their Adam moments stay allocated. Each step has another sequence length. Its
// forward pass allocates activations. Its backward pass frees them in reverse order, and allocates
// and frees gradients.
type transformer struct {
	t                   *testing.T
	p                   *Pool
	layers, batch       uint64
	width, heads, vocab uint64
	resident            []*Block
}

func (m *transformer) alloc(elements, size uint64) *Block {
	b, err := m.p.Alloc(elements*size, 0, Origin{})
	if err != nil {
		m.t.Fatal(err)
	}
	return b
}

func (m *transformer) free(list ...*Block) {
	for _, b := range list {
		m.p.Free(b, b.Generation())
	}
}

// build allocates the parameters in 16 bits. The first step allocates their gradients, and the two
// moments in 32 bits.
func (m *transformer) build() {
	w := m.width
	sizes := []uint64{m.vocab * w}
	for range m.layers {
		sizes = append(sizes, 3*w*w, 3*w, w*w, w, 4*w*w, 4*w, 4*w*w, w, w, w, w, w)
	}
	for _, bytes := range []uint64{2, 2, 4, 4} {
		for _, n := range sizes {
			m.resident = append(m.resident, m.alloc(n, bytes))
		}
	}
}

// step is one forward and backward pass over sequences of n tokens.
func (m *transformer) step(n uint64) {
	tokens := m.batch * n
	w := m.width
	type layer struct{ kept []*Block }
	var layers []layer
	x := m.alloc(tokens*w, 2)
	for range m.layers {
		var l layer
		keep := func(elements, size uint64) *Block {
			b := m.alloc(elements, size)
			l.kept = append(l.kept, b)
			return b
		}
		keep(tokens*w, 2)   // normalised input
		keep(tokens, 4)     // statistics of the normalisation
		keep(tokens*3*w, 2) // queries, keys and values
		scratch := m.alloc(m.batch*m.heads*n*64, 4)
		keep(tokens*w, 2)          // result of attention
		keep(m.batch*m.heads*n, 4) // row sums of attention
		m.free(scratch)
		proj := m.alloc(tokens*w, 2)
		y := keep(tokens*w, 2) // x plus the projection of the result of attention
		m.free(proj)
		keep(tokens*w, 2)
		keep(tokens*4*w, 2) // hidden layer
		keep(tokens*4*w, 2) // GELU of the hidden layer
		out := m.alloc(tokens*w, 2)
		next := keep(tokens*w, 2)
		m.free(out)
		_, _ = y, next
		layers = append(layers, l)
	}
	logits := m.alloc(tokens*m.vocab, 2)
	loss := m.alloc(tokens, 4)
	g := m.alloc(tokens*m.vocab, 2)
	m.free(logits, loss)
	dx := m.alloc(tokens*w, 2)
	m.free(g)
	for i := len(layers) - 1; i >= 0; i-- {
		dh := m.alloc(tokens*4*w, 2)
		dw := m.alloc(4*w*w, 2)
		du := m.alloc(tokens*4*w, 2)
		m.free(dh, dw)
		dy := m.alloc(tokens*w, 2)
		m.free(du)
		dq := m.alloc(tokens*3*w, 2)
		m.free(dy)
		dz := m.alloc(tokens*w, 2)
		m.free(dq, dx)
		dx = dz
		for k := len(layers[i].kept) - 1; k >= 0; k-- {
			m.free(layers[i].kept[k])
		}
	}
	m.free(dx, x)
}

// TestFragmentation simulates training with changing lengths. Expandable segments must reserve at
// most a tenth more memory than the peak of allocated bytes.
func TestFragmentation(t *testing.T) {
	need := func(o Options) (ratio float64, s Stats) {
		p := New(&unlimitedBacking{next: 1 << 40}, o)
		m := &transformer{t: t, p: p, layers: 12, batch: 8, width: 768, heads: 12, vocab: 32_000}
		r := rand.New(rand.NewPCG(1, 2))
		m.build()
		for range 300 {
			m.step(64 + uint64(r.IntN(961)))
		}
		s = p.Stats()
		return float64(s.ReservedBytes.Peak) / float64(s.AllocatedBytes.Peak), s
	}
	for _, c := range []struct {
		name string
		o    Options
		// limit of the ratio of reserved to allocated bytes; 0 means no limit: the test only logs
		// the ratio
		most float64
	}{
		{"segments of fixed sizes", Options{}, 0},
		{"expandable, pages of 2 MiB", Options{Expandable: true}, 1.1},
		{"expandable, pages of 20 MiB for large blocks", Options{Expandable: true, LargePage: 20 << 20}, 1.1},
	} {
		ratio, s := need(c.o)
		t.Logf("%s: %s reserved for %s allocated at most, ratio %.3f, %d segments", c.name, human(s.ReservedBytes.Peak), human(s.AllocatedBytes.Peak), ratio, s.Segments.Current)
		if c.most > 0 && ratio > c.most {
			t.Errorf("%s: reserved is %.3f times what is allocated at most", c.name, ratio)
		}
	}
}
