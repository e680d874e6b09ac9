package data

import (
	"iter"

	"github.com/flambeau-go/flambeau/tensor"
)

// A Step is a batch with a scope of its own. The scope owns the batch and everything that is
// computed from it. At the end of the loop's body, the scope frees both.
type Step struct {
	*Batch
	Scope *tensor.Scope
}

// Steps loops over the batches of the next epoch as [Loader.Batches] does. It opens a scope for
// each batch on the loader's device, with options such as [tensor.NoGrad]. It replaces this code:
//
//	for batch, err := range loader.Batches() {
//		…
//		tensor.Do(func(s *tensor.Scope) {
//			batch.Into(s)
//			…
//		}, tensor.On(dev))
//	}
//
// The scope ends with the body of the loop, even after break, return or a panic. To keep y beyond
// the body, call step.Scope.Close(y) in its last line. This moves y to the root scope.
func (l *Loader) Steps(opts ...tensor.Option) iter.Seq2[*Step, error] {
	if l.c.Device != nil {
		opts = append([]tensor.Option{tensor.On(l.c.Device)}, opts...)
	}
	return func(yield func(*Step, error) bool) {
		for b, err := range l.Batches() {
			if err != nil {
				yield(nil, err)
				return
			}
			more := true
			tensor.Do(func(s *tensor.Scope) { more = yield(&Step{b.Into(s), s}, nil) }, opts...)
			if !more {
				return
			}
		}
	}
}
