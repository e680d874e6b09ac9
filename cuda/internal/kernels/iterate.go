package kernels

import (
	"math/bits"
	"strconv"

	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// space is an iteration space: the sizes of its dimensions, outermost first, and the strides of
// each operand in elements.
type space struct {
	size   []int
	stride [][]int // indexed [operand][dimension]
}

// newSpace returns the iteration space over dims with the operands' strides, with as few dimensions
// as possible. It drops dimensions of size 1. It merges neighbouring dimensions if every operand
// can step through both with one stride. The row-major index of an element does not change.
func newSpace(dims shape.Dims, strides ...shape.Dims) space {
	rank := dims.Rank()
	s := space{stride: make([][]int, len(strides))}
	all := make([]int, rank*(1+len(strides))) // a single allocation, because this runs at every launch
	s.size = all[:0:rank]
	for k := range strides {
		s.stride[k] = all[rank*(k+1) : rank*(k+1) : rank*(k+2)]
	}
	for d := range rank {
		n := dims.At(d)
		if n == 1 {
			continue
		}
		last := len(s.size) - 1
		merge := last >= 0
		for k := range strides {
			merge = merge && s.stride[k][last] == strides[k].At(d)*n
		}
		if merge {
			s.size[last] *= n
		} else {
			s.size = append(s.size, n)
			last++
		}
		for k := range strides {
			s.stride[k] = append(s.stride[k][:last], strides[k].At(d))
		}
	}
	return s
}

func (s space) rank() int { return len(s.size) }

// elements returns the number of elements, which is 1 for rank 0.
func (s space) elements() int {
	n := 1
	for _, v := range s.size {
		n *= v
	}
	return n
}

// narrowLimit is the largest number of elements, and the largest distance between two elements, for
// which kernels use 32-bit indices. Tests lower it.
var narrowLimit = 1<<31 - 1

// wide reports whether kernels need 64-bit indices, because indices or offsets may exceed 31 bits.
func (s space) wide() bool {
	if s.elements() > narrowLimit {
		return true
	}
	for k := range s.stride {
		if s.reach(k) > narrowLimit {
			return true
		}
	}
	return false
}

// reach returns the largest distance between two elements of operand k, in elements.
func (s space) reach(k int) int {
	sum := 0
	for d, st := range s.stride[k] {
		sum += max(s.size[d]-1, 0) * max(st, -st)
	}
	return sum
}

// innerStride returns operand k's stride in the innermost dimension. It is 1 for rank 0.
func (s space) innerStride(k int) int {
	if r := s.rank(); r > 0 {
		return s.stride[k][r-1]
	}
	return 1
}

// divisor returns the constants for dividing by d with a multiplication and a shift. They are valid
// for dividends below 2³¹ (T. Granlund, P. Montgomery: Division by invariant integers using
// multiplication, 1994).
func divisor(d int) (magic, shift uint32) {
	shift = uint32(bits.Len32(uint32(d - 1)))
	magic = uint32((uint64(1)<<32)*(uint64(1)<<shift-uint64(d))/uint64(d) + 1)
	return magic, shift
}

// coordinates holds the kernel parameters that split a linear index into one coordinate for each
// dimension.
type coordinates struct {
	wide  bool
	size  []ptx.Value
	magic []ptx.Value
	shift []ptx.Value
}

// declareCoordinates declares the kernel parameters for a space of the given rank. The size of the
// outermost dimension is not needed.
func declareCoordinates(b *ptx.Builder, prefix string, rank int, wide bool) coordinates {
	c := coordinates{wide: wide}
	for d := 1; d < rank; d++ {
		suffix := strconv.Itoa(d)
		c.size = append(c.size, b.Param(prefix+"n"+suffix, indexType(wide)))
		if !wide {
			c.magic = append(c.magic, b.Param(prefix+"m"+suffix, ptx.U32))
			c.shift = append(c.shift, b.Param(prefix+"h"+suffix, ptx.U32))
		}
	}
	return c
}

func (p *packer) packCoordinates(size []int, wide bool) {
	for d := 1; d < len(size); d++ {
		p.index(wide, size[d])
		if !wide {
			// a space without elements has no index to split, so any divisor works
			m, h := divisor(max(1, size[d]))
			p.u32(m)
			p.u32(h)
		}
	}
}

// split returns the coordinates of linear index i, outermost first.
func (c coordinates) split(i ptx.Value) []ptx.Value {
	out := make([]ptx.Value, len(c.size)+1)
	for d := len(c.size); d > 0; d-- {
		var q ptx.Value
		if c.wide {
			q = i.Div(c.size[d-1])
		} else {
			q = i.MulHi(c.magic[d-1]).Add(i).Shr(c.shift[d-1])
		}
		out[d] = i.Sub(q.Mul(c.size[d-1]))
		i = q
	}
	out[0] = i
	return out
}

func indexType(wide bool) ptx.Type {
	if wide {
		return ptx.U64
	}
	return ptx.U32
}

// declareStrides declares the strides of an operand as parameters.
func declareStrides(b *ptx.Builder, prefix string, rank int, wide bool) []ptx.Value {
	list := make([]ptx.Value, rank)
	for d := range list {
		list[d] = b.Param(prefix+strconv.Itoa(d), indexType(wide))
	}
	return list
}

func (p *packer) packStrides(strides []int, wide bool) {
	for _, s := range strides {
		p.index(wide, s)
	}
}

// dot returns the sum of the products of coordinates and strides, as a signed offset.
func dot(b *ptx.Builder, coord, stride []ptx.Value, wide bool) ptx.Value {
	sum := b.Const(indexType(wide), num(0))
	for d, c := range coord {
		sum = c.Mad(stride[d], sum)
	}
	if wide {
		return sum.Bitcast(ptx.S64)
	}
	return sum.Bitcast(ptx.S32)
}

// globalIndex returns the thread's index in a one-dimensional grid, and the number of threads in
// the grid.
func globalIndex(b *ptx.Builder, wide bool) (id, step ptx.Value) {
	if !wide {
		return b.GlobalID(), b.GridDim(0).Mul(b.BlockDim(0))
	}
	t := b.ThreadID(0).Cvt(ptx.U64)
	return b.BlockID(0).MulWide(b.BlockDim(0)).Add(t), b.GridDim(0).MulWide(b.BlockDim(0))
}
