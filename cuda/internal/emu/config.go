package emu

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config describes the emulated machine. Zero fields stand for their defaults.
type Config struct {
	Devices int // number of devices, at most 64; the default is 1
	// Memory is the number of bytes of memory of each device. The default is 256 MiB.
	Memory uint64
	// SM is the compute capability as 10·major + minor: 80, 86, 87, 89 or 90, the default.
	SM   int
	Meta bool // whether memory has addresses, but no contents (meta mode)
	// seed of the schedule; with 0, work runs in the order of the calls, and with any other seed in
	// an adversarial order
	Seed uint64
	// size in bytes of the segments of a pool, a multiple of 1 KiB; 0 means that it depends on the
	// memory. A pool divides segments into small blocks, and rounds large blocks up to whole
	// segments
	Segment uint64
	// whether devices cannot address each other's memory, as with GeForce cards; by default they
	// can, as in servers with NVLink
	NoPeer bool

	// Pageable says when copies access host memory that is not page-locked (pageable memory).
	Pageable Pageable

	Expandable bool // whether pools grow by pages of virtual memory
	// size of a page of virtual memory, a power of two from 4 KiB to 1 GiB; the default is 2 MiB,
	// or less if a device has less than 1 GiB of memory
	Granularity uint64

	// Workers is the number of goroutines that run the blocks of a kernel. The default is
	// GOMAXPROCS.
	Workers int
	// largest number of instructions that a warp may execute before its kernel counts as an endless
	// loop; 0 means the default of package ptxvm
	MaxSteps int64
	// largest number of pending operations, by default 1024; a further call first runs some of them
	QueueDepth int

	Cost Cost // the cost model; zero fields have defaults
	// additional virtual time of an operation, for tests of slow operations; may be nil, and must
	// not call the driver
	Latency func(op Op) time.Duration

	// Spill lets a test pretend that the compiler had too few registers. It returns the bytes of
	// local memory of each thread of the kernel, in addition to those that the kernel declares. It
	// may be nil, and must not call the driver.
	Spill func(kernel string) int

	// NoHost reports whether allocations of page-locked memory fail now, for tests. It may be nil,
	// and must not call the driver.
	NoHost func() bool

	// Timeline is called for each operation that has run, with its start and its end in virtual
	// time. Operations of one stream are reported in their order. Operations of several streams are
	// reported in the order in which they ran. Timeline may be nil, is never called concurrently,
	// and must not call the driver.
	Timeline func(op Op, start, end time.Duration)
}

// Defaults of Config.
const (
	DefaultMemory     = 256 << 20
	DefaultSM         = 90
	defaultQueueDepth = 1024
	maxDevices        = 64
	minMemory         = 1 << 20
	minSegment        = 1 << 10
	maxSegment        = 32 << 20
	MaxMemory         = 1 << 42 // size of the address space of a device
)

// supportedSMs lists the compute capabilities that limitsOf knows.
var supportedSMs = []int{80, 86, 87, 89, 90}

// SpecError says which part of a Config, or of its text, is wrong.
type SpecError struct {
	Spec string // whole text; empty for a Config that was not parsed
	Part string // the wrong part
	Want string // what is accepted instead
}

// Error returns the text, the wrong part and what is accepted.
func (e *SpecError) Error() string {
	if e.Spec == "" && e.Part != "" {
		return fmt.Sprintf("emulated GPU: %s: want %s", e.Part, e.Want)
	}
	return fmt.Sprintf("FLAMBEAU_CUDA=%s: %q is wrong: want %s", e.Spec, e.Part, e.Want)
}

const specForm = "emulate[:devices][,mem=256MiB][,sm=90][,mode=meta][,seed=1][,segment=64KiB][,expandable=on][,peer=off][,link=10GB][,pageable=late]"

// Parse reads the value of FLAMBEAU_CUDA:
//
//	emulate[:N][,mem=256MiB][,sm=90][,mode=meta][,seed=1][,segment=64KiB][,expandable=on]
//	[,peer=off][,link=10GB][,pageable=late]
//
// N is the number of devices (1 by default). mem is the memory of each device: a number with KiB,
// MiB, GiB or TiB. sm is the compute capability. seed is the seed of the schedule (0 by default).
// segment is the size of a segment. With expandable=on pools grow by pages of virtual memory. With
// peer=off devices cannot address each other's memory. link is the number of bytes a second from
// one device to another, in each direction (450GB by default). It is a number with kB, MB, GB or
// TB, which are powers of 1000. With pageable=late copies access pageable memory when their turn
// in the stream comes. With pageable=now, the default, they access it within the call. The error
// is a [*SpecError].
func Parse(spec string) (Config, error) {
	var c Config
	bad := func(part, want string) (Config, error) {
		return Config{}, &SpecError{Spec: spec, Part: part, Want: want}
	}
	head, rest, more := strings.Cut(spec, ",")
	name, count, counted := strings.Cut(head, ":")
	if name != "emulate" {
		return bad(head, specForm)
	}
	if counted {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 || n > maxDevices {
			return bad(head, fmt.Sprintf("1 to %d devices, as in emulate:2", maxDevices))
		}
		c.Devices = n
	}
	seen := map[string]bool{}
	for more {
		var part string
		part, rest, more = strings.Cut(rest, ",")
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			return bad(part, key+" only once")
		}
		seen[key] = true
		switch key {
		case "mem":
			n, ok := parseBytes(value)
			if !ok || n < minMemory || n > MaxMemory {
				return bad(part, "mem= and a size from 1MiB to 4TiB, as in mem=256MiB")
			}
			c.Memory = n
		case "sm":
			n, err := strconv.Atoi(value)
			if err != nil || !slices.Contains(supportedSMs, n) {
				return bad(part, "sm= and one of "+smList())
			}
			c.SM = n
		case "mode":
			if value != "meta" {
				return bad(part, "mode=meta, or no mode")
			}
			c.Meta = true
		case "seed":
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				return bad(part, "seed= and a number of at most 64 bits, 0 for plain order")
			}
			c.Seed = n
		case "segment":
			n, ok := parseBytes(value)
			if !ok || n < minSegment || n > maxSegment {
				return bad(part, "segment= and a size from 1KiB to 32MiB, as in segment=64KiB")
			}
			c.Segment = n
		case "expandable":
			if value != "on" && value != "off" {
				return bad(part, "expandable=on or expandable=off")
			}
			c.Expandable = value == "on"
		case "peer":
			if value != "on" && value != "off" {
				return bad(part, "peer=on or peer=off")
			}
			c.NoPeer = value == "off"
		case "link":
			n, ok := parseRate(value)
			if !ok {
				return bad(part, "link= and bytes a second from 1kB to 1000TB, as in link=10GB")
			}
			c.Cost.PeerBytes = n
		case "pageable":
			switch value {
			case "late":
				c.Pageable = PageableLate
			case "now":
				c.Pageable = PageableNow
			default:
				return bad(part, "pageable=late or pageable=now")
			}
		default:
			return bad(part, "one of mem=, sm=, mode=, seed=, segment=, expandable=, peer=, link=, pageable=")
		}
	}
	return c.withDefaults(), nil
}

// String returns a text that Parse reads. It contains the devices, mem and sm, and then every other
// setting that is not the default.
func (c Config) String() string {
	c = c.withDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, "emulate:%d,mem=%s,sm=%d", c.Devices, formatBytes(c.Memory), c.SM)
	if c.Meta {
		b.WriteString(",mode=meta")
	}
	if c.Seed != 0 {
		fmt.Fprintf(&b, ",seed=%d", c.Seed)
	}
	if c.Segment != 0 {
		fmt.Fprintf(&b, ",segment=%s", formatBytes(c.Segment))
	}
	if c.Expandable {
		b.WriteString(",expandable=on")
	}
	if c.NoPeer {
		b.WriteString(",peer=off")
	}
	if r := c.Cost.PeerBytes; r != defaultPeerBytes {
		fmt.Fprintf(&b, ",link=%s", formatRate(r))
	}
	if c.Pageable == PageableLate {
		b.WriteString(",pageable=late")
	}
	return b.String()
}

func (c Config) withDefaults() Config {
	if c.Devices == 0 {
		c.Devices = 1
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Granularity == 0 {
		c.Granularity = granularity(c.Memory)
	}
	if c.SM == 0 {
		c.SM = DefaultSM
	}
	if c.QueueDepth == 0 {
		c.QueueDepth = defaultQueueDepth
	}
	if c.Pageable == 0 {
		c.Pageable = usualPageable()
	}
	c.Cost = c.Cost.withDefaults()
	return c
}

// check validates a Config whose defaults are filled in.
func (c Config) check() error {
	switch {
	case c.Devices < 1 || c.Devices > maxDevices:
		return &SpecError{Part: fmt.Sprintf("Devices = %d", c.Devices), Want: fmt.Sprintf("1 to %d", maxDevices)}
	case c.Memory < minMemory || c.Memory > MaxMemory:
		return &SpecError{Part: fmt.Sprintf("Memory = %d", c.Memory), Want: "1 MiB to 4 TiB"}
	case !slices.Contains(supportedSMs, c.SM):
		return &SpecError{Part: fmt.Sprintf("SM = %d", c.SM), Want: "one of " + smList()}
	case c.Segment != 0 && (c.Segment < minSegment || c.Segment > maxSegment || c.Segment%1024 != 0):
		return &SpecError{Part: fmt.Sprintf("Segment = %d", c.Segment), Want: "1 KiB to 32 MiB, a multiple of 1 KiB, or 0"}
	case c.Granularity < 4096 || bits.OnesCount64(c.Granularity) != 1 || c.Granularity > 1<<30:
		return &SpecError{Part: fmt.Sprintf("Granularity = %d", c.Granularity), Want: "a power of two from 4 KiB to 1 GiB, or 0"}
	case c.Pageable != PageableNow && c.Pageable != PageableLate:
		return &SpecError{Part: fmt.Sprintf("Pageable = %d", c.Pageable), Want: "PageableNow, PageableLate, or 0"}
	case c.QueueDepth < 1:
		return &SpecError{Part: fmt.Sprintf("QueueDepth = %d", c.QueueDepth), Want: "at least 1"}
	case c.Workers < 0:
		return &SpecError{Part: fmt.Sprintf("Workers = %d", c.Workers), Want: "0 for the default, or more"}
	}
	return c.Cost.check()
}

func smList() string {
	s := make([]string, len(supportedSMs))
	for i, n := range supportedSMs {
		s[i] = strconv.Itoa(n)
	}
	return strings.Join(s, ", ")
}

var byteUnits = []struct {
	suffix string
	shift  uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

func parseBytes(s string) (uint64, bool) {
	for _, u := range byteUnits {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseUint(digits, 10, 64)
			return n << u.shift, err == nil && n<<u.shift>>u.shift == n
		}
	}
	return 0, false
}

func formatBytes(n uint64) string {
	for _, u := range byteUnits {
		if n >= 1<<u.shift && n&(1<<u.shift-1) == 0 {
			return strconv.FormatUint(n>>u.shift, 10) + u.suffix
		}
	}
	return strconv.FormatUint(n, 10) + "B"
}

// rateUnits are the units of the rates of links, powers of 1000.
var rateUnits = []struct {
	suffix string
	value  uint64
}{{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}}

const maxRate = 1e15

// parseRate reads a rate in bytes a second.
func parseRate(s string) (float64, bool) {
	for _, u := range rateUnits {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseUint(digits, 10, 64)
			return float64(n * u.value), err == nil && n >= 1 && n <= maxRate/u.value
		}
	}
	return 0, false
}

// formatRate formats a rate that parseRate can return, so that parseRate reads it again.
func formatRate(r float64) string {
	n := uint64(r)
	for _, u := range rateUnits {
		if n >= u.value && n%u.value == 0 {
			return strconv.FormatUint(n/u.value, 10) + u.suffix
		}
	}
	return strconv.FormatUint(n, 10) + "B"
}

// Nearest returns the emulated compute capability, 10·major + minor, that runs most of the code for
// a GPU of capability sm. If sm is emulated, Nearest returns sm. Otherwise it returns the next
// lower capability, or the lowest capability if none is lower.
func Nearest(sm int) int {
	best := supportedSMs[0]
	for _, s := range supportedSMs {
		if s <= sm {
			best = s
		}
	}
	return best
}
