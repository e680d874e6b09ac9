package cuda

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
)

// Spill says that a driver's compiler gave a kernel of the library local memory, which lies outside
// the multiprocessor. The kernels are written to need none, so the compiler had too few registers.
// The results are right, but the kernel is slower than it could be.
type Spill struct {
	Kernel string `json:"kernel"`
	Bytes  int    `json:"bytes"` // size of the local memory of each thread in bytes
	// compute capability for which the kernel was compiled, such as "9.0"
	Capability string `json:"compute_capability"`
	// newest CUDA version that the driver supports, such as "12.4"
	Driver string `json:"driver_version"`
}

// String returns a sentence such as "the driver (CUDA 12.4) gave kernel gemm_f32 16 bytes of local
// memory a thread: it is slower than it could be on compute capability 9.0".
func (s Spill) String() string {
	return fmt.Sprintf("the driver (CUDA %s) gave kernel %s %d bytes of local memory a thread: it is slower than it could be on compute capability %s",
		s.Driver, s.Kernel, s.Bytes, s.Capability)
}

// spills collects the spills that a driver's devices have found.
type spills struct {
	mu   sync.Mutex
	list []Spill
}

// Spills returns the library's kernels that spill registers on this GPU, sorted by name. It lists
// kernels that this process has loaded. With a real driver, it also lists kernels that earlier
// processes have loaded. The first spill of a process is reported with package log.
func (d *Device) Spills() []Spill {
	var all []Spill
	d.p.spills.mu.Lock()
	all = append(all, d.p.spills.list...)
	d.p.spills.mu.Unlock()
	if c := d.p.cubins; c != nil {
		all = append(all, c.spills()...)
	}
	capability, driver := dotted(d.sm), d.p.version.String()
	all = slices.DeleteFunc(all, func(s Spill) bool { return s.Capability != capability || s.Driver != driver })
	return ordered(all)
}

// RecordedSpills returns the spills that processes of this user have found with real drivers, for
// any GPU and driver version. It reads the records in the cache of compiled kernels, and does not
// call a driver.
func RecordedSpills() []Spill {
	c := defaultCubins()
	if c == nil {
		return nil
	}
	return ordered(c.spills())
}

func ordered(list []Spill) []Spill {
	slices.SortFunc(list, func(a, b Spill) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return slices.Compact(list)
}

// dotted formats a compute capability times ten: 90 as "9.0".
func dotted(sm int) string { return fmt.Sprintf("%d.%d", sm/10, sm%10) }

// noteLocalMemory records a spill if a kernel that has just been loaded uses local memory. The
// device's context is current.
func (d *Device) noteLocalMemory(k *kernels.Kernel, fn cu.Function) error {
	if k.Foreign {
		return nil
	}
	n, err := d.api.FuncAttribute(fn, cu.FuncLocalBytes)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	s := Spill{Kernel: k.Name, Bytes: n, Capability: dotted(d.sm), Driver: d.p.version.String()}
	p := &d.p.spills
	p.mu.Lock()
	first := len(p.list) == 0
	known := slices.Contains(p.list, s)
	if !known {
		p.list = append(p.list, s)
	}
	p.mu.Unlock()
	if c := d.p.cubins; c != nil && !known {
		c.recordSpill(k.PTX, d.sm, d.p.version, s)
	}
	if first {
		d.p.warn(s)
	}
	return nil
}

// spillSuffix is appended to the name of the file with a kernel's machine code. The result is the
// name of the file that records the kernel's spill.
const spillSuffix = ".spill"

// recordSpill writes a spill to the folder of compiled kernels. Like the cache of machine code, it
// ignores a failure to write.
func (c *cubinCache) recordSpill(ptx string, sm int, v cu.Version, s Spill) {
	if b, err := json.Marshal(s); err == nil {
		c.write(c.path(ptx, sm, v)+spillSuffix, b)
	}
}

// spills reads the recorded spills. It skips files that are not valid.
func (c *cubinCache) spills() (list []Spill) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), spillSuffix) {
			continue
		}
		var s Spill
		if b := readCubin(filepath.Join(c.dir, e.Name())); b != nil && json.Unmarshal(b, &s) == nil {
			list = append(list, s)
		}
	}
	return list
}

// KernelAttributes describes the code that a driver's compiler made of a kernel:
// CUfunction_attribute of cuda.h. Sizes are in bytes.
type KernelAttributes struct {
	// Registers is the number of registers of a thread. An emulated GPU, which has no compiler,
	// assumes 32.
	Registers int
	// local memory of a thread: arrays that the kernel declares, and registers that did not fit
	Local      int
	Shared     int // static shared memory of a block
	Constant   int
	MaxThreads int // largest number of threads of a block
}

// KernelAttributes loads a program's own kernel, if it is not loaded yet, and returns its
// attributes. The local memory of such a kernel does not appear in [Device.Spills]. The error is a
// *[device.Fault] if the driver refuses the kernel, or a *[device.OperandError] if k is nil.
func (d *Device) KernelAttributes(k *Kernel) (KernelAttributes, error) {
	if k == nil {
		return KernelAttributes{}, d.refusal("kernel attributes", "kernel", "nil")
	}
	if err := d.enter(); err != nil {
		return KernelAttributes{}, err
	}
	defer d.leave()
	fn, err := d.function(k.k)
	if err != nil {
		return KernelAttributes{}, err
	}
	var a KernelAttributes
	for _, x := range []struct {
		of cu.FuncAttr
		to *int
	}{{cu.FuncNumRegs, &a.Registers}, {cu.FuncLocalBytes, &a.Local}, {cu.FuncSharedBytes, &a.Shared}, {cu.FuncConstBytes, &a.Constant},
		{cu.FuncMaxThreadsPerBlock, &a.MaxThreads}} {
		if *x.to, err = d.api.FuncAttribute(fn, x.of); err != nil {
			return KernelAttributes{}, d.fault(k.k.Name, err)
		}
	}
	return a, nil
}
