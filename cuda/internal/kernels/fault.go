package kernels

import (
	"encoding/binary"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
)

// FaultBytes is the size of a fault record, in which kernels record bad indices. A record has
// five little-endian fields: a state (uint32: 0 none, 1 recorded), the caller's tag (uint32), the
// index, the bound, and the index's position (int64 each). The record is aligned to 8 bytes, and
// must be zero before the first launch. The record keeps the first bad index of all launches from
// then on. Later bad indices are dropped.
const FaultBytes = 32

// ReadFault returns the fault in a record, or nil if there is none. To use the record again, set
// its bytes to zero.
func ReadFault(record []byte) *device.IndexError {
	if binary.LittleEndian.Uint32(record) == 0 {
		return nil
	}
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(record[i:])) }
	return &device.IndexError{Tag: binary.LittleEndian.Uint32(record[4:]), Index: word(8), Bound: word(16), Position: word(24)}
}

// faultParams holds the parameters with which a kernel reports bad indices.
type faultParams struct {
	record ptx.Ptr
	tag    ptx.Value
}

func declareFault(b *ptx.Builder) faultParams {
	return faultParams{b.Pointer("fault", ptx.U32), b.Param("tag", ptx.U32)}
}

func (p *packer) packFault(record uint64, tag uint32) {
	p.u64(record)
	p.u32(tag)
}

// report stores an index fault in the record, unless the record already has one. The arguments
// index, bound and position have type s64.
func (f faultParams) report(b *ptx.Builder, index, bound, position ptx.Value) {
	b.If(f.record.CompareAndSwap(num(0), num(1)).Eq(num(0)), func() {
		f.record.At(num(1)).Store(f.tag)
		words := f.record.As(ptx.S64)
		words.At(num(1)).Store(index)
		words.At(num(2)).Store(bound)
		words.At(num(3)).Store(position)
		b.Fence(ptx.SystemScope)
	})
}
