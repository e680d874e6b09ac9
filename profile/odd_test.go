package profile_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// sane checks conditions that hold for every profile. Self times are at most total times, layers
// add up to the whole, and reports and files can be written.
func sane(t *testing.T, p *profile.Profile) {
	t.Helper()
	all, by := p.KeyAverages(), p.KeyAverages(profile.ByModule())
	for _, r := range append(all.Rows, by.Rows...) {
		if r.CPUSelf < 0 || r.CPUSelf > r.CPUTotal || r.CUDASelf > r.CUDATotal || r.Count < 0 {
			t.Errorf("%+v", r)
		}
	}
	if a, b := all.Total(), by.Total(); !nearTime(a.CPUSelf, b.CPUSelf) || a.FLOPs != b.FLOPs {
		t.Errorf("layers sum to %+v, all to %+v", b, a)
	}
	if p.Report() == "" {
		t.Error("no report")
	}
	dir := t.TempDir()
	for _, name := range []string{"a.json", "a.pb.gz", "a.stacks"} {
		if err := p.WriteFile(dir + "/" + name); err != nil {
			t.Error(err)
		}
	}
}

// TestStopElsewhere lets several goroutines train on several devices and step the profile, while
// another goroutine stops it. All calls of Stop must return the same result, and the recording must
// be complete.
func TestStopElsewhere(t *testing.T) {
	devs, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	trainers := []*trainer{newTrainer(devs[0]), newTrainer(devs[1]), newTrainer(open(t))}
	p, err := profile.Start(profile.Options{Memory: true, Shapes: true, Stacks: true})
	if err != nil {
		t.Fatal(err)
	}
	var training, stopping sync.WaitGroup
	var done atomic.Bool
	var steps [3]atomic.Int32
	for i, tr := range trainers {
		training.Go(func() {
			for n := 0; !done.Load() || n < 2; n++ {
				tr.step()
				steps[i].Add(1)
				if err := p.Step(); err != nil && !errors.Is(err, profile.ErrStopped) {
					t.Error(err)
				}
			}
		})
	}
	for i := range steps { // wait until every goroutine has begun
		for steps[i].Load() == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	for range 3 {
		stopping.Go(func() {
			if err := p.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
	stopping.Wait()
	done.Store(true)
	training.Wait()
	for i, d := range []string{"cuda:0", "cuda:1"} {
		found := false
		for _, r := range p.Roofline().Rows {
			found = found || r.Device == d
		}
		if !found {
			t.Errorf("after %d steps there is nothing of %s", steps[i].Load(), d)
		}
	}
	sane(t, p)
	idle(t)
}

// TestPanicInSpan panics inside spans and ops, and leaves one span open. Later events must still
// belong to the right spans.
func TestPanicInSpan(t *testing.T) {
	p := recorded(t, profile.Options{Stacks: true}, func(*profile.Profile) {
		outer := profile.Span("outer")
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			defer profile.Span("closed")()
			_ = profile.Span("left open")
			tensor.Ones(2, 3).MatMul(tensor.Ones(2, 3))
		}()
		tensor.Ones(2).Add(tensor.Ones(2))
		outer()
		tensor.Ones(2).Sub(tensor.Ones(2))
	})
	a := p.KeyAverages()
	for _, key := range []string{"outer", "closed", "left open", "add", "sub"} {
		if r := rowOf(t, a, key); r.Count != 1 {
			t.Errorf("%+v", r)
		}
	}
	outer := rowOf(t, a, "outer")
	if outer.FLOPsTotal != rowOf(t, a, "add").FLOPs || rowOf(t, a, "closed").FLOPsTotal != 0 || rowOf(t, a, "closed").CPUTotal > outer.CPUTotal {
		t.Errorf("%+v", a.Rows)
	}
	sane(t, p)
}

// TestOutOfMemoryStep lets a step run out of memory and repeats the step with the batch in
// halves. The memory of the failed attempt must be freed within the step. The profile must have
// both halves, and the copies for which the step waited.
func TestOutOfMemoryStep(t *testing.T) {
	devs, err := cuda.Emulate("emulate,mem=1MiB,segment=64KiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := devs[0]
	step := func(rows int) error {
		return tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Randn(rows, 128).RequiresGrad()
				x.Exp().Square().Sum().Backward()
			}, tensor.On(dev), tensor.Named("step"))
		})
	}
	p := recorded(t, profile.Options{Memory: true}, func(*profile.Profile) {
		if err := step(1024); !errors.Is(err, device.ErrOutOfMemory) {
			t.Fatalf("half a MiB a tensor: %v", err)
		}
		for range 2 {
			if err := step(64); err != nil {
				t.Fatal(err)
			}
		}
	})
	a := p.KeyAverages()
	if r := rowOf(t, a, "step"); r.Count != 3 || r.CUDAMemory != 0 || r.CUDATotal <= 0 {
		t.Errorf("%+v", r)
	}
	if r := rowOf(t, a, "SumBackward"); r.Count != 2 {
		t.Errorf("%+v", r)
	}
	sane(t, p)
}

// TestDeviceFails makes a device fail during a profile, so that the latest times are lost. Reports
// must say how many times are missing, Stop must return, and the next profile must work.
func TestDeviceFails(t *testing.T) {
	b := ptx.New("beyond")
	b.MaxThreads(128)
	y := b.Pointer("y", ptx.F32)
	v := y.At(b.GlobalID())
	v.Store(v.Load())
	built, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := cuda.NewKernel(built, cuda.KernelConfig{Block: [3]int{128}})
	if err != nil {
		t.Fatal(err)
	}
	devs, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	p := recorded(t, profile.Options{Memory: true}, func(p *profile.Profile) {
		x := tensor.Root().On(devs[0]).Ones(64)
		x.AddScalar(1)
		if err := p.Step(); err != nil {
			t.Error(err)
		}
		if err := tensor.Try(func() {
			tensor.Raw("beyond", []*tensor.Tensor{x}, nil, func(s device.Stream, outs, _ []device.View) error {
				return s.Device().(*cuda.Device).Launch(s, k, [3]int{1 << 14}, outs[0])
			})
			x.Sum().Item()
		}); err == nil {
			t.Error("writing beyond the memory works")
		}
		if err := p.Step(); err != nil {
			t.Error(err)
		}
		tensor.Root().On(devs[1]).Ones(64).Sum().Item()
	})
	table, err := p.KeyAverages().Table()
	if err != nil || !strings.Contains(table, "have no time: the device gave none") {
		t.Errorf("%v\n%s", err, table)
	}
	sane(t, p)
	again := recorded(t, profile.Options{}, func(*profile.Profile) { tensor.Root().On(devs[1]).Ones(64).Sum().Item() })
	if again.KeyAverages().Total().CUDASelf <= 0 {
		t.Error("the other device has no times")
	}
}

// TestManyEvents records more than MaxEvents events. The profile must drop the rest and say how
// many it dropped.
func TestManyEvents(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 50_000
	}
	const kept = 20_000
	before := heap()
	var held int
	p := recorded(t, profile.Options{Stacks: true, MaxEvents: kept}, func(p *profile.Profile) {
		for i := range n {
			profile.Span("x")()
			if i%100_000 == 0 {
				if err := p.Step(); err != nil {
					t.Fatal(err)
				}
			}
		}
		held = heap() - before
	})
	if held < kept*100 || held > kept*400 {
		t.Errorf("%d bytes are held for %d events", held, kept)
	}
	if r := rowOf(t, p.KeyAverages(), "x"); r.Count != kept {
		t.Errorf("%d events are kept", r.Count)
	}
	if table, err := p.KeyAverages().Table(); err != nil || !strings.Contains(table, fmt.Sprintf("%d events were dropped: there was room for %d", n-kept, kept)) {
		t.Errorf("%v\n%s", err, table)
	}
}
