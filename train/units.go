package train

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// Units says which units of a GPU do the operations of a step, counted as [FLOPs] are. Tensor,
// Float64 and Other add up to all of them. On a CPU all are zero.
type Units struct {
	Tensor  int // on the tensor cores
	Float64 int // in float64
	Other   int // the rest: in float32 and narrower, and in integers
	// Products is, of Float64 and Other, what matrix products take that no tensor core does. In
	// float32 that is all of them, as products are IEEE's; in mixed precision it is what is missed.
	Products int
	// Issued is what the tensor cores' instructions do for Tensor, the padding of tiles included.
	Issued int
}

// issued is what the tensor cores' instructions do for a primitive, 0 if it has none.
func issued(k *device.KernelEvent) (flops int) {
	for i := range k.Launches {
		flops += k.Launches[i].Tensor
	}
	return flops
}

// takesTF32 reports whether the factors of a primitive's products are TF32.
func takesTF32(k *device.KernelEvent) bool {
	return slices.ContainsFunc(k.Launches, func(l device.LaunchEvent) bool { return l.TF32 })
}

// count adds a primitive that runs on a GPU.
func (u *Units) count(k *device.KernelEvent) {
	f := k.Work.FLOPs
	switch n := issued(k); {
	case n > 0: // what is beyond is not a product's: a bias, an activation
		u.Tensor += min(f, n)
		u.Other += max(0, f-n)
		u.Issued += n
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
