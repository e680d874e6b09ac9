package cpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/flambeau-go/flambeau/device"
)

// mostRanks limits the number of ranks of the CPU.
const mostRanks = 256

// ranks holds the opened ranks "cpu:0", "cpu:1", ….
var ranks struct {
	sync.Mutex
	opened [mostRanks]*Device
}

// opened lists the open devices of the CPU.
func opened() []*Device {
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
// number of bytes.
func EmptyAll() int { return emptyBut(nil) }

// emptyBut gives back the cached memory of all devices except spared. It returns the number of
// bytes.
func emptyBut(spared *Device) (bytes int) {
	for _, d := range opened() {
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
	if i < 0 || i >= mostRanks {
		return nil, &device.UnavailableError{Name: name,
			Reason: fmt.Sprintf("the processor has at most %d ranks", mostRanks),
			Help:   fmt.Sprintf("they are cpu:0 to cpu:%d", mostRanks-1)}
	}
	ranks.Lock()
	defer ranks.Unlock()
	if ranks.opened[i] == nil {
		ranks.opened[i] = named(name, runtime.GOMAXPROCS(0))
	}
	return ranks.opened[i], nil
}
