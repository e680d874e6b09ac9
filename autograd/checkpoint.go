package autograd

import "github.com/flambeau-go/flambeau/tensor"

// segment lists the types of functions that [Checkpoint] accepts.
type segment interface {
	func(x *tensor.Tensor) *tensor.Tensor |
		func(x, y *tensor.Tensor) *tensor.Tensor |
		func(x, y, z *tensor.Tensor) *tensor.Tensor |
		func(x ...*tensor.Tensor) *tensor.Tensor
}

// Checkpoint returns f(x…). It keeps x, but not the tensors that f's ops save for their gradients.
// When Backward reaches these ops, it calls f once more. That takes time and saves memory.
// Checkpoint is torch.utils.checkpoint.checkpoint with use_reentrant=False.
//
// The second call gets the same operands, and the scope's modes from the first call (autocast,
// device, stream, …). It draws the same random numbers, so gradients have the same bits as without
// Checkpoint. The generator itself does not advance again. Gradients also reach leaves that f
// captures, such as a layer's parameters, whether or not an operand requires a gradient. f may
// itself call Checkpoint, and second derivatives work: each run of Backward calls f again. If no
// gradients are recorded, Checkpoint just calls f.
//
// f is called in a scope of its own, which ends with the call; its operands belong to that scope.
// Checkpoint moves f's results from there to the youngest scope of the tensors in x. A result that
// belongs to an older scope stays there.
//
// f must do the same in both calls. It may depend only on its operands, on captured tensors that
// exist until Backward, and on random numbers. Goroutines that f starts draw from the generator
// of f's scope. Backward compares the values that the ops of both calls save: their number, and
// the op, shape, type and device of each. If these differ, Backward panics with a *tensor.Error
// that wraps ErrGrad and names the op. Values that differ only in their elements are not
// detected. If an operand or a captured parameter was changed in place meanwhile, the error is
// ErrInPlace. Errors of the second call name the line that called Checkpoint.
//
// Side effects of f happen twice, but side effects of the library happen once. For example, running
// statistics of normalisations count a batch once, where torch counts it twice. A program's own
// layer can do the same with [tensor.Scope.Recomputing]. Hooks on layers inside f are called both
// times.
//
// f is a function of one, two or three tensors, such as the method Forward of a layer, or a
// variadic function.
//
//	y := autograd.Checkpoint(block.Forward, x)
func Checkpoint[F segment](f F, x ...*tensor.Tensor) *tensor.Tensor {
	call, takes := func([]*tensor.Tensor) *tensor.Tensor { return nil }, -1
	given := false
	switch f := any(f).(type) {
	case func(x *tensor.Tensor) *tensor.Tensor:
		call, takes, given = func(x []*tensor.Tensor) *tensor.Tensor { return f(x[0]) }, 1, f != nil
	case func(x, y *tensor.Tensor) *tensor.Tensor:
		call, takes, given = func(x []*tensor.Tensor) *tensor.Tensor { return f(x[0], x[1]) }, 2, f != nil
	case func(x, y, z *tensor.Tensor) *tensor.Tensor:
		call, takes, given = func(x []*tensor.Tensor) *tensor.Tensor { return f(x[0], x[1], x[2]) }, 3, f != nil
	case func(x ...*tensor.Tensor) *tensor.Tensor:
		call, given = func(x []*tensor.Tensor) *tensor.Tensor { return f(x...) }, f != nil
	}
	switch {
	case !given:
		misuse("checkpoint", tensor.ErrValue, "the function is nil")
	case takes >= 0 && takes != len(x):
		misuse("checkpoint", tensor.ErrValue, "the function takes %d operands and is given %d", takes, len(x))
	}
	return tensor.Recompute(func(x []*tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{call(x)} }, x...)[0]
}

// CheckpointAll is [Checkpoint] for a function with several results.
func CheckpointAll(f func(x ...*tensor.Tensor) []*tensor.Tensor, x ...*tensor.Tensor) []*tensor.Tensor {
	if f == nil {
		misuse("checkpoint", tensor.ErrValue, "the function is nil")
	}
	return tensor.Recompute(func(x []*tensor.Tensor) []*tensor.Tensor { return f(x...) }, x...)
}

// CheckpointSequential applies functions one after another. It divides them into the given number
// of segments, with about len(fns)/segments functions each. It applies [Checkpoint] to every
// segment except the last. Backward begins with the last segment, so recomputing it would save no
// memory. CheckpointSequential is torch.utils.checkpoint.checkpoint_sequential, except that PyTorch
// adds all remaining functions to the last segment. With √n segments of n functions, saved values
// take the memory of about 2·√n functions instead of n. Within a segment a value is freed as soon
// as the next function has returned, if no gradient needs it. So a function must not keep its
// operand or its result for later.
func CheckpointSequential(fns []func(x *tensor.Tensor) *tensor.Tensor, segments int, x *tensor.Tensor) *tensor.Tensor {
	const op = "checkpoint_sequential"
	switch {
	case segments < 1 || segments > max(1, len(fns)):
		misuse(op, tensor.ErrValue, "%d segments of %d functions; there are between 1 and as many as functions", segments, len(fns))
	case x == nil:
		misuse(op, tensor.ErrValue, "the operand is nil")
	}
	for i, f := range fns {
		if f == nil {
			misuse(op, tensor.ErrValue, "function %d is nil", i)
		}
	}
	first := x
	cut := func(i int) []func(x *tensor.Tensor) *tensor.Tensor {
		return fns[i*len(fns)/segments : (i+1)*len(fns)/segments]
	}
	for i := range segments - 1 {
		y := Checkpoint(func(x *tensor.Tensor) *tensor.Tensor { return chain(cut(i), x, x.Scope()) }, x)
		if x != first && y != x {
			x.Free()
		}
		x = y
	}
	tensor.Youngest(x).Do(func(s *tensor.Scope) {
		y := chain(cut(segments-1), x.In(s), s)
		s.Close(y)
		if x != first {
			x.Free()
		}
		x = y
	})
	return x
}

// chain applies functions one after another to x in scope s, and frees each intermediate value.
func chain(fns []func(x *tensor.Tensor) *tensor.Tensor, x *tensor.Tensor, s *tensor.Scope) *tensor.Tensor {
	for i, f := range fns {
		y := f(x)
		if y == nil {
			misuse("checkpoint_sequential", tensor.ErrValue, "function %d returns nil", i)
		}
		if y != x && x.Scope() == s {
			x.Free()
		}
		x = y
	}
	return x
}

// SaveOnCPU makes the ops of a scope keep their saved values in the CPU's memory instead of their
// GPU's. Backward copies a value back when it needs the value. SaveOnCPU is
// torch.autograd.graph.save_on_cpu.
//
//	s.Do(func(s *tensor.Scope) { loss = model.Loss(x.In(s)); … }, autograd.SaveOnCPU(true))
//
// With pinned memory the copies run on a separate stream, at the same time as the GPU's work.
// Backward starts the copy of a value before it needs the value. Without pinned memory each copy
// waits. Values have the same bits as without SaveOnCPU. Some values stay where they are: values on
// the CPU, values of less than 4 KiB, leaves that require a gradient, such as parameters, and views
// of such leaves. A tensor that several ops save is copied once. (PyTorch copies it each time, and
// copies parameters too.) The inputs that [Checkpoint] keeps are saved values too. So Checkpoint
// and SaveOnCPU together leave almost nothing on the GPU.
//
// In a capture ([tensor.Capture]) each replay makes the copies again, from and to memory that
// belongs to the graph until it is closed. The copies run in the order of the work, so that the
// GPU's memory becomes free in time. Without pinned memory, saving on the CPU is an error in a
// capture.
//
// If a tensor is changed in place after it was saved, Backward does not notice it, as in PyTorch:
// the copy has the old values.
func SaveOnCPU(pinned bool) tensor.Option { return tensor.Offload(pinned) }
