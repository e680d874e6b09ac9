package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

var _ device.Preparer = (*Device)(nil)

// PrepareMultiMap loads the kernel that runs p over groups of views; see [device.Preparer].
func (d *Device) PrepareMultiMap(p *expr.Program) error {
	list, err := kernels.MultiMap(p, 0, 1, 0)
	if err != nil {
		return err
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	for i := range list {
		if _, err := d.function(list[i].Kernel); err != nil {
			return err
		}
	}
	return nil
}
