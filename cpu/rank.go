package cpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/flambeau-go/flambeau/device"
)

// maxRanks limits the number of ranks of the CPU.
const maxRanks = 256

// ranks holds the opened ranks "cpu:0", "cpu:1", ….
var ranks struct {
	sync.Mutex
	opened [maxRanks]*Device
}

// openDevices returns the devices of the CPU that are open.
func openDevices() []*Device {
	list := []*Device{Get()}
	ranks.Lock()
	defer ranks.Unlock()
	for _, d := range ranks.opened {
		if d != nil {
			list = append(list, d)
		}
	}
	return list
}

// EmptyAll gives the cached memory of "cpu" and of all ranks back to the system. It returns the
// number of freed bytes.
func EmptyAll() int { return emptyExcept(nil) }

// emptyExcept gives cached memory back to the system: that of all devices except the device spared.
// It returns the number of freed bytes.
func emptyExcept(spared *Device) (bytes int) {
	for _, d := range openDevices() {
		if d != spared {
			bytes += d.Empty()
		}
	}
	return bytes
}

var _ device.RankDriver = driver{}

// OpenRank returns the device "cpu:i".
func (driver) OpenRank(i int) (device.Device, error) {
	name := fmt.Sprintf("cpu:%d", i)
	if i < 0 || i >= maxRanks {
		return nil, &device.UnavailableError{Name: name,
			Reason: fmt.Sprintf("the processor has at most %d ranks", maxRanks),
			Help:   fmt.Sprintf("they are cpu:0 to cpu:%d", maxRanks-1)}
	}
	ranks.Lock()
	defer ranks.Unlock()
	if ranks.opened[i] == nil {
		ranks.opened[i] = named(name, runtime.GOMAXPROCS(0))
	}
	return ranks.opened[i], nil
}
