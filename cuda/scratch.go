package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/pool"
	"github.com/flambeau-go/flambeau/shape"
)

// scratch allocates and frees the scratch memory of one operation on a stream.
type scratch struct {
	d      *Device
	s      *stream
	op     string
	blocks []*pool.Block
}

func (t *scratch) alloc(bytes int) (uint64, error) {
	b, err := t.d.pool.Alloc(uint64(bytes), t.s.arena(), pool.Origin{Op: "scratch memory of " + t.op, Dims: -1})
	if err != nil {
		t.d.stopRefusing()
		return 0, err
	}
	t.blocks = append(t.blocks, b)
	t.tell(b, false)
	return uint64(b.Addr()), nil
}

// temporary allocates memory for a contiguous operand of the given type and shape.
func (t *scratch) temporary(typ dtype.Type, s shape.Dims) (kernels.Operand, error) {
	addr, err := t.alloc(s.Size() * typ.Size())
	return kernels.Operand{Addr: addr, Type: typ, Layout: shape.Dense(s)}, err
}

// free gives all memory back to the stream for which it was allocated. The stream can reuse the
// memory at once, because its later work runs after the launches that use the memory.
func (t *scratch) free() {
	for _, b := range t.blocks {
		t.tell(b, true)
		t.d.pool.Free(b, b.Generation())
	}
}

func (t *scratch) tell(b *pool.Block, freed bool) {
	if tr := device.Tracing(); tr != nil {
		t.d.reportMemory(tr, b.Addr(), int(b.Size()), freed, false, device.Origin{Op: "scratch memory of " + t.op})
	}
}
