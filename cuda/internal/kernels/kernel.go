package kernels

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// Kernel is the PTX of one entry point and the launch shape that it needs.
type Kernel struct {
	Name         string // family and variant, such as "gemm_f32_128x128"
	Entry        string // name of the entry point in PTX
	PTX          string
	Block        [3]uint32 // threads of a block along each axis
	StaticShared int       // bytes of shared memory that the PTX text declares
	DynShared    int       // bytes of dynamic shared memory, passed at launch
	ParamSize    int       // bytes of the kernel's parameters
	Version      int       // PTX version times ten
	Target       int       // least compute capability times ten
	Foreign      bool      // whether the kernel was made by the user's program, not by the library
	// whether the kernel runs only on devices with exactly the capability Target
	Exact bool
	// whether the kernel itself waits for the launches that were queued before it
	Overlap bool
	// kernels for other targets that give the same results; only DynShared may differ in their
	// launch shapes
	Forms []*Kernel
}

// Launch is one kernel launch.
type Launch struct {
	Kernel *Kernel
	Grid   [3]uint32
	Params []byte // parameters, packed as PTX lays out the .param space
	// Tensor is the number of operations on tensor cores, padding of tiles included. It is 0 for a
	// kernel that does not use tensor cores. If only the device knows the lengths of samples,
	// Tensor is an upper bound.
	Tensor int
	TF32   bool // whether the tensor cores multiply in TF32
}

// Operand is a tensor in memory: the address of its memory, a layout and an element type. The
// layout's offset and strides count elements.
type Operand struct {
	Addr uint64
	Type dtype.Type
	shape.Layout
}

// start returns the address of the first element.
func (o Operand) start() uint64 { return o.Addr + uint64(o.Offset*o.Type.Size()) }

// Scratch allocates temporary device memory and returns its address, aligned to 256 bytes.
type Scratch func(bytes int) (addr uint64, err error)

// Error says why an operation cannot be planned.
type Error struct {
	Op  string
	Msg string
}

func (e *Error) Error() string { return fmt.Sprintf("cuda kernels: %s: %s", e.Op, e.Msg) }

func fail(op, format string, args ...any) error { return &Error{op, fmt.Sprintf(format, args...)} }

// cache maps the specification of each kernel built so far to its *Kernel.
var cache sync.Map

// spec is the specification of one kernel. Kernels with equal specifications are the same.
type spec interface {
	comparable
	// build emits the kernel's code and returns the number of threads of a block along each axis.
	// The argument programs holds the programs whose keys are part of the specification.
	build(b *ptx.Builder, programs []*expr.Program) (block [3]int)
	// name returns the name of the entry point. Different specifications of one family have
	// different names.
	name() string
}

// programID identifies a program in a specification. The key alone distinguishes programs, and the
// name makes the kernel's name readable. Two programs with the same code and different names have
// two kernels. Otherwise a kernel's text would depend on which program is built first.
type programID struct{ key, name string }

func programIDOf(p *expr.Program) programID { return programID{p.Key(), p.Name()} }

// kernelOf returns the kernel of a specification. It builds the kernel at first use.
func kernelOf[S spec](s S, programs ...*expr.Program) (*Kernel, error) {
	if k, ok := cache.Load(s); ok {
		return k.(*Kernel), nil
	}
	b := ptx.New(s.name())
	block := s.build(b, programs)
	b.MaxThreads(block[0], block[1], block[2])
	built, err := b.Build()
	if err != nil {
		return nil, err
	}
	k := &Kernel{Name: built.Name, Entry: built.Name, PTX: built.Text, StaticShared: built.StaticShared,
		ParamSize: built.ParamSize, Version: built.Version, Target: built.Target, Exact: built.Exact}
	if d, ok := any(s).(interface{ dynamicShared() int }); ok {
		k.DynShared = d.dynamicShared()
	}
	for i, n := range block {
		k.Block[i] = uint32(n)
	}
	actual, _ := cache.LoadOrStore(s, k)
	return actual.(*Kernel), nil
}

// roomForRegisters requests four blocks per multiprocessor. With up to 256 threads in a block, each
// thread then has 64 registers. Without this hint the assembler makes room for more blocks than
// these kernels need, and spills registers on some architectures.
func roomForRegisters(b *ptx.Builder) { b.MinBlocks(4) }

// packer packs the parameters of a launch. They are aligned as in C, which is also the alignment of
// PTX.
type packer []byte

func (p *packer) align(n int) {
	for len(*p)%n != 0 {
		*p = append(*p, 0)
	}
}

func (p *packer) u32(v uint32) {
	p.align(4)
	*p = binary.LittleEndian.AppendUint32(*p, v)
}

func (p *packer) u64(v uint64) {
	p.align(8)
	*p = binary.LittleEndian.AppendUint64(*p, v)
}

// index packs an index, with 64 bits if the kernel has wide indices and 32 bits otherwise.
func (p *packer) index(wide bool, v int) {
	if wide {
		p.u64(uint64(v))
	} else {
		p.u32(uint32(v))
	}
}

// launch returns the launch of k with the packed parameters. If their size is wrong, which is a bug
// of this package, it returns an error.
func (p packer) launch(k *Kernel, grid ...int) (Launch, error) {
	if len(p) != k.ParamSize {
		return Launch{}, fail(k.Name, "%d bytes of parameters packed, the kernel takes %d", len(p), k.ParamSize)
	}
	l := Launch{Kernel: k, Grid: [3]uint32{1, 1, 1}, Params: p}
	for i, n := range grid {
		limit := 1<<31 - 1
		if i > 0 {
			limit = 65535
		}
		if n < 1 || n > limit {
			return Launch{}, fail(k.Name, "a grid of %d blocks along axis %d is not possible", n, i)
		}
		l.Grid[i] = uint32(n)
	}
	return l, nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// maxBlocks is the largest grid of kernels with a grid-stride loop over the elements.
const maxBlocks = 1 << 16
