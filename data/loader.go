package data

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// A Loader makes batches of a dataset, epoch by epoch. Its methods are safe for concurrent use.
// Each loop over its batches runs through one epoch.
type Loader struct {
	ds    Dataset // the dataset; nil for a stream
	st    Stream
	c     Config
	mover *mover // copies batches to their device; nil if batches stay where they were made

	note string

	mu       sync.Mutex
	seed     uint64 // from Config or from a loaded state
	next     place  // position of the next loop's first batch
	progress place  // position of the latest loop
	turn     int    // number of the latest loop, to distinguish it from earlier loops
	skipped  int
}

// NewLoader returns a loader for the samples of ds. The error is a *[ConfigError], or an error of
// the device.
func NewLoader(ds Dataset, c Config) (*Loader, error) {
	if ds == nil {
		return nil, &ConfigError{"Dataset", "there is none"}
	}
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	to, note, err := newMover(&c)
	if err != nil {
		return nil, err
	}
	return &Loader{ds: ds, c: c, mover: to, note: note, seed: c.Seed}, nil
}

// NewStreamLoader returns a loader for the samples of a stream. One goroutine reads the stream, and
// the workers call Transform and Collate. The order and the batches do not depend on the number of
// workers. Shuffle, Sampler and Batches are only for datasets. For a stream use [ShuffleStream],
// [ShardStream] and [Interleave] instead. To continue within an epoch, the loader reads the earlier
// samples again, without Transform. With Skip, an error of the stream counts as one sample, which
// is left out. If a stream ends with an error, the samples after the error are lost. The error is a
// *[ConfigError], or an error of the device.
func NewStreamLoader(s Stream, c Config) (*Loader, error) {
	switch {
	case s == nil:
		return nil, &ConfigError{"Stream", "there is none"}
	case c.Shuffle:
		return nil, &ConfigError{"Shuffle", "a stream is shuffled by ShuffleStream"}
	case c.Sampler != nil:
		return nil, &ConfigError{"Sampler", "a stream has its own order"}
	case c.Batches != nil:
		return nil, &ConfigError{"Batches", "a stream has its own order"}
	}
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	to, note, err := newMover(&c)
	if err != nil {
		return nil, err
	}
	return &Loader{st: s, c: c, mover: to, note: note, seed: c.Seed}, nil
}

func (l *Loader) sampler(seed uint64) BatchSampler { return l.c.sampler(l.ds.Len(), seed) }

// String returns the number of samples and the size of the batches.
func (l *Loader) String() string {
	what, how := "a stream", ""
	if l.ds != nil {
		what, how = fmt.Sprintf("%d samples", l.ds.Len()), fmt.Sprintf(" in %d batches", l.Len())
	}
	if l.c.Batches == nil {
		how += fmt.Sprintf(" of %d", l.c.Batch)
	}
	if l.ds == nil {
		how = " in batches" + how
	}
	if l.c.Shuffle {
		how += ", shuffled"
	}
	return "Loader(" + what + how + ")"
}

// Note names a setting that the loader ignores because it has no effect on this machine, such as
// Pin without a GPU. It returns "" if there is no such setting.
func (l *Loader) Note() string { return l.note }

// Len returns the number of batches in an epoch, or -1 for a stream.
func (l *Loader) Len() int {
	if l.ds == nil {
		return -1
	}
	return l.sampler(0).Len()
}

// Order returns the order of the samples in an epoch, or nil for a stream.
func (l *Loader) Order(epoch int) []int {
	if l.ds == nil {
		return nil
	}
	l.mu.Lock()
	seed := l.seed
	l.mu.Unlock()
	order := []int{}
	for b := range l.sampler(seed).Batches(epoch) {
		order = append(order, b...)
	}
	return order
}

// Batches loops over the batches of the next epoch. After [Loader.LoadStateDict] it loops over the
// rest of the saved epoch. An error ends the loop. The error is a *[SampleError], also for a panic
// in the dataset. After a loop that was left early, the next loop also runs through the next epoch.
func (l *Loader) Batches() iter.Seq2[*Batch, error] { return l.BatchesContext(context.Background()) }

// BatchesContext is Batches with a context. When ctx is done, the loop ends with an error that
// wraps the context's cause. Before it ends, the loop waits until the workers have finished the
// samples that they are working on.
func (l *Loader) BatchesContext(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		from, seed, turn := l.begin()
		r := l.start(from, seed)
		defer r.end()
		var held *Batch // current batch, until the loop's body receives it
		defer func() { held.Free() }()
		for {
			res := r.next(ctx)
			r.moveLate(&res, r.nextBatch)
			held = res.b
			for _, e := range res.skipped {
				if l.c.OnSkip != nil {
					l.c.OnSkip(e)
				}
			}
			switch {
			case res.err != nil:
				l.recordProgress(turn, place{from.epoch, r.nextBatch}, len(res.skipped))
				yield(nil, res.err)
				return
			case res.end:
				l.recordProgress(turn, place{epoch: from.epoch + 1}, len(res.skipped))
				return
			}
			r.nextBatch++
			l.recordProgress(turn, place{from.epoch, r.nextBatch}, len(res.skipped))
			held = nil
			if res.b != nil && !yield(res.b, nil) {
				return
			}
		}
	}
}

// A job says which batch a worker has to make.
type job struct {
	number  int            // number of the batch in the epoch
	start   int            // number of the batch's first sample in the epoch
	index   []int          // indexes of the batch's samples
	samples []Sample       // samples of the batch, if a stream provides them
	bad     []*SampleError // samples of the stream that failed to load
}

// A result is a batch, or the reason why there is none.
type result struct {
	b       *Batch // the batch; nil if all its samples were skipped
	skipped []*SampleError
	err     error
	end     bool // true if the epoch has no more batches
	late    bool // true if the batch is not yet on its device
	// true if the device's memory ran out while the batch was copied
	failed bool
}

// free frees a batch that the loop has not received.
func (r result) free() { r.b.Free() }

// A run is one loop over an epoch. One goroutine sends jobs to the goroutines that make batches,
// the workers.
type run struct {
	l          *Loader
	epoch      int
	seed       uint64
	repeats    bool // whether the sampler may draw a sample several times in an epoch
	firstBatch int  // number of the loop's first batch in the epoch
	nextBatch  int  // number of the batch that the loop's body receives next

	// short is the number of batches that did not fit into the device's memory and that the loop
	// has not reached yet.
	short atomic.Int32
	slots []chan result // results of prepared batches: batch i is in slots[i%len(slots)]
	ahead chan struct{} // has one entry for each batch that is being prepared or waits for the loop
	jobs  chan job
	stop  chan struct{}
	wg    sync.WaitGroup

	callers []uintptr // stack of the code that loops, for a tracer
}

func (l *Loader) start(from place, seed uint64) *run {
	r := &run{l: l, epoch: from.epoch, seed: seed, firstBatch: from.at, nextBatch: from.at, slots: make([]chan result, l.c.Prefetch),
		ahead: make(chan struct{}, l.c.Prefetch), jobs: make(chan job), stop: make(chan struct{})}
	if l.mover != nil {
		var pc [32]uintptr
		r.callers = slices.Clone(pc[:runtime.Callers(2, pc[:])])
	}
	for i := range r.slots {
		r.slots[i] = make(chan result, 1)
	}
	var jobs iter.Seq2[job, error]
	if l.ds == nil {
		jobs = l.streamJobs(from.epoch)
	} else {
		s := l.sampler(seed)
		r.repeats = repeats(s)
		jobs = datasetJobs(s, from.epoch)
	}
	r.wg.Go(func() { r.deal(jobs) })
	for range l.c.Workers {
		r.wg.Go(r.work)
	}
	return r
}

// next waits for the next batch and returns it.
func (r *run) next(ctx context.Context) result {
	if ctx.Err() == nil {
		select {
		case res := <-r.slots[r.nextBatch%len(r.slots)]:
			<-r.ahead
			return res
		case <-ctx.Done():
		}
	}
	return result{err: fmt.Errorf("data: epoch %d, batch %d: %w", r.epoch, r.nextBatch, context.Cause(ctx))}
}

// end stops the goroutines, waits for them, and frees the batches that the loop has not received.
func (r *run) end() {
	close(r.stop)
	r.wg.Wait()
	for _, s := range r.slots {
		select {
		case res := <-s:
			res.free()
		default:
		}
	}
}

// store puts the result of a batch where next will look for it. reserve has made sure that there is
// room.
func (r *run) store(number int, res result) { r.slots[number%len(r.slots)] <- res }

// reserve waits until another batch may be prepared. It returns false if the loop has ended.
func (r *run) reserve() bool {
	select {
	case <-r.stop:
		return false
	default:
	}
	select {
	case r.ahead <- struct{}{}:
		return true
	case <-r.stop:
		return false
	}
}
