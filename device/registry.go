package device

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Driver opens the devices of one kind.
type Driver interface {
	// Count returns how many devices there are. A driver that finds none says why by an
	// *UnavailableError.
	Count() (int, error)
	// Open returns device i, the same value each time.
	Open(i int) (Device, error)
}

var registry = struct {
	sync.Mutex
	drivers map[string]Driver
}{drivers: map[string]Driver{}}

// A RankDriver is a driver whose device without a number is not one of those with a number. The
// CPU is one device, "cpu", and any number of ranks that share it, "cpu:0", "cpu:1", …: for
// programs that train as on several devices. Count tells of the one; lists of devices do not have
// the ranks.
type RankDriver interface {
	Driver
	// OpenRank returns rank i, the same value each time. It refuses numbers beyond its bound with
	// an *[UnavailableError].
	OpenRank(i int) (Device, error)
}

// An OpenedDriver is a driver for which to open a device is no small thing: a GPU's context.
type OpenedDriver interface {
	Driver
	// Opened returns the first of the devices that the program has opened, by number; nil where it
	// has opened none. It opens none.
	Opened() Device
}

// Register makes a driver known under its kind ("cpu", "cuda"). Drivers call it in init.
func Register(kind string, d Driver) {
	registry.Lock()
	defer registry.Unlock()
	if registry.drivers[kind] != nil {
		panic("device: driver " + kind + " is registered twice")
	}
	registry.drivers[kind] = d
}

const notLinked = "the driver is not linked into this program"

// imports tells how a driver that is not linked in is linked in.
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

// Open returns the device of that name: "cpu", "cuda" (the first), "cuda:1", or "auto", the best
// there is ([Best]). "cpu:1" is a rank of the CPU, a device of its own ([RankDriver]); "cuda"
// and "cuda:0" are the same. The error is an *[UnavailableError].
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

// OpenAny returns a device of a kind, for what each of them does for all, such as page-locked
// memory. It is one that the program has opened, where there is one ([OpenedDriver]), and else the
// first: who uses "cuda:1" alone makes no context on "cuda:0". The error is an
// *[UnavailableError].
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

// Count returns the number of devices of a kind, and why there are none.
func Count(kind string) (int, error) {
	d, err := driver(kind, kind)
	if err != nil {
		return 0, err
	}
	return d.Count()
}

// Best returns the first GPU if there is one, else the CPU, and a line that says why. It returns
// nil when no driver is linked in.
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
