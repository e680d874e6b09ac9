package cpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/flambeau-go/flambeau/device"
)

// mostRanks bounds the ranks of the processor.
const mostRanks = 256

// ranks has the devices "cpu:0", "cpu:1", … that were asked for.
var ranks struct {
	sync.Mutex
	opened [mostRanks]*Device
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
