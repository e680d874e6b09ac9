package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
)

// products computes matrix products of a device with NVIDIA's cublasLt. The package's own kernels
// compute the products that the library does not support, or for which its heuristic finds no
// algorithm. If a call of the library fails, the error is returned.
type products struct {
	lib    *cublaslt.Library
	handle cublaslt.Handle
	most   int // largest number of plans in the cache

	mu    sync.Mutex // held during each call of the library
	plans map[cublaslt.Product]*productPlan
}

// productPlan is a plan of cublasLt in the cache. The descriptors are destroyed when the
// productPlan is garbage, because a recording may hold it longer than the cache does.
type productPlan struct{ plan *cublaslt.Plan }

const (
	// productName is the name of cublasLt's products in a profile.
	productName = "cublasLt matmul"
	// productWorkspace is the largest workspace of a product in bytes. It is NVIDIA's
	// recommendation for compute capability 9.0 (cuBLAS, cublasSetWorkspace).
	productWorkspace = 32 << 20
	mostPlans        = 4096
)

// openCublasLt loads cublasLt from the path that [Libraries] finds.
func openCublasLt() (*cublaslt.Library, error) {
	for _, l := range Libraries() {
		if l.Name == "cublasLt" && l.Found {
			return cublaslt.Open(l.Path)
		}
	}
	return cublaslt.Open()
}

// openProducts prepares cublasLt for the device's products if FLAMBEAU_LIBS names it. The error is
// a *[device.UnavailableError].
func (d *Device) openProducts() error {
	if d.p.products == nil {
		return nil
	}
	unavailable := func(err error) error {
		return &device.UnavailableError{Name: d.name, Reason: "FLAMBEAU_LIBS asks for cublaslt: " + err.Error(), Err: err,
			Help: "install cublasLt 11.11 or newer of a CUDA version that the driver takes (the Python package nvidia-cublas), say in LD_LIBRARY_PATH where it is, or unset FLAMBEAU_LIBS"}
	}
	lib, err := d.p.products()
	if err != nil {
		return unavailable(err)
	}
	p := &products{lib: lib, most: mostPlans, plans: map[cublaslt.Product]*productPlan{}}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if p.handle, err = lib.Create(); err != nil {
		return unavailable(err)
	}
	d.products = p
	return nil
}

// Products returns the name of the implementation of matrix products that the device uses. It is
// "own kernels", or a library's name, version and path. FLAMBEAU_LIBS chooses the library. The
// package's own kernels still compute products that the library does not support. For 16-bit
// results the library rounds a float32 bias to their type before the addition, as PyTorch's
// autocast does.
func (d *Device) Products() string {
	if d.products == nil {
		return "own kernels"
	}
	return fmt.Sprintf("cublasLt %v at %s", d.products.lib.Version(), d.products.lib.Path())
}

// plan returns the plan of a product, or nil if cublasLt has no algorithm for it. The device's
// context is current.
func (p *products) plan(o cublaslt.Product) (*productPlan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept, ok := p.plans[o]; ok {
		return kept, nil
	}
	if len(p.plans) >= p.most {
		clear(p.plans)
	}
	plan, err := p.lib.Plan(p.handle, o, productWorkspace)
	var kept *productPlan
	switch {
	case err == nil:
		kept = &productPlan{plan}
		runtime.AddCleanup(kept, p.close, plan)
	case !errors.Is(err, cublaslt.ErrNotSupported):
		return nil, err
	}
	p.plans[o] = kept
	return kept, nil
}

func (p *products) close(plan *cublaslt.Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = plan.Close() // a cleanup has no caller that could handle the error
}

// productCall is a matrix product with the addresses of its operands.
type productCall struct {
	owner                    *products
	plan                     *productPlan
	a, b, d, bias, workspace uint64
}

// run queues the product. The device's context is current.
func (c *productCall) run(s cu.Stream) error {
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	err := c.plan.plan.Run(c.a, c.b, c.d, c.bias, c.workspace, s)
	runtime.KeepAlive(c.plan)
	return err
}

// product queues a product that cublasLt computes. It returns false and queues nothing if the
// package's own kernels must compute the product.
func (t *scratch) product(o *device.MatMul, told *device.KernelEvent) (done bool, err error) {
	d := t.d
	if d.products == nil {
		return false, nil
	}
	p, ok := productOf(o)
	if !ok {
		return false, nil
	}
	// cublasLt uses column-major matrices. In these terms, the row-major product A·B is the product
	// of B and A.
	c := &productCall{owner: d.products, a: firstOf(&o.B), b: firstOf(&o.A), d: firstOf(&o.Out)}
	p.A.Align, p.B.Align, p.D.Align = alignment(c.a), alignment(c.b), alignment(c.d)
	converts := p.Bias && !biasTaken(o)
	switch {
	case converts:
		p.BiasAlign = 256 // scratch memory has this alignment
	case p.Bias:
		c.bias = firstOf(&o.Bias)
		p.BiasAlign = alignment(c.bias)
	}
	if err := d.enter(); err != nil {
		return false, err
	}
	c.plan, err = c.owner.plan(p)
	d.leave()
	if err != nil {
		return false, d.fault(productName, err)
	}
	if c.plan == nil {
		return false, nil
	}
	if n := c.plan.plan.Workspace(); n > 0 {
		if c.workspace, err = t.alloc(n); err != nil {
			return false, err
		}
	}
	if converts {
		if c.bias, err = t.convertBias(o, told); err != nil {
			return false, err
		}
	}
	if told == nil {
		return true, d.multiply(t.s, c)
	}
	e := device.LaunchEvent{Kernel: productName, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}
	if o.A.Type.Size() == 2 {
		e.Tensor = 2 * o.Out.Size() * o.A.Shape.At(2)
	}
	told.Recorded = t.s.Recording()
	e.Time, err = d.timed(t.s, func() error {
		e.Start = device.Now()
		err := d.multiply(t.s, c)
		e.End = device.Now()
		return err
	})
	told.Launches = append(told.Launches, e)
	return true, err
}

// multiply queues a product that cublasLt computes, or records it if the stream is being
// recorded.
func (d *Device) multiply(s *stream, c *productCall) error {
	if l := s.rec.Load(); l != nil {
		l.record(recorded{kind: recordedProduct, product: c})
		return nil
	}
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	if err := c.run(s.handle); err != nil {
		return d.fault(productName, err)
	}
	d.count.launches.Add(1)
	if d.p.sync {
		return d.fault(productName, d.api.StreamSynchronize(s.handle))
	}
	return nil
}

// captured adds a product that cublasLt computes to a graph. It captures the work that the
// library queues on a stream, and adds it as one node. The device's context is current.
func (d *Device) captured(g cu.Graph, after []cu.GraphNode, c *productCall) (cu.GraphNode, error) {
	api := d.api.(cu.Graphs)
	s, err := d.newStream(0)
	if err != nil {
		return 0, err
	}
	defer d.streams.put(idleStream{s.priority, s.handle, s.slot})
	if err := api.StreamBeginCapture(s.handle); err != nil {
		return 0, err
	}
	err = c.run(s.handle)
	child, e := api.StreamEndCapture(s.handle)
	if err == nil {
		err = e
	}
	if err != nil {
		if e == nil {
			_ = api.GraphDestroy(child) // only the first error is reported
		}
		return 0, err
	}
	n, err := api.GraphAddChildGraphNode(g, after, child) // the node holds its own copy of child
	if e := api.GraphDestroy(child); err == nil {
		err = e
	}
	return n, err
}
