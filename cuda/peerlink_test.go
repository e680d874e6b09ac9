package cuda

import (
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// TestLinkRate checks that copies between GPUs have the bandwidth that link= sets, in both
// directions at the same time.
func TestLinkRate(t *testing.T) {
	const n = 1 << 20
	for spec, want := range map[string]time.Duration{
		"emulate:2,mem=16MiB,link=1GB":   n * time.Nanosecond,
		"emulate:2,mem=16MiB,link=500MB": 2 * n * time.Nanosecond,
	} {
		gpus, err := Emulate(spec)
		must(t, err)
		var data [2]device.Buffer
		var begin, end [2]*Event
		for i, d := range gpus {
			data[i], err = d.Alloc(2*n, d.DefaultStream(), device.Origin{Op: "test"})
			must(t, err)
			must(t, d.Upload(d.DefaultStream(), data[i], 0, make([]byte, 2*n)))
			must(t, d.Synchronize())
		}
		for i, d := range gpus {
			s := d.DefaultStream()
			for _, e := range []**Event{&begin[i], &end[i]} {
				*e, err = NewEvent(d, EnableTiming())
				must(t, err)
			}
			must(t, begin[i].Record(s))
			must(t, d.CopyFrom(s, data[i], 0, data[1-i], n, n))
			must(t, end[i].Record(s))
		}
		for i := range gpus {
			must(t, end[i].Wait())
			took, err := begin[i].Elapsed(end[i])
			must(t, err)
			if took < want || took > want+want/100 {
				t.Errorf("%s: a copy to device %d took %v, want %v", spec, i, took, want)
			}
		}
	}
}
