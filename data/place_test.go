package data_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

func emulated(t *testing.T, spec string) *cuda.Device {
	t.Helper()
	d, err := cuda.Emulate(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// wide is a dataset of n samples. Each sample has nested inputs with the given size.
type wide struct{ n, size int }

func (d wide) Len() int { return d.n }

func (d wide) Get(i int) (data.Sample, error) {
	x := make([]float32, d.size)
	for k := range x {
		x[k] = float32(i)
	}
	return data.Sample{X: map[string]any{"x": x, "i": i, "name": fmt.Sprint(i)}, Y: i}, nil
}

// Batches arrive on the device with the right contents and in the right order, in whatever order
// the device runs its streams. At the end, no memory is in use.
func TestBatchesArriveOnTheDevice(t *testing.T) {
	for seed := range 5 {
		for _, pin := range []bool{false, true} {
			dev := emulated(t, fmt.Sprintf("emulate,mem=32MiB,seed=%d", seed))
			l := load(t, wide{40, 300}, data.Config{Batch: 4, Workers: 3, Prefetch: 5, Device: dev, Pin: pin})
			at := 0
			for b, err := range l.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				tensor.Do(func(s *tensor.Scope) {
					in := b.Into(s).Nested.X.(map[string]any)
					x, i := in["x"].(*tensor.Tensor), in["i"].(*tensor.Tensor)
					if x.Device() != device.Device(dev) || b.Y.Device() != device.Device(dev) || fmt.Sprint(in["name"]) != fmt.Sprint(b.Index) {
						t.Fatal("the batch is elsewhere")
					}
					y := x.Sum(-1).DivScalar(300).Eq(i).LogicalAnd(i.Eq(b.Y)).All().Item()
					if want := float64(4*at + 1); y != 1 || b.Y.Select(0, 1).Item() != want {
						t.Errorf("seed %d, pin %v, batch %d: %v %v", seed, pin, at, b.Index, b.Y)
					}
				}, tensor.On(dev))
				if at++; at == 3 {
					x := tensor.On(dev)
					// Memory is allocated and freed, so that a batch freed too early would be
					// overwritten.
					tensor.Do(func(s *tensor.Scope) { s.Zeros(5000).AddScalar(1).Sum().Item() }, x)
				}
			}
			for b, err := range l.Batches() { // the loop is left early
				if err != nil {
					t.Fatal(err)
				}
				b.Free()
				break
			}
			if err := dev.Synchronize(); err != nil {
				t.Fatal(err)
			}
			if at != 10 {
				t.Errorf("%d batches", at)
			}
			if s := dev.PinnedStats(); s.Allocated != 0 || pin != (s.Allocations > 0) || dev.Stats().Allocated != 0 {
				t.Errorf("pin %v: %+v %+v", pin, s, dev.Stats())
			}
		}
	}
}

// Pin without a device puts batches into page-locked memory.
func TestPinnedBatches(t *testing.T) {
	dev := emulated(t, "emulate,mem=16MiB")
	var c *data.ConfigError
	_, err := data.NewLoader(wide{4, 2}, data.Config{Batch: 2, Pin: true, Device: plainDevice{dev}})
	if !errors.As(err, &c) || c.Field != "Pin" {
		t.Error(err)
	}
	_, missing := device.Open("cuda:0")
	l, err := data.NewLoader(wide{4, 2}, data.Config{Batch: 2, Pin: true})
	if err != nil {
		t.Fatal(err)
	}
	if missing != nil {
		if note := l.Note(); !strings.Contains(note, "Pin is ignored") || !strings.Contains(note, missing.Error()) {
			t.Errorf("the note is %q, the GPU's absence %q", note, missing)
		}
		for b, err := range l.Batches() {
			if err != nil || b.Y.IsPinned() {
				t.Error(b, err)
			}
		}
	} else {
		for b, err := range l.Batches() {
			if err != nil || !b.Y.IsPinned() || l.Note() != "" || b.Y.Device().Info().Kind != "cpu" {
				t.Error(b, err)
			}
		}
	}
	host, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	l = load(t, wide{4, 2}, data.Config{Batch: 2, Pin: true, Device: host})
	if !strings.Contains(l.Note(), "Pin is ignored") {
		t.Errorf("the note is %q", l.Note())
	}
	for b, err := range l.Batches() {
		if err != nil || b.Y.IsPinned() || b.Y.Device() != host {
			t.Error(b, err)
		}
	}
}

// If several loaders of a process ignore Pin, only the first writes to the log.
func TestPinIsIgnoredWithOneNote(t *testing.T) {
	host, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	var told strings.Builder
	log.SetOutput(&told)
	defer log.SetOutput(os.Stderr)
	data.Unpinned()
	for range 3 {
		for _, err := range load(t, wide{4, 2}, data.Config{Batch: 2, Pin: true, Device: host}).Batches() {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := strings.Count(told.String(), "Pin is ignored: batches are on the CPU"); n != 1 || strings.Count(told.String(), "\n") != 1 {
		t.Errorf("the log is %q", told.String())
	}
	if note := load(t, wide{4, 2}, data.Config{Batch: 2}).Note(); note != "" {
		t.Errorf("a loader without Pin notes %q", note)
	}
}

// In a scope without a device, From raises an error for a batch on a GPU instead of copying it back
// to the CPU.
func TestBatchOnDeviceForScopeOnCPU(t *testing.T) {
	dev := emulated(t, "emulate,mem=16MiB")
	for b, err := range load(t, wide{4, 2}, data.Config{Batch: 2, Device: dev}).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { s.From(b.Y) }) })
		if !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), "tensor.On(dev)") {
			t.Error(err)
		}
		tensor.Do(func(s *tensor.Scope) {
			// The tensor that From refused is unchanged.
			if x := s.From(b.Y); x.Device() != device.Device(dev) {
				t.Errorf("it is on %v", x.Device())
			}
		}, tensor.On(dev))
		b.Free()
	}
}

// plainDevice is a device without page-locked memory.
type plainDevice struct{ device.Device }

// The use of device memory and page-locked memory does not grow over many epochs. The memory of
// batches prepared ahead is bounded.
func TestNoGrowthOverEpochs(t *testing.T) {
	dev := emulated(t, "emulate,mem=32MiB")
	const size = 4000
	l := load(t, wide{24, size}, data.Config{Batch: 4, Workers: 2, Prefetch: 3, Device: dev, Pin: true, Shuffle: true})
	batch := 4*4*size + 2*4*8
	var reserved int
	for epoch := range 100 {
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			tensor.Do(func(s *tensor.Scope) {
				if b.Into(s); epoch%10 == 0 {
					b.Y.Sum().Item()
				}
			}, tensor.On(dev))
		}
		if err := dev.Synchronize(); err != nil {
			t.Fatal(err)
		}
		st, p := dev.Stats(), dev.PinnedStats()
		if st.Allocated != 0 || p.Allocated != 0 {
			t.Fatalf("epoch %d leaves %d bytes, %d page-locked", epoch, st.Allocated, p.Allocated)
		}
		if epoch == 4 {
			reserved = st.Reserved
		}
		// At most four batches exist at the same time. Each has three tensors, and each tensor is
		// rounded up by at most 512 bytes.
		if most := 4 * (batch + 3*512); st.AllocatedPeak > most {
			t.Fatalf("epoch %d: %d bytes at once, want at most %d", epoch, st.AllocatedPeak, most)
		}
		if most := 5 * (batch + 3*4096); p.Reserved > most {
			t.Fatalf("epoch %d: %d bytes of page-locked memory, want at most %d", epoch, p.Reserved, most)
		}
		if epoch > 4 && st.Reserved > reserved+reserved/20 {
			t.Fatalf("epoch %d: %d bytes reserved, after epoch 4 %d", epoch, st.Reserved, reserved)
		}
	}
}

// If batches prepared ahead exhaust the memory, the loop returns a typed error, and all memory is
// freed.
func TestOutOfMemoryAhead(t *testing.T) {
	for _, pin := range []bool{false, true} {
		dev := emulated(t, "emulate,mem=4MiB")
		// A batch has 1.6 MB.
		l := load(t, wide{40, 100_000}, data.Config{Batch: 4, Workers: 2, Prefetch: 6, Device: dev, Pin: pin})
		var kept []*data.Batch
		var got error
		for b, err := range l.Batches() {
			if err != nil {
				got = err
				continue
			}
			kept = append(kept, b)
		}
		var s *data.SampleError
		if !errors.As(got, &s) || !errors.Is(got, device.ErrOutOfMemory) {
			t.Errorf("pin %v: %v", pin, got)
		}
		if len(kept) > 2 {
			t.Errorf("%d batches fit", len(kept))
		}
		for _, b := range kept {
			b.Free()
		}
		if err := dev.Synchronize(); err != nil {
			t.Fatal(err)
		}
		if a, p := dev.Stats().Allocated, dev.PinnedStats().Allocated; a != 0 || p != 0 {
			t.Errorf("pin %v: %d bytes are left, %d page-locked", pin, a, p)
		}
		// The same device has enough memory for smaller batches.
		small := load(t, wide{8, 10_000}, data.Config{Batch: 4, Device: dev, Pin: pin})
		n := 0
		for b, err := range small.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			b.Free()
			n++
		}
		if n != 2 {
			t.Errorf("%d batches", n)
		}
	}
}

// In a batch for an autoencoder, inputs and targets are the same tensor. Each of them can be given
// to a scope separately.
func TestTargetsThatAreInputs(t *testing.T) {
	dev := emulated(t, "emulate,mem=32MiB")
	twice := func(samples []data.Sample) (*data.Batch, error) {
		b, err := data.Collate(samples)
		if err == nil {
			b.Y.Free()
			b.Nested.X = map[string]any{"a": b.X, "b": []any{b.X}}
			b.X, b.Y = nil, b.X
		}
		return b, err
	}
	same := func(samples []data.Sample) (*data.Batch, error) {
		b, err := data.Collate(samples)
		if err == nil {
			b.Y.Free()
			b.Y = b.X
		}
		return b, err
	}
	for _, on := range []device.Device{nil, dev} {
		for name, collate := range map[string]func([]data.Sample) (*data.Batch, error){"same": same, "nested": twice} {
			n := 0
			for b, err := range load(t, &squares{n: 6}, data.Config{Batch: 2, Device: on, Collate: collate}).Batches() {
				if err != nil {
					t.Fatal(name, err)
				}
				tensor.Do(func(s *tensor.Scope) {
					y := s.From(b.Y)
					b.Y = nil
					b.Into(s)
					x := b.X
					if name == "nested" {
						in := b.Nested.X.(map[string]any)
						x = in["a"].(*tensor.Tensor).Add(in["b"].([]any)[0].(*tensor.Tensor)).DivScalar(2)
					}
					if x.Float().Sub(y.Float()).Abs().Sum().Item() != 0 {
						t.Errorf("%s: inputs and targets differ", name)
					}
				}, onDevice(on)...)
				n++
			}
			if n != 3 {
				t.Errorf("%s: %d batches", name, n)
			}
		}
	}
	b, err := data.Collate([]data.Sample{{X: 1, Y: 2}})
	if err != nil {
		t.Fatal(err)
	}
	b.Y = b.X
	tensor.Do(func(s *tensor.Scope) {
		if b.Into(s); b.X.Sub(b.Y).Sum().Item() != 0 {
			t.Error("a batch of one's own")
		}
	})
}

func onDevice(d device.Device) []tensor.Option {
	if d == nil {
		return nil
	}
	return []tensor.Option{tensor.On(d)}
}

// A step may use the memory that a batch prepared ahead needs. The batch is then copied to the
// device when the loop needs it.
func TestNoMemoryAheadIsMadeUpFor(t *testing.T) {
	for _, workers := range []int{1, 3} {
		dev := emulated(t, "emulate,mem=6MiB")
		// A batch has 0.8 MB.
		l := load(t, wide{12, 100_000}, data.Config{Batch: 2, Workers: workers, Prefetch: 4, Device: dev})
		at := 0
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatalf("%d workers, batch %d: %v", workers, at, err)
			}
			tensor.Do(func(s *tensor.Scope) {
				x := b.Into(s).Nested.X.(map[string]any)["x"].(*tensor.Tensor)
				if x.Device() != device.Device(dev) || b.Y.Device() != device.Device(dev) || x.Select(0, 1).Mean().Item() != float64(2*at+1) {
					t.Errorf("%d workers: batch %d is %v on %s", workers, at, b.Index, x.Device().Name())
				}
				// Use all free memory until the step ends, in smaller and smaller blocks.
				room := dev.Info().Memory - dev.Stats().Allocated
				for size := room; size > 64<<10; size /= 4 {
					for tensor.Try(func() { s.Empty(size / 4) }) == nil {
					}
				}
				time.Sleep(time.Millisecond) // meanwhile the workers try to allocate memory
			}, tensor.On(dev))
			at++
		}
		if at != 6 {
			t.Errorf("%d workers: %d batches", workers, at)
		}
		if n := dev.Stats().Allocated; n != 0 {
			t.Errorf("%d workers: %d bytes are left", workers, n)
		}
	}
}
