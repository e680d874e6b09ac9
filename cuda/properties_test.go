package cuda

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
)

func TestProperties(t *testing.T) { onBoth(t, "emulate,mem=16MiB,sm=86", testProperties) }

func testProperties(t *testing.T, d *Device) {
	p, err := DeviceProperties(d)
	must(t, err)
	major, minor := DeviceCapability(d)
	in := d.Info()
	if p.Name != DeviceName(d) || p.Name != in.Name || p.Major != major || p.Minor != minor || p.TotalMemory != in.Memory || p.Multiprocessors != in.Cores || p.Emulated != in.Emulated {
		t.Errorf("%+v does not agree with %+v", p, in)
	}
	if p.WarpSize != 32 || p.MaxThreadsPerBlock != 1024 || p.MaxThreadsPerSM < 1024 || p.SharedMemoryPerBlock < 48<<10 || p.SharedMemoryPerBlockMax < p.SharedMemoryPerBlock ||
		p.SharedMemoryPerSM < p.SharedMemoryPerBlockMax || p.L2Cache == 0 || p.ClockRate == 0 || p.MemoryBusWidth == 0 || p.MemoryBandwidth() < 1e9 || p.RegistersPerSM != 64<<10 ||
		p.MaxBlockDim != [3]int{1024, 1024, 64} || p.MaxGridDim != [3]int{1<<31 - 1, 65535, 65535} || !p.UnifiedAddressing || p.StreamPriorityLevel < 2 {
		t.Errorf("%+v", p)
	}
	if len(p.UUID) != len("GPU-01234567-0123-0123-0123-0123456789ab") || !strings.HasPrefix(p.UUID, "GPU-") || strings.Count(p.PCIBusID, ":") != 2 {
		t.Errorf("UUID %q, bus %q", p.UUID, p.PCIBusID)
	}
	free, total, err := MemGetInfo(d)
	if err != nil || total != in.Memory || free > total {
		t.Errorf("%d of %d bytes are free, %v", free, total, err)
	}
	x := floats(t, d, nil, fill(1, 1<<20)...)
	if now, _, err := MemGetInfo(d); err != nil || in.Emulated && now > free-4<<20 {
		t.Errorf("%d bytes are free after an allocation of 4 MiB, before %d, %v", now, free, err)
	}
	x.Buf.Free()
	if !IsBF16Supported(d) || !IsTF32Supported(d) || ArchList()[0] != "compute_80" {
		t.Error("a GPU that can be opened has compute capability 8.0")
	}
}

// TestNotAGPU checks that the error for a device that is not a GPU names that device.
func TestNotAGPU(t *testing.T) {
	d := emulated(t, "emulate,mem=4MiB")
	other := emulated(t, "emulate,mem=4MiB")
	host, err := device.Open("cpu")
	must(t, err)
	var none *Device
	errs := map[string]func() error{
		"cpu is not a GPU": func() error { _, err := DeviceProperties(host); return err },
		"nil is not a GPU": func() error { _, _, err := MemGetInfo(nil); return err },
		"device: nil is":   func() error { _, _, err := MemGetInfo(none); return err },
		"another driver":   func() error { _, err := CanDeviceAccessPeer(d, other); return err },
		"belongs to":       func() error { _, err := PeerCopies(d, other); return err },
		"peer copies":      func() error { _, err := PeerCopies(d, host); return err },
		"device name": func() (err error) {
			defer func() { err, _ = recover().(error) }()
			DeviceName(host)
			return nil
		},
	}
	for want, f := range errs {
		var v *device.OperandError
		if err := f(); !errors.As(err, &v) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a *device.OperandError with %q", err, want)
		}
	}
}

// peers is a driver with peer access between the devices that a test chooses.
type peers struct {
	cu.API
	mu      sync.Mutex
	can     bool
	refuse  error
	enabled int
}

func (p *peers) DeviceCanAccessPeer(a, b cu.Device) (bool, error) { return p.can, nil }

func (p *peers) CtxEnablePeerAccess(cu.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enabled++
	return p.refuse
}

// TestPeerAccess copies between two GPUs. The first copy must enable peer access, once for each
// direction, and PeerCopies must report it.
func TestPeerAccess(t *testing.T) {
	for _, c := range []struct {
		can     bool
		refuse  error
		direct  bool
		reason  string
		enabled int
	}{
		{false, nil, false, "cuda:1 cannot address memory of cuda:0", 0},
		{true, nil, true, "", 2},
		{true, &cu.Error{Call: "cuCtxEnablePeerAccess", Result: cu.ErrPeerAccessAlreadyEnabled}, true, "", 2},
		{true, &cu.Error{Call: "cuCtxEnablePeerAccess", Result: cu.ErrTooManyPeers}, false, "CUDA_ERROR_TOO_MANY_PEERS", 2},
	} {
		e, err := emu.New(emu.Config{Devices: 2, Memory: 4 << 20})
		must(t, err)
		api := &peers{API: e, can: c.can, refuse: c.refuse}
		p, err := newPlatform(api)
		must(t, err)
		list, err := p.all()
		must(t, err)
		a, b := list[0], list[1]
		if can, err := CanDeviceAccessPeer(b, a); can != c.can || err != nil {
			t.Errorf("%v, %v", can, err)
		}
		if can, err := CanDeviceAccessPeer(a, a); can || err != nil {
			t.Errorf("itself: %v, %v", can, err)
		}
		if s, err := PeerCopies(b, a); s != (PeerTraffic{}) || err != nil {
			t.Errorf("before the first copy: %+v, %v", s, err)
		}
		x := floats(t, a, nil, 1, 2, 3)
		must(t, a.Synchronize())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				y := empty(t, b, nil, 3)
				if err := b.CopyFrom(nil, y.Buf, 0, x.Buf, 0, 12); err != nil {
					t.Error(err)
				}
				z := empty(t, a, nil, 3)
				if err := errors.Join(b.Synchronize(), a.CopyFrom(nil, z.Buf, 0, y.Buf, 0, 12), a.Synchronize()); err != nil {
					t.Error(err)
				}
				check(t, a, nil, z, 1, 2, 3)
			})
		}
		wg.Wait()
		s, err := PeerCopies(b, a)
		if err != nil || s.Copies != 4 || s.Bytes != 48 || s.Direct != c.direct || !strings.Contains(s.Reason, c.reason) || (s.Reason == "") != c.direct {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
		if api.enabled != c.enabled {
			t.Errorf("%+v: enabled %d times, want %d", c, api.enabled, c.enabled)
		}
	}
}

func TestGet(t *testing.T) {
	defer func() {
		var u *device.UnavailableError
		if err, _ := recover().(error); !errors.As(err, &u) || u.Name != "cuda:99" {
			t.Errorf("Get of a GPU that is not there: %v", err)
		}
	}()
	if d := hardware(t); d != nil && (Get(0) != d || d.Index() != 0) {
		t.Error("Get gives another device")
	}
	Get(99)
}

func TestDriverVersion(t *testing.T) {
	v, err := DriverVersion()
	if Unavailable() != nil {
		var u *device.UnavailableError
		if !errors.As(err, &u) {
			t.Errorf("%q, %v", v, err)
		}
		return
	}
	if _, e := fmt.Sscanf(v, "%d.%d", new(int), new(int)); err != nil || e != nil {
		t.Errorf("%q, %v", v, err)
	}
}
