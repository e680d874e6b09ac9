package cuda

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// TestStickyFault runs a kernel that reads memory that nothing has written. The device must then be
// unusable, and the fault must name kernel, line and thread.
func TestStickyFault(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB")
	x, y := empty(t, d, nil, 5), empty(t, d, nil, 5)
	must(t, apply(d, nil, double, views(y), views(x)))
	first := d.Download(nil, make([]byte, 4), y.Buf, 0)
	var f *device.Fault
	var found *ptxvm.Fault
	if !errors.As(first, &f) || !errors.As(first, &found) || !f.Sticky || f.Device != "cuda:0" || f.Kernel != found.Kernel || found.Kind != ptxvm.UninitialisedMemory {
		t.Fatalf("%v", first)
	}
	for _, want := range []string{"cuda:0: kernel map_", "uninitialised memory", "PTX line", "thread (0,0,0)"} {
		if !strings.Contains(first.Error(), want) {
			t.Errorf("%q is not in: %v", want, first)
		}
	}
	s := d.DefaultStream()
	_, alloc := d.Alloc(8, nil, device.Origin{})
	_, stream := d.NewStream(0)
	_, record := s.Record()
	for i, err := range []error{alloc, stream, record, s.Synchronize(), d.Synchronize(), d.Upload(nil, x.Buf, 0, make([]byte, 4)),
		apply(d, nil, double, views(y), views(x)), d.CopyFrom(nil, x.Buf, 0, y.Buf, 0, 4), d.Download(nil, make([]byte, 4), x.Buf, 0)} {
		if err != first {
			t.Errorf("call %d after the fault: %v, want the same fault", i, err)
		}
	}
	x.Buf.Free() // Free must not call the driver, and must not panic
	y.Buf.Queue()
	d.Empty()
}

// failing is a driver in which a call after the launch returns an error code, as on a GPU.
type failing struct {
	cu.API
	launched, broken bool
}

func (h *failing) LaunchKernel(f cu.Function, grid, block cu.Dim3, dynShared uint32, s cu.Stream, params []byte) error {
	if h.broken && h.launched {
		return &cu.Error{Call: "cuLaunchKernel", Result: cu.ErrIllegalAddress}
	}
	h.launched = true
	return h.API.LaunchKernel(f, grid, block, dynShared, s, params)
}

func (h *failing) StreamSynchronize(s cu.Stream) error {
	if h.broken && h.launched {
		return &cu.Error{Call: "cuStreamSynchronize", Result: cu.ErrIllegalAddress}
	}
	return h.API.StreamSynchronize(s)
}

// TestFaultOfHardware checks which kernel a fault names. If a later call returns the fault, the
// fault must name no kernel. With FLAMBEAU_CUDA_SYNC the fault must name the kernel that was waited
// for.
func TestFaultOfHardware(t *testing.T) {
	for _, sync := range []bool{false, true} {
		api, err := newEmulator("emulate,mem=16MiB")
		must(t, err)
		h := &failing{API: api}
		p, err := newPlatform(h)
		must(t, err)
		p.sync = sync
		d, err := p.open(0)
		must(t, err)
		x := floats(t, d, nil, 1)
		h.broken = true
		err = apply(d, nil, double, views(x), views(x))
		if !sync {
			must(t, err)
			err = apply(d, nil, next, views(x), views(x))
		}
		var f *device.Fault
		if !errors.As(err, &f) || !f.Sticky || !errors.Is(err, cu.ErrIllegalAddress) || sync != strings.HasPrefix(f.Kernel, "map_") ||
			sync == strings.Contains(err.Error(), "FLAMBEAU_CUDA_SYNC=1") {
			t.Errorf("sync %v: %v", sync, err)
		}
		if again := d.Synchronize(); again != err {
			t.Errorf("later: %v", again)
		}
	}
}

// TestSync checks that with FLAMBEAU_CUDA_SYNC a failing operation returns its own error.
func TestSync(t *testing.T) {
	t.Setenv("FLAMBEAU_CUDA_SYNC", "1")
	d := emulated(t, "emulate,mem=16MiB")
	x, y := floats(t, d, nil, 1, 2, 3), empty(t, d, nil, 1)
	var e *device.IndexError
	if err := device.Run(d, nil, &device.Gather{Out: y, Src: x, Index: longs(t, d, nil, 9), Tag: 5}); !errors.As(err, &e) || e.Tag != 5 || e.Index != 9 {
		t.Errorf("gather: %v", err)
	}
	z := empty(t, d, nil, 3)
	var f *device.Fault
	if err := apply(d, nil, double, views(x), views(z)); !errors.As(err, &f) || !strings.HasPrefix(f.Kernel, "map_") {
		t.Errorf("map: %v", err)
	}
}

func TestPrintPTX(t *testing.T) {
	list, err := Emulate("emulate:2,mem=16MiB")
	must(t, err)
	var out bytes.Buffer
	list[0].p.print = &out
	for range 2 {
		for _, d := range list {
			x := floats(t, d, nil, 1)
			must(t, apply(d, nil, double, views(x), views(x)))
			check(t, d, nil, x, 2)
		}
	}
	if n := strings.Count(out.String(), ".entry"); n != 1 || !strings.HasPrefix(out.String(), "// map_") {
		t.Errorf("one kernel was printed %d times:\n%s", n, out.String())
	}
	t.Setenv("FLAMBEAU_PRINT_PTX", "1")
	if d := emulated(t, "emulate"); d.p.print == io.Writer(nil) {
		t.Error("FLAMBEAU_PRINT_PTX=1 prints nothing")
	}
}

// sharedKernel returns a kernel that stores its thread's index through dynamic shared memory of the
// given size in bytes.
func sharedKernel(bytes int) *kernels.Kernel {
	return &kernels.Kernel{Name: "shared", Entry: "shared", Block: [3]uint32{32, 1, 1}, DynShared: bytes, ParamSize: 8, Version: 70, Target: 80, PTX: `
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dyn[];
.visible .entry shared(.param .u64 out)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<4>;
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, dyn;
	shl.b32 %r3, %r1, 2;
	add.u32 %r2, %r2, %r3;
	st.shared.u32 [%r2], %r1;
	ld.shared.u32 %r4, [%r2];
	ld.param.u64 %rd1, [out];
	mul.wide.u32 %rd2, %r1, 4;
	add.u64 %rd3, %rd1, %rd2;
	st.global.u32 [%rd3], %r4;
	ret;
}
`}
}

func TestLaunch(t *testing.T) {
	d := emulated(t, "emulate,mem=16MiB,sm=80")
	out := empty(t, d, nil, 32)
	at := operand(&out).Addr
	params := func(a uint64) []byte { return le64(a) }
	launch := func(k *kernels.Kernel, p []byte) error {
		return d.queue(d.main, []kernels.Launch{{Kernel: k, Grid: [3]uint32{1, 1, 1}, Params: p}})
	}
	must(t, launch(sharedKernel(100<<10), params(at)))
	got := make([]byte, 128)
	must(t, d.Download(nil, got, out.Buf, 0))
	if got[4*31] != 31 {
		t.Errorf("%v", got)
	}
	both := sharedKernel(16 << 10)
	both.StaticShared = 40 << 10
	both.PTX = strings.Replace(both.PTX, "{", "{\n\t.shared .align 16 .b8 fixed[40960];", 1)
	must(t, launch(both, params(at)))
	// A launch that is impossible returns a fault, and the device stays usable.
	newer, higher, much, none, wrong := sharedKernel(0), sharedKernel(0), sharedKernel(1<<20), sharedKernel(0), sharedKernel(0)
	newer.Version, higher.Target, none.Entry = 88, 90, "other"
	wrong.PTX = strings.Replace(wrong.PTX, "st.global.u32", "st.global.u33", 1)
	for _, c := range []struct {
		err  error
		want string
	}{
		{launch(newer, params(at)), "cuda:0: kernel shared: it needs compute capability 8.0 and PTX 8.8, the device has 8.0 and its driver takes 8.4"},
		{launch(higher, params(at)), "it needs compute capability 9.0"},
		{launch(much, params(at)), "dynamic shared memory"},
		{launch(none, params(at)), `"other"`},
		{launch(wrong, params(at)), "line 19"},
		{launch(sharedKernel(0), nil), "0 bytes of parameters"},
	} {
		var f *device.Fault
		if !errors.As(c.err, &f) || f.Sticky || f.Kernel != "shared" || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %s", c.err, c.want)
		}
	}
	must(t, launch(sharedKernel(200), params(at)))
	must(t, d.Synchronize())
	// An emulated GPU finds an access outside of a block, even if it lies within the pool's
	// segment.
	must(t, launch(sharedKernel(200), params(at+64)))
	var found *ptxvm.Fault
	if err := d.Synchronize(); !errors.As(err, &found) || found.Kind != ptxvm.OutOfBounds || found.Thread[0] != 16 {
		t.Errorf("16 elements beside the block: %v", err)
	}
}

func le64(v uint64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(v >> (8 * i))
	}
	return b
}

// TestIndexErrors checks that an index error is returned once. The error must come from a wait for
// the stream that caused it, or for another stream that has waited for that stream.
func TestIndexErrors(t *testing.T) { onBoth(t, "emulate,mem=16MiB,seed=2", testIndexErrors) }

func testIndexErrors(t *testing.T, d *Device) {
	a, b := stream2(t, d)
	table := floats(t, d, nil, 1, 2, 3)
	must(t, d.Synchronize())
	table.Buf.Use(a)
	table.Buf.Use(b)
	gather := func(s device.Stream, tag uint32, index ...int64) device.View {
		t.Helper()
		i, y := longs(t, d, s, index...), empty(t, d, s, len(index))
		must(t, device.Run(d, s, &device.Gather{Out: y, Src: table, Index: i, Tag: tag}))
		return y
	}
	is := func(what string, err error, tag uint32, index, position int64) {
		t.Helper()
		var e *device.IndexError
		if !errors.As(err, &e) || *e != (device.IndexError{Tag: tag, Index: index, Bound: 3, Position: position}) {
			t.Errorf("%s: %v, want index %d at %d of tag %d", what, err, index, position, tag)
		}
	}
	y := gather(a, 1, 0, 3, 2)
	x := gather(b, 2, 1)
	// the work of b has no error, so a wait for b must not return the error of stream a
	check(t, d, b, x, 2)
	got := make([]byte, 12)
	is("Download", d.Download(a, got, y.Buf, 0), 1, 3, 1)
	if !bytes.Equal(got, bytesOf([]float32{1, 0, 3})) {
		t.Errorf("%v: want 0 for the element whose index is outside", got)
	}
	must(t, a.Synchronize())
	check(t, d, a, y, 1, 0, 3)

	gather(a, 3, -1, 0)
	is("Stream.Synchronize", a.Synchronize(), 3, -1, 0)
	gather(a, 4, 7)
	is("Device.Synchronize", d.Synchronize(), 4, 7, 0)
	gather(a, 5, 1<<40)
	e, err := a.Record()
	must(t, err)
	is("Event.Wait", e.Wait(), 5, 1<<40, 0)
	e.Release()

	gather(a, 6, 3)
	gather(b, 7, 4)
	if e, err = a.Record(); err != nil {
		t.Fatal(err)
	}
	must(t, b.Wait(e))
	e.Release()
	var tags []uint32
	for range 2 { // each wait returns the error of one of the two streams
		var x *device.IndexError
		if err := b.Synchronize(); !errors.As(err, &x) {
			t.Fatalf("the waiting stream: %v", err)
		}
		tags = append(tags, x.Tag)
	}
	if tags[0]+tags[1] != 13 {
		t.Errorf("tags %v, want 6 and 7", tags)
	}
	must(t, b.Synchronize())
	must(t, d.Synchronize())

	x = floats(t, d, nil, fill(1, 6)...)
	x.Layout = shape.Dense(shape.Of(2, 3))
	loss, top, rest := empty(t, d, nil, 2), empty(t, d, nil, 2), empty(t, d, nil, 2)
	must(t, device.Run(d, nil, &device.CrossEntropy{Loss: loss, Top: top, Rest: rest, X: x,
		Target: longs(t, d, nil, 0, 3), Ignore: -100, Tag: 8}))
	is("cross-entropy", d.Synchronize(), 8, 3, 1)
	must(t, d.Synchronize())
}

// TestMeta checks that in mode=meta a step is only counted. Reading a value must return an error
// and leave the device usable.
func TestMeta(t *testing.T) {
	d := emulated(t, "emulate,mem=8GiB,mode=meta")
	x := empty(t, d, nil, 1<<30)
	must(t, apply(d, nil, double, views(x), views(x)))
	must(t, d.Synchronize())
	if err := d.Download(nil, make([]byte, 4), x.Buf, 0); !errors.Is(err, emu.ErrMeta) {
		t.Errorf("a value of meta mode: %v", err)
	}
	must(t, apply(d, nil, double, views(x), views(x)))
	if c, s := d.Counters(), d.Stats(); c.Launches != 2 || s.Allocated != 4<<30 {
		t.Errorf("%+v, %+v", c, s)
	}
}
