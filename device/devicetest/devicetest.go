// Package devicetest is the conformance suite of drivers: it tests that a driver keeps the contract
// of package device.
//
// The test of a driver is one call:
//
//	func TestConformance(t *testing.T) { devicetest.Run(t, dev) }
//
// [Run] runs every primitive with all element types and many layouts: contiguous, offset, strided,
// transposed, broadcast, empty, scalar, more than three dimensions. The suite compares results with
// [expr.Program.Eval] bit for bit, or with float64 references within a stated bound. It tests
// streams, events, memory, index errors, exhausted memory, and use by several goroutines. Optional
// ops are tested if the device supports them. A failure names the primitive, the types, the layout
// and the element. Outputs are parts of larger buffers, and the bytes outside the outputs must not
// change.
//
// Shapes are small, because the suite also runs on an emulated device. Without -short, a device
// that is not emulated also gets sizes at which it must divide the work.
package devicetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// Run tests dev, which must have some free memory.
func Run(t *testing.T, dev device.Device) {
	for _, c := range []struct {
		name string
		f    func(*rig)
	}{
		{"Info", testInfo}, {"Copies", testCopies}, {"Streams", testStreams}, {"Memory", testMemory},
		{"MapPrimitives", testMapPrimitives}, {"MapCasts", testMapCasts}, {"MapLayouts", testMapLayouts}, {"MapForms", testMapForms}, {"Draws", testDraws},
		{"RandomPrograms", testRandomPrograms},
		{"Reduce", testReduce}, {"ReduceForms", testReduceForms}, {"MatMul", testMatMul}, {"Gather", testGather}, {"Scatter", testScatter}, {"IndexWrap", testIndexWrap},
		{"Softmax", testSoftmax}, {"Norm", testNorm}, {"NormSums", testNormSums}, {"Convolve", testConvolve}, {"Pool", testPool}, {"Fold", testFold}, {"Unfold", testUnfold}, {"ChannelNorm", testChannelNorm}, {"CrossEntropy", testCrossEntropy}, {"PickedLosses", testPickedLosses}, {"Scan", testScan}, {"Argsort", testArgsort}, {"ArgsortPick", testArgsortPick}, {"Search", testSearch}, {"Attention", testAttention}, {"MultiMap", testMultiMap}, {"MultiMapFinite", testMultiMapFinite},
		{"Supports", testSupports}, {"Operands", testOperands}, {"Ownership", testOwnership}, {"Concurrency", testConcurrency},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, dev)
			c.f(r)
			r.end()
		})
	}
}

// rig holds the device, stream and buffers of one test.
type rig struct {
	*testing.T
	dev  device.Device
	s    device.Stream
	rnd  *rand.Rand
	bufs []device.Buffer
	// whether tests also use large sizes, at which a device divides its work
	large bool
}

func newRig(t *testing.T, dev device.Device) *rig {
	return &rig{T: t, dev: dev, s: dev.DefaultStream(), rnd: rand.New(rand.NewPCG(7, 11)), large: !dev.Info().Emulated && !testing.Short()}
}

// end frees the buffers that the test has allocated.
func (r *rig) end() {
	for _, b := range r.bufs {
		b.Free()
	}
	r.bufs = nil
	if err := r.dev.Synchronize(); err != nil {
		r.Errorf("Synchronize: %v", err)
	}
}

func (r *rig) must(err error, what string, args ...any) {
	r.Helper()
	if err != nil {
		r.Fatalf(what+": %v", append(args, err)...)
	}
}

func (r *rig) alloc(bytes int) device.Buffer {
	r.Helper()
	b, err := r.dev.Alloc(bytes, r.s, device.Origin{Op: "devicetest"})
	r.must(err, "Alloc(%d)", bytes)
	r.bufs = append(r.bufs, b)
	return b
}

// form names a layout of a view in its storage.
type form string

const (
	contiguous form = "contiguous"
	// contiguous, but the view begins some elements after the start of the storage
	offset     form = "offset"
	strided    form = "strided"    // every second element of every dimension
	transposed form = "transposed" // the last two dimensions exchanged
	reversed   form = "permuted"   // all dimensions in the opposite order
	rowCast    form = "row broadcast"
	colCast    form = "column broadcast"
	allCast    form = "one element broadcast"
)

var outForms = []form{contiguous, offset, strided, transposed, reversed}
var inForms = append(outForms[:len(outForms):len(outForms)], rowCast, colCast, allCast)

// place returns the layout of a view with shape s and form f. The second result is the number of
// elements that the view's storage needs.
func place(s shape.Dims, f form) (shape.Layout, int) {
	n := s.Rank()
	l := shape.Dense(s)
	switch f {
	case offset:
		l.Offset = 5
		return l, s.Size() + 9
	case strided:
		big := s
		for k := range n {
			big = big.With(k, 2*s.At(k)+1)
		}
		l = shape.Layout{Shape: s, Strides: big.Contiguous()}
		for k := range n {
			l.Offset += l.Strides.At(k)
			l.Strides = l.Strides.With(k, 2*l.Strides.At(k))
		}
		return l, max(big.Size(), 1)
	case transposed:
		if n >= 2 {
			l = shape.Dense(shape.Layout{Shape: s, Strides: s}.Transpose(n-2, n-1).Shape).Transpose(n-2, n-1)
		}
	case reversed:
		p := make([]int, n)
		back := make([]int, n)
		for i := range p {
			p[i] = n - 1 - i
			back[n-1-i] = s.At(i)
		}
		l = shape.Dense(shape.Of(back...)).Permute(p)
	case rowCast:
		for k := range n - 1 {
			l.Strides = l.Strides.With(k, 0)
		}
	case colCast:
		if n >= 1 {
			l.Strides = shape.Of(append(s.Head(n-1).Contiguous().Slice(), 0)...)
		}
	case allCast:
		for k := range n {
			l.Strides = l.Strides.With(k, 0)
		}
	}
	return l, max(s.Size(), 1)
}

// offsets returns the storage index of every element of a view, in row-major order.
func offsets(l shape.Layout) []int {
	out := make([]int, 0, l.Size())
	c := make([]int, l.Shape.Rank())
	for range l.Size() {
		o := l.Offset
		for k, v := range c {
			o += v * l.Strides.At(k)
		}
		out = append(out, o)
		for k := len(c) - 1; k >= 0; k-- {
			if c[k]++; c[k] < l.Shape.At(k) {
				break
			}
			c[k] = 0
		}
	}
	return out
}

func getBits(b []byte, t dtype.Type, i int) uint64 {
	switch t.Size() {
	case 1:
		return uint64(b[i])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b[2*i:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

func setBits(b []byte, t dtype.Type, i int, v uint64) {
	switch t.Size() {
	case 1:
		b[i] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b[2*i:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
}

// array is a view on the device, and a copy of the view's storage in host memory.
type array struct {
	r    *rig
	v    device.View
	form form
	host []byte // copy of the whole storage in host memory
	at   []int
}

// array uploads a storage to the device and returns a view of it. Element i of the storage is
// value(i).
func (r *rig) array(t dtype.Type, s shape.Dims, f form, value func(i int) uint64) *array {
	r.Helper()
	l, n := place(s, f)
	a := &array{r: r, form: f, host: make([]byte, n*t.Size()), at: offsets(l)}
	for i := range n {
		setBits(a.host, t, i, value(i))
	}
	a.v = device.View{Buf: r.alloc(len(a.host)), Type: t, Layout: l}
	r.must(r.dev.Upload(r.s, a.v.Buf, 0, a.host), "Upload")
	return a
}

// random returns an array of random values, some of which are special (NaN, infinities, zeros,
// extremes).
func (r *rig) random(t dtype.Type, s shape.Dims, f form) *array {
	r.Helper()
	return r.array(t, s, f, func(int) uint64 { return r.value(t) })
}

// small returns an array of random values: floats between -2 and 2, integers between -4 and 4.
func (r *rig) small(t dtype.Type, s shape.Dims, f form) *array {
	r.Helper()
	return r.array(t, s, f, func(int) uint64 { return r.tame(t) })
}

// empty returns an array that will hold a result. Its storage is filled with a pattern.
func (r *rig) empty(t dtype.Type, s shape.Dims, f form) *array {
	r.Helper()
	return r.array(t, s, f, func(i int) uint64 {
		if t == dtype.Bool {
			return 1
		}
		return uint64(i)*0x9e3779b97f4a7c15 | 1
	})
}

// bits returns the elements of the view, read from the host's copy, each as its bits.
func (a *array) bits() []uint64 {
	out := make([]uint64, len(a.at))
	for i, o := range a.at {
		out[i] = getBits(a.host, a.v.Type, o)
	}
	return out
}

// floats returns the elements of the view, read from the host's copy and converted to float64.
func (a *array) floats() []float64 {
	out := make([]float64, len(a.at))
	for i, b := range a.bits() {
		out[i] = expr.Decode(a.v.Type, b)
	}
	return out
}

// fetch downloads the storage and returns the view's elements. It fails the test if storage outside
// the view has changed.
func (a *array) fetch(what string) []uint64 {
	a.r.Helper()
	got := make([]byte, len(a.host))
	a.r.must(a.r.dev.Download(a.r.s, got, a.v.Buf, 0), "%s: Download", what)
	mine := make([]bool, len(a.host)/a.v.Type.Size())
	for _, o := range a.at {
		mine[o] = true
	}
	for i, m := range mine {
		if g, w := getBits(got, a.v.Type, i), getBits(a.host, a.v.Type, i); !m && g != w {
			a.r.Errorf("%s: result %s of shape %v: storage element %d, outside the view, changed from %#x to %#x", what, a.form, a.v.Shape, i, w, g)
			break
		}
	}
	copy(a.host, got)
	return a.bits()
}

// isNaN reports whether the bits b of type t are a NaN.
func isNaN(t dtype.Type, b uint64) bool {
	return t.IsFloat() && math.IsNaN(expr.Decode(t, b))
}

// equal compares the device's elements with want, bit by bit. All NaN values count as equal.
func (a *array) equal(what string, want []uint64) bool {
	a.r.Helper()
	got := a.fetch(what)
	for i := range want {
		if got[i] != want[i] && !(isNaN(a.v.Type, got[i]) && isNaN(a.v.Type, want[i])) {
			t := a.v.Type
			a.r.Errorf("%s: result %s, %v of %v: element %d of %d is %v (%#x), want %v (%#x)", what, a.form, t, a.v.Shape, i, len(want),
				expr.Decode(t, got[i]), got[i], expr.Decode(t, want[i]), want[i])
			return false
		}
	}
	return true
}

// close compares the device's elements with the float64 references in want. Element i may differ by
// at most bound(i).
func (a *array) close(what string, want []float64, bound func(i int) float64) bool {
	a.r.Helper()
	got := a.fetch(what)
	for i, w := range want {
		g := expr.Decode(a.v.Type, got[i])
		switch {
		case math.IsNaN(w) && math.IsNaN(g), g == w:
			continue
		case math.Abs(g-w) <= bound(i):
			continue
		}
		a.r.Errorf("%s: result %s, %v of %v: element %d of %d is %v, want %v within %v", what, a.form, a.v.Type, a.v.Shape, i, len(want), g, w, bound(i))
		return false
	}
	return true
}

// value returns the bits of a random element of type t. One element in eight is special, such as a
// NaN.
func (r *rig) value(t dtype.Type) uint64 {
	if r.rnd.IntN(8) != 0 {
		return r.tame(t)
	}
	switch {
	case t == dtype.Bool:
		return r.tame(t)
	case t.IsInteger():
		w := uint(8 * t.Size())
		return []uint64{0, 1, 1 << (w - 1), 1<<(w-1) - 1, 1<<w - 1, r.rnd.Uint64()}[r.rnd.IntN(6)] & (1<<(w-1)<<1 - 1)
	}
	return expr.Encode(t, []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 0.5, -2.5, 1e-41, 1e30, -3e9, 2147483648, 1e19, 65519, 5e-8}[r.rnd.IntN(14)])
}

func (r *rig) tame(t dtype.Type) uint64 {
	switch {
	case t == dtype.Bool:
		return uint64(r.rnd.IntN(2))
	case t == dtype.U8:
		return uint64(r.rnd.IntN(9))
	case t.IsInteger():
		return expr.Encode(t, float64(r.rnd.IntN(9)-4))
	}
	return expr.Encode(t, r.rnd.Float64()*4-2)
}

// eval computes the n elements of each result of program p with [expr.Program.Eval].
func eval(p *expr.Program, ins []*array, params []uint64, n int) [][]uint64 {
	out := make([][]uint64, len(p.Out))
	x := make([]uint64, len(ins))
	in := make([][]uint64, len(ins))
	for k, a := range ins {
		in[k] = a.bits()
	}
	var buf []uint64
	for i := range n {
		for k := range ins {
			x[k] = in[k][i]
		}
		buf = p.Eval(buf[:0], x, params, int64(i))
		for k, v := range buf {
			out[k] = append(out[k], v)
		}
	}
	return out
}

func views(a []*array) []device.View {
	v := make([]device.View, len(a))
	for i := range a {
		v[i] = a[i].v
	}
	return v
}

// checkMap runs program p on the device and compares every result with that of [expr.Program.Eval].
func (r *rig) checkMap(what string, p *expr.Program, outs, ins []*array, params []uint64) bool {
	r.Helper()
	n := 0
	if len(outs) > 0 {
		n = outs[0].v.Size()
	}
	for _, a := range ins {
		what += fmt.Sprintf(", operand %s %v", a.form, a.v.Type)
	}
	want := eval(p, ins, params, n)
	if err := device.Run(r.dev, r.s, &device.Map{Program: p, Outs: views(outs), Ins: views(ins), Params: params}); err != nil {
		r.Errorf("%s: %v", what, err)
		return false
	}
	ok := true
	nan := math.Copysign(math.NaN(), 1)
	positive, negative := eval(withSignOfNaNs(p, nan), ins, params, n), eval(withSignOfNaNs(p, -nan), ins, params, n)
	for k, o := range outs {
		got := o.fetch(what)
		for i, w := range positive[k] {
			if v := negative[k][i]; v != w && !isNaN(o.v.Type, v) {
				want[k][i] = got[i] // the result depends on the sign of a NaN, which is not defined
			}
		}
		ok = o.equal(what, want[k]) && ok
	}
	if !ok {
		r.Logf("program:\n%v", p)
	}
	return ok
}
