package data

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
	"sync"
)

// Config sets a [Loader].
type Config struct {
	Batch    int    // samples a batch, at least 1
	Shuffle  bool   // visit the samples in a random order, another one each epoch
	Seed     uint64 // of that order
	DropLast bool   // leave out a last batch that is not full
	Workers  int    // goroutines that prepare batches; 0: one
	Prefetch int    // batches prepared ahead; 0: twice the workers
}

// A ConfigError is a setting that a loader cannot have.
type ConfigError struct{ Field, Msg string }

func (e *ConfigError) Error() string { return "data: " + e.Field + ": " + e.Msg }

// A Loader gives the batches of a dataset, epoch by epoch.
type Loader struct {
	ds    Dataset
	c     Config
	epoch uint64
	mu    sync.Mutex
}

// NewLoader returns a loader over ds.
func NewLoader(ds Dataset, c Config) (*Loader, error) {
	switch {
	case ds == nil:
		return nil, &ConfigError{"Dataset", "there is none"}
	case c.Batch < 1:
		return nil, &ConfigError{"Batch", fmt.Sprintf("%d samples a batch, at least 1 is needed", c.Batch)}
	case c.Workers < 0:
		return nil, &ConfigError{"Workers", fmt.Sprintf("%d is negative", c.Workers)}
	case c.Prefetch < 0:
		return nil, &ConfigError{"Prefetch", fmt.Sprintf("%d is negative", c.Prefetch)}
	}
	c.Workers = max(c.Workers, 1)
	if c.Prefetch == 0 {
		c.Prefetch = 2 * c.Workers
	}
	return &Loader{ds: ds, c: c}, nil
}

// Len returns the number of batches in an epoch.
func (l *Loader) Len() int {
	n := l.ds.Len()
	if l.c.DropLast {
		return n / l.c.Batch
	}
	return (n + l.c.Batch - 1) / l.c.Batch
}

// SetEpoch makes the next loop over the batches that of epoch n, counted from 0: the order is a function of it.
func (l *Loader) SetEpoch(n int) {
	l.mu.Lock()
	l.epoch = uint64(n)
	l.mu.Unlock()
}

// Order returns the order of the samples in an epoch.
func (l *Loader) Order(epoch int) []int {
	n := l.ds.Len()
	if !l.c.Shuffle {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		return order
	}
	return rand.New(rand.NewPCG(l.c.Seed, uint64(epoch))).Perm(n)
}

// Batches loops over the batches of the next epoch. An error ends the loop: a *[SampleError], also for a panic in the dataset.
func (l *Loader) Batches() iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		l.mu.Lock()
		epoch := l.epoch
		l.epoch++
		l.mu.Unlock()
		order := l.Order(int(epoch))
		n := l.Len()
		type result struct {
			b   *Batch
			err error
		}
		slots := make([]chan result, n)
		for i := range slots {
			slots[i] = make(chan result, 1)
		}
		stop := make(chan struct{})
		ahead := make(chan struct{}, l.c.Prefetch)
		next := make(chan int)
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(next)
			for i := range n {
				select {
				case ahead <- struct{}{}:
				case <-stop:
					return
				}
				select {
				case next <- i:
				case <-stop:
					return
				}
			}
		})
		for range min(l.c.Workers, n) {
			wg.Go(func() {
				for i := range next {
					b, err := l.make(order[i*l.c.Batch : min((i+1)*l.c.Batch, len(order))])
					slots[i] <- result{b, err}
				}
			})
		}
		at := 0
		defer func() {
			close(stop)
			wg.Wait()
			for _, s := range slots[at:] { // prepared, never seen
				select {
				case r := <-s:
					r.b.free()
				default:
				}
			}
		}()
		for at < n {
			r := <-slots[at]
			at++
			<-ahead
			if !yield(r.b, r.err) || r.err != nil {
				return
			}
		}
	}
}

func (b *Batch) free() {
	if b != nil {
		b.X.Free()
		b.Y.Free()
	}
}

// make collates the samples of index.
func (l *Loader) make(index []int) (b *Batch, err error) {
	at := -1
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, &SampleError{at, fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
		}
	}()
	b = &Batch{Index: append([]int(nil), index...)}
	if m, ok := l.ds.(Batcher); ok {
		if b.X, b.Y, err = m.GetBatch(index); err != nil {
			return nil, &SampleError{-1, err}
		}
		return b, nil
	}
	xs, ys := make([]any, len(index)), make([]any, len(index))
	for k, i := range index {
		at = i
		s, err := l.ds.Get(i)
		if err != nil {
			return nil, &SampleError{i, err}
		}
		xs[k], ys[k] = s.X, s.Y
	}
	at = -1
	if b.X, err = collate(xs); err != nil {
		return nil, &SampleError{-1, err}
	}
	if b.Y, err = collate(ys); err != nil {
		b.X.Free()
		return nil, &SampleError{-1, err}
	}
	return b, nil
}
