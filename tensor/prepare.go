package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// PrepareUpdate does what [Update] with a program would do the first time on a device, where that takes memory: it loads the code. Updates
// that belong together are prepared before the first of them.
func PrepareUpdate(op string, p *expr.Program, dev device.Device) {
	if d, ok := dev.(device.Preparer); ok {
		check(op, d.PrepareMultiMap(p))
	}
}
