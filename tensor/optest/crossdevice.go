package optest

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// These rows test the ops between devices with all operands on one device, in all types and
// layouts, with gradients. A test that counts copies uses these rows to show that no data goes
// through the host. Tests of package tensor run these ops on several devices.
func init() {
	functions = append(functions, "GatherToDevice", "ReduceAddToDevice")
	rowTables = append(rowTables, func() []row {
		devs := func(x *tt, n int) (list []device.Device) {
			for range n {
				list = append(list, x.Device())
			}
			return list
		}
		sum := func(x []array) array {
			y := x[0].clone()
			for _, a := range x[1:] {
				for i := range y.v {
					y.v[i] += a.v[i]
				}
			}
			return y
		}
		gather := func(dim, axis int, in ...[]int) row {
			return row{op: "gather_to_device", methods: []string{"GatherToDevice"}, in: in, ints: true, ref: catRef(axis),
				call: func(x []*tt) *tt { return tensor.GatherToDevice(dim, x[0].Device(), x...) }}
		}
		return []row{
			one("broadcast_to_devices", "BroadcastToDevices", []int{3, 2},
				func(x *tt) *tt { return joined(x.BroadcastToDevices(devs(x, 3)...)) },
				func(x array) array { return joinedArrays(x, x, x) }),
			one("scatter_to_devices", "ScatterToDevices", []int{2, 5},
				func(x *tt) *tt { return joined(x.ScatterToDevices(-1, devs(x, 3))[1:]) },
				func(x array) array { return joinedArrays(x.narrow(1, 2, 2), x.narrow(1, 4, 1)) }),
			one("scatter_to_devices", "ScatterToDevices", []int{5, 2},
				func(x *tt) *tt { return joined(x.ScatterToDevices(0, devs(x, 3), 1, 0, 4)) },
				func(x array) array { return x.reshape(10) }),
			gather(0, 0, []int{2, 3}, []int{1, 3}),
			gather(-1, 1, []int{2, 3}, []int{2, 0}, []int{2, 2}),
			{op: "gather_to_device", methods: []string{"GatherToDevice"}, in: [][]int{{}, {}}, ints: true,
				call: func(x []*tt) *tt { return tensor.GatherToDevice(0, x[0].Device(), x...) },
				ref:  func(x []array) array { return joinedArrays(x...) }},
			{op: "reduce_add_to_device", methods: []string{"ReduceAddToDevice"}, in: [][]int{{2, 3}, {2, 3}, {2, 3}}, ints: true, noBool: true,
				call: func(x []*tt) *tt { return tensor.ReduceAddToDevice(x[0].Device(), x...) }, ref: sum, terms: absAll(sum), rounds: true},
		}
	})
}
