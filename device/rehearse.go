package device

import "context"

// Rehearser is satisfied by devices that load code at its first use. Loading takes time if the
// driver has to compile the code. A program can run on a device without memory first, to find the
// kernels that it needs, and load them before the work begins.
type Rehearser interface {
	Device
	// Rehearsal returns a new device without memory (see [OpenMeta]). It uses the same kernels as
	// this device and remembers them.
	Rehearsal() (Device, error)
	// Load loads the kernels that rehearsal, a device that Rehearsal returned, has used and this
	// device has not loaded yet. It loads several at once, and returns when they are loaded or ctx
	// ends. It calls progress, which may be nil, with the number of kernels done and the number of
	// all; these calls do not overlap. If the driver refuses a kernel, Load loads the others all
	// the same and returns that error. Otherwise the error is ctx's.
	Load(ctx context.Context, rehearsal Device, progress func(done, all int)) error
}
