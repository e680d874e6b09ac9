package train

import "github.com/flambeau-go/flambeau/device"

// Units says which units of a GPU do the operations of a step, counted as [FLOPs] are. Tensor,
// Float64 and Other add up to all of them. On a CPU all are zero.
type Units struct {
	Tensor  int // on the tensor cores: of primitives whose kernels multiply there
	Float64 int // in float64
	Other   int // the rest: in float32 and narrower, and in integers
	// Products is, of Float64 and Other, what matrix products take that no tensor core does. In
	// float32 that is all of them, as products are IEEE's; in mixed precision it is what is missed.
	Products int
	// Issued is what the tensor cores' instructions do for Tensor, the padding of tiles included.
	Issued int
}

// isTensor reports whether a primitive's kernels multiply on the tensor cores.
func isTensor(k *device.KernelEvent) bool {
	for i := range k.Launches {
		if k.Launches[i].Tensor > 0 {
			return true
		}
	}
	return false
}

// count adds a primitive that runs on a GPU.
func (u *Units) count(k *device.KernelEvent) {
	f := k.Work.FLOPs
	switch {
	case isTensor(k):
		u.Tensor += f
		for i := range k.Launches {
			u.Issued += k.Launches[i].Tensor
		}
		return
	case isDouble(k):
		u.Float64 += f
	default:
		u.Other += f
	}
	if k.Class == device.ByProducts {
		u.Products += f
	}
}

// countGPU adds what a GPU does for a primitive to the report.
func (t *planTrace) countGPU(k *device.KernelEvent) {
	r := t.report
	r.Launches += len(k.Launches)
	for i := range k.Launches {
		t.modules[k.Launches[i].Kernel] = true
	}
	r.Units.count(k)
	for i := range gpus {
		r.Least[gpus[i].Name] += gpus[i].roofline(k)
	}
}
