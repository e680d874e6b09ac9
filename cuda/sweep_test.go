package cuda

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// sweepRow is a line of the file of results: a case and the times of its variants.
type sweepRow struct {
	Case     string       `json:"case"`
	Unit     string       `json:"unit"`
	Device   string       `json:"device_name"`
	Emulated bool         `json:"emulated"`
	Variants []sweepTimes `json:"variants"`
}

type sweepTimes struct {
	Name   string  `json:"name"`
	Kernel string  `json:"kernel"`
	Median float64 `json:"median_seconds"`
	Least  float64 `json:"min_seconds"`
	Rate   float64 `json:"rate"`
	Error  string  `json:"error,omitempty"`
}

// TestSweep measures the kernels that the planner chooses, and alternatives. It writes a line of
// JSON for each case to the file that FLAMBEAU_SWEEP names. The command "compare report sweep"
// reads this file. FLAMBEAU_SWEEP_SECONDS (240 by default) limits the time. FLAMBEAU_SWEEP_TRIAL=1
// makes the cases small. Without a file, the test runs small cases on an emulated GPU, and compares
// the results of all variants.
func TestSweep(t *testing.T) {
	file, s := os.Getenv("FLAMBEAU_SWEEP"), sweep{T: t, trial: true, deadline: time.Now().Add(time.Hour)}
	if file == "" {
		s.d = emulated(t, "emulate,mem=64MiB")
		s.d.p.folder = "" // measured kernels are not printed to the folder of the program's kernels
	} else {
		d, err := Open(0)
		must(t, err)
		s.d, s.trial = d, os.Getenv("FLAMBEAU_SWEEP_TRIAL") == "1"
		if d.Info().Emulated && !s.trial {
			t.Fatal("there is an emulated GPU only: FLAMBEAU_SWEEP_TRIAL=1 tries the sweep on it")
		}
		seconds := 240.0
		if v := os.Getenv("FLAMBEAU_SWEEP_SECONDS"); v != "" {
			if seconds, err = strconv.ParseFloat(v, 64); err != nil {
				t.Fatalf("FLAMBEAU_SWEEP_SECONDS: %v", err)
			}
		}
		s.deadline = time.Now().Add(time.Duration(seconds * float64(time.Second)))
		s.out, err = os.Create(file)
		must(t, err)
		defer func() { must(t, s.out.Close()) }()
	}
	s.run()
}

type sweep struct {
	*testing.T
	d        *Device
	trial    bool
	deadline time.Time
	out      *os.File
	buffers  map[dtype.Type][2]device.Buffer // two buffers of random values for each type
	result   device.Buffer
	scratch  device.Buffer
}

// n returns size, or small if the cases are to be small.
func (s *sweep) n(size, small int) int {
	if s.trial {
		return small
	}
	return size
}

// memory returns a buffer of random values between -2 and 2.
func (s *sweep) memory(bytes int, t dtype.Type) device.Buffer {
	b, err := s.d.Alloc(bytes, nil, device.Origin{Op: "sweep"})
	must(s, err)
	rng, part := rand.New(rand.NewPCG(1, 2)), make([]byte, 0, min(bytes, 1<<22))
	for len(part) < cap(part) {
		x := expr.Encode(t, rng.Float64()*4-2)
		if t.Size() == 2 {
			part = binary.LittleEndian.AppendUint16(part, uint16(x))
		} else {
			part = binary.LittleEndian.AppendUint32(part, uint32(x))
		}
	}
	must(s, s.d.Upload(nil, b, 0, part))
	for at := len(part); at < bytes; at *= 2 {
		must(s, s.d.CopyFrom(nil, b, at, b, 0, min(at, bytes-at)))
	}
	return b
}

// input returns operand k of the case with the given shape.
func (s *sweep) input(k int, t dtype.Type, dims ...int) kernels.Operand {
	return kernels.Operand{Addr: uint64(s.buffers[t][k].Addr()), Type: t, Layout: shape.Dense(shape.Of(dims...))}
}

func (s *sweep) res(t dtype.Type, dims ...int) kernels.Operand {
	return kernels.Operand{Addr: uint64(s.result.Addr()), Type: t, Layout: shape.Dense(shape.Of(dims...))}
}

func (s *sweep) scratchOf(bytes int) (uint64, error) {
	if bytes > s.scratch.Size() {
		return 0, fmt.Errorf("%d bytes of scratch memory are wanted", bytes)
	}
	return uint64(s.scratch.Addr()), nil
}

func (s *sweep) run() {
	const many = 256 << 20 // number of elements of the large cases
	f, h := dtype.F32, dtype.BF16
	n := s.n(many, 1<<13)
	s.buffers = map[dtype.Type][2]device.Buffer{f: {s.memory(4*n, f), s.memory(4*n, f)}, h: {s.memory(2*n, h), s.memory(2*n, h)}}
	s.result, s.scratch = s.memory(4*n, f), s.memory(s.n(512<<20, 1<<20), f)

	x, y := expr.X(0), expr.X(1)
	add, relu := x.Add(y), x.Max(expr.C(0))
	gelu := expr.Call("gelu", x)
	s.copying(4 * n)
	s.elementwise("add_256M_f32", add, 2, f, n)
	s.elementwise("relu_256M_f32", relu, 1, f, n)
	s.elementwise("add_256M_bf16", add, 2, h, n)
	s.product("matmul_4096_f32", f, 4096, 4096, 4096, "NN")
	s.product("matmul_4096_bf16", h, 4096, 4096, 4096, "NN")
	s.softmax("softmax_256M_f32", f, n, 1024)
	s.reduce("sum_256M_f32", f, 1, n, 1)
	if s.out == nil {
		return // the cases below repeat kinds of ops that were measured above
	}
	s.product("matmul_1024_f32", f, 1024, 1024, 1024, "NN")
	s.product("matmul_2048_f32", f, 2048, 2048, 2048, "NN")
	s.product("matmul_4096_f32 A·Bᵀ", f, 4096, 4096, 4096, "NT")
	s.product("matmul_4096_f32 Aᵀ·B", f, 4096, 4096, 4096, "TN")
	s.product("matmul_128x4096x4096_f32", f, 128, 4096, 4096, "NN")
	s.product("matmul_16x4096x4096_f32", f, 16, 4096, 4096, "NN")
	s.product("matmul_256x256x65536_f32", f, 256, 256, 65536, "NN")
	s.product("matmul_4096x4096x64_f32", f, 4096, 4096, 64, "NN")
	s.product("matmul_2048x512x128_f32", f, 2048, 512, 128, "NT") // a matrix product of the small GPT
	s.product("matmul_1024_bf16", h, 1024, 1024, 1024, "NN")
	s.product("matmul_8192_bf16", h, 8192, 8192, 8192, "NN")
	s.elementwise("relu_256M_bf16", relu, 1, h, n)
	s.elementwise("exp_256M_f32", x.Exp(), 1, f, n)
	s.elementwise("gelu_256M_f32", gelu, 1, f, n)
	s.elementwise("gelu_256M_bf16", gelu, 1, h, n)
	s.reduce("sum_rows_256M_f32", f, n/s.n(1024, 128), s.n(1024, 128), 1)
	s.reduce("sum_columns_256M_f32", f, n/s.n(1024, 128), s.n(1024, 128), 0)
	s.reduce("sum_rows_256M_bf16", h, n/s.n(1024, 128), s.n(1024, 128), 1)
	s.reduce("sum of rows of 64, float32", f, n/64, 64, 1)
	s.reduce("sum of rows of 65536, float32", f, n/s.n(65536, 1<<14), s.n(65536, 1<<14), 1)
	for _, columns := range []int{128, 256, 4096, 8192, 32768} {
		s.softmax(fmt.Sprintf("softmax of %d, float32", columns), f, n, columns)
		s.softmax(fmt.Sprintf("softmax of %d, bfloat16", columns), h, n, columns)
	}
	s.product("matmul_8192_f32", f, 8192, 8192, 8192, "NN")
}

// copying measures a copy by the driver, which is the upper limit for all kernels that only move
// memory.
func (s *sweep) copying(size int) {
	s.measure("copy", "GB/s", 2*float64(size)/1e9, 0, []kernels.Variant{{Name: "chosen"}}, func(kernels.Variant) error {
		return s.d.CopyFrom(nil, s.result, 0, s.buffers[dtype.F32][0], 0, size)
	})
}

func (s *sweep) elementwise(name string, e *expr.Expr, ins int, t dtype.Type, n int) {
	types, list := []dtype.Type{t, t}[:ins], []kernels.Operand{s.input(0, t, n), s.input(1, t, n)}[:ins]
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, types, -1)
	v, err := kernels.MapVariants(p, []kernels.Operand{s.res(t, n)}, list, nil)
	s.variants(name, "GB/s", float64((ins+1)*n*t.Size())/1e9, t, v, err)
}

func (s *sweep) reduce(name string, t dtype.Type, rows, columns, axis int) {
	if rows == 0 {
		return // the small cases have too few elements
	}
	out := []int{rows, columns}
	out[axis] = 1
	p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{t}, []dtype.Type{t}, -1)
	v, err := kernels.ReduceVariants(&device.Reduction{Kind: device.Sum, Map: p}, s.res(t, out...), []kernels.Operand{s.input(0, t, rows, columns)}, nil, s.scratchOf)
	s.variants(name, "GB/s", float64(rows*columns*t.Size())/1e9, t, v, err)
}

func (s *sweep) softmax(name string, t dtype.Type, n, columns int) {
	x := s.input(0, t, n/columns, columns)
	if x.Shape.At(0) == 0 {
		return // the small cases have too few elements
	}
	v, err := kernels.SoftmaxVariants(s.res(t, n/columns, columns), x, false)
	s.variants(name, "GB/s", float64(2*n/columns*columns*t.Size())/1e9, t, v, err)
}

// product measures a product of an m×k matrix by a k×n matrix. The argument form says which of them
// is transposed.
func (s *sweep) product(name string, t dtype.Type, m, n, k int, form string) {
	m, n, k = s.n(m, min(m, 24)), s.n(n, min(n, 40)), s.n(k, min(k, 128))
	a, b := s.input(0, t, 1, m, k), s.input(1, t, 1, k, n)
	if form[0] == 'T' {
		a.Strides = shape.Of(m*k, 1, m)
	}
	if form[1] == 'T' {
		b.Strides = shape.Of(k*n, 1, k)
	}
	v, err := kernels.MatMulVariants(s.d.gpu, kernels.ProductOperands{Out: s.res(t, 1, m, n), A: a, B: b, Counters: s.d.main.counters}, s.scratchOf)
	s.variants(name, "GFLOP/s", 2*float64(m)*float64(n)*float64(k)/1e9, t, v, err)
}

func (s *sweep) variants(name, unit string, work float64, t dtype.Type, list []kernels.Variant, err error) {
	if err != nil {
		s.Errorf("%s: %v", name, err)
		return
	}
	s.measure(name, unit, work, t, list, func(v kernels.Variant) error { return s.d.queue(s.d.main, v.Launches) })
}

// measure compiles the variants in parallel, compares their results with the first variant's, and
// measures them alternately, so that changes in the device's speed affect all variants. The
// reported rate is work divided by the time in seconds.
func (s *sweep) measure(name, unit string, work float64, t dtype.Type, list []kernels.Variant, do func(kernels.Variant) error) {
	if time.Now().After(s.deadline) {
		s.Errorf("%s: no time was left", name)
		return
	}
	row := sweepRow{Case: name, Unit: unit, Device: s.d.Info().Name, Emulated: s.d.Info().Emulated, Variants: make([]sweepTimes, len(list))}
	var wg sync.WaitGroup
	for i, v := range list {
		wg.Go(func() {
			for _, l := range v.Launches {
				row.Variants[i].Kernel = l.Kernel.Name
				if err := s.compile(l.Kernel); err != nil {
					row.Variants[i].Error = err.Error()
					return
				}
			}
		})
	}
	wg.Wait()
	var want []float64
	first := "" // variant whose results the others must match: the planner's choice, unless it failed
	for i, v := range list {
		r := &row.Variants[i]
		r.Name = v.Name
		if r.Error != "" {
			continue
		}
		if t != 0 {
			must(s, s.d.Upload(nil, s.result, 0, poison))
		}
		if err := do(v); err != nil {
			r.Error = err.Error()
			continue
		}
		if t == 0 {
			continue
		}
		got := s.firstResults(t)
		if want == nil {
			want, first = got, v.Name
		}
		most := 0.0
		for _, v := range want {
			if math.Abs(v) < 1e30 {
				most = max(most, math.Abs(v))
			}
		}
		for k := range want {
			if !(math.Abs(got[k]-want[k]) <= 0.02*most+1e-6) && !s.blind() {
				r.Error = fmt.Sprintf("element %d is %v, with %q it is %v", k, got[k], first, want[k])
				break
			}
		}
	}
	start, err := NewEvent(s.d, EnableTiming())
	must(s, err)
	end, err := NewEvent(s.d, EnableTiming())
	must(s, err)
	defer start.Release()
	defer end.Release()
	took := func(v kernels.Variant, inner int) float64 {
		must(s, start.Record(nil))
		for range inner {
			must(s, do(v))
		}
		must(s, end.Record(nil))
		must(s, end.Wait())
		d, err := start.Elapsed(end)
		must(s, err)
		return d.Seconds() / float64(inner)
	}
	times := make([][]float64, len(list))
	inner, rounds := 1, 1
	works := slices.IndexFunc(row.Variants, func(r sweepTimes) bool { return r.Error == "" })
	if !s.trial && works >= 0 {
		took(list[works], 2)
		inner, rounds = min(200, max(1, int(4e-3/max(1e-6, took(list[works], 3))))), 7
	}
	for range rounds {
		for i, v := range list {
			if row.Variants[i].Error == "" {
				times[i] = append(times[i], took(v, inner))
			}
		}
	}
	for i := range list {
		r := &row.Variants[i]
		if r.Error != "" {
			s.Errorf("%s, %s: %s", name, r.Name, r.Error)
			continue
		}
		slices.Sort(times[i])
		r.Median, r.Least = times[i][len(times[i])/2], times[i][0]
		r.Rate = work / r.Median
		if s.out != nil {
			s.Logf("%-28s %-32s %10.1f %s", name, r.Name, r.Rate, unit)
		}
	}
	if s.out != nil {
		b, err := json.Marshal(row)
		must(s, err)
		_, err = s.out.Write(append(b, '\n'))
		must(s, err)
	}
}

// blind reports whether results must not be compared. A trial on a device that is not emulated
// may use a test driver, which computes nothing.
func (s *sweep) blind() bool { return s.trial && !s.d.Info().Emulated }

func (s *sweep) compile(k *kernels.Kernel) error {
	if err := s.d.enter(); err != nil {
		return err
	}
	defer s.d.leave()
	_, err := s.d.function(k)
	return err
}

// poison fills the memory of results before a run. Every tested float type reads it as about
// 3.4e38.
var poison = bytes.Repeat([]byte{0x7f}, 1<<12)

func (s *sweep) firstResults(t dtype.Type) []float64 {
	b := make([]byte, len(poison))
	must(s, s.d.Download(nil, b, s.result, 0))
	var list []float64
	for at := 0; at < len(b); at += t.Size() {
		bits := uint64(binary.LittleEndian.Uint16(b[at:]))
		if t.Size() == 4 {
			bits = uint64(binary.LittleEndian.Uint32(b[at:]))
		}
		list = append(list, expr.Decode(t, bits))
	}
	return list
}
