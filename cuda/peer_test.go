package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// twoGPUs returns two emulated GPUs of one driver, with or without peer access. The argument more
// is added to the specification.
func twoGPUs(t testing.TB, peer bool, more string) (a, b *cuda.Device) {
	t.Helper()
	spec := "emulate:2,mem=16MiB,segment=16KiB" + more
	if !peer {
		spec += ",peer=off"
	}
	list, err := cuda.Emulate(spec)
	if err != nil {
		t.Fatal(err)
	}
	return list[0], list[1]
}

// TestPeerCopiesAmongStreams copies tensors between GPUs and streams, directly or through the host,
// in several schedules. The tensors must arrive unchanged, although the sources are freed,
// overwritten or lent to another stream while the copy runs. Gradients are copied in the opposite
// direction.
func TestPeerCopiesAmongStreams(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for _, peer := range []bool{true, false} {
		for seed := range seeds {
			a, b := twoGPUs(t, peer, fmt.Sprint(",seed=", seed))
			sa, err := cuda.NewStream(a, 0)
			if err != nil {
				t.Fatal(err)
			}
			sb, err := cuda.NewStream(b, 0)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("peer %v, seed %d", peer, seed)
			expect := func(what string, x *tensor.Tensor, want []float64) {
				t.Helper()
				if got := x.Floats(); !slices.Equal(got, want) {
					t.Errorf("%s, %s: %v, want %v", name, what, got, want)
				}
			}
			w := tensor.Root().On(a).Full(3, 4, 6)
			w.RequiresGrad()
			for round := range 4 {
				tensor.Do(func(s *tensor.Scope) {
					here := s.New(tensor.On(a), tensor.Stream(sa))
					there := here.New(tensor.On(b), tensor.Stream(sb))
					base := here.Arange(24).Float().AddScalar(float64(round))
					x := base.Reshape(4, 6).MulScalar(2)
					// The source is freed while the copy runs. Its memory is then allocated again
					// and overwritten.
					y := x.To(b)
					x.Free()
					for range 3 {
						here.Full(-1, 4, 6)
					}
					// The source is overwritten while the copy runs.
					z := base.In(here).MulScalar(1)
					moved := z.To(b)
					z.Fill(-2)
					// The source is not contiguous: it is a transposed part of a tensor.
					part := base.In(here).Reshape(4, 6).Narrow(1, 1, 4).T()
					bent := part.To(b)
					sum := y.In(there).Add(moved.In(there).Reshape(4, 6)).Add(bent.In(there).Sum())
					home := sum.To(a)
					sum.Free()
					there.Full(-3, 4, 6)
					var want []float64
					bentSum := 0.0
					for r := range 4 {
						for c := 1; c < 5; c++ {
							bentSum += float64(6*r + c + round)
						}
					}
					for i := range 24 {
						want = append(want, 3*float64(i+round)+bentSum)
					}
					expect("there and back", home, want)
					expect("its source's successor", z, slices.Repeat([]float64{-2}, 24))
					if got := bent.Shape(); got != shape.Of(4, 4) {
						t.Errorf("%s: a transposed part became %v", name, got)
					}
					// Copies without elements must work.
					if e := here.Zeros(0, 3).To(b); e.Size() != 0 || e.Device() != device.Device(b) {
						t.Errorf("%s: an empty tensor became %v on %v", name, e.Shape(), e.Device())
					}
					// A weight on GPU a is copied to GPU b and multiplied there.
					loss := w.In(here).To(b).Mul(y).Sum()
					loss.Backward()
					there.Close()
					here.Close()
				})
				var want []float64
				for i := range 24 {
					v := 0.0
					for r := range round + 1 {
						v += 2 * float64(i+r)
					}
					want = append(want, v)
				}
				expect("the gradient", w.Grad(), want)
			}
			for _, d := range []*cuda.Device{a, b} {
				if err := d.Synchronize(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, way := range [][2]device.Device{{b, a}, {a, b}} {
				if s, err := cuda.PeerCopies(way[0], way[1]); err != nil || s.Copies == 0 || s.Direct != peer {
					t.Errorf("%s: %+v, %v", name, s, err)
				}
			}
		}
	}
}

// TestPeerSourceWaits frees the source of a copy to another GPU. The source's memory must not be
// reused until the copy is done.
func TestPeerSourceWaits(t *testing.T) {
	for _, peer := range []bool{true, false} {
		a, b := twoGPUs(t, peer, "") // without a seed, work runs only when something waits for it
		address := func() uintptr {
			buf, err := a.Alloc(4000, nil, device.Origin{Op: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer buf.Free()
			return buf.Addr()
		}
		first := address()
		if address() != first {
			t.Fatal("the pool does not hand the same block out again")
		}
		x := tensor.Root().On(a).Full(1, 1000)
		if err := a.Synchronize(); err != nil {
			t.Fatal(err)
		}
		y := x.To(b)
		x.Free()
		if address() == first {
			t.Error("the source's memory is handed out under the copy")
		}
		if err := b.Synchronize(); err != nil {
			t.Fatal(err)
		}
		if address() != first {
			t.Error("the source's memory does not come back after the copy")
		}
		if v := y.Sum().Item(); v != 1000 {
			t.Errorf("the sum of the copy is %v", v)
		}
	}
}

// TestPeerCopyFails copies to a GPU without free memory, and from a GPU that has failed. The error
// must name the GPU that causes it, and the other GPU must still work.
func TestPeerCopyFails(t *testing.T) {
	for _, peer := range []bool{true, false} {
		a, b := twoGPUs(t, peer, "")
		x := tensor.Root().On(a).Full(2, 500)
		if err := b.FailAlloc(1); err != nil {
			t.Fatal(err)
		}
		err := tensor.Try(func() { x.To(b) })
		if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "cuda:1") {
			t.Errorf("out of memory on the target: %v", err)
		}
		if s, err := cuda.PeerCopies(b, a); s.Copies != 0 || err != nil {
			t.Errorf("%+v, %v", s, err)
		}
		if v := x.To(b).Sum().Item(); v != 1000 {
			t.Errorf("the copy afterwards has the sum %v", v)
		}

		err = tensor.Try(func() { x.Add(x.To(b)) })
		var e *tensor.Error
		if !errors.As(err, &e) || !errors.Is(err, tensor.ErrDevice) || !strings.Contains(err.Error(), "cuda:0") || !strings.Contains(err.Error(), "cuda:1") {
			t.Errorf("operands of two GPUs: %v", err)
		}

		// cuda:0 fails permanently. A copy of its tensor that was made before still exists, and
		// cuda:1 still works.
		y := x.To(b)
		if err := b.Synchronize(); err != nil {
			t.Fatal(err)
		}
		k, err := cuda.NewKernel(&ptx.Kernel{Name: "stop", Text: stopPTX}, cuda.KernelConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Launch(nil, k, [3]int{}); err != nil {
			t.Fatal(err)
		}
		var f *device.Fault
		access := func(when string) {
			t.Helper()
			for _, set := range []func(dev, peer device.Device) error{cuda.DisablePeerAccess, cuda.EnablePeerAccess} {
				if err := set(b, a); !errors.As(err, &f) || f.Device != "cuda:0" {
					t.Errorf("access to a GPU that has failed, %s: %v", when, err)
				}
			}
		}
		// the copy on cuda:1 waits for cuda:0, which has failed, but the host does not know it yet
		if peer {
			ev, err := a.DefaultStream().Record()
			if err == nil {
				err = b.DefaultStream().Wait(ev)
			}
			if err == nil {
				err = b.Synchronize()
			}
			if err != nil {
				t.Fatal(err)
			}
			access("and nobody knows")
		}
		if err := a.Synchronize(); !errors.As(err, &f) || !f.Sticky {
			t.Errorf("the GPU that fails: %v", err)
		}
		access("as is known")
		if err := tensor.Try(func() { x.To(b) }); !errors.As(err, &f) || f.Device != "cuda:0" {
			t.Errorf("a copy from a GPU that has failed: %v", err)
		}
		if v := y.Sum().Item(); v != 1000 {
			t.Errorf("the sum on the other GPU is %v", v)
		}
	}
}

const stopPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry stop() { trap; }
`

// TestPeerAccessOnAndOff disables and enables peer access. Copies must pass through the host
// without peer access, and be direct with it.
func TestPeerAccessOnAndOff(t *testing.T) {
	a, b := twoGPUs(t, true, "")
	x := tensor.Root().On(a).Full(2, 500)
	copied := func(direct bool, reason string) {
		t.Helper()
		if v := x.To(b).Sum().Item(); v != 1000 {
			t.Errorf("the sum of the copy is %v", v)
		}
		if s, err := cuda.PeerCopies(b, a); err != nil || s.Direct != direct || s.Reason != reason {
			t.Errorf("%+v, %v", s, err)
		}
	}
	for range 2 {
		if err := errors.Join(cuda.EnablePeerAccess(b, a), cuda.EnablePeerAccess(b, a)); err != nil {
			t.Fatal(err)
		}
		copied(true, "")
		if err := errors.Join(cuda.DisablePeerAccess(b, a), cuda.DisablePeerAccess(b, a)); err != nil {
			t.Fatal(err)
		}
		copied(false, "DisablePeerAccess was called")
	}
	var v *device.OperandError
	if err := cuda.EnablePeerAccess(a, a); !errors.As(err, &v) {
		t.Errorf("itself: %v", err)
	}
	if err := cuda.DisablePeerAccess(a, nil); !errors.As(err, &v) {
		t.Errorf("nil: %v", err)
	}
	a, b = twoGPUs(t, false, "")
	var p *cuda.PeerError
	if err := cuda.EnablePeerAccess(b, a); !errors.As(err, &p) || p.Device != "cuda:1" || p.Peer != "cuda:0" {
		t.Errorf("peer=off: %v", err)
	}
	if err := cuda.DisablePeerAccess(b, a); err != nil {
		t.Errorf("peer=off: %v", err)
	}
}

// TestPeerTransfers checks that a profile has a row for the copies between GPUs, with their time.
// The row must say whether the copies were direct.
func TestPeerTransfers(t *testing.T) {
	times := map[bool]float64{}
	for _, peer := range []bool{true, false} {
		a, b := twoGPUs(t, peer, "")
		x := tensor.Root().On(a).Full(2, 1<<18)
		p, err := profile.Start(profile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			x.To(b).Free()
		}
		if err := errors.Join(b.Synchronize(), p.Stop()); err != nil {
			t.Fatal(err)
		}
		want := "PtoP"
		if !peer {
			want = "PtoP staged"
		}
		list := p.Transfers()
		i := slices.IndexFunc(list.Rows, func(r profile.Transfer) bool { return strings.HasPrefix(r.What, "PtoP") })
		if i < 0 {
			t.Fatalf("no row for the copies: %+v", list.Rows)
		}
		r := list.Rows[i]
		if r.What != want || r.Count != 3 || r.Bytes != 3<<20 || r.Device != "cuda:1" || r.Blocked || !strings.Contains(r.Site, "peer_test.go") {
			t.Errorf("%+v", r)
		}
		if strings.Contains(list.Table(), "cuda.PeerCopies says why") == peer {
			t.Errorf("peer %v: the table says\n%s", peer, list.Table())
		}
		times[peer] = r.GPU.Seconds()
	}
	// without peer access, data is copied twice at 25 GB/s, otherwise once at 450 GB/s
	if ratio := times[false] / times[true]; math.IsNaN(ratio) || ratio < 10 {
		t.Errorf("staged copies take %.1f times as long", ratio)
	}
}

// TestPeerEvents makes a stream of one GPU wait for an event of another GPU, in both directions.
// Without the wait, some schedule must give another result.
func TestPeerEvents(t *testing.T) {
	const n = 1024
	run := func(seed int, wait bool) []byte {
		a, b := twoGPUs(t, true, fmt.Sprint(",seed=", seed))
		buffer := func(d *cuda.Device, v byte) device.Buffer {
			buf, err := d.Alloc(n, nil, device.Origin{Op: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Upload(nil, buf, 0, bytes.Repeat([]byte{v}, n)), d.Synchronize()); err != nil {
				t.Fatal(err)
			}
			return buf
		}
		old, ones, src, dst := buffer(a, 7), buffer(a, 1), buffer(a, 7), buffer(b, 9)
		var sa, sb cuda.Stream
		var made, taken *cuda.Event
		var e [4]error
		sa, e[0] = cuda.NewStream(a, 0)
		sb, e[1] = cuda.NewStream(b, 0)
		made, e[2] = cuda.NewEvent(a)
		taken, e[3] = cuda.NewEvent(b)
		if err := errors.Join(e[:]...); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(a.CopyFrom(sa, src, 0, ones, 0, n), made.Record(sa))
		if wait {
			err = errors.Join(err, sb.Wait(made))
		}
		err = errors.Join(err, b.CopyFrom(sb, dst, 0, src, 0, n), taken.Record(sb))
		if wait {
			err = errors.Join(err, sa.Wait(taken))
		}
		out := make([]byte, n)
		err = errors.Join(err, a.CopyFrom(sa, src, 0, old, 0, n), b.Download(sb, out, dst, 0), a.Synchronize())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want, differs := bytes.Repeat([]byte{1}, n), 0
	for seed := 1; seed < 25; seed++ {
		if got := run(seed, true); !bytes.Equal(got, want) {
			t.Errorf("seed %d: the copy brings %d … %d", seed, got[0], got[n-1])
		}
		if !bytes.Equal(run(seed, false), want) {
			differs++
		}
	}
	if differs == 0 {
		t.Error("without events every schedule brings the same: the test shows nothing")
	}
}
