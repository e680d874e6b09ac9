package profile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// A KernelBound compares a primitive's time with the least time that its work can take on the
// device: max(FLOPs / peak FLOPs per second, bytes / peak bandwidth). For products of integers the
// least time is bytes / peak bandwidth, because their peak is not known. [device.Work] says what is
// counted.
type KernelBound struct {
	Device    string
	Primitive string // name of the primitive: "matmul"
	Kernel    string // on a GPU, the primitive's kernel with the most time; "" on the CPU
	Count     int
	Time      time.Duration
	Bound     time.Duration // least possible time for the work
	Work      device.Work
	// By is the resource that limits the primitive: "memory" or "compute". It is "overhead" if the
	// bound is below a microsecond for each call. In this case the fixed costs of a call, such as a
	// launch or the start of workers, take most of the time.
	By string

	boundNs float64 // Bound in nanoseconds, with a fractional part
}

// Fraction returns Bound / Time. It is 1 if the primitive is as fast as the device can be.
func (k *KernelBound) Fraction() float64 {
	if k.Time == 0 {
		return 0
	}
	return k.boundNs / float64(k.Time)
}

// Rooflines holds the comparisons that [Profile.Roofline] makes. The primitives that lose the most
// time come first.
type Rooflines struct {
	Rows  []KernelBound
	Peaks map[string]device.Peak // peaks of the devices, by name
	notes []string
}

// Roofline compares each primitive's time with the least time that its work can take. The maps in
// given hold peaks by device name. For any other device, Roofline uses the peak that the device
// reports. If the device reports none, Roofline measures it, which takes some ten milliseconds.
// Roofline leaves out the program's own kernels, because their work is unknown.
func (p *Profile) Roofline(given ...map[string]device.Peak) *Rooflines {
	r := p.record()
	f := &Rooflines{Peaks: map[string]device.Peak{}, notes: r.notes()}
	for _, m := range given {
		maps.Copy(f.Peaks, m)
	}
	type key struct{ device, primitive, kernel string }
	at := map[key]int{}
	by := map[key]map[string]float64{}
	for _, k := range r.kernels {
		if k.work == (device.Work{}) {
			continue
		}
		took, name := k.end-k.start, ""
		if k.gpu != nil {
			took = 0
			most := time.Duration(0)
			for i, v := range k.gpu.runs {
				took += v.end - v.start
				if d := v.end - v.start; d > most {
					most, name = d, k.gpu.launches[i].Kernel
				}
			}
			if took == 0 {
				continue
			}
		}
		peak, ok := f.Peaks[k.device.Name()]
		if !ok {
			var err error
			if peak, err = peakOf(k.device); err != nil {
				f.notes = append(f.notes, fmt.Sprintf("the peak of %s is not known: %v", k.device.Name(), err))
			}
			f.Peaks[k.device.Name()] = peak
		}
		if peak.FLOPs == 0 || peak.Bytes == 0 {
			continue
		}
		arithmetic := peak.FLOPs
		if k.half && k.primitive == "matmul" && peak.Half > 0 {
			arithmetic = peak.Half
		}
		compute := float64(k.work.FLOPs) / arithmetic * 1e9
		// a device may be faster for int8 than for floats, so do not use the peak of floats
		if k.whole && k.primitive == "matmul" {
			compute = 0
		}
		memory := float64(k.work.Bytes) / peak.Bytes * 1e9
		id := key{k.device.Name(), k.primitive, name}
		i, ok := at[id]
		if !ok {
			i = len(f.Rows)
			at[id] = i
			f.Rows = append(f.Rows, KernelBound{Device: id.device, Primitive: id.primitive, Kernel: name})
			by[id] = map[string]float64{}
		}
		v := &f.Rows[i]
		v.Count++
		v.Time += took
		v.Work = v.Work.Add(k.work)
		v.boundNs += max(compute, memory)
		if compute > memory {
			by[id]["compute"] += compute
		} else {
			by[id]["memory"] += memory
		}
	}
	for id, i := range at {
		v := &f.Rows[i]
		v.Bound = time.Duration(v.boundNs)
		switch {
		case v.Bound < time.Duration(v.Count)*time.Microsecond:
			v.By = "overhead"
		case by[id]["compute"] > by[id]["memory"]:
			v.By = "compute"
		default:
			v.By = "memory"
		}
	}
	slices.SortStableFunc(f.Rows, func(a, b KernelBound) int { return cmp.Compare(b.Time-b.Bound, a.Time-a.Bound) })
	return f
}

// Table formats the rows as a table.
func (f *Rooflines) Table() string {
	var b strings.Builder
	layOut(&b, []columnOf[KernelBound]{
		{title: "Primitive", left: true, cell: func(k *KernelBound) string { return k.Primitive }, width: 30},
		{title: "Kernel", left: true, cell: func(k *KernelBound) string { return k.Kernel }, width: 55},
		{title: "Device", left: true, cell: func(k *KernelBound) string { return k.Device }},
		{title: "Count", cell: func(k *KernelBound) string { return fmt.Sprint(k.Count) }},
		{title: "Time", cell: func(k *KernelBound) string { return timeString(k.Time) }},
		{title: "Least", cell: func(k *KernelBound) string { return timeString(k.Bound) }},
		{title: "Fraction", cell: func(k *KernelBound) string { return fmt.Sprintf("%.1f%%", 100*k.Fraction()) }},
		{title: "Bound by", left: true, cell: func(k *KernelBound) string { return k.By }},
		{title: "GFLOP/s", cell: func(k *KernelBound) string { return rate(k.Work.FLOPs, k.Time) }},
		{title: "GB/s", cell: func(k *KernelBound) string { return rate(k.Work.Bytes, k.Time) }},
	}, f.Rows)
	for _, n := range slices.Sorted(maps.Keys(f.Peaks)) {
		if p := f.Peaks[n]; p.FLOPs > 0 {
			fmt.Fprintf(&b, "%s: %.0f GFLOP/s, %.0f GB/s (%s)\n", n, p.FLOPs/1e9, p.Bytes/1e9, p.Source)
		}
	}
	b.WriteString(noteLines(f.notes))
	return b.String()
}

// rate formats n/t in units of 1e9 per second.
func rate(n int, t time.Duration) string {
	if t == 0 {
		return "--"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(t))
}

func peakOf(d device.Device) (device.Peak, error) {
	if p, ok := d.(device.Peaker); ok {
		return p.Peak()
	}
	return MeasurePeak(d)
}

// MeasurePeak measures the peak performance of a device. It times a product of float32 matrices
// with 512 rows and columns, and a copy of 32 MiB by the device's own kernels. Each result is the
// best of five measurements with the host's clock. The results are lower than the manufacturer's
// numbers.
func MeasurePeak(d device.Device) (device.Peak, error) {
	const n, size = 512, 8 << 20
	s := d.DefaultStream()
	var bufs []device.Buffer
	defer func() {
		for _, b := range bufs {
			b.Free()
		}
	}()
	view := func(dims ...int) (device.View, error) {
		sh := shape.Of(dims...)
		b, err := d.Alloc(4*sh.Size(), s, device.Origin{Op: "measurement of the device's peak", Shape: sh, Type: dtype.F32})
		if err != nil {
			return device.View{}, err
		}
		bufs = append(bufs, b)
		v := device.View{Buf: b, Type: dtype.F32, Layout: shape.Dense(sh)}
		return v, device.Run(d, s, &device.Map{Program: onesProgram, Outs: []device.View{v}})
	}
	best := func(op device.Op) (time.Duration, error) {
		least := time.Duration(0)
		for range 5 {
			start := time.Now()
			if err := device.Run(d, s, op); err != nil {
				return 0, err
			}
			if err := s.Synchronize(); err != nil {
				return 0, err
			}
			if t := time.Since(start); least == 0 || t < least {
				least = t
			}
		}
		return least, nil
	}
	var m [3]device.View
	var c [2]device.View
	var err error
	for i := range m {
		if m[i], err = view(1, n, n); err != nil {
			return device.Peak{}, err
		}
	}
	for i := range c {
		if c[i], err = view(size); err != nil {
			return device.Peak{}, err
		}
	}
	product, err := best(&device.MatMul{Out: m[2], A: m[0], B: m[1]})
	if err != nil {
		return device.Peak{}, err
	}
	moved, err := best(&device.Map{Program: copyProgram, Outs: c[1:], Ins: c[:1]})
	if err != nil {
		return device.Peak{}, err
	}
	return device.Peak{FLOPs: 2 * n * n * n / product.Seconds(), Bytes: 2 * 4 * size / moved.Seconds(), Source: "measured"}, nil
}

var (
	onesProgram = expr.MustLower([]*expr.Expr{expr.C(1)}, []dtype.Type{dtype.F32}, nil, -1)
	copyProgram = expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
)
