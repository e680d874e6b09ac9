package asm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// guard is the number of elements before and after each block. No kernel may write them.
const guard = 64

// values returns n elements of the given type. Some have random bits, some have moderate size, and
// some are special values.
func values(r *rand.Rand, t reflect.Type, n int) reflect.Value {
	s := reflect.MakeSlice(reflect.SliceOf(t), n, n)
	for i := range n {
		e := s.Index(i)
		switch t.Kind() {
		case reflect.Float32:
			e.SetFloat(float64(float32Value(r)))
		case reflect.Float64:
			e.SetFloat(float64Value(r))
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			e.SetInt(int64(integer(r)))
		default:
			e.SetUint(integer(r))
		}
	}
	return s
}

var specials = []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5,
	0x1p-149, -0x1p-149, 0x1p-126, 0x1.fffffep-127, 0x1p-1022, 0x1p-1074, -0x1p-1074, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64,
	0x1p31, -0x1p31, 0x1p31 - 1, 0x1p31 - 128, -0x1p31 - 1, 0x1p32, 0x1p32 - 1, 0x1p32 - 256, 0x1p63, -0x1p63, 0x1p63 - 0x1p39, 0x1p63 - 1024, 0x1p64, 0x1p64 - 2048,
	65504, 65519.996, 65520, -65520, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1.000002p-25, 0x1p-14, 0x1.ffcp-15, 8388607.5, 0x1p52 + 0.5, 1 + 0x1p-8, 1 + 0x1.8p-7, 1 + 0x1p-11, 1 + 0x1.8p-10}

func float64Value(r *rand.Rand) float64 {
	switch r.IntN(4) {
	case 0:
		return specials[r.IntN(len(specials))]
	case 1:
		return math.Float64frombits(r.Uint64())
	}
	return r.NormFloat64() * math.Ldexp(1, r.IntN(80)-40)
}

func float32Value(r *rand.Rand) float32 {
	if r.IntN(4) == 0 {
		return math.Float32frombits(r.Uint32())
	}
	return float32(float64Value(r))
}

func integer(r *rand.Rand) uint64 {
	switch r.IntN(4) {
	case 0:
		return uint64(r.IntN(5) - 2)
	case 1:
		return []uint64{31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000, 0xffff, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<24 + 1, 1<<53 + 1, 1<<62 + 1<<38}[r.IntN(22)]
	case 2:
		return r.Uint64() >> r.IntN(64)
	}
	return r.Uint64()
}

// same reports whether two elements have equal bits or are both NaN. If the elements are 16-bit
// integers, the name of the kernel, field, says whether they hold floats.
func same(field string, x, y reflect.Value) bool {
	switch x.Kind() {
	case reflect.Float32, reflect.Float64:
		a, b := x.Float(), y.Float()
		return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
	case reflect.Uint16:
		a, b := uint16(x.Uint()), uint16(y.Uint())
		nan := func(h uint16) bool {
			// true if both are bits of a quiet NaN
			return strings.HasSuffix(field, "ToF16") && h&0x7e00 == 0x7e00 || strings.HasSuffix(field, "ToBF16") && h&0x7fc0 == 0x7fc0
		}
		return a == b || nan(a) && nan(b)
	}
	return x.Equal(y)
}

// callable returns kernel i of k. Reflection cannot call unexported fields, so callable reads the
// field through its address.
func callable(k *kernels, i int) reflect.Value {
	f := reflect.ValueOf(k).Elem().Field(i)
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem()
}

func lengths() []int {
	var ns []int
	for n := range 70 {
		ns = append(ns, n)
	}
	return append(ns, 127, 128, 129, 255, 256, 257, 999, 1000, 1023, 1024)
}

// TestVariants runs every kernel of every variant of this machine on many lengths and compares it
// with generic Go. It finds the kernels by reflection, so it runs all of them.
func TestVariants(t *testing.T) {
	for _, v := range variants {
		if !v.usable {
			t.Logf("%s: not on this machine", v.name)
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		typ := reflect.TypeFor[kernels]()
		for i := range typ.NumField() {
			name := typ.Field(i).Name
			if callable(v.k, i).IsNil() {
				t.Errorf("%s: no %s", v.name, name)
				continue
			}
			for _, n := range lengths() {
				if err := checkKernel(r, v.k, i, name, n); err != nil {
					t.Errorf("%s: %s of %d: %v", v.name, name, n, err)
					break
				}
			}
		}
	}
}

func checkKernel(r *rand.Rand, k *kernels, i int, name string, n int) error {
	ft := reflect.TypeFor[kernels]().Field(i).Type
	call := func(k *kernels, args []reflect.Value) []reflect.Value { return callable(k, i).Call(args) }
	var full, in []reflect.Value
	for j := range ft.NumIn() {
		s := values(r, ft.In(j).Elem(), n+2*guard)
		full = append(full, s)
		in = append(in, s.Slice3(guard, guard+n, guard+n))
	}
	if ft.NumOut() == 1 { // the kernel is a reduction
		if strings.HasPrefix(name, "reduce") {
			clearNaN(r, in[0]) // without this, most blocks would contain a NaN
		}
		if strings.HasPrefix(name, "sum") || strings.HasPrefix(name, "dot") {
			for _, s := range in {
				tame(r, s)
			}
		}
		want, got := call(&generic, in)[0], call(k, in)[0]
		if !same(name, want, got) {
			return fmt.Errorf("got %v, want %v", got, want)
		}
		return nil
	}
	before := reflect.MakeSlice(full[0].Type(), full[0].Len(), full[0].Len())
	reflect.Copy(before, full[0])
	want := reflect.MakeSlice(ft.In(0), n, n)
	call(&generic, append([]reflect.Value{want}, in[1:]...))
	check := func(how string, dst reflect.Value) error {
		for e := range n {
			if !same(name, dst.Index(e), want.Index(e)) {
				var args []any
				for _, s := range in[1:] {
					args = append(args, s.Index(e).Interface())
				}
				return fmt.Errorf("%selement %d of %v: got %v, want %v", how, e, args, dst.Index(e), want.Index(e))
			}
		}
		return nil
	}
	call(k, in)
	if err := check("", in[0]); err != nil {
		return err
	}
	for e := range guard {
		for _, x := range []int{e, guard + n + e} {
			if a, b := full[0].Index(x), before.Index(x); !a.Equal(b) && !(a.CanFloat() && a.Float() != a.Float()) {
				return fmt.Errorf("wrote outside dst, at %d", x-guard)
			}
		}
	}
	for j := 1; j < len(in); j++ { // run again with each source as dst
		if in[j].Type() != in[0].Type() {
			continue
		}
		args := append([]reflect.Value{}, in...)
		alias := reflect.MakeSlice(in[j].Type(), n, n)
		reflect.Copy(alias, in[j])
		args[0], args[j] = alias, alias
		call(k, args)
		if err := check(fmt.Sprintf("dst is source %d: ", j), alias); err != nil {
			return err
		}
	}
	return nil
}

// clearNaN removes NaN from three of four blocks, chosen at random.
func clearNaN(r *rand.Rand, s reflect.Value) {
	if r.IntN(4) == 0 {
		return
	}
	for i := range s.Len() {
		if x := s.Index(i).Float(); x != x {
			s.Index(i).SetFloat(float64(i))
		}
	}
}

// tame replaces most blocks by finite numbers. Their sum depends on the order of the additions.
// Some products underflow.
func tame(r *rand.Rand, s reflect.Value) {
	switch r.IntN(5) {
	case 0:
		return
	case 1:
		exp := map[int]int{32: -80, 64: -540}[s.Type().Elem().Bits()]
		for i := range s.Len() {
			// the product of two such numbers underflows
			s.Index(i).SetFloat(math.Ldexp(r.NormFloat64(), exp))
		}
	default:
		for i := range s.Len() {
			s.Index(i).SetFloat(r.NormFloat64() * math.Ldexp(1, r.IntN(20)))
		}
	}
}

func TestLengthMismatchPanics(t *testing.T) {
	defer func() {
		const want = "asm: AddF32: sources of length [3 4] for a destination of length 3"
		if got := fmt.Sprint(recover()); got != want {
			t.Errorf("got panic %q, want %q", got, want)
		}
	}()
	AddF32(make([]float32, 3), make([]float32, 3), make([]float32, 4))
}

func TestUse(t *testing.T) {
	for _, name := range Variants() {
		restore := Use(name)
		if Active() != name {
			t.Errorf("Use(%q) left %q active", name, Active())
		}
		a := []float32{1, 2, 3}
		AddF32(a, a, a)
		if a[2] != 6 {
			t.Errorf("%s: 3+3 = %v", name, a[2])
		}
		restore()
	}
	if names := Variants(); Active() != names[len(names)-1] {
		t.Errorf("%q is active, the fastest of %q should be", Active(), names)
	}
	defer func() {
		if recover() == nil {
			t.Error("Use of an unknown variant did not panic")
		}
	}()
	Use("abacus")
}
