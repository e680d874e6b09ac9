package dist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
)

// DeviceList holds a device for each rank of a [Run].
type DeviceList struct {
	devices []device.Device
	err     error
}

// Devices opens a device for each rank. Names are those of [device.Open], such as "cuda:0" and
// "cuda:1". A name with a star stands for all devices of a kind: "cuda:*". Each "cpu" stands for a
// rank of the CPU: Devices("cpu", "cpu") opens cpu:0 and cpu:1. If a device cannot be opened, [Run]
// returns the error.
func Devices(names ...string) DeviceList {
	var l DeviceList
	if len(names) == 0 {
		return DeviceList{err: &Error{Op: "devices", Msg: "no device is named"}}
	}
	var all []string
	for _, name := range names {
		kind, every := strings.CutSuffix(name, ":*")
		if !every {
			all = append(all, name)
			continue
		}
		n, err := device.Count(kind)
		if err != nil {
			return DeviceList{err: err}
		}
		if n == 0 {
			return DeviceList{err: &device.UnavailableError{Name: name, Reason: "there is no " + kind + " device"}}
		}
		for i := range n {
			all = append(all, fmt.Sprintf("%s:%d", kind, i))
		}
	}
	shares := 0
	for _, name := range all {
		if name == "cpu" {
			for name = "cpu:0"; slices.Contains(all, name) || opened(l.devices, name); shares++ {
				name = fmt.Sprintf("cpu:%d", shares+1)
			}
		}
		d, err := device.Open(name)
		if err != nil {
			return DeviceList{err: err}
		}
		l.devices = append(l.devices, d)
	}
	l.err = distinct(l.devices)
	return l
}

func opened(list []device.Device, name string) bool {
	return slices.ContainsFunc(list, func(d device.Device) bool { return d.Name() == name })
}

// On makes a list of devices that are already open: see [Devices].
func On(devices ...device.Device) DeviceList {
	for i, d := range devices {
		if d == nil {
			return DeviceList{err: &Error{Op: "devices", Msg: fmt.Sprintf("device %d is nil", i)}}
		}
	}
	if len(devices) == 0 {
		return DeviceList{err: &Error{Op: "devices", Msg: "no device is given"}}
	}
	return DeviceList{devices: slices.Clone(devices), err: distinct(devices)}
}

// distinct returns an error unless all devices are different and of the same kind.
func distinct(devices []device.Device) error {
	for i, d := range devices {
		if k := slices.Index(devices, d); k < i {
			return &Error{Op: "devices", Msg: fmt.Sprintf("ranks %d and %d are both on %s; each has a device of its own", k, i, d.Name())}
		}
		if a, b := devices[0].Info(), d.Info(); a.Kind != b.Kind {
			return &Error{Op: "devices", Msg: fmt.Sprintf("rank 0 is on %s, rank %d on %s; the ranks of a run are on devices of one kind", devices[0].Name(), i, d.Name())}
		}
	}
	return nil
}

// List returns the devices in the order of ranks. If one of them could not be opened, it returns
// the error.
func (l DeviceList) List() ([]device.Device, error) { return slices.Clone(l.devices), l.err }
