package device

import "context"

// Rehearser is satisfied by devices that load the code of a kernel when the kernel is first used.
// Loading takes long if the driver must compile the code. To load all kernels beforehand, a program
// first runs its work on a device without memory, the rehearsal. The rehearsal keeps a list of the
// kernels that the work needs.
type Rehearser interface {
	Device
	// Rehearsal returns a new device without memory, as [OpenMeta] does. It uses the same kernels
	// as this device and keeps a list of them.
	Rehearsal() (Device, error)
	// Load loads the kernels that rehearsal has used and that this device has not loaded yet.
	// rehearsal must be a result of Rehearsal. Load loads several kernels at the same time, and
	// returns when all are loaded or when ctx ends. It calls progress, which may be nil, with the
	// number of loaded kernels and the number of all kernels. The calls of progress do not overlap.
	// If the driver refuses a kernel, Load still loads the other kernels, and then returns the
	// driver's error. If ctx ends first, Load returns the error of ctx.
	Load(ctx context.Context, rehearsal Device, progress func(done, all int)) error
}
