package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// vectors returns how many neighbouring elements a thread of the given form reads in one access of each operand, 1 where the
// layouts do not allow more, and the operands that have a single value for all of them. The neighbours lie along the row that is
// combined, in the column form along the results.
func (p *reduction) vectors(form reduceForm) (v int, uniform uint16) {
	v = vectorLength(p.ins)
	along, across, first := p.red, p.kept, 0 // first: of the operands among along's strides
	if form == columns {
		along, across, first = p.kept, p.red, 1
	}
	last := along.rank() - 1
	if v < 2 || len(p.ins) > 16 || along.size[last]%v != 0 || form == columns && p.o < columnWidth*v {
		return 1, 0
	}
	some := false
	for k, o := range p.ins {
		inner := along.stride[k+first]
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
		if o.start()%uint64(bytes) != 0 || !multiples(inner[:last], apart) || !multiples(across.stride[k+1-first], apart) {
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

// loader returns a function that gives element i of what is combined into result o: of vectors those from i on, in the column form
// those of the results from o on.
func (r *reduceBuilder) loader(o ptx.Value) func(i ptx.Value) []partialValue {
	b := r.Builder
	if r.s.stage == lastStage {
		return func(i ptx.Value) []partialValue {
			at := i.Mad(r.results, o)
			p := partialValue{v: r.partial.At(at).Load()}
			if r.s.isArg() {
				p.at = r.positions.At(at).Load().Cvt(indexType(r.s.wide))
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
			out[j] = partialValue{r.element(x, j, position, c), i}
			if j > 0 && r.s.form != columns {
				out[j].at = i.Add(num(j))
			}
		}
		return out
	}
}

// element computes element j of a vector from the operands x; position and c say where the vector is.
func (r *reduceBuilder) element(x [][]ptx.Value, j int, position ptx.Value, c []ptx.Value) ptx.Value {
	b := r.Builder
	v := lower(b, r.mapping, environment{
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
	})[0]
	t := r.mapping.Out[0]
	switch {
	case t == dtype.Bool:
		v = v.Select(b.U32(1), num(0))
	case t.Size() < 4 && !t.IsFloat():
		v = wrap(t, v)
	}
	return v
}
