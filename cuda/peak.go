package cuda

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.Peaker = (*Device)(nil)

// unitsOf returns two numbers for one multiprocessor. The result lanes is the number of its float32
// arithmetic units. The result tensor is the number of multiply-adds that its tensor cores do in a
// clock cycle, for dense 16-bit matrices with sums in float32. The sources are the tables
// "Arithmetic Instructions" and "Compute Capability" of NVIDIA's CUDA C++ Programming Guide, and
// NVIDIA's architecture papers on A100, GA102, H100 and B200. For 8.7 the source is the Jetson AGX
// Orin technical brief. It states 170 sparse INT8 TOPS for 16 multiprocessors at 1.3 GHz, which
// amounts to 1024 dense 16-bit multiply-adds a cycle for one multiprocessor. Dense matrices have
// half the rate of sparse ones, 16 bits half the rate of 8 bits, and a multiply-add counts as two
// operations. GeForce GPUs add in float32 at half the rate (appendix A of the papers on GA102 and
// Ada). A newer architecture counts as the newest architecture in this table.
func unitsOf(sm int, product string) (lanes, tensor int) {
	if tensor = 512; strings.Contains(product, "GeForce") {
		tensor = 256
	}
	switch {
	case sm < 86:
		return 64, 1024
	case sm == 87:
		return 128, 1024
	case sm < 90:
		return 128, tensor
	case sm < 100:
		return 128, 2048
	case sm < 120:
		return 128, 4096
	}
	return 128, tensor
}

// Peak returns the GPU's peak rates, computed from the clocks, multiprocessors and memory bus that
// the driver reports. For an emulated GPU it returns the rates of the cost model. If the driver
// does not report the memory's clock rate, Peak returns an error.
func (d *Device) Peak() (device.Peak, error) {
	if r, ok := d.api.(cu.Rated); ok {
		warps, bytes := r.Rates()
		return device.Peak{FLOPs: warps * 32 * 2, Bytes: bytes, Source: "the emulator's cost model"}, nil
	}
	var v [3]int
	for i, a := range []cu.DeviceAttr{cu.AttrClockRate, cu.AttrMemoryClockRate, cu.AttrGlobalMemoryBusWidth} {
		n, err := d.api.DeviceAttribute(d.h, a)
		if err != nil {
			return device.Peak{}, d.fault("", err)
		}
		if n <= 0 {
			return device.Peak{}, fmt.Errorf("cuda: the driver does not tell the clocks and the memory bus of %s", d)
		}
		v[i] = n
	}
	lanes, tensor := unitsOf(d.sm, d.info.Name)
	clock := float64(v[0]) * 1e3 * float64(d.info.Cores)
	// The memory transfers data on both edges of its clock, hence the factor 2.
	return device.Peak{FLOPs: 2 * float64(lanes) * clock, Half: 2 * float64(tensor) * clock, Bytes: 2 * float64(v[1]) * 1e3 * float64(v[2]) / 8,
		Source: "clocks, multiprocessors and memory bus as the driver tells them"}, nil
}
