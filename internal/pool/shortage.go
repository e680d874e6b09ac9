package pool

import "github.com/flambeau-go/flambeau/device"

var _ device.ShortageError = (*OOMError)(nil)

// Shortage gives the numbers in the form of the device contract.
func (e *OOMError) Shortage() device.Shortage {
	s := device.Shortage{Device: e.Device, Asked: int(e.Asked), For: e.For.Describe(), Total: int(e.Total), Free: int(e.Free), Limit: int(e.Limit),
		Reserved: int(e.Reserved), Allocated: int(e.Allocated + e.Pending)}
	for _, o := range e.Owners {
		s.Owners = append(s.Owners, o.String())
	}
	return s
}
