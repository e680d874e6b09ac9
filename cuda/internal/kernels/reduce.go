package kernels

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// reduceForm says how threads divide the work of a reduction.
type reduceForm uint8

const (
	// a warp computes one result, and its lanes divide the elements
	warpPerRow  reduceForm = iota
	blockPerRow            // a block computes one result
	// a block computes 32 results, or 32 vectors of results; each lane has its own, and 8 threads
	// share each result
	columns
)

func (f reduceForm) String() string { return [...]string{"warp", "block", "columns"}[f] }

// reduceStage says for which launch of a reduction a kernel is made. A reduction has one or two
// launches.
type reduceStage uint8

const (
	wholeReduction reduceStage = iota // the only launch, which reads operands and writes results
	// the first of two launches, which reads operands and writes a partial value for each chunk of
	// elements
	firstStage
	// the second of two launches, which reads partial values and writes results
	lastStage
)

func (s reduceStage) String() string { return [...]string{"whole", "first", "last"}[s] }

// reduceSpec describes a reduction kernel.
type reduceSpec struct {
	// The program mapping is applied to the elements before the reduction, and the program finish
	// to the results. The last stage does not apply mapping. In that stage, the key of mapping is
	// empty, and its name is the type of the partial values.
	mapping, finish   programID
	kind              device.ReduceKind
	form              reduceForm
	stage             reduceStage
	out               dtype.Type
	keptRank, redRank int
	wide              bool
	// number of elements of one access; they are neighbours along the results in the form columns,
	// and along the reduced row in all other forms
	vector  int
	uniform uint16 // bit k is set if operand k has the same value for all elements of a vector
	// number of vectors that a thread loads together; if 0, the builder chooses the number
	unroll int
	// If counts is true, the map has a second result, of type Bool. The kernel also counts the
	// elements for which that result is true.
	counts bool
}

func (s reduceSpec) name() string {
	wide := ""
	if s.wide {
		wide = "w"
	}
	if s.unroll > 0 {
		wide += fmt.Sprintf("_u%d", s.unroll)
	}
	finish := ""
	if s.finish.name != "" {
		finish = "_" + s.finish.name
	}
	if s.vector > 1 {
		wide += fmt.Sprintf("_v%d", s.vector)
		if s.uniform != 0 {
			wide += fmt.Sprintf("u%x", s.uniform)
		}
	}
	if s.counts {
		wide += "_count"
	}
	return fmt.Sprintf("%v_%s%s_%v_%v_%v_%d_%d%s", s.kind, strings.TrimPrefix(s.mapping.name, "copy_"), finish, s.out, s.form, s.stage, s.keptRank, s.redRank, wide)
}

// reduction is the plan of a reduction. It may also count: the map then has a second result, and
// the plan counts how often that result is true. The first result then depends only on operand 0,
// and is combined in the same way as without the count. The program Finish gets the count, an
// int64, as operand 1.
type reduction struct {
	r       *device.Reduction
	out     Operand
	count   Operand // where the count is stored, as one int64; may be absent
	ins     []Operand
	kept    space // the kept dimensions, with the strides of out, ins and index in this order
	red     space // the reduced dimensions, with the strides of ins and index
	o, n    int   // number of results, and of elements that are combined into one result
	wide    bool
	scalars []uint64
	// partial is the address of the partial values. position is the address of their positions or
	// counts.
	partial    uint64
	position   uint64
	chunk, cut int // number of elements in a chunk, and number of chunks
	vector     int // number of elements in one access
	uniform    uint16
	tune       reduceTune
}

// Reduce plans a reduction. It combines the results of r.Map(ins…) over the dimensions in which out
// has size 1 and ins do not. The order of the combinations depends only on r, and on the shapes,
// layouts, types and alignment of the operands. Sums of floats are combined pairwise from sums of
// at most a few dozen elements.
func Reduce(r *device.Reduction, out Operand, ins []Operand, params []uint64, scratch Scratch) ([]Launch, error) {
	return planReduce(r, out, Operand{}, ins, params, scratch, reduceTune{})
}

// SameOrder reports whether r and other, two reductions to the same result, combine equally many
// elements in the same order. They then give equal bits for equal elements. Some reductions give
// the same bits in every order, such as sums of integers. For these, SameOrder reports whether
// other needs no more scratch memory than r.
func SameOrder(r, other *device.Reduction, out Operand, ins, otherIns []Operand) bool {
	p, err := newReduction(r, out, Operand{}, ins, nil, reduceTune{})
	q, otherErr := newReduction(other, out, Operand{}, otherIns, nil, reduceTune{})
	if err != nil || otherErr != nil || p.o != q.o || p.n != q.n {
		return false
	}
	if p.o == 0 {
		return true
	}
	same := p.order() == q.order()
	if acc := r.Map.Out[0].Compute(); !acc.IsFloat() || p.arg() {
		_, has := p.room()
		_, needs := q.room()
		return needs <= has
	}
	return same
}

// order holds the quantities that determine the order in which a reduction combines elements.
type order struct {
	form                       reduceForm
	vector, chunk, cut, unroll int
}

// order chooses the form and the chunks of the reduction, and returns them.
func (p *reduction) order() order {
	form := p.divide()
	s := p.spec(firstStage, form)
	return order{form, p.vector, p.chunk, p.cut, s.chains(p.r.Map)}
}

func planReduce(r *device.Reduction, out, count Operand, ins []Operand, params []uint64, scratch Scratch, tune reduceTune) ([]Launch, error) {
	p, err := newReduction(r, out, count, ins, params, tune)
	if err != nil || p.o == 0 {
		return nil, err
	}
	return p.plan(scratch)
}

func newReduction(r *device.Reduction, out, count Operand, ins []Operand, params []uint64, tune reduceTune) (*reduction, error) {
	results := 1
	if count.Addr != 0 {
		results = 2
	}
	if len(ins) == 0 || len(ins) != len(r.Map.In) || len(r.Map.Out) != results {
		return nil, fail("reduce", "%d operands for a map of %d operands and %d results", len(ins), len(r.Map.In), len(r.Map.Out))
	}
	dims := ins[0].Shape
	if out.Shape.Rank() != dims.Rank() {
		return nil, fail("reduce", "shape %v to %v: the ranks differ", dims, out.Shape)
	}
	p := &reduction{r: r, out: out, count: count, ins: ins, scalars: params, tune: tune}
	var kept, red [shape.MaxRank]int // indices of the kept and of the reduced dimensions
	keptDims, redDims := kept[:0], red[:0]
	for d := range dims.Rank() {
		switch {
		case out.Shape.At(d) == dims.At(d):
			keptDims = append(keptDims, d)
		case out.Shape.At(d) == 1:
			redDims = append(redDims, d)
		default:
			return nil, fail("reduce", "shape %v to %v: dimension %d", dims, out.Shape, d)
		}
	}
	for k, o := range ins {
		if o.Shape != dims || o.Type != r.Map.In[k] {
			return nil, fail("reduce", "operand %d is %v %v, not %v %v", k, o.Type, o.Shape, r.Map.In[k], dims)
		}
	}
	if r.Finish != nil && (len(r.Finish.Out) != 1 || r.Finish.Out[0] != out.Type) {
		return nil, fail("reduce", "the result is %v, finish gives %v", out.Type, r.Finish.Out)
	}
	index := dims.Contiguous()
	var buffer [2][8]shape.Dims // suffices for the usual number of operands without an allocation
	keptStrides, redStrides := append(buffer[0][:0], pick(keptDims, out.Strides)), buffer[1][:0]
	for _, o := range ins {
		keptStrides = append(keptStrides, pick(keptDims, o.Strides))
		redStrides = append(redStrides, pick(redDims, o.Strides))
	}
	keptStrides, redStrides = append(keptStrides, pick(keptDims, index)), append(redStrides, pick(redDims, index))
	p.kept = newSpace(pick(keptDims, dims), keptStrides...).atLeastRank1()
	p.red = newSpace(pick(redDims, dims), redStrides...).atLeastRank1()
	p.o, p.n = p.kept.elements(), p.red.elements()
	p.wide = p.kept.wide() || p.o*p.n > narrowLimit
	for k := range p.red.stride {
		p.wide = p.wide || p.kept.reach(k+1)+p.red.reach(k) > narrowLimit
	}
	return p, nil
}

// pick returns the sizes of the listed dimensions of shape src.
func pick(list []int, src shape.Dims) shape.Dims {
	var s shape.Dims
	for _, d := range list {
		s = s.Append(src.At(d))
	}
	return s
}

// atLeastRank1 returns s. If its rank is 0, it adds a dimension of size 1.
func (s space) atLeastRank1() space {
	if s.rank() == 0 {
		s.size = []int{1}
		for k := range s.stride {
			s.stride[k] = []int{0}
		}
	}
	return s
}

const (
	reduceThreads = 256
	columnWidth   = 32 // number of results of a block in the form columns
	columnHeight  = reduceThreads / columnWidth
	chains        = 4 // least number of accumulators that a thread has
	wantedBlocks  = 264
)

// divide chooses the form, the vector length and the chunks of a reduction.
func (p *reduction) divide() reduceForm {
	redInner, keptInner := p.red.innerStride(0), p.kept.innerStride(1)
	form := blockPerRow
	switch {
	case p.n <= 16 || keptInner == 1 && redInner != 1 && p.o > 1:
		form = columns
	case p.n <= 1024:
		form = warpPerRow
	}
	if p.tune.form > 0 {
		form = p.tune.form - 1
	}
	p.vector, p.uniform = p.vectors(form)
	p.chunk, p.cut = p.chunks(form)
	return form
}

// plan chooses the form and the chunks, and returns the launches.
func (p *reduction) plan(scratch Scratch) ([]Launch, error) {
	form := p.divide()
	if p.cut == 1 {
		l, err := p.launch(wholeReduction, form, p.o, p.n)
		return []Launch{l}, err
	}
	position, total := p.room()
	var err error
	if p.partial, err = scratch(total); err != nil {
		return nil, err
	}
	p.position = p.partial + uint64(position)
	first, err := p.launch(firstStage, form, p.o, p.n)
	if err != nil {
		return nil, err
	}
	last := blockPerRow
	if p.o > 8 {
		last = columns
	}
	second, err := p.launch(lastStage, last, p.o, p.cut)
	return []Launch{first, second}, err
}

// room returns total, the size in bytes of the scratch memory for partial values. The size is 0 if
// there is one chunk. The result position is the offset in this memory at which the positions or
// counts of the partial values begin.
func (p *reduction) room() (position, total int) {
	if p.cut == 1 {
		return 0, 0
	}
	size := max(p.r.Map.Out[0].Compute().Size(), 4)
	position = (p.o*p.cut*size + 255) / 256 * 256
	if total = position; p.pairs() {
		total += p.o * p.cut * 8
	}
	return position, total
}

// chunks returns the number of elements in a chunk, and the number of chunks for one result. A
// group of threads combines each chunk. The numbers are chosen so that no accumulator adds too many
// elements, and a large device gets enough blocks.
func (p *reduction) chunks(form reduceForm) (chunk, cut int) {
	var most, least, blocks int
	switch form {
	case warpPerRow:
		return p.n, 1
	case blockPerRow:
		most, least, blocks = 32*chains*reduceThreads, 4*chains*reduceThreads, p.o
	case columns:
		most, least, blocks = 32*chains*columnHeight, 2*chains*columnHeight, ceilDiv(p.o, columnWidth*p.vector)
		if p.vector > 1 {
			most /= 2 // here a thread has half as many accumulators per result
		}
	}
	chunk = min(most, max(least, ceilDiv(p.n, ceilDiv(wantedBlocks, blocks))))
	if p.tune.chunk > 0 {
		chunk = p.tune.chunk
	}
	if form == blockPerRow {
		chunk = ceilDiv(chunk, p.vector) * p.vector
	}
	if p.n <= chunk {
		return max(p.n, 1), 1
	}
	return chunk, ceilDiv(p.n, chunk)
}

// pairs reports whether each partial value is stored with a position or a count.
func (p *reduction) pairs() bool { return p.arg() || p.counts() }

func (p *reduction) arg() bool { return p.r.Kind == device.ArgMax || p.r.Kind == device.ArgMin }

func (p *reduction) counts() bool { return p.count.Addr != 0 }

// spec returns the specification of the kernel for a stage that applies the map.
func (p *reduction) spec(stage reduceStage, form reduceForm) reduceSpec {
	return reduceSpec{mapping: programIDOf(p.r.Map), kind: p.r.Kind, form: form, stage: stage, out: p.out.Type,
		keptRank: p.kept.rank(), redRank: p.red.rank(), wide: p.wide, vector: p.vector, uniform: p.uniform, unroll: p.tune.unroll, counts: p.counts()}
}

// launch packs a kernel's parameters in the order in which reduceBuilder declares them.
func (p *reduction) launch(stage reduceStage, form reduceForm, o, n int) (Launch, error) {
	s := p.spec(stage, form)
	programs := [2]*expr.Program{p.r.Map, p.r.Finish}
	if stage == firstStage {
		s.out, programs[1] = p.r.Map.Out[0], nil
	}
	if stage == lastStage { // the first stage has applied the map, so all maps share one kernel
		s.redRank, s.mapping, s.vector, s.uniform, s.unroll = 1, programID{name: p.r.Map.Out[0].String()}, 1, 0, 0
	}
	if programs[1] != nil {
		s.finish = programIDOf(p.r.Finish)
	}
	k, err := kernelOf(s, programs[:]...)
	if err != nil {
		return Launch{}, err
	}
	chunk, cut := p.chunk, p.cut
	if stage != firstStage {
		chunk, cut = max(n, 1), 1
	}
	a := make(packer, 0, 128)
	a.index(p.wide, o)
	a.index(p.wide, n)
	a.index(p.wide, chunk)
	a.index(p.wide, cut)
	a.packCoordinates(p.kept.size, p.wide)
	if stage != lastStage {
		a.packCoordinates(p.red.size, p.wide)
		for i, in := range p.ins {
			a.u64(in.start())
			a.packStrides(p.kept.stride[i+1], p.wide)
			a.packStrides(p.red.stride[i], p.wide)
		}
		if p.r.Map.UsesIndex() {
			a.packStrides(p.kept.stride[len(p.ins)+1], p.wide)
			a.packStrides(p.red.stride[len(p.ins)], p.wide)
		}
	}
	if stage != wholeReduction {
		a.u64(p.partial)
		if p.pairs() {
			a.u64(p.position)
		}
	}
	if stage != firstStage {
		a.u64(p.out.start())
		a.packStrides(p.kept.stride[0], p.wide)
		if p.counts() {
			a.u64(p.count.start())
		}
	}
	var types []dtype.Type
	if stage != lastStage {
		types = p.r.Map.Params
	}
	if programs[1] != nil {
		types = mergeParams(types, p.r.Finish.Params)
	}
	if err := a.packScalars("reduce", types, p.scalars); err != nil {
		return Launch{}, err
	}
	blocks := o * cut
	switch form {
	case warpPerRow:
		blocks = ceilDiv(blocks, reduceThreads/32)
	case columns:
		blocks = ceilDiv(o, columnWidth*s.vector) * cut
	}
	return a.launch(k, blocks)
}

// mergeParams merges the scalar types of two programs that use the same list of scalars.
func mergeParams(a, b []dtype.Type) []dtype.Type {
	if len(b) == 0 {
		return a
	}
	list := append([]dtype.Type(nil), a...)
	for i, t := range b {
		if i >= len(list) {
			list = append(list, t)
		} else if list[i] == dtype.Invalid {
			list[i] = t
		}
	}
	return list
}

// vectors returns how many neighbouring elements of each operand a thread of the given form reads
// in one access, or 1 if the layouts do not allow more. The bits of uniform mark the operands that
// have one value for all of these elements. In the form columns the neighbours lie along the
// results. In all other forms they lie along the reduced row.
func (p *reduction) vectors(form reduceForm) (v int, uniform uint16) {
	v = vectorLength(p.ins)
	if p.counts() {
		v = vectorLength(p.ins[:1])
	}
	// along.stride[base+k] has the strides of operand k
	along, across, base := p.red, p.kept, 0
	if form == columns {
		along, across, base = p.kept, p.red, 1
	}
	last := along.rank() - 1
	if v < 2 || len(p.ins) > 16 || along.size[last]%v != 0 || form == columns && p.o < columnWidth*v {
		return 1, 0
	}
	some := false
	for k, o := range p.ins {
		inner := along.stride[k+base]
		switch inner[last] {
		case 0:
			uniform |= 1 << k
			continue
		case 1:
			some = true
		default:
			return 1, 0
		}
		bytes := vectorBytes(o.Type, v)
		apart := bytes / o.Type.Size()
		if o.start()%uint64(bytes) != 0 || !multiples(inner[:last], apart) || !multiples(across.stride[k+1-base], apart) {
			return 1, 0
		}
	}
	if !some {
		return 1, 0
	}
	return v, uniform
}

func multiples(list []int, of int) bool {
	for _, v := range list {
		if v%of != 0 {
			return false
		}
	}
	return true
}

// loader returns a function that loads element i of result o. With vector accesses it loads several
// values: the elements from i on, or in the form columns element i of each result from o on.
func (r *reduceBuilder) loader(o ptx.Value) func(i ptx.Value) []partialValue {
	b := r.Builder
	if r.s.stage == lastStage {
		return func(i ptx.Value) []partialValue {
			at := i.Mad(r.results, o)
			p := partialValue{v: r.partial.At(at).Load()}
			if r.s.pairs() {
				p.aux = r.positions.At(at).Load().Cvt(indexType(r.s.wide))
			}
			return []partialValue{p}
		}
	}
	coord := r.kept.split(o)
	base := make([]ptx.Ptr, len(r.ins))
	for k, in := range r.ins {
		base[k] = in.p.At(dot(b, coord, in.kept, r.s.wide))
	}
	var position ptx.Value
	if r.position != nil {
		position = dot(b, coord, r.position[0].kept, r.s.wide)
	}
	return func(i ptx.Value) []partialValue {
		c := r.red.split(i)
		x := make([][]ptx.Value, len(r.ins))
		for k, in := range r.ins {
			n := r.s.vector
			if r.s.uniform>>k&1 != 0 {
				n = 1
			}
			x[k] = loadVector(b, base[k].At(dot(b, c, in.red, r.s.wide)), r.mapping.In[k], n)
		}
		out := make([]partialValue, r.s.vector)
		for j := range out {
			if out[j] = r.element(x, j, position, c); r.s.counts {
				continue
			}
			out[j].aux = i
			if j > 0 && r.s.form != columns {
				out[j].aux = i.Add(num(j))
			}
		}
		return out
	}
}

// element computes element j of a vector from the loaded operands x. Some maps use the index of the
// element, which follows from position, c and j. The argument position is the index at which the
// result's elements begin. The argument c holds the vector's coordinates in the reduced dimensions.
func (r *reduceBuilder) element(x [][]ptx.Value, j int, position ptx.Value, c []ptx.Value) partialValue {
	b := r.Builder
	values := lower(b, r.mapping, environment{
		x: func(k int) ptx.Value {
			if len(x[k]) == 1 {
				return x[k][0]
			}
			return x[k][j]
		},
		params: r.params,
		index: func(t ptx.Type) ptx.Value {
			at := position.Add(dot(b, c, r.position[0].red, r.s.wide))
			if j > 0 {
				along := r.position[0].red
				if r.s.form == columns {
					along = r.position[0].kept
				}
				step := along[len(along)-1].Mul(num(j))
				at = at.Add(step.Bitcast(at.Type()))
			}
			return at.Cvt(t)
		},
	})
	v, t := values[0], r.mapping.Out[0]
	switch {
	case t == dtype.Bool:
		v = v.Select(b.U32(1), num(0))
	case t.Size() < 4 && !t.IsFloat():
		v = wrap(t, v)
	}
	p := partialValue{v: v}
	if r.s.counts {
		p.aux = values[1].Select(b.Const(indexType(r.s.wide), num(1)), num(0))
	}
	return p
}
