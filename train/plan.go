package train

import (
	"errors"
	"fmt"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A PlannedStep is the training step that [Plan] runs.
type PlannedStep struct {
	Model     any             // model whose parameters and buffers count as weights
	Optimizer optim.Optimizer // nil means no training: Loss runs without a graph
	// Loss makes a batch and computes its loss. It works in scope s, which is closed after the
	// step. The values of the batch do not matter.
	Loss func(s *tensor.Scope) *tensor.Tensor
	// Accumulate is the number of losses in one step of the optimizer, each with its own backward
	// pass. 0 means 1.
	Accumulate int
}

// A PlanConfig describes the device for which a step is planned.
type PlanConfig struct {
	// Machine has the rates from which time is estimated. If Memory is 0, the device has Machine's
	// memory. Use one of [GPUs], or [MeasureCPU]. The zero value is a GPU with unknown rates.
	Machine Machine
	// Memory is the number of bytes that the program can use on the device. 0 means Machine's
	// memory. If that is 0 too, memory is unlimited.
	Memory int
	Batch  int // the size of the batch, at least 1
	// MaxBatch is the largest batch size to try in the search for the largest batch that fits. 0
	// means no search.
	MaxBatch int
}

// A Breakdown divides the memory in use at the peak, in bytes, by purpose. Its fields add up to the
// peak.
type Breakdown struct {
	Weights   int // parameters and buffers of the model
	Gradients int // gradients of the parameters
	Optimizer int // state of the optimizer
	// Activations is the memory in use at the end of the forward pass: tensors saved for the
	// gradients, the batch, and results.
	Activations int
	// Workspace is memory that is freed within a pass: intermediate results, temporary gradients,
	// scratch memory of kernels.
	Workspace int
	Other     int // everything else, allocated before the step
	Rounding  int // bytes by which blocks of memory exceed the requested sizes
}

func (b Breakdown) total() int {
	return b.Weights + b.Gradients + b.Optimizer + b.Activations + b.Workspace + b.Other + b.Rounding
}

// FLOPs counts arithmetic operations as [device.Work] does. A multiplication and an addition count
// as two operations. An exponential counts as about twenty, the number of operations that compute
// it.
type FLOPs struct {
	Forward, Backward, Optimizer int
	// MatMul counts the operations of matrix products, convolutions and attention in Forward and
	// Backward. PyTorch's counters count only these.
	MatMul int
}

// Total returns the operations of the whole step.
func (f FLOPs) Total() int { return f.Forward + f.Backward + f.Optimizer }

// A Report says what resources a training step needs.
type Report struct {
	Machine    string // name of the machine
	Memory     int    // memory of the device in bytes, 0 if unlimited
	Batch      int
	Parameters int // number of elements of all parameters

	// Peak is the most memory in use during a step, once the optimizer's state exists:
	// torch.cuda.max_memory_allocated. Reserved is the memory that the allocator has then taken
	// from the driver, including its cache.
	Peak, Reserved int
	Breakdown      Breakdown
	// At names the op and the pass in which memory is at its peak, such as "matmul, backward".
	At string

	FLOPs   FLOPs
	Bytes   int // minimum number of bytes that the kernels read and write
	Kernels int // kernel launches on a GPU, primitives on a CPU

	// Launches is the number of kernel launches on a GPU, and 0 on a CPU. Modules is the number of
	// different kernels among them. The driver loads each of these kernels, and compiles it when it
	// is first used on a machine.
	Launches, Modules int
	Units             Units
	// Least maps the name of each of [GPUs] to the minimum time of the step on it, in seconds. It
	// is nil for a CPU. A primitive takes as long as its operations at the peak rate, or its bytes
	// at the full bandwidth, whichever is longer. A copy within the device takes as long as
	// reading and writing its bytes. The time of launches is not included: see [LaunchSeconds].
	// The kernels are those for the planned Machine.
	Least map[string]float64
	// Seconds is the estimated time of a step, which [Machine] explains. It is 0 if the machine's
	// rates are unknown.
	Seconds float64

	// Fits says whether the step runs within Memory.
	Fits bool
	// MaxBatch is the largest batch size, up to the configuration's MaxBatch, whose step runs
	// within Memory. It is 0 if no step fits, or if the configuration's MaxBatch is 0.
	MaxBatch int
}

var planning sync.Mutex // locked by Plan, because a process has only one tracer

// Plan runs a training step on a device without memory ([device.OpenMeta]) and reports what the
// step needs: memory, operations and, for a machine with known rates, time. It computes no values,
// so it is quick for models of any size and needs no GPU.
//
// build makes model and optimizer for the given batch size, in scope s (nn.In(s)). Everything must
// be on the device of s. The step runs twice: in the first run the optimizer allocates its state,
// and the second run is reported. Plan uses the kernels and the allocator of a real run, and so
// finds the peak of a real run. On a GPU the report does not include the memory that NVIDIA's
// driver uses (context and code). On a CPU it includes the pool's memory, but not buffers below 8
// KiB, the data set, and Go's own heap.
//
// A step that does not fit is no error. Fits is then false, and Peak is the memory that the step
// would need. A step that reads a value (Item, a shape that depends on data) fails with a
// *[tensor.Error] that wraps [device.ErrNoValues]. The program must import the driver of the device
// (package cuda for GPUs). Wrong settings are an *[Error]. Plan needs the process's tracer, so it
// fails while a profiler runs.
func Plan(build func(s *tensor.Scope, batch int) *PlannedStep, c PlanConfig) (*Report, error) {
	if c.Machine.Kind == "" {
		c.Machine.Kind = "cuda"
	}
	if c.Memory == 0 {
		c.Memory = c.Machine.Memory
	}
	switch {
	case build == nil:
		return nil, &Error{"Plan", "there is no function that builds the step"}
	case c.Batch < 1:
		return nil, &Error{"Plan", fmt.Sprintf("a batch of %d samples; the least is 1", c.Batch)}
	case c.Memory < 0 || c.Memory > 0 && c.Memory < minPlanned || int64(c.Memory) > maxPlanned:
		return nil, &Error{"Plan", fmt.Sprintf("%d bytes of memory; from 1 MiB to 4 TiB can be planned for", c.Memory)}
	case c.MaxBatch < 0 || c.MaxBatch > 0 && c.Memory == 0:
		return nil, &Error{"Plan", fmt.Sprintf("the largest batch up to %d is asked for, in %d bytes of memory", c.MaxBatch, c.Memory)}
	}
	planning.Lock()
	defer planning.Unlock()

	t, err := c.run(build, c.Batch, c.Memory, true)
	fits := err == nil
	if errors.Is(err, device.ErrOutOfMemory) && c.Memory > 0 {
		t, err = c.run(build, c.Batch, 0, true)
	}
	if err != nil {
		return nil, err
	}
	r := t.report
	r.Machine, r.Memory, r.Batch, r.Fits = c.Machine.Name, c.Memory, c.Batch, fits
	if c.MaxBatch > 0 {
		if r.MaxBatch, err = c.largest(build, fits, r.Reserved); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// minPlanned and maxPlanned are the limits of PlanConfig.Memory, in bytes. Memory may also be 0.
const (
	minPlanned = 1 << 20
	maxPlanned = 1 << 42
)

// largest finds the largest batch that fits into memory. The memory in use grows nearly in
// proportion to the batch, so two runs give an estimate. Further runs then find the size that fits
// while one more sample does not.
func (c *PlanConfig) largest(build func(*tensor.Scope, int) *PlannedStep, fits bool, held int) (int, error) {
	// good is the largest batch known to fit. bad is the smallest batch that is known or assumed
	// not to fit.
	good, bad := 0, c.MaxBatch+1
	// known has the two latest runs, the smaller batch first.
	known := [2]struct{ batch, held int }{1: {c.Batch, held}}
	try := func(n int) (bool, error) {
		t, err := c.run(build, n, c.Memory, false)
		if errors.Is(err, device.ErrOutOfMemory) {
			bad = n
			return false, nil
		}
		if err != nil {
			return false, err
		}
		good = n
		k := struct{ batch, held int }{n, t.dev.Stats().ReservedPeak}
		if n < known[1].batch {
			known[0] = k
		} else if n > known[1].batch {
			known[0], known[1] = known[1], k
		}
		return true, nil
	}
	if fits {
		if good = min(c.Batch, c.MaxBatch); good == c.MaxBatch {
			return good, nil
		}
	} else {
		bad = min(bad, c.Batch)
	}
	// back is a fraction: the next size to try is smaller than bad by this fraction of bad. It is 0
	// until a tried size has failed, and 1 from the time when the search bisects.
	back := 0.0
	for bad-good > 1 {
		n := good + (bad-good)/2
		switch a, b := known[0], known[1]; {
		case a.batch == 0 && good == 0:
			n = 1
		case a.batch == 0:
			n = 2 * good
		case back == 0 && b.held > a.held:
			n = a.batch + int(float64(c.Memory-a.held)/float64(b.held-a.held)*float64(b.batch-a.batch))
		case back == 0:
			n = 2 * max(good, 1)
		case back < 1:
			n = bad - int(back*float64(bad))
		}
		n = min(max(n, good+1), bad-1)
		ok, err := try(n)
		switch {
		case err != nil:
			return 0, err
		case ok && back > 0:
			back = 1 // bisect from now on
		case !ok && back == 0:
			back = 0.02
		case !ok:
			back = min(2*back, 1)
		}
	}
	return good, nil
}

// run makes the training step twice on a meta device, which stores no values. It traces the second
// step. The device refuses to allocate more than the given memory.
func (c *PlanConfig) run(build func(*tensor.Scope, int) *PlannedStep, batch, memory int, traced bool) (t *planTrace, err error) {
	dev, err := device.OpenMeta(c.Machine.Kind, device.MetaConfig{Memory: memory, Capability: c.Machine.Capability})
	if err != nil {
		return nil, err
	}
	t = &planTrace{dev: dev, machine: &c.Machine, live: map[uintptr]*block{}, modules: map[string]bool{}}
	if traced {
		if !device.SetTracer(t) {
			return nil, &Error{"Plan", "a profiler is running, and there is one tracer in a process; stop it first"}
		}
		defer device.SetTracer(nil)
	}
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			p := build(s, batch)
			if p == nil || p.Model == nil || p.Loss == nil {
				panic(tensor.NewError("plan", tensor.ErrValue, "a step needs a Model and a Loss"))
			}
			t.begin(p)
			t.step(s, p)
			t.measure()
			t.step(s, p)
			t.finish(p)
		}, tensor.On(dev), tensor.Seed(0))
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (t *planTrace) step(s *tensor.Scope, p *PlannedStep) {
	var modes []tensor.Option
	if p.Optimizer == nil {
		modes = append(modes, tensor.NoGrad())
	} else {
		nn.Train(p.Model)
	}
	for range max(p.Accumulate, 1) {
		s.Do(func(s *tensor.Scope) {
			t.enter(forward)
			loss := p.Loss(s)
			t.forwarded()
			if p.Optimizer == nil {
				return
			}
			if loss == nil || loss.Size() != 1 {
				panic(tensor.NewError("plan", tensor.ErrShape, "the loss has to be one number", loss))
			}
			t.enter(backward)
			loss.Backward()
			t.gradients(p)
			t.enter(between)
		}, modes...)
	}
	if p.Optimizer != nil {
		t.enter(updating)
		p.Optimizer.Step()
		t.enter(between)
		p.Optimizer.ZeroGrad()
	}
}
