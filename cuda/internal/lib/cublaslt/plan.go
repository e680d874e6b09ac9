package cublaslt

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// Matrix describes one column-major operand of a [Product] in memory.
type Matrix struct {
	Type DataType
	Ld   int // distance between columns in elements, at least the number of rows
	// distance between the matrices of a batch in elements; 0 if all products have the same matrix
	Stride int
	// Align is a power of 2, at most 256, that divides the matrix's address in bytes.
	Align uint32
}

// Product is D = op(A)·op(B) for each matrix of a batch, with op(A) [M, K], op(B) [K, N], D [M, N],
// and sums in float32. A bias has M elements. Before rounding, element i of the bias is added to
// each sum in row i. Product is comparable.
type Product struct {
	M, N, K, Batch int
	// If TransA is true, A is [K, M] in memory. If TransB is true, B is [N, K].
	TransA, TransB bool
	A, B, D        Matrix
	// whether there is a bias; it has the type of D and is the same for the whole batch
	Bias bool
	// BiasAlign is a power of 2, at most 256, that divides the bias's address.
	BiasAlign uint32
}

// Plan is a product with the algorithm that computes it.
type Plan struct {
	l         *Library
	handle    Handle
	desc      uintptr
	layout    [3]uintptr // layouts of A, B and D
	algo      *algorithm
	workspace uint64
	bias      bool
}

// factors are alpha and beta. They are global, because C functions need memory that does not move.
var factors = [2]float32{1, 0}

// Plan returns a product's plan with the best algorithm that the library knows. The argument
// workspace is the largest number of bytes of workspace that the algorithm may use. If the library
// has no algorithm, the error is ErrNotSupported, and the handle can still be used.
func (l *Library) Plan(h Handle, p Product, workspace uint64) (*Plan, error) {
	plan := &Plan{l: l, handle: h, algo: new(algorithm), bias: p.Bias}
	err := plan.describe(&p)
	if err == nil {
		err = plan.choose(&p, workspace)
	}
	if err != nil {
		_ = plan.Close() // only the first error is returned
		if e, ok := err.(*Error); ok {
			e.Detail = p.String()
		}
		return nil, err
	}
	return plan, nil
}

func (p *Plan) describe(o *Product) error {
	l := p.l
	var err error
	if p.desc, err = l.make(descCreate, compute32F, uintptr(Float32)); err != nil {
		return err
	}
	for i, transposed := range [...]bool{o.TransA, o.TransB} {
		op := uint64(opN)
		if transposed {
			op = opT
		}
		if err := l.set(descSet, p.desc, descTransA+i, op, 4); err != nil {
			return err
		}
	}
	if o.Bias {
		if err := l.set(descSet, p.desc, descEpilogue, epilogueBias, 4); err != nil {
			return err
		}
		if err := l.set(descSet, p.desc, descBiasType, uint64(o.D.Type), 4); err != nil {
			return err
		}
		// Any address with the right alignment is sufficient, because the heuristic does not read
		// the memory.
		if err := l.set(descSet, p.desc, descBias, uint64(o.BiasAlign), 8); err != nil {
			return err
		}
	}
	a, b := [2]int{o.M, o.K}, [2]int{o.K, o.N}
	if o.TransA {
		a[0], a[1] = a[1], a[0]
	}
	if o.TransB {
		b[0], b[1] = b[1], b[0]
	}
	for i, size := range [...][2]int{a, b, {o.M, o.N}} {
		m := [...]*Matrix{&o.A, &o.B, &o.D}[i]
		if p.layout[i], err = l.make(layoutCreate, uintptr(m.Type), uintptr(size[0]), uintptr(size[1]), uintptr(m.Ld)); err != nil {
			return err
		}
		if o.Batch == 1 {
			continue
		}
		if err := l.set(layoutSet, p.layout[i], layoutBatch, uint64(o.Batch), 4); err != nil {
			return err
		}
		if err := l.set(layoutSet, p.layout[i], layoutStride, uint64(m.Stride), 8); err != nil {
			return err
		}
	}
	return nil
}

// choose stores the algorithm that the library's heuristic prefers.
func (p *Plan) choose(o *Product, workspace uint64) error {
	l := p.l
	prefer, err := l.make(preferenceCreate)
	if err != nil {
		return err
	}
	err = l.set(preferenceSet, prefer, preferWorkspace, workspace, 8)
	if err == nil {
		err = l.set(preferenceSet, prefer, preferReductions, reduceComputeType, 4)
	}
	for i, align := range [...]uint32{o.A.Align, o.B.Align, o.D.Align, o.D.Align} {
		if err == nil {
			err = l.set(preferenceSet, prefer, preferAlignment+i, uint64(align), 4)
		}
	}
	if err == nil {
		err = p.ask(prefer)
	}
	if e := l.call(preferenceDestroy, prefer); err == nil {
		err = e
	}
	return err
}

func (p *Plan) ask(prefer uintptr) error {
	best, found := newHeuristic(), word(0)
	err := p.l.call(getHeuristic, uintptr(p.handle), p.desc, p.layout[0], p.layout[1], p.layout[2], p.layout[2], prefer, 1,
		uintptr(unsafe.Pointer(best)), addressOf(found))
	runtime.KeepAlive(best)
	runtime.KeepAlive(found)
	switch {
	case err != nil:
		return err
	case int32(*found) < 1:
		return &Error{Call: names[getHeuristic], Status: ErrNotSupported}
	case best.state != Success:
		return &Error{Call: names[getHeuristic], Status: best.state}
	}
	*p.algo, p.workspace = best.algo, best.workspace
	return nil
}

//go:noinline
func newHeuristic() *heuristic { return new(heuristic) }

// Workspace returns how many bytes of workspace Run needs. Its address must be a multiple of 256.
func (p *Plan) Workspace() int { return int(p.workspace) }

// Run is cublasLtMatmul: it queues the product of the matrices at addresses a and b, and stores it
// at address d. The address bias is 0 if the product has no bias. The address workspace is 0 if the
// plan needs no workspace.
func (p *Plan) Run(a, b, d, bias, workspace uint64, stream cu.Stream) error {
	if p.bias {
		if err := p.l.set(descSet, p.desc, descBias, bias, 8); err != nil {
			return err
		}
	}
	alpha, beta := uintptr(unsafe.Pointer(&factors[0])), uintptr(unsafe.Pointer(&factors[1]))
	err := p.l.call(matmul, uintptr(p.handle), p.desc, alpha, uintptr(a), p.layout[0], uintptr(b), p.layout[1], beta,
		uintptr(d), p.layout[2], uintptr(d), p.layout[2], uintptr(unsafe.Pointer(p.algo)), uintptr(workspace), uintptr(p.workspace), uintptr(stream))
	runtime.KeepAlive(p)
	return err
}

// Close destroys the descriptors. Queued products still run.
func (p *Plan) Close() error {
	var first error
	end := func(f function, h *uintptr) {
		if *h != 0 {
			if err := p.l.call(f, *h); first == nil {
				first = err
			}
			*h = 0
		}
	}
	for i := range p.layout {
		end(layoutDestroy, &p.layout[i])
	}
	end(descDestroy, &p.desc)
	return first
}

// String returns a text such as "[4096,1024]·[1024,512] of type 14 into 0, with a bias".
func (p Product) String() string {
	s := fmt.Sprintf("[%d,%d]·[%d,%d] of type %d into %d", p.M, p.K, p.K, p.N, p.A.Type, p.D.Type)
	if p.Batch > 1 {
		s += fmt.Sprintf(", %d of them", p.Batch)
	}
	if p.Bias {
		s += ", with a bias"
	}
	return s
}
