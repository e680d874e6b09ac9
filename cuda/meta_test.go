package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// metaGPU returns an emulated GPU in mode=meta with the given memory size.
func metaGPU(t *testing.T, bytes int) *cuda.Device {
	t.Helper()
	d, err := device.OpenMeta("cuda", device.MetaConfig{Memory: bytes})
	if err != nil {
		t.Fatal(err)
	}
	return d.(*cuda.Device)
}

// TestMetaHasNoValues reads values on a device in mode=meta in several ways. Each way must return
// the same typed error with the line of the program, and the device must stay usable.
func TestMetaHasNoValues(t *testing.T) {
	d := metaGPU(t, 1<<30)
	if i := d.Info(); !i.Meta || !i.Emulated || i.Memory != 1<<30 || i.Capability != [2]int{9, 0} {
		t.Errorf("%+v", i)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Zeros(4, 3)
		var sink any
		for name, f := range map[string]func(){
			"item": func() { sink = x.Sum().Item() }, "data": func() { sink = tensor.Data[float32](x) }, "floats": func() { sink = x.T().Floats() },
			"print": func() { sink = x.String() }, "cpu": func() { sink = x.CPU() }, "equal": func() { sink = x.AllClose(x, 0, 0) },
			"nonzero": func() { sink = x.Nonzero() }, "masked": func() { sink = x.MaskedSelect(x.GtScalar(0)) }, "inverse": func() { sink = x.Narrow(0, 0, 3).Inverse() },
			"unique": func() { sink, _, _ = x.Unique(tensor.UniqueOptions{}) },
		} {
			err := tensor.Try(f)
			var e *tensor.Error
			if !errors.Is(err, device.ErrNoValues) || !errors.As(err, &e) || !strings.Contains(e.Site, "meta_test.go:") {
				t.Errorf("%s: %v (%v)", name, err, sink)
			}
		}
		x.AddScalar(1).Relu()
	}, tensor.On(d))
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
	if st := d.Stats(); st.Allocated != 0 {
		t.Errorf("%d bytes stay", st.Allocated)
	}
}

// TestMetaCounts checks the counters in mode=meta. Initialisers and random numbers must count as
// launches, and copies as copies. Indices must not be checked.
func TestMetaCounts(t *testing.T) {
	d := metaGPU(t, 64<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tensor.Do(func(s *tensor.Scope) {
		w := s.Empty(1<<16, 1<<13).RequiresGrad() // 2 GiB
		initial.KaimingUniform(w, 1)
		initial.TruncNormal(w, 0, 1, -2, 2)
		w.Embedding(s.Typed(dtype.I64).Full(1e9, 7)).Sum().Backward()
		s.Randn(100).Dropout(0.5)
		s.From([]int64{-5, 99}).AddScalar(1)
		// This allocates 2 GiB of page-locked memory, but accesses none of it.
		opt := w.Detach().To(tensor.Zeros(1).Device(), tensor.NonBlocking())
		if !opt.IsPinned() {
			t.Error("what NonBlocking copies to the CPU is not pinned")
		}
		// The tensor is copied to the host and back, in stream order.
		back := opt.To(d, tensor.NonBlocking())
		back.AddScalar(1)
		if err := tensor.Try(func() { opt.Narrow(0, 0, 1).Sum() }); !errors.Is(err, device.ErrNoValues) {
			t.Errorf("the host reads an offloaded tensor: %v", err)
		}
	}, tensor.On(d), tensor.Seed(1))
	runtime.ReadMemStats(&after)
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
	c := d.Counters()
	if c.Launches < 12 || c.Downloads != 1 || c.Uploads < 2 {
		t.Errorf("%+v", c)
	}
	if st := d.Stats(); st.Allocated != 0 || st.AllocatedPeak < 4<<30 {
		t.Errorf("%+v", st)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("the host allocated %d bytes", grown)
	}
}

// TestMetaMemoryEnds checks that in mode=meta the virtual clock advances, and memory can be
// exhausted.
func TestMetaMemoryEnds(t *testing.T) {
	d := metaGPU(t, 2<<30)
	tensor.Do(func(s *tensor.Scope) {
		s.Empty(1 << 28)
		if err := tensor.Try(func() { s.Empty(1 << 29) }); !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "meta_test.go:") {
			t.Errorf("2 GiB beside 1 GiB of 2: %v", err)
		}
	}, tensor.On(d))
	for kind, c := range map[string]device.MetaConfig{"cuda": {Memory: 1}, "tpu": {}, "cuda:1": {Capability: [2]int{7, 5}}} {
		var u *device.UnavailableError
		if _, err := device.OpenMeta(kind, c); !errors.As(err, &u) {
			t.Errorf("%s %+v: %v", kind, c, err)
		}
	}
}

// A program runs on a device in mode=meta to learn how much memory it needs. Reading a value fails.
func ExampleEmulate_noValues() {
	gpus, err := cuda.Emulate("emulate,mem=80GiB,mode=meta")
	if err != nil {
		panic(err)
	}
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { s.Randn(1000, 1000).Sum().Item() }, tensor.On(gpus[0]))
	})
	fmt.Println(errors.Is(err, device.ErrNoValues), gpus[0].Stats().AllocatedPeak>>20, "MiB")
	// Output: true 3 MiB
}
