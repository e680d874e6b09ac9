package autograd

import "github.com/flambeau-go/flambeau/tensor"

// segment is a function of tensors that [Checkpoint] calls.
type segment interface {
	func(x *tensor.Tensor) *tensor.Tensor |
		func(x, y *tensor.Tensor) *tensor.Tensor |
		func(x, y, z *tensor.Tensor) *tensor.Tensor |
		func(x ...*tensor.Tensor) *tensor.Tensor
}

// Checkpoint returns f(x…) and keeps nothing of what f's ops save for their gradients but x itself;
// Backward calls f once more when it comes to it: memory for time. It is
// torch.utils.checkpoint.checkpoint with use_reentrant=False.
//
// The second call sees the same operands and the modes of the scope as they were (autocast, device,
// stream, …). It draws the same random numbers, so gradients have the bits that they would have
// without Checkpoint. The generator itself does not move. Gradients also reach leaves that f
// captures, such as a layer's parameters, whether or not an operand requires one. f may itself call
// Checkpoint, and second derivatives work: each run of Backward computes the segment again. Where
// no gradients are recorded f is simply called.
//
// f is called in a scope of its own, of which its operands are and which ends with the call. What
// it returns is of the youngest scope among x, or older. It must do the same both times. What it
// does may depend on its operands, on captured tensors that are there until Backward, and on random
// numbers, nothing else. What goroutines that f starts draw comes from the generator of its scope.
// If the ops save other values the second time, by number, op, shape, type or device, Backward
// panics with a *tensor.Error that wraps ErrGrad and names the op. Values that merely differ go
// unnoticed. An operand or a captured parameter that was changed in place meanwhile is ErrInPlace.
// Errors of the second call say where Checkpoint was called.
//
// Side effects of f happen twice, but not those of the library: running statistics of
// normalisations count a batch once, where torch counts it twice. A layer of one's own does the
// same by asking [tensor.Scope.Recomputing]. Hooks on layers inside f see both calls.
//
// f is a function of one tensor, such as the method Forward of a layer, of two, of three, or one
// that is variadic.
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

// CheckpointAll is [Checkpoint] of a function with several results.
func CheckpointAll(f func(x ...*tensor.Tensor) []*tensor.Tensor, x ...*tensor.Tensor) []*tensor.Tensor {
	if f == nil {
		misuse("checkpoint", tensor.ErrValue, "the function is nil")
	}
	return tensor.Recompute(func(x []*tensor.Tensor) []*tensor.Tensor { return f(x...) }, x...)
}

// CheckpointSequential applies functions one after another in so many segments of about
// len(fns)/segments functions. Each is under [Checkpoint] but the last, which Backward needs first.
// It is torch.utils.checkpoint.checkpoint_sequential, where the last segment has all that is left
// over. With √n segments of n functions the memory for saved values is that of about 2·√n functions
// instead of n. Within a segment a value is freed as soon as the next function has returned, unless
// a gradient needs it. So a function may not keep its operand or its result for later.
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

// chain applies functions one after another and frees what goes from one to the next, in scope s.
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

// SaveOnCPU gives a scope in which ops keep what they save for gradients in the memory of the CPU
// instead of their GPU's. It is brought back when Backward comes to them. It is
// torch.autograd.graph.save_on_cpu.
//
//	s.Do(func(s *tensor.Scope) { loss = model.Loss(x.In(s)); … }, autograd.SaveOnCPU(true))
//
// With pinned memory the copies run on a stream of their own beside the GPU's work. Backward starts
// the copy of the value that it needs next before it needs it. Without pinned memory each copy
// waits. Values have the same bits as without. Leaves that require a gradient, such as parameters,
// and views of them stay. So do values on the CPU and those of less than 4 KiB. A tensor that
// several ops save is copied once. (PyTorch copies each time, and parameters too.) The inputs that
// [Checkpoint] keeps are saved values as well: both together leave next to nothing on the GPU.
//
// In a capture ([tensor.Capture]) each replay copies anew, from and to memory that is the graph's
// until it is closed. The copies keep the order of the work itself, by which the GPU's memory comes
// free. Without pinned memory, saving on the CPU is an error there.
//
// A change in place of a tensor after it was saved goes unnoticed, as in PyTorch: the copy is what
// it was.
func SaveOnCPU(pinned bool) tensor.Option { return tensor.Offload(pinned) }
