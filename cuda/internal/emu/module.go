package emu

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu/ptxvm"
)

// module is PTX text that was parsed and loaded into a context.
type module struct {
	ctx    *context
	parsed *ptxvm.Module
	byName map[string]cu.Function

	unloaded bool
}

// function is an entry of a module.
type function struct {
	mod        *module
	entry      *ptxvm.Entry
	maxDynamic int // number of bytes of dynamic shared memory that a launch may request
	carveout   int
}

// cubinMagic begins the result of LinkPTX. Its first bytes are those of an ELF file, as in a real
// cubin. The compute capability follows on the same line, and the PTX text begins on the next line.
const cubinMagic = "\x7fELF flambeau emulated cubin sm_"

// ModuleLoadData parses PTX text, or a result of LinkPTX. If the text is wrong, it returns
// ErrInvalidPTX with the parser's message as the log, and a *ptxvm.ParseError as the cause. It
// returns ErrNoBinaryForGPU for a target that the device cannot run, and ErrUnsupportedPTXVersion
// for a .version above 8.4.
func (d *Driver) ModuleLoadData(image []byte, opts cu.JITOptions) (cu.Module, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuModuleLoadData"
	ctx, err := d.currentContext(call)
	if err != nil {
		return 0, err
	}
	if len(image) == 0 {
		return 0, fail(call, cu.ErrInvalidImage, "the image is empty")
	}
	text := strings.TrimRight(string(image), "\x00")
	if rest, ok := strings.CutPrefix(text, cubinMagic); ok {
		sm, ptx, _ := strings.Cut(rest, "\n")
		if sm != fmt.Sprint(d.cfg.SM) {
			return 0, fail(call, cu.ErrNoBinaryForGPU, "the cubin is for sm_%s, the device is sm_%d", sm, d.cfg.SM)
		}
		text = ptx
	} else if strings.HasPrefix(text, "\x7fELF") {
		return 0, fail(call, cu.ErrNoBinaryForGPU, "a cubin is machine code, which an emulated device does not run")
	}
	m, err := d.compile(call, text, opts)
	if err != nil {
		return 0, err
	}
	d.counters.Modules++
	h := cu.Module(d.handle())
	d.modules[h] = &module{ctx: ctx, parsed: m, byName: map[string]cu.Function{}}
	return h, nil
}

// compile parses PTX for the devices of this driver.
func (d *Driver) compile(call, text string, opts cu.JITOptions) (*ptxvm.Module, error) {
	parse := ptxvm.Parse
	if d.cfg.Meta {
		parse = ptxvm.ParseDeclarations
	}
	m, err := parse(text)
	if err != nil {
		if opts.InfoLog != nil {
			*opts.InfoLog = ""
		}
		log := err.Error()
		var pe *ptxvm.ParseError
		if errors.As(err, &pe) {
			log = fmt.Sprintf("line %d: error: %s", pe.Line, pe.Msg)
		}
		return nil, &cu.Error{Call: call, Result: cu.ErrInvalidPTX, Log: log, Cause: err}
	}
	if major, minor := m.Version(); major > maxPTXMajor || major == maxPTXMajor && minor > maxPTXMinor {
		return nil, fail(call, cu.ErrUnsupportedPTXVersion, ".version %d.%d, this driver compiles up to %d.%d", major, minor, maxPTXMajor, maxPTXMinor)
	}
	// code for "sm_90" runs on 9.0 and later, and code for "sm_90a" on 9.0 only
	exact := !strings.HasSuffix(m.Arch(), fmt.Sprint(m.Target()))
	if m.Target() > d.cfg.SM || exact && m.Target() != d.cfg.SM {
		return nil, fail(call, cu.ErrNoBinaryForGPU, ".target %s, the device is sm_%d", m.Arch(), d.cfg.SM)
	}
	if opts.InfoLog != nil {
		var b strings.Builder
		if opts.Verbose {
			for _, name := range m.Entries() {
				e := m.Entry(name)
				fmt.Fprintf(&b, "emulated: %s: %d bytes of parameters, %d bytes of shared memory, %d bytes of local memory a thread; registers unknown\n",
					name, e.ParamBytes, e.StaticShared, e.Local)
			}
		}
		*opts.InfoLog = b.String()
	}
	return m, nil
}

// LinkPTX checks the text like ModuleLoadData, and returns it with a header. The result loads only
// on an emulated device of the same compute capability.
func (d *Driver) LinkPTX(name string, ptx []byte, opts cu.JITOptions) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuLinkAddData"
	if _, err := d.currentContext(call); err != nil {
		return nil, err
	}
	if len(ptx) == 0 {
		return nil, fail(call, cu.ErrInvalidImage, "%s is empty", name)
	}
	text := bytes.TrimRight(ptx, "\x00")
	if _, err := d.compile(call, string(text), opts); err != nil {
		var e *cu.Error
		if errors.As(err, &e) && e.Log != "" {
			e.Log = name + ", " + e.Log
		}
		return nil, err
	}
	return fmt.Appendf(nil, "%s%d\n%s", cubinMagic, d.cfg.SM, text), nil
}

// ModuleUnload removes a module and its functions. If a launch of such a function is pending, the
// launch ends its context when it runs.
func (d *Driver) ModuleUnload(h cu.Module) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuModuleUnload"
	m, err := d.moduleOf(call, h)
	if err != nil {
		return err
	}
	delete(d.modules, h)
	deleteIf(d.functions, func(f *function) bool { return f.mod == m })
	m.unloaded = true
	if m.ctx.dev.mem != nil {
		m.parsed.Unload(m.ctx.dev.mem)
	}
	return nil
}

func (d *Driver) moduleOf(call string, h cu.Module) (*module, error) {
	m := d.modules[h]
	if m == nil {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no module %#x", uintptr(h))
	}
	return m, m.ctx.dead
}

// ModuleGetFunction returns the kernel with that name.
func (d *Driver) ModuleGetFunction(h cu.Module, name string) (cu.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuModuleGetFunction"
	m, err := d.moduleOf(call, h)
	if err != nil {
		return 0, err
	}
	if f, ok := m.byName[name]; ok {
		return f, nil
	}
	e := m.parsed.Entry(name)
	if e == nil {
		return 0, fail(call, cu.ErrNotFound, "no kernel %q; the module has %q", name, m.parsed.Entries())
	}
	f := cu.Function(d.handle())
	d.functions[f] = &function{mod: m, entry: e, maxDynamic: max(0, sharedDefault-e.StaticShared)}
	m.byName[name] = f
	return f, nil
}

func (d *Driver) configuredSpill(kernel string) int {
	if d.cfg.Spill == nil {
		return 0
	}
	return d.cfg.Spill(kernel)
}

func (d *Driver) functionOf(call string, h cu.Function) (*function, error) {
	f := d.functions[h]
	if f == nil {
		return nil, fail(call, cu.ErrInvalidHandle, "there is no function %#x", uintptr(h))
	}
	return f, f.mod.ctx.dead
}

// maxThreads returns the largest number of threads that a block of e may have.
func maxThreads(e *ptxvm.Entry) int {
	n := 1
	for _, m := range e.MaxThreads {
		n *= max(1, m)
	}
	if e.MaxThreads[0] == 0 {
		return maxThreadsPerBlock
	}
	return n
}

// FuncAttribute returns a property of a kernel. The number of registers is an assumption (32),
// because only ptxas knows it.
func (d *Driver) FuncAttribute(h cu.Function, a cu.FuncAttr) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuFuncGetAttribute"
	f, err := d.functionOf(call, h)
	if err != nil {
		return 0, err
	}
	switch a {
	case cu.FuncMaxThreadsPerBlock:
		return maxThreads(f.entry), nil
	case cu.FuncSharedBytes:
		return f.entry.StaticShared, nil
	case cu.FuncConstBytes:
		return 0, nil
	case cu.FuncLocalBytes:
		return f.entry.Local + d.configuredSpill(f.entry.Name), nil
	case cu.FuncNumRegs:
		return assumedRegs, nil
	case cu.FuncPTXVersion:
		return f.mod.parsed.Target(), nil
	case cu.FuncBinaryVersion:
		return d.cfg.SM, nil
	case cu.FuncMaxDynamicShared:
		return f.maxDynamic, nil
	case cu.FuncSharedCarveout:
		return f.carveout, nil
	}
	return 0, fail(call, cu.ErrInvalidValue, "attribute %d is not emulated", a)
}

// FuncSetAttribute sets one of the two attributes that can be set.
func (d *Driver) FuncSetAttribute(h cu.Function, a cu.FuncAttr, value int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuFuncSetAttribute"
	f, err := d.functionOf(call, h)
	if err != nil {
		return err
	}
	switch a {
	case cu.FuncMaxDynamicShared:
		if limit := limitsOf(d.cfg.SM).sharedOptin - f.entry.StaticShared; value < 0 || value > limit {
			return fail(call, cu.ErrInvalidValue, "%d bytes of dynamic shared memory, sm_%d allows %s %d", value, d.cfg.SM, f.entry.Name, limit)
		}
		f.maxDynamic = value
		return nil
	case cu.FuncSharedCarveout:
		if value < -1 || value > 100 {
			return fail(call, cu.ErrInvalidValue, "a carveout of %d percent", value)
		}
		f.carveout = value
		return nil
	}
	return fail(call, cu.ErrInvalidValue, "attribute %d cannot be set", a)
}

// OccupancyMaxActiveBlocks computes how many blocks fit on a multiprocessor, from its limits of
// threads, shared memory and blocks, and from the number of registers that FuncAttribute returns.
func (d *Driver) OccupancyMaxActiveBlocks(h cu.Function, blockThreads int, dynShared uint64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	const call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
	f, err := d.functionOf(call, h)
	if err != nil {
		return 0, err
	}
	if blockThreads < 1 {
		return 0, fail(call, cu.ErrInvalidValue, "%d threads", blockThreads)
	}
	if blockThreads > maxThreads(f.entry) || dynShared > uint64(f.maxDynamic) {
		return 0, nil
	}
	l := limitsOf(d.cfg.SM)
	warps := (blockThreads + warpSize - 1) / warpSize
	n := min(l.blocksPerSM, l.threadsPerSM/(warps*warpSize), registersPerSM/(assumedRegs*warps*warpSize))
	return min(n, l.sharedPerSM/(f.entry.StaticShared+int(dynShared)+sharedReserved)), nil
}
