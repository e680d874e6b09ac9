package kernels

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

const mapThreads = 256

// mapSpec describes an elementwise kernel.
type mapSpec struct {
	program programID
	vector  int // number of elements of one vector access
	rank    int // rank of the iteration space without merged dimensions, at least 1
	// dense is true if the space has one dimension in which each operand has stride 1 or 0.
	dense bool
	// Bit k of scalar is set if operand k (results first) has stride 0 in the innermost dimension.
	scalar uint32
	// Bit k of paired is set if operands k and k+1 alternate in memory, so that one access moves
	// elements of both.
	paired uint32
	wide   bool
	tune   mapTune
}

func (s mapSpec) name() string {
	name := "map_" + s.program.name
	if !s.dense {
		name += fmt.Sprintf("_r%d", s.rank)
	}
	if s.wide {
		name += "_wide"
	}
	if s.tune != (mapTune{}) {
		name += "_" + s.tune.String()
	}
	if s.vector > 1 {
		name += fmt.Sprintf("_v%d", s.vector)
	}
	if s.scalar != 0 {
		name += fmt.Sprintf("_s%x", s.scalar)
	}
	if s.paired != 0 {
		name += fmt.Sprintf("_p%x", s.paired)
	}
	return name
}

// Map plans an elementwise program: outs[k] becomes result k of p(ins…). All operands have the same
// shape. The argument params holds the bits of the program's scalars.
func Map(p *expr.Program, outs, ins []Operand, params []uint64) ([]Launch, error) {
	return planMap(p, outs, ins, params, mapTune{})
}

func planMap(p *expr.Program, outs, ins []Operand, params []uint64, tune mapTune) ([]Launch, error) {
	if len(outs) != len(p.Out) || len(ins) != len(p.In) {
		return nil, fail("map", "%d outputs and %d inputs for a program of %d and %d", len(outs), len(ins), len(p.Out), len(p.In))
	}
	if len(outs) == 0 {
		return nil, nil
	}
	var (
		operands [8]Operand // this array suffices for the usual number of operands, without an allocation
		layouts  [8]shape.Dims
	)
	all := append(append(operands[:0], outs...), ins...)
	dims := outs[0].Shape
	strides := layouts[:0]
	for k, o := range all {
		if o.Shape != dims {
			return nil, fail("map", "operand %d has shape %v, not %v", k, o.Shape, dims)
		}
		if want := programType(p, k); o.Type != want {
			return nil, fail("map", "operand %d is %v, the program takes %v", k, o.Type, want)
		}
		strides = append(strides, o.Strides)
	}
	if dims.Size() == 0 {
		return nil, nil
	}
	sp := newSpace(dims, strides...)
	s := mapSpec{program: programIDOf(p), rank: max(sp.rank(), 1), wide: sp.wide(), vector: 1, tune: tune}
	if sp.rank() == 0 {
		sp.size = []int{1}
		for k := range sp.stride {
			sp.stride[k] = []int{1}
		}
	}
	s.dense = s.rank == 1
	vectorize, v := true, vectorLength(all)
	for k := 0; k < len(all); k++ {
		switch {
		case sp.innerStride(k) == 0:
			s.scalar |= 1 << k
			vectorize = vectorize && k >= len(outs)
		case sp.innerStride(k) == 1:
		case k+1 != len(outs) && sp.interleaved(all, k): // both operands are results, or both are inputs
			s.paired |= 1 << k
			s.dense, v = false, min(v, 8/all[k].Type.Size())
			k++
		default:
			s.dense, vectorize = false, false
		}
	}
	n := sp.elements()
	inner := sp.size[s.rank-1]
	// A dense kernel computes the last elements, which do not fill a vector, one by one.
	if vectorize && v > 1 && (s.dense || inner%v == 0) && p.Cost() <= 400 {
		if aligned(all, sp, s, v) {
			s.vector = v
		}
	}
	if s.vector == 1 {
		s.paired = 0
	}
	if !s.dense && !s.wide && s.vector == 1 {
		if t, ok := tileSpecFor(p, sp, len(outs)); ok {
			return planTiles(t, p, sp, all, params)
		}
	}
	if s.vector == 1 && !s.dense {
		s.scalar = 0 // only kernels with vector accesses need the field scalar
	}
	k, err := kernelOf(s, p)
	if err != nil {
		return nil, err
	}
	a := make(packer, 0, 16+len(all)*8*(1+s.rank)+24*s.rank+8*len(p.Params))
	a.index(s.wide, n)
	sp.countVectors(s.vector)
	if !s.dense {
		a.packCoordinates(sp.size, s.wide)
	}
	for i, o := range all {
		a.u64(o.start())
		if !s.dense {
			a.packStrides(sp.stride[i], s.wide)
		}
	}
	if err := a.packScalars("map", p.Params, params); err != nil {
		return nil, err
	}
	l, err := a.launch(k, s.blocks(p, n))
	return []Launch{l}, err
}

// manyBlocks is a number of blocks that occupies any GPU.
const manyBlocks = 2048

// vectorsInFlight returns how many vectors a thread reads before it computes the first one. With a
// single operand, one pending vector for each thread does not use the full memory bandwidth. For a
// long computation it returns 1, because the assembler would not group the loads anyway.
func (s mapSpec) vectorsInFlight(p *expr.Program) int {
	if s.tune.together > 0 {
		return s.tune.together
	}
	vectors := 0
	for k := len(p.Out); k < len(p.Out)+len(p.In); k++ {
		if s.scalar>>k&1 == 0 {
			vectors++
		}
	}
	if s.dense && s.vector > 1 && vectors == 1 && p.Cost() <= 20 {
		return 2
	}
	return 1
}

// blocks returns the size of the grid for n elements. Each thread computes as many vectors as it
// reads together, unless there would then be fewer than manyBlocks blocks.
func (s mapSpec) blocks(p *expr.Program, n int) int {
	vectors, threads := ceilDiv(n, s.vector), s.threads()
	if s.tune.grid > 0 {
		return min(ceilDiv(vectors, threads), s.tune.grid)
	}
	if b := ceilDiv(vectors, threads*s.vectorsInFlight(p)); b >= manyBlocks {
		return min(b, maxBlocks)
	}
	return min(ceilDiv(vectors, threads), maxBlocks)
}

func (s mapSpec) threads() int {
	if s.tune.threads > 0 {
		return s.tune.threads
	}
	return mapThreads
}

func programType(p *expr.Program, k int) dtype.Type {
	if k < len(p.Out) {
		return p.Out[k]
	}
	return p.In[k-len(p.Out)]
}

func (s space) interleaved(all []Operand, k int) bool {
	return k+1 < len(all) && s.innerStride(k) == 2 && all[k].Type == all[k+1].Type && slices.Equal(s.stride[k], s.stride[k+1]) &&
		all[k+1].start() == all[k].start()+uint64(all[k].Type.Size())
}

// aligned reports whether every operand can be accessed in vectors of v elements along the
// innermost dimension.
func aligned(all []Operand, sp space, s mapSpec, v int) bool {
	for k, o := range all {
		if s.scalar>>k&1 != 0 || k > 0 && s.paired>>(k-1)&1 != 0 {
			continue
		}
		bytes := vectorBytes(o.Type, v<<(s.paired>>k&1))
		if o.start()%uint64(bytes) != 0 {
			return false
		}
		for _, st := range sp.stride[k][:sp.rank()-1] {
			if st*o.Type.Size()%bytes != 0 {
				return false
			}
		}
	}
	return true
}

// countVectors changes the innermost dimension of the space to count vectors of v elements.
func (s space) countVectors(v int) {
	last := len(s.size) - 1
	s.size[last] /= v
	for _, stride := range s.stride {
		stride[last] *= v
	}
}

func (s mapSpec) build(b *ptx.Builder, programs []*expr.Program) [3]int {
	p := programs[0]
	m := &mapBuilder{Builder: b, s: s, p: p}
	switch cost := p.Cost(); {
	case s.tune.blocks > 0:
		b.MinBlocks(s.tune.blocks)
	case s.vector >= 8 && cost > 20:
		b.MinBlocks(2) // eight long computations at once need many registers
	case cost > 60, dividesDoubles(p):
		roomForRegisters(b)
	}
	m.n = b.Param("n", indexType(s.wide))
	if !s.dense {
		m.coords = declareCoordinates(b, "d", s.rank, s.wide)
	}
	for k := range len(p.Out) + len(p.In) {
		name := fmt.Sprintf("x%d", k-len(p.Out))
		if k < len(p.Out) {
			name = fmt.Sprintf("y%d", k)
		}
		m.base = append(m.base, b.Pointer(name, storage(programType(p, k))))
		if !s.dense {
			m.strides = append(m.strides, declareStrides(b, name+"s", s.rank, s.wide))
		}
	}
	m.params = scalarParams(b, p.Params)
	m.id, m.step = globalIndex(b, s.wide)
	if s.dense {
		m.buildDense()
	} else {
		m.buildStrided()
	}
	return [3]int{s.threads(), 1, 1}
}

type mapBuilder struct {
	*ptx.Builder
	s        mapSpec
	p        *expr.Program
	n        ptx.Value
	coords   coordinates
	base     []ptx.Ptr
	strides  [][]ptx.Value
	params   []ptx.Value
	id, step ptx.Value
	// If inspect is not nil, it is called with each element of operand 0.
	inspect func(x ptx.Value)
}

// operandType returns the element type of operand k. The operands are the results, followed by the
// inputs.
func (m *mapBuilder) operandType(k int) dtype.Type { return programType(m.p, k) }

func (m *mapBuilder) isScalar(k int) bool { return m.s.scalar>>k&1 != 0 }
func (m *mapBuilder) isPaired(k int) bool { return m.s.paired>>k&1 != 0 }

// body emits code that computes v elements from index start on. The argument pointer is a function:
// it returns the address of the first of these elements in operand k.
func (m *mapBuilder) body(start ptx.Value, v int, pointer func(k int) ptx.Ptr, scalars []ptx.Value) {
	m.compute(start, v, pointer, m.load(v, pointer, scalars))
}

// load emits code that reads v elements of each input.
func (m *mapBuilder) load(v int, at func(k int) ptx.Ptr, scalars []ptx.Value) [][]ptx.Value {
	in := make([][]ptx.Value, len(m.p.In))
	for i := range in {
		k := len(m.p.Out) + i
		switch {
		case in[i] != nil: // the element was loaded together with that of the previous operand
		case m.isPaired(k):
			both := loadVector(m.Builder, at(k), m.operandType(k), 2*v)
			for j := range v {
				in[i], in[i+1] = append(in[i], both[2*j]), append(in[i+1], both[2*j+1])
			}
		case scalars != nil && m.isScalar(k):
			in[i] = repeat(scalars[i], v)
		case m.isScalar(k):
			in[i] = repeat(loadVector(m.Builder, at(k), m.operandType(k), 1)[0], v)
		default:
			in[i] = loadVector(m.Builder, at(k), m.operandType(k), v)
		}
	}
	return in
}

// compute emits code that computes v elements, and stores the results. The argument in holds the
// inputs.
func (m *mapBuilder) compute(first ptx.Value, v int, at func(k int) ptx.Ptr, in [][]ptx.Value) {
	if m.inspect != nil {
		for _, x := range in[0] {
			m.inspect(x)
		}
	}
	result := make([][]ptx.Value, len(m.p.Out))
	for e := range v {
		r := lower(m.Builder, m.p, environment{
			x:      func(i int) ptx.Value { return in[i][e] },
			params: m.params,
			index: func(t ptx.Type) ptx.Value {
				return first.Add(num(e)).Cvt(t)
			},
			at: &place{first, e, v},
		})
		for k := range result {
			result[k] = append(result[k], r[k])
		}
	}
	for k := 0; k < len(result); k++ {
		list := result[k]
		if m.isPaired(k) {
			list = nil
			for j := range v {
				list = append(list, result[k][j], result[k+1][j])
			}
		}
		storeVector(m.Builder, at(k), m.operandType(k), list)
		if m.isPaired(k) {
			k++
		}
	}
}

// stride emits a loop over the indices start, start+step, … below end. It handles count indices
// together while at least count indices are left, and then single indices. For each index it calls
// emit, which returns two functions. The first loads the inputs of the element or vector. The
// second computes the results from them.
func (m *mapBuilder) stride(start, end, step ptx.Value, count int, emit func(i ptx.Value) (load func() [][]ptx.Value, compute func(in [][]ptx.Value))) {
	next := start
	if count > 1 {
		index := m.Var(start)
		far := step.Mul(num(count - 1))
		m.While(func() ptx.Value { return index.Get().Add(far).Lt(end) }, func(ptx.Loop) {
			var in [][][]ptx.Value
			var computes []func(in [][]ptx.Value)
			i := index.Get()
			for k := range count {
				if k > 0 {
					i = i.Add(step)
				}
				load, compute := emit(i)
				in, computes = append(in, load()), append(computes, compute)
			}
			for k, compute := range computes {
				compute(in[k])
			}
			index.Set(i.Add(step))
		})
		next = index.Get()
	}
	m.For(next, end, step, func(i ptx.Value, _ ptx.Loop) {
		load, compute := emit(i)
		compute(load())
	})
}

func repeat(v ptx.Value, n int) []ptx.Value {
	list := make([]ptx.Value, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// buildDense emits a kernel that loops over the vectors with the stride of the grid, and then over
// the remaining elements.
func (m *mapBuilder) buildDense() {
	v := m.s.vector
	scalars := make([]ptx.Value, len(m.p.In))
	for i := range scalars {
		if k := len(m.p.Out) + i; m.isScalar(k) {
			scalars[i] = loadVector(m.Builder, m.base[k], m.operandType(k), 1)[0]
		}
	}
	run := func(start, end ptx.Value, v int) {
		count := 1
		if v > 1 {
			count = m.s.vectorsInFlight(m.p)
		}
		m.stride(start, end, m.step, count, func(i ptx.Value) (func() [][]ptx.Value, func([][]ptx.Value)) {
			first := i
			if v > 1 {
				first = i.Mul(num(v))
			}
			at := func(k int) ptx.Ptr { return m.base[k].At(first) }
			return func() [][]ptx.Value { return m.load(v, at, scalars) }, func(in [][]ptx.Value) { m.compute(first, v, at, in) }
		})
	}
	if v == 1 {
		run(m.id, m.n, 1)
		return
	}
	m.Comment("vectors of %d", v)
	vectors := m.n.Div(num(v))
	run(m.id, vectors, v)
	m.Comment("the rest, one by one")
	run(vectors.Mul(num(v)).Add(m.id), m.n, 1)
}

// buildStrided emits a kernel with a grid-stride loop over the elements, or over vectors of
// elements. It splits each index into coordinates.
func (m *mapBuilder) buildStrided() {
	v := m.s.vector
	end := m.n
	if v > 1 {
		end = m.n.Div(num(v)) // v divides the size of the innermost dimension
	}
	m.For(m.id, end, m.step, func(i ptx.Value, _ ptx.Loop) {
		coord := m.coords.split(i)
		offset := make([]ptx.Ptr, len(m.base))
		for k := range m.base {
			offset[k] = m.base[k].At(dot(m.Builder, coord, m.strides[k], m.s.wide))
		}
		first := i
		if v > 1 {
			first = i.Mul(num(v))
		}
		m.body(first, v, func(k int) ptx.Ptr { return offset[k] }, nil)
	})
}

// dividesDoubles reports whether p divides or takes square roots in float64. The hardware has no
// instructions for these operations, and the code for them needs many registers.
func dividesDoubles(p *expr.Program) bool {
	for _, c := range p.Code {
		if c.Type == dtype.F64 && (c.Op == expr.OpDiv || c.Op == expr.OpSqrt) {
			return true
		}
	}
	return false
}
