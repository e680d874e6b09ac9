package device

import "errors"

// ErrNoValues is wrapped by the error of every read of a value on a device without memory, such as
// one that [OpenMeta] returns.
var ErrNoValues = errors.New("the device has addresses without memory, so there are no values")

// MetaConfig describes a device without memory.
type MetaConfig struct {
	Memory     int    // limit of the bytes in use; 0 means 4 TiB
	Capability [2]int // compute capability of a GPU; [0, 0] means 9.0
}

// MetaDriver is a driver that also has devices without memory.
type MetaDriver interface {
	Driver
	// OpenMeta returns a new device that has addresses without memory. Programs call the function
	// OpenMeta of this package.
	OpenMeta(MetaConfig) (Device, error)
}

// OpenMeta returns a new device of a kind ("cuda", "cpu") that has addresses without memory:
// PyTorch's device "meta" with an allocator. A program runs on it as on other devices of the kind,
// with the same kernels and the same allocations, up to the limit of its memory. A run needs hardly
// any time or memory, because work is only counted. Reading a value fails with an error that wraps
// [ErrNoValues]. Item reads a value, and so does an op whose result's shape depends on values, such
// as NonZero. Stats returns how much memory the program would use.
//
// The device has the name of the kind's first device, but [Open] does not return it. The garbage
// collector releases it when it is unreachable. The error is an *[UnavailableError].
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
