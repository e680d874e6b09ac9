package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
)

// loaded is a kernel that was loaded into a device's context. A failure to load it is not cached,
// because memory for the code may be free the next time.
type loaded struct {
	mu   sync.Mutex
	done bool
	fn   cu.Function
}

// plainShared is the shared memory in bytes, static and dynamic together, that a kernel may use
// without raising its limit.
const plainShared = 48 << 10

// function returns the kernel's function on this device, and loads the kernel at first use. The
// device's context must be current.
func (d *Device) function(k *kernels.Kernel) (cu.Function, error) {
	k = d.form(k)
	v, ok := d.kernels.Load(k)
	if !ok {
		v, _ = d.kernels.LoadOrStore(k, new(loaded))
	}
	l := v.(*loaded)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		return l.fn, nil
	}
	fn, err := d.load(k)
	// The driver allocates memory for code outside of the pool. If the driver lacks memory, the
	// pool gives back the memory that it caches.
	if errors.Is(err, device.ErrOutOfMemory) && d.pool.Empty() > 0 {
		fn, err = d.load(k)
	}
	if err != nil {
		return 0, err
	}
	l.fn, l.done = fn, true
	d.count.kernels.Add(1)
	return fn, nil
}

func (d *Device) load(k *kernels.Kernel) (cu.Function, error) {
	if d.p.print != nil {
		if _, again := d.p.printed.LoadOrStore(k, true); !again {
			fmt.Fprintf(d.p.print, "// %s, %v threads, %d bytes of dynamic shared memory\n%s\n", k.Name, k.Block, k.DynShared, k.PTX)
		}
	}
	if !d.canRun(k) {
		exactly := ""
		if k.Exact {
			exactly = "exactly "
		}
		return 0, d.fault(k.Name, fmt.Errorf("it needs %scompute capability %.1f and PTX %.1f, the device has %.1f and its driver takes %.1f",
			exactly, float64(k.Target)/10, float64(k.Version)/10, float64(d.sm)/10, float64(d.ptx)/10))
	}
	m, err := d.module(k)
	if err != nil {
		return 0, d.fault(k.Name, err)
	}
	if d.p.folder != "" {
		if err := writeKernel(d.p.folder, k); err != nil {
			return 0, d.fault(k.Name, err)
		}
	}
	fn, err := d.api.ModuleGetFunction(m, k.Entry)
	if err == nil && k.DynShared > 0 && k.StaticShared+k.DynShared > plainShared {
		err = d.api.FuncSetAttribute(fn, cu.FuncMaxDynamicShared, k.DynShared)
	}
	if err == nil {
		err = d.noteLocalMemory(k, fn)
	}
	if err != nil {
		_ = d.api.ModuleUnload(m) // only the first error is reported
		return 0, d.fault(k.Name, err)
	}
	return fn, nil
}

// writeKernel writes a kernel's PTX text to a folder. The name of the file contains the text's
// hash, so that kernels with equal texts share a file.
func writeKernel(folder string, k *kernels.Kernel) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(k.PTX))
	path := filepath.Join(folder, hex.EncodeToString(sum[:12])+".ptx")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(folder, ".part-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(k.PTX)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// module loads a kernel's code. It looks in the packs, then in the cache on disk, and otherwise
// compiles the PTX.
func (d *Device) module(k *kernels.Kernel) (cu.Module, error) {
	if image := d.packed(k); image != nil {
		if m, err := d.api.ModuleLoadData(image, cu.JITOptions{}); err == nil {
			return m, nil
		}
	}
	if d.p.cubins != nil {
		if image, err := d.machineCode(k.Name, k.PTX); err == nil {
			if m, err := d.api.ModuleLoadData(image, cu.JITOptions{}); err == nil {
				return m, nil
			}
		}
		// If the driver refuses the cached code, the PTX text is compiled below. If the text is
		// wrong, that compilation returns the error.
	}
	d.count.compiled.Add(1)
	return d.api.ModuleLoadData([]byte(k.PTX), cu.JITOptions{})
}

// machineCode returns the machine code of a PTX text. It reads the code from the cache on disk, or
// lets the driver compile the text.
func (d *Device) machineCode(name, ptx string) ([]byte, error) {
	compile := func() ([]byte, error) {
		d.count.compiled.Add(1)
		return d.api.LinkPTX(name, []byte(ptx), cu.JITOptions{})
	}
	if c := d.p.cubins; c != nil {
		return c.load(ptx, d.sm, d.p.version, compile)
	}
	return compile()
}

// launchOverlapping launches a kernel that may start before earlier work of the stream has ended.
// The kernel itself waits for that work.
func (d *Device) launchOverlapping(k cu.GraphKernel, s *stream) error {
	api, ok := d.api.(cu.AttributeLauncher)
	if !ok {
		return &cu.Error{Call: "cuLaunchKernelEx", Result: cu.ErrNotSupported, Detail: "this driver takes no attributes of launches"}
	}
	return api.LaunchKernelEx(k, cu.LaunchAttributes{Overlap: true}, s.handle)
}

// queue adds planned launches to the stream's queue.
func (d *Device) queue(s *stream, list []kernels.Launch) error {
	if len(list) == 0 {
		return nil
	}
	if l := s.rec.Load(); l != nil {
		l.launches(nil, list, nil)
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	for i := range list {
		l := &list[i]
		k := d.form(l.Kernel)
		fn, err := d.function(k)
		if err != nil {
			return err
		}
		grid, block := cu.Dim3{X: l.Grid[0], Y: l.Grid[1], Z: l.Grid[2]}, cu.Dim3{X: k.Block[0], Y: k.Block[1], Z: k.Block[2]}
		if k.Overlap {
			err = d.launchOverlapping(cu.GraphKernel{Func: fn, Grid: grid, Block: block, Shared: uint32(k.DynShared), Params: l.Params}, s)
		} else {
			err = d.api.LaunchKernel(fn, grid, block, uint32(k.DynShared), s.handle, l.Params)
		}
		if err != nil {
			return d.fault(k.Name, err)
		}
		d.count.launches.Add(1)
		if d.p.sync {
			if err := d.api.StreamSynchronize(s.handle); err != nil {
				return d.fault(k.Name, err)
			}
		}
	}
	if d.p.sync {
		if e := d.index.takeFault(s.own()); e != nil {
			return e
		}
	}
	return nil
}
