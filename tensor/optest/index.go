package optest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

func init() { rowTables = append(rowTables, indexRows) }

// intArray is an index tensor, and boolArray is a mask. Both stay arrays until onDeviceOf puts them
// on a device.
type (
	intArray  array
	boolArray array
)

// onDeviceOf returns the index with its tensors on x's device.
func onDeviceOf(x *tt, ix []any) []any {
	out := make([]any, len(ix))
	for k, v := range ix {
		switch v := v.(type) {
		case intArray:
			out[k] = placedIndex(x, array(v))
		case boolArray:
			out[k] = truths(x, array(v))
		default:
			out[k] = v
		}
	}
	return out
}

// span is a range with start, stop and step. Numbers do not count from the end, so start must not
// be negative. For a negative step, a stop of -1 is the position before index 0.
type span struct{ start, stop, step int }

// placesOf returns the shape of x[ix…], and the positions of its elements in x. It implements the
// rules of NumPy's manual directly, one element at a time. An index outside the dimension is an
// error.
func placesOf(dims []int, ix []any) (shape []int, places []int, err error) {
	// An axis is what one part of the index selects from some dimensions of x. The entries of an
	// index tensor depend on the coordinates in the common shape of all index tensors.
	type axis struct {
		n  int               // number of coordinates; -1 for an index tensor, -2 for a single number
		of func(c []int) int // maps the coordinates to the offset in x
	}
	strides := make([]int, len(dims))
	for s, d := 1, len(dims)-1; d >= 0; d-- {
		strides[d] = s
		s *= dims[d]
	}
	consumed := 0
	for _, v := range ix {
		switch v := v.(type) {
		case boolArray:
			consumed += len(v.dims)
		case int, span, intArray, []int:
			consumed++
		}
	}
	if consumed > len(dims) {
		return nil, nil, fmt.Errorf("%d dimensions of %d", consumed, len(dims))
	}
	var axes []axis
	var common []array // the index tensors, which broadcast to the common shape
	d, dots := 0, false
	take := func(n int) {
		for range n {
			s := strides[d]
			axes = append(axes, axis{dims[d], func(c []int) int { return c[0] * s }})
			d++
		}
	}
	inside := func(v float64, n int) int {
		if v < float64(-n) || v >= float64(n) {
			err = fmt.Errorf("index %v of %d", v, n)
		}
		if v < 0 {
			v += float64(n)
		}
		return int(v)
	}
	tensorAxis := func(a array, s int) {
		common = append(common, a)
		axes = append(axes, axis{-1, func(c []int) int { return int(a.v[a.offset(c)]) * s }})
	}
	for _, v := range ix {
		switch v := v.(type) {
		case tensor.IndexMark:
			if v == tensor.NewAxis {
				axes = append(axes, axis{1, func([]int) int { return 0 }})
				continue
			}
			dots = true
			take(len(dims) - consumed)
		case int:
			at := inside(float64(v), dims[d]) * strides[d]
			axes = append(axes, axis{-2, func([]int) int { return at }})
			d++
		case span:
			s, n := strides[d], 0
			if v.step > 0 { // the part outside the dimension is ignored
				v.start, v.stop = min(v.start, dims[d]), min(v.stop, dims[d])
			} else {
				v.start = min(v.start, dims[d]-1)
			}
			if v.step > 0 && v.stop > v.start {
				n = (v.stop-v.start-1)/v.step + 1
			} else if v.step < 0 && v.start > v.stop {
				n = (v.start-v.stop-1)/-v.step + 1
			}
			axes = append(axes, axis{n, func(c []int) int { return (v.start + c[0]*v.step) * s }})
			d++
		case []int:
			a := newArray(len(v))
			for i := range v {
				a.v[i] = float64(inside(float64(v[i]), dims[d]))
			}
			tensorAxis(a, strides[d])
			d++
		case intArray:
			n := dims[d]
			a := array(v).apply(func(v float64) float64 { return float64(inside(v, n)) })
			// a tensor of rank 0 selects like an int, but its value is on the device
			if len(a.dims) == 0 {
				at := int(a.v[0]) * strides[d]
				axes = append(axes, axis{-2, func([]int) int { return at }})
			} else {
				tensorAxis(a, strides[d])
			}
			d++
		case boolArray:
			columns := make([][]float64, len(v.dims))
			for i, n := range v.dims {
				if dims[d+i] != n {
					return nil, nil, fmt.Errorf("mask %v", v.dims)
				}
			}
			each(v.dims, func(i int, idx []int) {
				if v.v[i] != 0 {
					for k := range columns {
						columns[k] = append(columns[k], float64(idx[k]))
					}
				}
			})
			for _, c := range columns {
				tensorAxis(array{[]int{len(c)}, c}, strides[d])
				d++
			}
			if len(v.dims) == 0 {
				n := int(v.v[0])
				tensorAxis(newArray(n), 0)
			}
		}
	}
	if !dots {
		take(len(dims) - d)
	}
	if err != nil {
		return nil, nil, err
	}
	b := joint(common...)
	for _, a := range common {
		for i, n := range a.dims {
			if m := b[len(b)-len(a.dims)+i]; n != m && n != 1 {
				return nil, nil, fmt.Errorf("shapes of indices")
			}
		}
	}
	// The common shape replaces the index tensors at their position, if only ints are between them.
	// Otherwise the common shape comes first.
	first, last, between := -1, -1, false
	for k, a := range axes {
		if a.n == -1 {
			if first < 0 {
				first = k
			}
			for j := last + 1; last >= 0 && j < k; j++ {
				between = between || axes[j].n >= 0
			}
			last = k
		}
	}
	at := -1 // coordinate at which the common shape begins
	if first >= 0 && between {
		at, shape = 0, append(shape, b...)
	}
	coordinate := make([]int, len(axes))
	for k, a := range axes {
		if k == first && !between {
			at, shape = len(shape), append(shape, b...)
		}
		if a.n >= 0 {
			coordinate[k], shape = len(shape), append(shape, a.n)
		}
	}
	each(shape, func(_ int, idx []int) {
		place := 0
		for k, a := range axes {
			switch {
			case a.n == -1:
				place += a.of(idx[at : at+len(b)])
			case a.n == -2:
				place += a.of(nil)
			default:
				place += a.of(idx[coordinate[k] : coordinate[k]+1])
			}
		}
		places = append(places, place)
	})
	return shape, places, nil
}

// spans converts an index of the reference to an index of the library.
func spans(ix []any) []any {
	out := make([]any, len(ix))
	for k, v := range ix {
		if v, ok := v.(span); ok {
			if v.step < 0 && v.stop < 0 {
				v.stop = -tensor.End
			}
			out[k] = tensor.Range(v.start, v.stop, v.step)
		} else {
			out[k] = ix[k]
		}
	}
	return out
}

func indexRef(dims []int, ix []any) func(x []array) array {
	return func(x []array) array {
		shape, places, err := placesOf(dims, ix)
		if err != nil {
			panic(err)
		}
		y := newArray(shape...)
		for i, p := range places {
			y.v[i] = x[0].v[p]
		}
		return y
	}
}

func indexPutRef(dims []int, ix []any, accumulate bool) func(x []array) array {
	return func(x []array) array {
		shape, places, err := placesOf(dims, ix)
		if err != nil {
			panic(err)
		}
		y, value := x[0].clone(), x[1].expand(shape)
		for i, p := range places {
			if accumulate {
				y.v[p] += value.v[i]
			} else {
				y.v[p] = value.v[i]
			}
		}
		return y
	}
}

func indexRows() []row {
	var rows []row
	dims := []int{2, 3, 4}
	ints := func(dims []int, v ...float64) intArray { return intArray{dims, v} }
	bits := func(dims []int, v ...float64) boolArray { return boolArray{dims, v} }
	for _, c := range []struct {
		ix    []any
		apart bool  // true if no element is selected twice
		value []int // shape of the value to put; nil if there is no value
	}{
		{[]any{1, span{0, 3, 2}}, true, []int{4}},
		{[]any{tensor.Ellipsis, -1, tensor.NewAxis}, true, []int{2, 3, 1}},
		// torch refuses negative steps
		{[]any{span{1, -1, -1}, tensor.Ellipsis, span{3, 0, -2}}, false, nil},
		{[]any{tensor.Ellipsis, ints([]int{2, 3}, 0, -1, 2, 1, 1, -4)}, false, []int{2, 3}},
		{[]any{ints([]int{2, 1}, 1, 0), ints([]int{2}, 2, -3)}, true, []int{2, 2, 4}},
		{[]any{ints([]int{2}, 1, 0), span{0, 2, 1}, []int{0, 3}}, true, []int{2, 2}},
		{[]any{ints(nil, -1), span{0, 3, 1}, ints([]int{3}, 2, 2, 0)}, false, []int{3, 3}},
		{[]any{bits([]int{2, 3}, 0, 1, 1, 0, 0, 1), span{1, 4, 2}}, true, []int{3, 2}},
		{[]any{span{0, 2, 1}, bits([]int{3}, 1, 0, 1), []int{1, 0}}, true, []int{1}},
	} {
		full := append([]any(nil), c.ix...)
		reads, sends := 0, 0
		for _, v := range full {
			switch v.(type) {
			case boolArray:
				reads++
			case []int:
				sends++
			}
		}
		get := func(x *tt) *tt { return x.Index(onDeviceOf(x, spans(full))...) }
		rows = append(rows, row{op: "index", methods: []string{"Index"}, in: [][]int{dims}, ints: true, reads: reads, uploads: sends, ref: indexRef(dims, full), call: func(x []*tt) *tt { return get(x[0]) }})
		if c.value == nil {
			continue
		}
		for n, accumulate := range []bool{true, false} {
			if !accumulate && !c.apart {
				continue
			}
			ref := indexPutRef(dims, full, accumulate)
			r := row{op: "index_put", methods: []string{"IndexPut"}, in: [][]int{dims, c.value}, ints: true, reads: reads, uploads: sends, ref: ref,
				call: func(x []*tt) *tt { return x[0].IndexPut(x[1], accumulate, onDeviceOf(x[0], spans(full))...) }}
			if accumulate {
				r.terms = absAll(ref)
			}
			rows = append(rows, r)
			if r.methods = []string{"IndexPutInPlace"}; n == 1 {
				r.methods = []string{"SetIndex"}
			}
			r.call = func(x []*tt) *tt {
				if y := x[0].Clone(); accumulate {
					return y.IndexPutInPlace(x[1], true, onDeviceOf(y, spans(full))...)
				} else {
					return y.SetIndex(x[1], onDeviceOf(y, spans(full))...)
				}
			}
			rows = append(rows, r)
		}
	}
	one := boolArray{[]int{2, 3}, []float64{0, 1, 1, 0, 0, 1}}
	for _, v := range []any{1, 1.0, true} {
		rows = append(rows, row{op: "index_put", methods: []string{"SetIndex"}, in: [][]int{dims}, ints: true, call: func(x []*tt) *tt { return x[0].Clone().SetIndex(v, onDeviceOf(x[0], []any{one})...) },
			ref: func(x []array) array {
				return indexPutRef(dims, []any{one}, false)([]array{x[0], {nil, []float64{1}}})
			}})
	}
	rows = append(rows, row{op: "index_put", methods: []string{"SetIndex"}, in: [][]int{dims, {}}, ints: true, call: func(x []*tt) *tt { return x[0].Clone().SetIndex(x[1], onDeviceOf(x[0], []any{one})...) },
		ref: indexPutRef(dims, []any{one}, false)})
	return rows
}
