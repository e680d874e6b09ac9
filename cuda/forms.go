package cuda

import (
	"slices"

	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
)

// takes reports whether the device and its driver take the kernel's code.
func (d *Device) takes(k *kernels.Kernel) bool {
	return (k.Target == d.sm || !k.Exact && k.Target < d.sm) && k.Version <= d.ptx
}

// form returns what the device runs for k: of the forms that it takes that for the highest target,
// an exact one before one that later devices run too. It is k itself where it takes none.
func (d *Device) form(k *kernels.Kernel) *kernels.Kernel {
	best, takes := k, len(k.Forms) > 0 && d.takes(k)
	for _, f := range k.Forms {
		if d.takes(f) && (!takes || f.Target > best.Target || f.Target == best.Target && f.Exact && !best.Exact) {
			best, takes = f, true
		}
	}
	return best
}

// Forms returns a kernel that is k or one of the others, which do the same for other targets (see
// [ptx.Builder.Target]): each device runs the most specific that it takes. All have the parameters
// of k and its block; their dynamic shared memory may differ. The error is a *[KernelError].
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
