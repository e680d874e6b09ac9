package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
)

type driver struct{}

// Count returns the number of GPUs that the driver reports.
func (driver) Count() (int, error) {
	p, u := current()
	if u != nil {
		return 0, u
	}
	return p.count, nil
}

// Open returns device i.
func (driver) Open(i int) (device.Device, error) {
	d, err := Open(i)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Opened returns the opened device with the lowest index, or nil if none is open.
func (driver) Opened() device.Device {
	if p, _ := current(); p != nil {
		if d := p.opened(); d != nil {
			return d
		}
	}
	return nil
}

var _ device.OpenedDriver = driver{}

func init() { device.Register("cuda", driver{}) }

// IsAvailable reports whether there is a GPU that can be used; [Unavailable] says why not. It does
// not open a device.
func IsAvailable() bool { return Unavailable() == nil }

// DeviceCount returns the number of GPUs that the driver reports, 0 without a driver. Some of them
// may be too old to be opened.
func DeviceCount() int {
	n, _ := driver{}.Count()
	return n
}

// Open returns GPU i. Every call with the same i returns the same device. The first call creates
// the GPU's context, which takes NVIDIA's driver some time. The error is a
// *[device.UnavailableError].
func Open(i int) (*Device, error) {
	p, u := current()
	if u != nil {
		e := *u
		e.Name = deviceName(i)
		return nil, &e
	}
	return p.open(i)
}

// Unavailable returns nil if [IsAvailable] is true. Otherwise it returns a
// *[device.UnavailableError] that says why.
func Unavailable() error {
	p, u := current()
	if u != nil {
		return u
	}
	return p.unusable()
}

// unusable returns an error if no GPU of the platform is new enough.
func (p *platform) unusable() error {
	last := &device.UnavailableError{Name: "cuda", Reason: "the driver shows no GPU", Help: "check nvidia-smi and CUDA_VISIBLE_DEVICES"}
	for i := range p.count {
		c, err := p.capability(i)
		switch {
		case err != nil:
			last.Reason, last.Help, last.Err = err.Error(), "", err
		case c[0] > minCapability[0] || c[0] == minCapability[0] && c[1] >= minCapability[1]:
			return nil
		default:
			last.Reason = fmt.Sprintf("%s has compute capability %d.%d, %d.%d or more is needed", deviceName(i), c[0], c[1], minCapability[0], minCapability[1])
			last.Help = "use a GPU of the Ampere generation or newer, or the CPU"
		}
	}
	return last
}

// Emulate returns new emulated GPUs, for tests of code that runs on GPUs. They are independent of
// FLAMBEAU_CUDA and of the GPUs that other calls return. The specification has the form of
// FLAMBEAU_CUDA: "emulate" for one GPU, or "emulate:2,mem=64MiB,sm=80" for two. A seed other than 0
// runs streams in an adversarial order. If the specification is invalid, the error is a
// *[device.UnavailableError].
//
// The devices are named cuda:0, cuda:1, …, but device.Open does not return them.
func Emulate(spec string) ([]*Device, error) {
	api, err := newEmulator(spec)
	if err == nil {
		var p *platform
		if p, err = newPlatform(api); err == nil {
			return p.all()
		}
	}
	e := explain(err)
	return nil, e
}

func (p *platform) all() ([]*Device, error) {
	list := make([]*Device, p.count)
	for i := range list {
		d, err := p.open(i)
		if err != nil {
			return nil, err
		}
		list[i] = d
	}
	return list, nil
}
