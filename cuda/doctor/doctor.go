// Package doctor finds out why a GPU is not used, or is slower than it could be.
//
// [Examine] looks at the PCI bus, the kernel's driver, device files, containers, the environment,
// the NVIDIA driver and its management library. Each [Finding] says what was seen and what to do
// about it. [Report.WriteText] prints the findings, as the command "flambeau doctor" does.
// [Report.ExitCode] returns an exit status for scripts.
//
// Examine changes nothing, and opens no GPU for work.
package doctor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
)

// Level says how bad a finding is.
type Level int

// The levels.
const (
	Note Level = iota // the finding prevents nothing and costs nothing
	// a GPU is used, but something makes it slower or less reliable than it could be
	Slow
	Unused // the finding prevents a GPU from being used
)

var levels = [...]string{Note: "note", Slow: "slow", Unused: "unused"}

// String returns "note", "slow" or "unused".
func (l Level) String() string { return levels[l] }

// MarshalText returns the text of String, so that JSON has the level's name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is an observation about the machine, and what to do about it.
type Finding struct {
	// ID is a text such as "driver-too-old", which does not change in later versions.
	ID    string `json:"id"`
	Level Level  `json:"level"`
	// "cuda:0", or the GPU's address on the PCI bus; "" if the finding concerns all GPUs
	GPU  string `json:"gpu,omitempty"`
	Seen string `json:"seen"`
	Do   string `json:"do,omitempty"` // advice; "" if there is nothing to do
}

// GPU describes a GPU that the driver reports.
type GPU struct {
	Name        string `json:"name"`
	Product     string `json:"product"`
	Capability  string `json:"compute_capability"`
	Usable      bool   `json:"usable"`
	Memory      uint64 `json:"memory_bytes"`
	UsedMemory  uint64 `json:"memory_used_bytes,omitempty"`
	PCIBusID    string `json:"pci_bus_id"`
	Temperature int    `json:"temperature_celsius,omitempty"`
	Power       int    `json:"power_milliwatts,omitempty"`
	PowerLimit  int    `json:"power_limit_milliwatts,omitempty"`
	Clock       int    `json:"clock_mhz,omitempty"`
	MaxClock    int    `json:"clock_max_mhz,omitempty"`
	Utilization int    `json:"utilization_percent"`
	// Link is a text such as "generation 4 of 4, width 16 of 16".
	Link         string `json:"pcie_link,omitempty"`
	sensed, idle bool
}

// Library is an optional library. Its version comes from the file's name.
type Library struct {
	Name    string `json:"name"`
	Path    string `json:"path,omitempty"` // "" if it was not found
	Version string `json:"version,omitempty"`
}

// Report is the result of [Examine].
type Report struct {
	// the worst level of the findings; Note if there is no problem
	Verdict  Level     `json:"verdict"`
	Findings []Finding `json:"findings"`
	GPUs     []GPU     `json:"gpus"`
	// version of the loaded kernel module (Linux only)
	KernelDriver string `json:"kernel_driver,omitempty"`
	// version of the driver, from its management library
	Driver string `json:"driver,omitempty"`
	// newest CUDA version that the driver supports
	CUDA      string    `json:"cuda,omitempty"`
	Libraries []Library `json:"libraries"`
}

// ExitCode returns 0 if a GPU is used and nothing is wrong. It returns 1 if the GPU is slower than
// it could be, and 2 if no GPU is used.
func (r *Report) ExitCode() int { return int(r.Verdict) }

func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }

// find adds a finding that concerns the whole machine.
func (r *Report) find(id string, l Level, seen, do string) {
	r.add(Finding{ID: id, Level: l, Seen: seen, Do: do})
}

// WriteText prints the report as text for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	switch r.Verdict {
	case Note:
		b.WriteString("GPUs are used, and nothing is wrong with them.\n")
	case Slow:
		b.WriteString("GPUs are used, but not all is well:\n")
	default:
		b.WriteString("No GPU is used:\n")
	}
	for _, f := range r.Findings {
		where := ""
		if f.GPU != "" {
			where = f.GPU + ": "
		}
		fmt.Fprintf(&b, "\n%-7s %s%s\n", strings.ToUpper(f.Level.String()), where, f.Seen)
		if f.Do != "" {
			fmt.Fprintf(&b, "        do: %s\n", f.Do)
		}
	}
	for i, g := range r.GPUs {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s  %s, compute capability %s, %.1f GiB, PCI %s", g.Name, g.Product, g.Capability, float64(g.Memory)/(1<<30), g.PCIBusID)
		if g.sensed {
			fmt.Fprintf(&b, "\n        %d °C, %.0f W of %.0f W, %d MHz of %d MHz, %d %% busy, %.1f GiB in use", g.Temperature, float64(g.Power)/1e3, float64(g.PowerLimit)/1e3,
				g.Clock, g.MaxClock, g.Utilization, float64(g.UsedMemory)/(1<<30))
		}
		if g.Link != "" {
			fmt.Fprintf(&b, ", PCIe %s", g.Link)
		}
		b.WriteString("\n")
	}
	if r.CUDA != "" {
		fmt.Fprintf(&b, "\ndriver %s, CUDA %s\n", orUnknown(r.Driver), r.CUDA)
	}
	b.WriteString("\noptional libraries, without which everything works too:\n")
	for _, l := range r.Libraries {
		switch {
		case l.Path == "":
			fmt.Fprintf(&b, "  %-9s not found\n", l.Name)
		default:
			fmt.Fprintf(&b, "  %-9s %s  %s\n", l.Name, orUnknown(l.Version), l.Path)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orUnknown(s string) string {
	if s == "" {
		return "of unknown version"
	}
	return s
}

// machine is the interface through which the doctor reads the machine. Tests replace it.
type machine interface {
	System() string // the value of runtime.GOOS
	Env(name string) (value string, set bool)
	Read(path string) (text string, ok bool)
	Exists(path string) bool
	Glob(pattern string) []string
	// Target returns the full path to which a symbolic link leads, or path if path is not a link.
	Target(path string) string
	// Open opens a device file for reading and writing, and closes it again.
	Open(path string) error
	Process() int // number of this process
	Driver() (cu.API, error)
	Monitor() (nvml.API, error)
	Libraries() []cuda.Library
	Spills() []cuda.Spill
}

// local implements machine for the machine on which the program runs.
type local struct{}

func (local) System() string                 { return runtime.GOOS }
func (local) Env(name string) (string, bool) { return os.LookupEnv(name) }
func (local) Exists(path string) bool        { _, err := os.Stat(path); return err == nil }
func (local) Process() int                   { return os.Getpid() }
func (local) Driver() (cu.API, error)        { return cu.Open() }
func (local) Monitor() (nvml.API, error)     { return nvml.Open() }
func (local) Libraries() []cuda.Library      { return cuda.Libraries() }
func (local) Spills() []cuda.Spill           { return cuda.RecordedSpills() }

// the pattern is a constant of this package, so it is valid
func (local) Glob(pattern string) (l []string) { l, _ = filepath.Glob(pattern); return l }

func (local) Read(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 1<<16))
	return string(b), err == nil
}

func (local) Target(path string) string {
	if t, err := filepath.EvalSymlinks(path); err == nil {
		return t
	}
	return path
}

func (local) Open(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Examine looks at this machine. It loads the driver and its management library if they are
// installed. That may take a few seconds if no other program keeps the GPU initialised.
func Examine() *Report { return examine(local{}) }
