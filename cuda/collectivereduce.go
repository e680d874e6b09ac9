package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// reduction describes how NCCL combines the elements of one collective.
type reduction struct {
	typ     nccl.DataType
	size    int // size of an element in bytes
	op      nccl.RedOp
	neutral uint64 // bits of the neutral element, which changes no result
	// for each rank, whether neutral elements replace its input
	left []bool
	// For each rank, the factor by which its input is multiplied before the sum. It is nil if all
	// factors are 1.
	scalars [][8]byte
	// For each rank, the operator made in NCCL that multiplies by the rank's factor and adds.
	made []nccl.RedOp
}

var ncclTypes = map[dtype.Type]nccl.DataType{dtype.Bool: nccl.Uint8, dtype.U8: nccl.Uint8, dtype.I8: nccl.Int8, dtype.I32: nccl.Int32,
	dtype.I64: nccl.Int64, dtype.F16: nccl.Float16, dtype.BF16: nccl.BFloat16, dtype.F32: nccl.Float32, dtype.F64: nccl.Float64}

var ncclOps = map[device.Combine]nccl.RedOp{device.CombineSum: nccl.Sum, device.CombineMean: nccl.Avg, device.CombineMax: nccl.Max,
	device.CombineMin: nccl.Min, device.CombineProduct: nccl.Prod}

// unsupported returns the error for a reduction that the library lacks, or computes differently.
func (q *collection) unsupported(rank int, format string, args ...any) error {
	return q.c.failureOf(q.op, rank, fmt.Sprintf(format, args...), errors.ErrUnsupported)
}

// planReduction chooses NCCL's type and operator, and the factors of the ranks.
func (q *collection) planReduction(t dtype.Type) error {
	k, red := q.k, &q.red
	order := k.Combine == device.CombineMax || k.Combine == device.CombineMin
	typ, known := ncclTypes[t]
	switch {
	case !known:
		return q.unsupported(-1, "NCCL has no type for %v", t)
	case t == dtype.Bool && !order:
		return q.unsupported(-1, "NCCL has no %v of %v", k.Combine, t)
	case t.IsFloat() && order:
		return q.unsupported(-1, "the %v of NCCL drops NaN, which is to win", k.Combine)
	}
	red.typ, red.size, red.op, red.neutral = typ, t.Size(), ncclOps[k.Combine], neutral(k.Combine, t)
	red.left = make([]bool, len(q.streams))
	counted, total := 0, 0.0
	for r := range q.streams {
		w := 1.0
		if k.Weights != nil {
			w = k.Weights[r]
		}
		if red.left[r] = q.ins[r] == 0 || !(w > 0); !red.left[r] {
			counted++
			total += w
		}
	}
	mean := k.Combine == device.CombineMean
	if counted == 0 {
		return q.unsupported(-1, "no rank gives anything that counts")
	}
	if k.Weights == nil && (!mean || counted == len(q.streams)) {
		return nil
	}
	plain := true
	scalars := make([][8]byte, len(q.streams))
	for r, left := range red.left {
		if left {
			continue // a neutral element times a factor is still neutral
		}
		w := 1.0
		if k.Weights != nil {
			w = k.Weights[r]
		}
		if mean {
			w /= total
		}
		plain = plain && w == 1
		bits, ok := encode(t, w)
		if !ok {
			return q.unsupported(r, "%v has no number for its weight of %g", t, w)
		}
		binary.LittleEndian.PutUint64(scalars[r][:], bits)
	}
	if red.op = nccl.Sum; !plain {
		red.scalars, red.made = scalars, make([]nccl.RedOp, len(q.streams))
	}
	return nil
}

// reduce allocates memory for ranks without an input or output, and returns a function that makes
// the library's call for one rank.
func (q *collection) reduce() (call func(rank int) error, err error) {
	lib, k, red, world := q.c.lib, q.k, &q.red, len(q.streams)
	inParts, outParts := k.Kind.Parts(world)
	for r, s := range q.streams {
		if q.outs[r] == 0 {
			if q.outs[r], err = q.own[r].alloc(outParts * int(q.bytes)); err != nil {
				return nil, err
			}
		}
		if !red.left[r] {
			continue
		}
		if q.ins[r] = q.outs[r]; inParts != outParts {
			if q.ins[r], err = q.own[r].alloc(inParts * int(q.bytes)); err != nil {
				return nil, err
			}
		}
		if err := s.dev.fill(s, q.ins[r], red.neutral, red.size, inParts*int(q.bytes)/red.size); err != nil {
			return nil, err
		}
	}
	n := int(q.bytes) / red.size
	return func(r int) error {
		c, op := q.c.comms[r], red.op
		if red.scalars != nil {
			var err error
			if op, err = lib.PreMulSum(red.scalars[r], red.typ, c); err != nil {
				return err
			}
			red.made[r] = op
		}
		if k.Kind == device.KindReduceScatter {
			return lib.ReduceScatter(q.ins[r], q.outs[r], n, red.typ, op, c, q.streams[r].handle)
		}
		return lib.AllReduce(q.ins[r], q.outs[r], n, red.typ, op, c, q.streams[r].handle)
	}, nil
}

// release destroys the NCCL operators that were made for this collective. It is called after the
// collective has been queued.
func (q *collection) release() error {
	c := q.c
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.ended != nil {
		return c.ended // the operators were destroyed when the communicators were aborted
	}
	for r, op := range q.red.made {
		if err := c.lib.RedOpDestroy(op, c.comms[r]); err != nil {
			return c.end(c.failure(q.op, r, err))
		}
	}
	return nil
}

// encode returns the bits of x as a value of type t, in the lower bytes. The result ok is false if
// x is outside the range of t, or if x is a fraction and t is an integer type.
func encode(t dtype.Type, x float64) (bits uint64, ok bool) {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0, false
	}
	near := func(y float64) bool { return !math.IsInf(y, 0) && (y != 0 || x == 0) }
	switch t {
	case dtype.F64:
		return math.Float64bits(x), true
	case dtype.F32:
		return uint64(math.Float32bits(float32(x))), near(float64(float32(x)))
	case dtype.F16:
		h := dtype.ToFloat16(float32(x))
		return uint64(h), near(float64(h.Float32()))
	case dtype.BF16:
		h := dtype.ToBFloat16(float32(x))
		return uint64(h), near(float64(h.Float32()))
	}
	least, most := integers(t)
	return uint64(int64(x)), x == math.Trunc(x) && x >= float64(least) && x <= float64(most) && x < 1<<63
}

// integers returns the smallest and the largest value of an integer type.
func integers(t dtype.Type) (least, most int64) {
	if t == dtype.U8 || t == dtype.Bool {
		return 0, math.MaxUint8
	}
	bits := 8 * t.Size()
	return -1 << (bits - 1), 1<<(bits-1) - 1
}

// neutral returns the bits of the neutral element of c, such as 0 for a sum. Combining it with a
// value does not change the value.
func neutral(c device.Combine, t dtype.Type) uint64 {
	switch c {
	case device.CombineProduct:
		one, _ := encode(t, 1)
		return one
	case device.CombineMax:
		least, _ := integers(t)
		return uint64(least)
	case device.CombineMin:
		_, most := integers(t)
		return uint64(most)
	}
	return 0
}

// fill queues writes of n equal elements, each of 1, 2, 4 or 8 bytes.
func (d *Device) fill(s *stream, addr, bits uint64, size, n int) error {
	if size == 8 && uint32(bits) != uint32(bits>>32) {
		// The driver fills words of at most 4 bytes. For elements of 8 bytes, one element is
		// uploaded. The filled part is then copied repeatedly to the memory after it, and doubles
		// each time.
		if err := d.send(s, addr, binary.LittleEndian.AppendUint64(nil, bits)); err != nil {
			return err
		}
		for have := 1; have < n; have *= 2 {
			if err := d.move(s, addr+8*uint64(have), addr, 8*uint64(min(have, n-have))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	to := cu.DevicePtr(addr)
	switch size {
	case 1:
		return d.fault("", d.api.MemsetD8Async(to, uint8(bits), uint64(n), s.handle))
	case 2:
		return d.fault("", d.api.MemsetD16Async(to, uint16(bits), uint64(n), s.handle))
	}
	return d.fault("", d.api.MemsetD32Async(to, uint32(bits), uint64(n*size/4), s.handle))
}
