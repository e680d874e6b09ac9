package device

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Driver opens the devices of one kind.
type Driver interface {
	// Count returns the number of devices. If there are none, the error is an *UnavailableError
	// that says why.
	Count() (int, error)
	// Open returns device i. It returns the same value each time.
	Open(i int) (Device, error)
}

var registry = struct {
	sync.Mutex
	drivers map[string]Driver
}{drivers: map[string]Driver{}}

// RankDriver is satisfied by drivers that offer ranks: numbered devices that share one real device.
// With ranks, a program trains as if there were several devices. The CPU is such a driver: besides
// the device "cpu" it has the ranks "cpu:0", "cpu:1" and so on. Count and lists of devices do not
// include the ranks.
type RankDriver interface {
	Driver
	// OpenRank returns rank i. It returns the same value each time. If i is too large for the
	// driver, the error is an *[UnavailableError].
	OpenRank(i int) (Device, error)
}

// OpenedDriver is satisfied by drivers whose devices are expensive to open. A GPU, for example,
// needs a context.
type OpenedDriver interface {
	Driver
	// Opened returns the device with the lowest number among the devices that the program has
	// opened. If the program has opened none, Opened returns nil.
	Opened() Device
}

// Register makes d the driver of a kind of device, such as "cpu" or "cuda". Packages of drivers
// call it in init.
func Register(kind string, d Driver) {
	registry.Lock()
	defer registry.Unlock()
	if registry.drivers[kind] != nil {
		panic("device: driver " + kind + " is registered twice")
	}
	registry.drivers[kind] = d
}

const notLinked = "the driver is not linked into this program"

// imports holds, for each kind of device, the import line that links its driver into a program.
// Error texts show it.
var imports = map[string]string{
	"cuda": `import _ "github.com/flambeau-go/flambeau/cuda"`,
	"cpu":  `import _ "github.com/flambeau-go/flambeau/cpu"`,
}

func driver(kind, name string) (Driver, error) {
	registry.Lock()
	d := registry.drivers[kind]
	known := slices.Sorted(maps.Keys(registry.drivers))
	registry.Unlock()
	if d != nil {
		return d, nil
	}
	if line, ok := imports[kind]; ok {
		return nil, &UnavailableError{Name: name, Reason: notLinked, Help: "add " + line}
	}
	return nil, &UnavailableError{Name: name, Reason: fmt.Sprintf("there is no kind of device %q", kind),
		Help: fmt.Sprintf("known are %s and auto", strings.Join(known, ", "))}
}

// Open returns the device with the given name: "cpu", "cuda" (the first), "cuda:1", or "auto" (the
// result of [Best]). "cpu:1" is a rank of the CPU, which is another device than "cpu" (see
// [RankDriver]). "cuda" and "cuda:0" are the same device. The error is an *[UnavailableError].
func Open(name string) (Device, error) {
	if name == "auto" || name == "" {
		d, _ := Best()
		if d == nil {
			return nil, &UnavailableError{Name: name, Reason: "no driver is linked into this program", Help: "add " + imports["cpu"]}
		}
		return d, nil
	}
	kind, num, has := strings.Cut(name, ":")
	i := 0
	if has {
		var err error
		if i, err = strconv.Atoi(num); err != nil || i < 0 {
			return nil, &UnavailableError{Name: name, Reason: fmt.Sprintf("%q is not the number of a device", num), Help: `write a name such as "cuda:0"`}
		}
	}
	d, err := driver(kind, name)
	if err != nil {
		return nil, err
	}
	if r, ok := d.(RankDriver); ok && has {
		return r.OpenRank(i)
	}
	n, err := d.Count()
	if err != nil {
		if u, ok := err.(*UnavailableError); ok {
			c := *u
			c.Name = name
			return nil, &c
		}
		return nil, &UnavailableError{Name: name, Reason: err.Error(), Err: err}
	}
	if i >= n {
		return nil, &UnavailableError{Name: name, Reason: fmt.Sprintf("there %s", plural(n, kind)), Help: "the first is " + kind + ":0"}
	}
	return d.Open(i)
}

// OpenAny returns some device of a kind, for services that all devices of the kind offer alike,
// such as page-locked memory. If the program has opened a device of the kind, OpenAny returns that
// device (see [OpenedDriver]). Otherwise it opens the first device. In a program that uses only
// "cuda:1", it therefore creates no context on "cuda:0". The error is an *[UnavailableError].
func OpenAny(kind string) (Device, error) {
	name := kind + ":0"
	d, err := driver(kind, name)
	if err != nil {
		return nil, err
	}
	if o, ok := d.(OpenedDriver); ok {
		if dev := o.Opened(); dev != nil {
			return dev, nil
		}
	}
	return Open(name)
}

func plural(n int, kind string) string {
	switch n {
	case 0:
		return "is no " + kind + " device"
	case 1:
		return "is 1 " + kind + " device"
	}
	return fmt.Sprintf("are %d %s devices", n, kind)
}

// Count returns the number of devices of a kind. If there are none, the error says why: no driver
// is linked in, or no hardware is found.
func Count(kind string) (int, error) {
	d, err := driver(kind, kind)
	if err != nil {
		return 0, err
	}
	return d.Count()
}

// Best returns the first GPU if there is one, else the CPU. The second result is the reason for the
// choice, in one line. If no driver is linked in, the device is nil.
func Best() (Device, string) {
	why := ""
	if d, err := Open("cuda:0"); err == nil {
		return d, "using " + d.Name() + " (" + d.Info().Name + ")"
	} else if u, ok := err.(*UnavailableError); ok {
		why = u.Reason
		if !strings.HasPrefix(why, "no ") {
			why = "no GPU: " + why
		}
		if u.Reason == notLinked {
			why += " (" + u.Help + ")"
		}
		why += "; "
	} else {
		why = err.Error() + "; "
	}
	d, err := Open("cpu")
	if err != nil {
		return nil, why + err.Error()
	}
	return d, why + "using the CPU"
}
