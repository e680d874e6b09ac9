package cuda

import (
	"slices"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
)

// canRun reports whether the device and its driver can run the kernel's code.
func (d *Device) canRun(k *kernels.Kernel) bool {
	return (k.Target == d.sm || !k.Exact && k.Target < d.sm) && k.Version <= d.ptx
}

// form returns the form of k that the device runs: the one with the highest target that the device
// supports. Among forms with that target, it prefers one that runs on this target only. If the
// device supports none of them, form returns k.
func (d *Device) form(k *kernels.Kernel) *kernels.Kernel {
	best, takes := k, len(k.Forms) > 0 && d.canRun(k)
	for _, f := range k.Forms {
		if d.canRun(f) && (!takes || f.Target > best.Target || f.Target == best.Target && f.Exact && !best.Exact) {
			best, takes = f, true
		}
	}
	return best
}

// Forms returns a kernel that consists of k and others. The other kernels must compute the same
// results as k, and are written for other targets (see [ptx.Builder.Target]). Each device runs the
// most specific form that it can. All forms have the parameters and the block of k; their dynamic
// shared memory may differ. The error is a *[KernelError].
func (k *Kernel) Forms(others ...*Kernel) (*Kernel, error) {
	own := *k.k
	own.Forms = slices.Clone(own.Forms)
	for _, o := range others {
		if !slices.Equal(o.params, k.params) {
			return nil, &KernelError{own.Name, "the form " + o.k.Name + " has other parameters"}
		}
		if o.k.Block != own.Block {
			return nil, &KernelError{own.Name, "the form " + o.k.Name + " has another block"}
		}
		own.Forms = append(own.Forms, o.k)
		own.Forms = append(own.Forms, o.k.Forms...)
	}
	return &Kernel{&own, k.params}, nil
}
