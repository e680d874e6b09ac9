package device

import "context"

// Rehearser is satisfied by devices that load code at its first use. Loading takes time if the
// driver has to compile the code. A program can first run on a device without memory to find the
// kernels that it needs. Then it loads these kernels before the work begins.
type Rehearser interface {
	Device
	// Rehearsal returns a new device without memory: see [OpenMeta]. It uses the same kernels as
	// this device and keeps a list of them.
	Rehearsal() (Device, error)
	// Load loads kernels on this device. Its second argument must be a result of Rehearsal. Load
	// loads the kernels that this rehearsal has used and that are not loaded yet. It loads several
	// kernels at the same time, and returns when all are loaded or when ctx ends. It calls
	// progress, which may be nil, with the number of loaded kernels and the number of all kernels.
	// These calls do not overlap. If the driver refuses a kernel, Load still loads the other
	// kernels, and then returns the driver's error. If ctx ends first, Load returns the error of
	// ctx.
	Load(ctx context.Context, rehearsal Device, progress func(done, all int)) error
}
