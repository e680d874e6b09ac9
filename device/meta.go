package device

import "errors"

// ErrNoValues is wrapped by the error of whatever would read a value on a device that has none: see
// [OpenMeta].
var ErrNoValues = errors.New("the device has addresses without memory, so there are no values")

// MetaConfig describes a device without memory.
type MetaConfig struct {
	Memory     int    // bytes that can be in use, 0 for 4 TiB
	Capability [2]int // compute capability of a GPU, zero for 9.0
}

// A MetaDriver is a driver that also has devices without memory.
type MetaDriver interface {
	Driver
	// OpenMeta returns a new device; see the function of this name.
	OpenMeta(MetaConfig) (Device, error)
}

// OpenMeta returns a new device of a kind ("cuda", "cpu") that has addresses without memory:
// PyTorch's device "meta" with an allocator. A program runs on it as on the others of its kind, by
// the same kernels and with the same allocations, up to what its memory holds. That takes hardly
// any time and memory, as work is counted and not done. What would read a value, such as Item or a
// shape that depends on data, fails with an error that wraps [ErrNoValues]. Stats tells what the
// program took.
//
// The device has the name of the kind's first, and is not what [Open] gives. It goes when nothing
// refers to it any more. The error is an *[UnavailableError].
func OpenMeta(kind string, c MetaConfig) (Device, error) {
	d, err := driver(kind, kind)
	if err != nil {
		return nil, err
	}
	m, ok := d.(MetaDriver)
	if !ok {
		return nil, &UnavailableError{Name: kind, Reason: "its driver has no devices without memory", Help: "those of cuda and cpu do"}
	}
	return m.OpenMeta(c)
}
