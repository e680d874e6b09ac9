package tensor

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

const boolType = dtype.Bool

// A Maker creates tensors in a scope, with an element type and on a device other than the scope's
// defaults.
type Maker struct {
	s   *Scope
	t   dtype.Type
	dev device.Device
}

// Typed returns a maker of tensors of element type t: s.Typed(dtype.I64).Zeros(3).
func (s *Scope) Typed(t dtype.Type) Maker { return Maker{s, t, s.Device()} }

// On returns a maker of tensors on device d: s.On(d).Zeros(3).
func (s *Scope) On(d device.Device) Maker {
	s.markUsed()
	return Maker{s, dtype.Invalid, d}
}

// Typed returns a copy of m with element type t.
func (m Maker) Typed(t dtype.Type) Maker { m.t = t; return m }

// On returns a copy of m with device d.
func (m Maker) On(d device.Device) Maker { m.dev = d; return m }

func (m Maker) typeOr(t dtype.Type) dtype.Type {
	if m.t != dtype.Invalid {
		return m.t
	}
	return t
}

func (m Maker) floatType() dtype.Type { return m.typeOr(m.s.modes.floatType) }

func (m Maker) make(op string, t dtype.Type, dims []int) *Tensor {
	if len(dims) > shape.MaxRank {
		fail(op, ErrShape, nil, "%d dimensions, at most %d are supported", len(dims), shape.MaxRank)
	}
	if m.dev == nil {
		fail(op, ErrDevice, nil, "the device is nil")
	}
	if t.Size() == 0 || t == dtype.U32 || t == dtype.U64 {
		fail(op, ErrType, nil, "a tensor cannot be of type %v", t)
	}
	for _, d := range dims {
		if d < 0 {
			fail(op, ErrShape, nil, "size %d in shape %v is negative", d, shape.Of(dims...))
		}
	}
	x := alloc(op, m.s, m.dev, t, shape.Of(dims...))
	if x.made == nil && !m.s.internal { // internal scopes save the microsecond that callSite takes
		x.made = callSite()
	}
	return x
}

// Empty returns a tensor with undefined contents.
func (m Maker) Empty(dims ...int) *Tensor { return m.make("empty", m.floatType(), dims) }

// Zeros returns a tensor of zeros.
func (m Maker) Zeros(dims ...int) *Tensor { return m.make("zeros", m.floatType(), dims).fill(0) }

// Ones returns a tensor of ones.
func (m Maker) Ones(dims ...int) *Tensor { return m.make("ones", m.floatType(), dims).fill(1) }

// Full returns a tensor whose elements are all v. An integer type must be able to hold v, as for
// [Tensor.Fill].
func (m Maker) Full(v float64, dims ...int) *Tensor {
	v = fitted("full", m.floatType(), v)
	return m.make("full", m.floatType(), dims).fill(v)
}

// Arange returns 0, 1, …, n-1. The type is int64 if the maker has no type.
func (m Maker) Arange(n int) *Tensor {
	if n < 0 {
		fail("arange", ErrValue, nil, "%d elements", n)
	}
	return m.ArangeStep(0, float64(n), 1)
}

// ArangeStep returns start, start+step, … up to but not including end. If no type was chosen and
// all three are whole numbers, the type is int64.
func (m Maker) ArangeStep(start, end, step float64) *Tensor {
	if step == 0 || (end-start)/step < 0 || math.IsNaN(start+end+step) || math.IsInf(start+end+step, 0) {
		fail("arange", ErrValue, nil, "no steps of %v lead from %v to %v", step, start, end)
	}
	n := math.Ceil((end - start) / step)
	if n >= math.MaxInt64 {
		fail("arange", ErrShape, nil, "from %v to %v by %v there are too many elements", start, end, step)
	}
	t := m.s.modes.floatType
	if start == math.Trunc(start) && end == math.Trunc(end) && step == math.Trunc(step) {
		t = dtype.I64
	}
	t = m.typeOr(t)
	x := m.make("arange", t, []int{int(n)})
	run("arange", m.s, indexProgram(t, arangeKind), x, nil, []float64{start, step})
	return x
}

// Eye returns the identity matrix with n rows and n columns. A second argument sets a different
// number of columns.
func (m Maker) Eye(n int, columns ...int) *Tensor {
	wide := n
	if len(columns) > 0 {
		wide = columns[0]
	}
	if len(columns) > 1 {
		fail("eye", ErrShape, nil, "%d sizes; a matrix has rows and columns", 1+len(columns))
	}
	x := m.make("eye", m.floatType(), []int{n, wide}).fill(0)
	if k := min(n, wide); k > 0 {
		x.handle("eye", m.s, shape.Layout{Shape: shape.Of(k), Strides: shape.Of(wide + 1), Offset: x.layout.Offset}).fill(1).Free()
	}
	return x
}

// Zeros returns a float32 tensor of zeros on the scope's device.
func (s *Scope) Zeros(dims ...int) *Tensor { return s.Typed(dtype.Invalid).Zeros(dims...) }

// Ones returns a float32 tensor of ones on the scope's device.
func (s *Scope) Ones(dims ...int) *Tensor { return s.Typed(dtype.Invalid).Ones(dims...) }

// Full returns a float32 tensor of the value v on the scope's device.
func (s *Scope) Full(v float64, dims ...int) *Tensor { return s.Typed(dtype.Invalid).Full(v, dims...) }

// Empty returns a float32 tensor with undefined contents on the scope's device.
func (s *Scope) Empty(dims ...int) *Tensor { return s.Typed(dtype.Invalid).Empty(dims...) }

// Arange returns 0, 1, …, n-1 as int64 on the scope's device.
func (s *Scope) Arange(n int) *Tensor { return s.Typed(dtype.I64).Arange(n) }

// Eye returns the float32 identity matrix on the scope's device; see [Maker.Eye].
func (s *Scope) Eye(n int, columns ...int) *Tensor { return s.Typed(dtype.Invalid).Eye(n, columns...) }

// From returns a tensor with the values of v on the scope's device; see [Maker.From]. If v is a
// tensor, it is given to s and its old handle is freed. To lend a tensor x instead, call x.In(s).
// If the scope was opened without [On], From refuses a tensor on a GPU, such as a batch of a loader
// with a Device. So From does not silently copy such a batch back to the CPU. To choose the device,
// use s.On(d).From(x), x.CPU() or a scope with On.
func (s *Scope) From(v any, dims ...int) *Tensor {
	if t, ok := v.(*Tensor); ok && s.modes.dev == nil {
		if t.use("from"); t.st.dev != hostDevice() {
			e := newError("from", ErrDevice, []*Tensor{t}, fmt.Sprintf("the tensor is on %s, and %v is on the CPU: it was opened without a device", t.st.dev.Name(), s))
			panic(e.hint("open the scope with tensor.On(dev), or say x.CPU() if the tensor is to be copied back"))
		}
	}
	return s.Typed(dtype.Invalid).From(v, dims...)
}

// The functions below make tensors in the root scope, on the CPU. They are for parameters, and for
// programs without scopes. Functions with random numbers are in random.go.

// Zeros returns a float32 tensor of zeros in the root scope, on the CPU.
func Zeros(dims ...int) *Tensor { return root.Zeros(dims...) }

// Ones returns a float32 tensor of ones in the root scope, on the CPU.
func Ones(dims ...int) *Tensor { return root.Ones(dims...) }

// Full returns a float32 tensor of the value v in the root scope, on the CPU.
func Full(v float64, dims ...int) *Tensor { return root.Full(v, dims...) }

// Arange returns 0, 1, …, n-1 as int64 in the root scope, on the CPU.
func Arange(n int) *Tensor { return root.Arange(n) }

// Eye returns the float32 identity matrix in the root scope, on the CPU; see [Maker.Eye].
func Eye(n int, columns ...int) *Tensor { return root.Eye(n, columns...) }

// From returns a tensor with the values of v in the root scope, on the CPU; see [Maker.From].
func From(v any, dims ...int) *Tensor { return root.From(v, dims...) }

type indexKind struct {
	t    dtype.Type
	kind uint8
}

const (
	arangeKind = iota
	fillKind
)

var indexPrograms = cache[indexKind, *expr.Program]{}

// indexProgram returns the program of Arange or fill. It computes each element from the
// element's position.
func indexProgram(t dtype.Type, kind uint8) *expr.Program {
	return indexPrograms.get(indexKind{t, kind}, func() *expr.Program {
		i := expr.Index(dtype.I64)
		var e *expr.Expr
		switch kind {
		case arangeKind:
			w := t.Compute()
			if w == dtype.Bool {
				w = dtype.I32
			}
			e = i.Cvt(w).Mul(expr.Param(1)).Add(expr.Param(0))
			if w == dtype.F32 { // torch computes in float64
				e = i.Cvt(dtype.F64).Mul(expr.Param(1)).Add(expr.Param(0))
			}
		case fillKind:
			e = expr.Param(0, t)
		}
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, nil, -1)
	})
}

// fill sets every element of x to v. x is new and not yet part of a graph.
func (x *Tensor) fill(v float64) *Tensor {
	run(x.op, x.scope, indexProgram(x.dtype, fillKind), x, nil, []float64{v})
	return x
}

// From returns a tensor with the values of v. v is a slice of any element type with the given shape
// (by default one dimension), a nested slice, a single number, or a tensor. A slice is copied. A
// tensor of the root scope moves: it belongs to the maker's scope from then on, and is copied if
// the maker has another device. Its old handle is freed. To use a tensor without moving it, call
// [Tensor.In]. Go's int becomes int64. If an element type was chosen, the values are converted to
// it.
func (m Maker) From(v any, dims ...int) *Tensor {
	if t, ok := v.(*Tensor); ok {
		return m.fromTensor(t, dims)
	}
	t, data, sh, err := flatten(reflect.ValueOf(v))
	if err != nil {
		fail("from", ErrValue, nil, "%v", err)
	}
	if dims != nil {
		if len(dims) <= shape.MaxRank && shape.Of(dims...).Size() != shape.Of(sh...).Size() {
			fail("from", ErrShape, nil, "shape %v has %d elements, the slice %d", shape.Of(dims...), shape.Of(dims...).Size(), shape.Of(sh...).Size())
		}
		sh = dims
	}
	x := m.make("from", t, sh)
	if len(data) > 0 {
		check("from", x.st.dev.Upload(x.st.home, x.st.buf, 0, data), x)
	}
	if m.t != dtype.Invalid && m.t != t {
		return x.Cast(m.t)
	}
	return x
}

func (m Maker) fromTensor(t *Tensor, dims []int) *Tensor {
	t.use("from")
	x := t
	if t.needsGrad && t.scope.encloses(m.s) { // t is part of a graph and stays part of it
		x = t.In(m.s).To(m.dev)
	} else if m.dev != t.st.dev {
		x = t.copyTo("from", m.s, m.dev, t.IsPinned())
	} else if t.scope != m.s {
		x = t.handle("from", m.s, t.layout)
		m.s.note(x.st)
		x.made = t.made
	}
	if x != t && t.scope == root && m.s != root && t.node == nil && !t.needsGrad {
		t.whyFreed = "was handed over to " + m.s.String() + " by From"
		t.drop()
	}
	if dims != nil {
		x = x.Reshape(dims...)
	}
	if m.t != dtype.Invalid {
		x = x.Cast(m.t)
	}
	return x
}

// flatten returns the element type, the elements as bytes, and the shape of a Go value.
func flatten(v reflect.Value) (t dtype.Type, data []byte, dims []int, err error) {
	if !v.IsValid() {
		return 0, nil, nil, fmt.Errorf("cannot make a tensor from nil")
	}
	for e := v; e.Kind() == reflect.Slice || e.Kind() == reflect.Array; {
		dims = append(dims, e.Len())
		if e.Len() == 0 {
			et := e.Type().Elem()
			for et.Kind() == reflect.Slice || et.Kind() == reflect.Array {
				et = et.Elem()
			}
			if t, _, err = elementType(et); err == nil {
				err = alike(v, dims, 0)
			}
			return t, nil, dims, err
		}
		e = e.Index(0)
	}
	elem := v.Type()
	for range dims {
		elem = elem.Elem()
	}
	t, conv, err := elementType(elem)
	if err != nil {
		return 0, nil, nil, err
	}
	switch {
	case len(dims) == 1 && v.Kind() == reflect.Slice && !conv:
		p := v.UnsafePointer()
		return t, unsafe.Slice((*byte)(p), v.Len()*t.Size()), dims, nil
	case len(dims) > shape.MaxRank:
		return 0, nil, nil, fmt.Errorf("a slice nested %d deep, at most %d dimensions are supported", len(dims), shape.MaxRank)
	}
	var walk func(v reflect.Value, depth int) error
	walk = func(v reflect.Value, depth int) error {
		if depth < len(dims) {
			for i := range v.Len() {
				if err := walk(v.Index(i), depth+1); err != nil {
					return err
				}
			}
			return nil
		}
		var b uint64
		switch v.Kind() {
		case reflect.Bool:
			if v.Bool() {
				b = 1
			}
		case reflect.Float32, reflect.Float64:
			b = expr.Encode(t, v.Float())
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			b = uint64(v.Int())
		default:
			b = v.Uint()
		}
		for range t.Size() {
			data = append(data, byte(b))
			b >>= 8
		}
		return nil
	}
	if err := alike(v, dims, 0); err != nil {
		return 0, nil, nil, err
	}
	return t, data, dims, walk(v, 0)
}

// alike returns an error if the entries of a nested slice differ in length.
func alike(v reflect.Value, dims []int, depth int) error {
	if len(dims) == 0 {
		return nil // v is a number
	}
	if v.Len() != dims[depth] {
		return fmt.Errorf("ragged slice: %d and %d entries in dimension %d", dims[depth], v.Len(), depth)
	}
	for i := 0; i < v.Len() && depth+1 < len(dims); i++ {
		if err := alike(v.Index(i), dims, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// elementType maps a Go type to an element type. conv is true if Go stores the values in another
// form, so that they must be converted.
func elementType(t reflect.Type) (e dtype.Type, conv bool, err error) {
	switch t {
	case reflect.TypeFor[dtype.Float16]():
		return dtype.F16, false, nil
	case reflect.TypeFor[dtype.BFloat16]():
		return dtype.BF16, false, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return dtype.Bool, false, nil
	case reflect.Uint8:
		return dtype.U8, false, nil
	case reflect.Int8:
		return dtype.I8, false, nil
	case reflect.Int16:
		return dtype.I16, false, nil
	case reflect.Int32:
		return dtype.I32, false, nil
	case reflect.Int64, reflect.Int:
		return dtype.I64, t.Size() != 8, nil
	case reflect.Float32:
		return dtype.F32, false, nil
	case reflect.Float64:
		return dtype.F64, false, nil
	}
	return 0, false, fmt.Errorf("cannot make a tensor from elements of type %v", t)
}

// Typed returns a maker of tensors of element type t in the root scope, on the CPU.
func Typed(t dtype.Type) Maker { return root.Typed(t) }
