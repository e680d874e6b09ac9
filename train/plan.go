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

// A PlannedStep is a training step that [Plan] runs.
type PlannedStep struct {
	Model     any             // whose parameters and buffers are the weights
	Optimizer optim.Optimizer // nil: nothing is trained, and Loss runs without a graph
	// Loss makes a batch and computes its loss, in scope s, which is closed after the step. What
	// the batch holds does not matter.
	Loss func(s *tensor.Scope) *tensor.Tensor
	// Accumulate is how many losses are computed, with a backward pass each, for a step of the
	// optimizer; 0 stands for 1.
	Accumulate int
}

// A PlanConfig says for which device a step is planned.
type PlanConfig struct {
	// Machine is the one whose rates the estimate of time takes, and whose memory is asked for
	// where Memory is 0. One of [GPUs] or [MeasureCPU]'s. The zero value plans for a GPU of unknown
	// rates.
	Machine Machine
	// Memory is the bytes that the device has for the program, 0 for those of Machine; if these are
	// not known either, no end of memory is looked for.
	Memory int
	Batch  int // the size of the batch, at least 1
	// MaxBatch is the largest size of batch that is tried to find out which still fits; 0: that is
	// not asked.
	MaxBatch int
}

// A Breakdown says what the memory in use at the peak is of, in bytes. Its fields add up to it.
type Breakdown struct {
	Weights   int // parameters and buffers of the model
	Gradients int // of the parameters
	Optimizer int // what it remembers
	// what the forward pass has left: values saved for the gradients, batch and results
	Activations int
	// what lives shorter than a pass: intermediate results, gradients on their way, memory of a
	// kernel for itself
	Workspace int
	Other     int // what was there before the step and is nothing of the above
	Rounding  int // of the allocator, whose blocks are larger than what was asked for
}

// total adds the fields up.
func (b Breakdown) total() int {
	return b.Weights + b.Gradients + b.Optimizer + b.Activations + b.Workspace + b.Other + b.Rounding
}

// FLOPs counts arithmetic operations as [device.Work] does: a multiplication and an addition are
// two, an exponential is the twenty or so that it is made of.
type FLOPs struct {
	Forward, Backward, Optimizer int
	// of Forward and Backward, those of matrix products, convolutions and attention, which is what
	// PyTorch's counters count
	MatMul int
}

// Total is all of them.
func (f FLOPs) Total() int { return f.Forward + f.Backward + f.Optimizer }

// A Report is what a step takes.
type Report struct {
	Machine    string // its name
	Memory     int    // bytes of the device, 0 where that was not given
	Batch      int
	Parameters int // elements of the parameters

	// Peak is the memory in use at the highest point of a step, once the optimizer's state is
	// there: what torch.cuda.max_memory_allocated tells. Reserved is what the allocator holds from
	// the driver for it, its cache included.
	Peak, Reserved int
	Breakdown      Breakdown
	// At says during which operation the peak was: "matmul, backward".
	At string

	FLOPs   FLOPs
	Bytes   int // that the kernels must at least read and write
	Kernels int // launched on a GPU; primitives on a CPU

	// Launches is how many kernels a GPU is asked to run, 0 on a CPU. Modules is how many different
	// ones there are among them, each of which the driver loads and at first compiles.
	Launches, Modules int
	Units             Units
	// Least is the least time of the step in seconds on each of [GPUs], by name. Of each primitive
	// the longer of two counts: its operations at the peak of the units that do them, and its bytes
	// at the full bandwidth. Copies within the device count by their bytes. Launches are not in it:
	// see [LaunchSeconds]. The kernels are those for the planned Machine. On a CPU it is nil.
	Least map[string]float64
	// Seconds is the estimate of a step's time, see [Machine]; 0 where the machine has no rates.
	Seconds float64

	// Fits says whether the step runs within Memory.
	Fits bool
	// MaxBatch is the largest size of batch up to the configuration's whose step runs within
	// Memory, 0 if none does or that was not asked. It is the configuration's MaxBatch where also
	// that fits.
	MaxBatch int
}

var planning sync.Mutex // there is one tracer

// Plan runs a training step on a device without memory ([device.OpenMeta]) and reports what it
// takes: memory, operations and, for a known machine, time. Nothing is computed, so that it answers
// in a moment, for models of any size, without the GPU.
//
// build makes model and optimizer for batches of that size, in scope s (nn.In(s)), on whose device
// all has to be. The step is run twice: in the first the optimizer makes its state, the second is
// what is reported. Kernels and allocator are those of a run on the device, so the peak is its
// peak. What NVIDIA's driver keeps on the GPU for itself (context and code) is not counted. On the
// CPU the pool's memory is counted: not buffers below 64 KiB, the data set, and Go's own heap.
//
// A step that does not fit is no error: Fits is false, and Peak what it would take. Whatever reads
// a value in the step (Item, a shape that depends on data) is a *[tensor.Error] that wraps
// [device.ErrNoValues]; the program has to import the driver (cuda, for GPUs). What is wrong with
// the settings is an *[Error]. Plan takes the process's tracer, and fails while a profiler runs.
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

// What a device without memory can be asked for.
const (
	minPlanned = 1 << 20
	maxPlanned = 1 << 42
)

// largest looks for the largest batch that fits. What the allocator holds grows nearly in
// proportion to the batch, so two runs tell about which batch fits. The runs that follow look for
// the largest one, beside which one more sample does not fit.
func (c *PlanConfig) largest(build func(*tensor.Scope, int) *PlannedStep, fits bool, held int) (int, error) {
	// the largest known to fit, the least known or taken not to
	good, bad := 0, c.MaxBatch+1
	// two runs, the first of the smaller batch
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
	// how far before the least that does not fit the next is looked for; 0: none has been found
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
			back = 1 // between the two by halves
		case !ok && back == 0:
			back = 0.02
		case !ok:
			back = min(2*back, 1)
		}
	}
	return good, nil
}

// run runs two steps on a device without memory and traces the second.
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

// step is a training step in scope s.
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
