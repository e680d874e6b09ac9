//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"bytes"
	"runtime"
	"unsafe"
)

// Options of the driver's compiler (CUjit_option in cuda.h), and the kind of its input
// (CUjitInputType).
const (
	jitMaxRegisters     = 0
	jitInfoLog          = 3
	jitInfoLogSize      = 4
	jitErrorLog         = 5
	jitErrorLogSize     = 6
	jitLogVerbose       = 12
	jitGenerateLineInfo = 13

	jitInputPTX = 1

	jitLogBytes = 16 << 10
)

// jit holds the options of a compilation as two parallel arrays, and the buffers to which they
// point. It must live until the module is loaded or the link is destroyed.
type jit struct {
	keys      []uint32
	values    []uintptr
	info, err []byte
	opts      JITOptions
}

// newJIT allocates a jit on the heap, which does not move.
//
//go:noinline
func newJIT(opts JITOptions) *jit {
	j := &jit{info: make([]byte, jitLogBytes), err: make([]byte, jitLogBytes), opts: opts}
	add := func(key uint32, value uintptr) { j.keys, j.values = append(j.keys, key), append(j.values, value) }
	add(jitInfoLog, uintptr(unsafe.Pointer(&j.info[0])))
	add(jitInfoLogSize, jitLogBytes)
	add(jitErrorLog, uintptr(unsafe.Pointer(&j.err[0])))
	add(jitErrorLogSize, jitLogBytes)
	if opts.MaxRegisters > 0 {
		add(jitMaxRegisters, uintptr(opts.MaxRegisters))
	}
	if opts.LineInfo {
		add(jitGenerateLineInfo, 1)
	}
	if opts.Verbose {
		add(jitLogVerbose, 1)
	}
	return j
}

func (j *jit) keysAddr() uintptr   { return uintptr(unsafe.Pointer(&j.keys[0])) }
func (j *jit) valuesAddr() uintptr { return uintptr(unsafe.Pointer(&j.values[0])) }

// done stores the compiler's messages in the caller's InfoLog. If the compilation failed, it
// returns an error.
func (j *jit) done(r Result, call, detail string) error {
	if j.opts.InfoLog != nil {
		*j.opts.InfoLog = gostring(j.info)
	}
	if r == 0 {
		return nil
	}
	return &Error{Call: call, Result: r, Detail: detail, Log: gostring(j.err)}
}

// terminated returns a copy of image on the heap, with the final NUL that PTX text needs. It
// returns a cubin (an ELF file) unchanged.
//
//go:noinline
func terminated(image []byte) []byte {
	if bytes.HasPrefix(image, []byte("\x7fELF")) || len(image) > 0 && image[len(image)-1] == 0 {
		return image
	}
	t := make([]byte, len(image)+1)
	copy(t, image)
	return t
}

func (d *driver) ModuleLoadData(image []byte, opts JITOptions) (Module, error) {
	if len(image) == 0 {
		return 0, &Error{Call: "cuModuleLoadData", Result: ErrInvalidImage, Detail: "the image is empty"}
	}
	image = terminated(image)
	j := newJIT(opts)
	b := getBlock(d.fn.moduleLoadDataEx)
	defer putBlock(b)
	b.out[0] = 0
	b.a[0], b.a[1] = b.outAddr(0), uintptr(unsafe.Pointer(&image[0]))
	b.a[2], b.a[3], b.a[4] = uintptr(len(j.keys)), j.keysAddr(), j.valuesAddr()
	r := b.call()
	m := Module(b.out[0])
	runtime.KeepAlive(image)
	runtime.KeepAlive(j)
	return m, j.done(r, "cuModuleLoadData", "")
}

func (d *driver) ModuleUnload(m Module) error {
	return fail(call1(d.fn.moduleUnload, uintptr(m)), "cuModuleUnload")
}

func (d *driver) ModuleGetFunction(m Module, name string) (Function, error) {
	n := cstring(name)
	f, r := get1(d.fn.moduleGetFunction, uintptr(m), uintptr(unsafe.Pointer(&n[0])))
	runtime.KeepAlive(n)
	return Function(f), failf(r, "cuModuleGetFunction", "kernel %q", name)
}

func (d *driver) LinkPTX(name string, ptx []byte, opts JITOptions) ([]byte, error) {
	if len(ptx) == 0 {
		return nil, &Error{Call: "cuLinkAddData", Result: ErrInvalidImage, Detail: name + " is empty"}
	}
	j := newJIT(opts)
	defer runtime.KeepAlive(j)
	b := getBlock(d.fn.linkCreate)
	b.out[0] = 0
	b.a[0], b.a[1], b.a[2], b.a[3] = uintptr(len(j.keys)), j.keysAddr(), j.valuesAddr(), b.outAddr(0)
	r := b.call()
	state := uintptr(b.out[0])
	putBlock(b)
	if r != 0 {
		return nil, j.done(r, "cuLinkCreate", name)
	}
	defer call1(d.fn.linkDestroy, state)

	text, label := terminated(ptx), cstring(name)
	b = getBlock(d.fn.linkAddData)
	b.a[0], b.a[1], b.a[2], b.a[3] = state, jitInputPTX, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text))
	b.a[4], b.a[5], b.a[6], b.a[7] = uintptr(unsafe.Pointer(&label[0])), 0, 0, 0
	r = b.call()
	putBlock(b)
	runtime.KeepAlive(text)
	runtime.KeepAlive(label)
	if r != 0 {
		return nil, j.done(r, "cuLinkAddData", name)
	}

	b = getBlock(d.fn.linkComplete)
	defer putBlock(b)
	b.out[0], b.out[1] = 0, 0
	b.a[0], b.a[1], b.a[2] = state, b.outAddr(0), b.outAddr(1)
	if r = b.call(); r != 0 {
		return nil, j.done(r, "cuLinkComplete", name)
	}
	// The image belongs to the link, which frees it. The result is therefore a copy.
	return bytes.Clone(unsafe.Slice(*(**byte)(unsafe.Pointer(&b.out[0])), b.out[1])), j.done(0, "", "")
}

func (d *driver) FuncAttribute(f Function, a FuncAttr) (int, error) {
	v, r := get1(d.fn.funcGetAttribute, uintptr(a), uintptr(f))
	return int(int32(v)), failf(r, "cuFuncGetAttribute", "attribute %d", a)
}

func (d *driver) FuncSetAttribute(f Function, a FuncAttr, value int) error {
	return failf(call3(d.fn.funcSetAttribute, uintptr(f), uintptr(a), uintptr(value)), "cuFuncSetAttribute", "attribute %d to %d", a, value)
}

func (d *driver) OccupancyMaxActiveBlocks(f Function, blockThreads int, dynShared uint64) (int, error) {
	v, r := get1(d.fn.occupancyMaxActiveBlocks, uintptr(f), uintptr(blockThreads), uintptr(dynShared))
	return int(int32(v)), failf(r, "cuOccupancyMaxActiveBlocksPerMultiprocessor", "%d threads, %d bytes", blockThreads, dynShared)
}

// Keys in the argument extra of cuLaunchKernel: CU_LAUNCH_PARAM_* in cuda.h.
const (
	launchParamEnd           = 0
	launchParamBufferPointer = 1
	launchParamBufferSize    = 2
)

func (d *driver) LaunchKernel(f Function, grid, block Dim3, dynShared uint32, s Stream, params []byte) error {
	b := getBlock(d.fn.launchKernel)
	b.a[0] = uintptr(f)
	b.a[1], b.a[2], b.a[3] = uintptr(grid.X), uintptr(grid.Y), uintptr(grid.Z)
	b.a[4], b.a[5], b.a[6] = uintptr(block.X), uintptr(block.Y), uintptr(block.Z)
	b.a[7], b.a[8], b.a[9], b.a[10] = uintptr(dynShared), uintptr(s), 0, 0
	if len(params) > 0 {
		b.size = uintptr(len(params))
		b.extra = [5]uintptr{launchParamBufferPointer, uintptr(unsafe.Pointer(&params[0])), launchParamBufferSize,
			uintptr(unsafe.Pointer(&b.size)), launchParamEnd}
		b.a[10] = uintptr(unsafe.Pointer(&b.extra[0]))
	}
	r := b.call()
	runtime.KeepAlive(params)
	putBlock(b)
	if r == 0 {
		return nil
	}
	return failf(r, "cuLaunchKernel", "grid %v, block %v, %d bytes of dynamic shared memory, %d bytes of parameters", grid, block, dynShared, len(params))
}
