package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/device"
)

var _ device.MetaDriver = driver{}

// OpenMeta returns a new emulated GPU in mode=meta, which has addresses but no memory.
func (driver) OpenMeta(c device.MetaConfig) (device.Device, error) {
	cfg := emu.Config{Memory: uint64(max(c.Memory, 0)), SM: 10*c.Capability[0] + c.Capability[1], Meta: true}
	if c.Memory == 0 {
		cfg.Memory = emu.MaxMemory
	}
	d, err := openMeta(cfg)
	if err != nil {
		return nil, explain(err)
	}
	return d, nil
}

func openMeta(cfg emu.Config) (*Device, error) {
	api, err := emu.New(cfg)
	if err != nil {
		return nil, err
	}
	p, err := newPlatform(api)
	if err != nil {
		return nil, err
	}
	return p.open(0)
}

// noValues wraps an error of mode=meta. errors.Is finds both [device.ErrNoValues] and the cause in
// it.
type noValues struct{ err error }

func (e *noValues) Error() string {
	return fmt.Sprintf("%v: an emulated GPU in mode=meta counts work and does none", device.ErrNoValues)
}

// Unwrap returns [device.ErrNoValues] and the cause.
func (e *noValues) Unwrap() []error { return []error{device.ErrNoValues, e.err} }
