package cuda

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// late returns a driver that copies ordinary memory as late as CUDA allows. It also returns the
// first device of the driver.
func late(t *testing.T, c emu.Config) (*emu.Driver, *Device) {
	t.Helper()
	c.Pageable = emu.PageableLate
	e, err := emu.New(c)
	must(t, err)
	p, err := newPlatform(e)
	must(t, err)
	d, err := p.open(0)
	must(t, err)
	return e, d
}

// pattern returns n bytes that depend on their index and the seed.
func pattern(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + i>>16 + seed*31)
	}
	return b
}

// TestUploadHasReadItsSource changes the source of an upload as soon as Upload has returned. The
// device must get the old bytes for every size, stream and schedule. Each of the sizes takes a
// different path in Upload.
func TestUploadHasReadItsSource(t *testing.T) {
	for seed := range uint64(3) {
		e, d := late(t, emu.Config{Memory: 64 << 20, Seed: seed})
		a, b := stream2(t, d)
		type upload struct {
			s    device.Stream
			at   device.Buffer
			want []byte
		}
		var all []upload
		src := make([]byte, 0, 9<<20)
		for i, n := range []int{1, 255, stagedSmall, stagedSmall + 1, 3, stagedChunk, stagedChunk + 1, 5, stagedSmall, stagedSmall, 9*stagedChunk/2 + 3, 17} {
			s := a
			if i%3 == 1 {
				s = b
			}
			buf, err := d.Alloc(n, s, device.Origin{Op: "test"})
			must(t, err)
			want := pattern(i, n)
			src = append(src[:0], want...)
			must(t, d.Upload(s, buf, 0, src))
			clear(src)
			all = append(all, upload{s, buf, want})
		}
		for i, u := range all {
			got := make([]byte, len(u.want))
			must(t, d.Download(u.s, got, u.at, 0))
			if !bytes.Equal(got, u.want) {
				t.Fatalf("seed %d: upload %d of %d bytes brought something else", seed, i, len(got))
			}
		}
		if n := e.Stats().PageableHtoD; n != 0 {
			t.Errorf("seed %d: %d copies were from pageable memory", seed, n)
		}
		if st := d.PinnedStats(); st.Reserved != stagedChunks*stagedChunk || st.Allocated != 0 || HostMemoryStats(d)["staging_bytes.current"] != int64(st.Reserved) {
			t.Errorf("seed %d: %+v", seed, st)
		}
		must(t, d.Synchronize())
		if n := d.EmptyPinned(); n != stagedChunks*stagedChunk || d.PinnedStats().Reserved != 0 || HostMemoryStats(d)["staging_bytes.freed"] != int64(n) {
			t.Errorf("seed %d: %d bytes came back, %+v", seed, n, d.PinnedStats())
		}
		must(t, d.Upload(a, all[0].at, 0, []byte{9})) // the ring must still work after emptyStaging
	}
}

// TestDirectPageableCopyIsFound queues a copy from ordinary memory without staging, and changes the
// memory. The emulated driver must report this.
func TestDirectPageableCopyIsFound(t *testing.T) {
	_, d := late(t, emu.Config{Memory: 16 << 20})
	x := empty(t, d, nil, 64)
	src := pattern(1, 256)
	must(t, d.enter())
	must(t, d.api.MemcpyHtoDAsync(cu.DevicePtr(x.Buf.Addr()), unsafe.Pointer(&src[0]), 256, d.main.handle))
	d.leave()
	clear(src) // a program may change src in this way after the call
	var access *emu.AccessError
	if err := d.Download(nil, make([]byte, 256), x.Buf, 0); !errors.As(err, &access) || !strings.Contains(access.Why, "changed since the call") {
		t.Errorf("a copy that read its source late: %v", err)
	}
}

// TestSmallUploadsAreCheap checks that small uploads share a chunk. They must cause no wait, no Go
// allocation, and no page-locked memory beyond the first chunk.
func TestSmallUploadsAreCheap(t *testing.T) {
	e, d := late(t, emu.Config{Memory: 16 << 20})
	x := empty(t, d, nil, 64)
	src := pattern(1, 256)
	up := func() { must(t, d.Upload(nil, x.Buf, 0, src)) }
	up()
	before := e.Stats()
	for range 2000 {
		up()
	}
	after := e.Stats()
	if after.Synchronisations != before.Synchronisations || after.HostAllocs != before.HostAllocs || after.HtoD.Count != before.HtoD.Count+2000 || after.PageableHtoD != 0 {
		t.Errorf("2000 uploads: %+v, before %+v", after, before)
	}
	p, err := newPlatform(copylessDriver{e})
	must(t, err)
	d, err = p.open(0)
	must(t, err)
	x = empty(t, d, nil, 64)
	up()
	if n := testing.AllocsPerRun(500, up); n != 0 {
		t.Errorf("%v allocations an upload", n)
	}
}

// copylessDriver accepts copies from the host and does nothing, so that the test counts only this
// package's allocations.
type copylessDriver struct{ cu.API }

func (copylessDriver) MemcpyHtoDAsync(cu.DevicePtr, unsafe.Pointer, uint64, cu.Stream) error {
	return nil
}

// TestStagingConcurrently uploads from several goroutines on more streams than there are chunks.
// Other goroutines empty the ring at the same time.
func TestStagingConcurrently(t *testing.T) {
	_, d := late(t, emu.Config{Memory: 128 << 20, Seed: 5})
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			s, err := d.NewStream(0)
			if err != nil {
				t.Error(err)
				return
			}
			for i, n := range []int{100, 2*stagedChunk + 7, stagedSmall, stagedChunk, 60000} {
				buf, err := d.Alloc(n, s, device.Origin{Op: "test"})
				if err != nil {
					t.Error(err)
					return
				}
				want := pattern(g*10+i, n)
				src := bytes.Clone(want)
				got := make([]byte, n)
				err = d.Upload(s, buf, 0, src)
				clear(src)
				if err := errors.Join(err, d.Download(s, got, buf, 0)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("goroutine %d, %d bytes: %v", g, n, err)
				}
				buf.Free()
				d.EmptyPinned()
			}
		})
	}
	wg.Wait()
}

// TestUploadWithoutPinnedMemory checks uploads if there is no page-locked memory. Upload must then
// wait until its source has been read.
func TestUploadWithoutPinnedMemory(t *testing.T) {
	none := false
	e, d := late(t, emu.Config{Memory: 64 << 20, NoHost: func() bool { return none }})
	// From here on there is no page-locked memory. The device already has all that it needs apart
	// from the ring.
	none = true
	for _, n := range []int{16, stagedSmall + 1, 3 * stagedChunk} {
		buf, err := d.Alloc(n, nil, device.Origin{Op: "test"})
		must(t, err)
		want := pattern(n, n)
		src, got := bytes.Clone(want), make([]byte, n)
		must(t, d.Upload(nil, buf, 0, src))
		clear(src)
		must(t, d.Download(nil, got, buf, 0))
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: something else came", n)
		}
		buf.Free()
	}
	if n := e.Stats().PageableHtoD; n != 3 {
		t.Errorf("%d copies from pageable memory, want 3", n)
	}
	none = false
	must(t, d.Upload(nil, empty(t, d, nil, 4).Buf, 0, make([]byte, 16)))
	if n := e.Stats().PageableHtoD; n != 3 || d.PinnedStats().Reserved != stagedChunk {
		t.Errorf("when there is memory again: %d copies, %+v", n, d.PinnedStats())
	}
	none = true // allocations of page-locked memory must now free the ring's chunks
	must(t, d.Synchronize())
	if _, err := d.AllocPinned(100, device.Origin{}); !errors.Is(err, device.ErrOutOfMemory) || d.PinnedStats().Reserved != 0 {
		t.Errorf("%v, %+v", err, d.PinnedStats())
	}
}

// TestTrainingsWithLateCopies runs trainings on a driver that copies ordinary memory late. The
// trainings use graphs with new data, multi-tensor kernels, clipping and loss scaling. They must
// give the same bits as usual, and copy nothing directly from ordinary memory.
func TestTrainingsWithLateCopies(t *testing.T) {
	for _, half := range []bool{false, true} {
		var losses [2][]float64
		for i, mode := range []emu.Pageable{emu.PageableNow, emu.PageableLate} {
			e, err := emu.New(emu.Config{Memory: 64 << 20, Pageable: mode})
			must(t, err)
			p, err := newPlatform(e)
			must(t, err)
			d, err := p.open(0)
			must(t, err)
			losses[i] = lateTraining(t, d, half)
			if n := e.Stats().PageableHtoD; n != 0 {
				t.Errorf("half %v, mode %d: %d copies were from pageable memory", half, mode, n)
			}
		}
		for k := range losses[0] {
			if losses[0][k] != losses[1][k] {
				t.Fatalf("half %v: losses %v, with late copies %v", half, losses[0], losses[1])
			}
		}
		if n := len(losses[0]); losses[0][0] <= losses[0][n-1] {
			t.Errorf("half %v: nothing was learnt: %v", half, losses[0])
		}
	}
}

func lateTraining(t *testing.T, d *Device, half bool) (losses []float64) {
	t.Helper()
	m := nn.NewSequential(nn.NewLinear(16, 24), nn.NewLayerNorm([]int{24}), &nn.ReLU{}, nn.NewLinear(24, 4))
	for i, p := range nn.Parameters(m) {
		w := make([]float32, p.Size())
		for k := range w {
			w[k] = float32((k*13+i*5)%17-8) / 40
		}
		flat := p.Detach().Reshape(-1) // flat is a view of the parameter
		flat.Copy(tensor.From(w))
	}
	nn.To(m, d)
	params := nn.Parameters(m)
	opt := optim.NewAdamW(params, optim.AdamConfig{LR: 0.01})
	scaler := amp.NewGradScaler(amp.InitScale(8))
	opts := []tensor.Option{tensor.On(d)}
	if half {
		opts = append(opts, tensor.Autocast(dtype.F16))
	}
	x, y := make([]float32, 8*16), make([]int64, 8) // reused for each batch
	for step := range 6 {
		for k := range x {
			x[k] = float32((k*7+step%2)%11) / 11
		}
		for k := range y {
			y[k] = int64(k % 4)
		}
		tensor.Do(func(s *tensor.Scope) {
			in, want := s.From(x).Reshape(8, 16), s.From(y)
			clear(x)
			clear(y)
			loss := nn.CrossEntropy(m.Forward(in), want)
			scaler.Scale(loss).Backward()
			scaler.Unscale(opt)
			optim.ClipGradNorm(params, 1)
			scaler.Step(opt)
			scaler.Update()
			opt.ZeroGrad()
			losses = append(losses, loss.Item())
		}, opts...)
	}
	return losses
}
