package train

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// Units holds the operations of a step by the kind of GPU unit that does them, counted as in
// [FLOPs]. Tensor, Float64 and Other add up to all operations. On a CPU all fields are zero.
type Units struct {
	Tensor  int // operations on the tensor cores
	Float64 int // operations in float64
	Other   int // all other operations: float32, narrower types, and integers
	// Products counts the operations in Float64 and Other that belong to matrix products. In
	// float32 without TF32 these are all matrix products. In mixed precision they are the products
	// that do not use the tensor cores.
	Products int
	// Issued is the number of operations that tensor-core instructions do, including operations on
	// padding.
	Issued int
}

// issued returns the number of operations of a primitive's tensor-core instructions, or 0 if it has
// none.
func issued(k *device.KernelEvent) (flops int) {
	for i := range k.Launches {
		flops += k.Launches[i].Tensor
	}
	return flops
}

// takesTF32 reports whether the factors of a primitive's products are rounded to TF32.
func takesTF32(k *device.KernelEvent) bool {
	return slices.ContainsFunc(k.Launches, func(l device.LaunchEvent) bool { return l.TF32 })
}

// count adds a primitive's operations on a GPU.
func (u *Units) count(k *device.KernelEvent) {
	f := k.Work.FLOPs
	switch n := issued(k); {
	// The tensor cores did n operations. The others belong to a bias or an activation.
	case n > 0:
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

// countGPU adds a primitive's launches and operations on a GPU to the report.
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
