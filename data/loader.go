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

// A Loader gives the batches of a dataset, epoch by epoch. Its methods are safe for concurrent use;
// each loop over its batches is an epoch of its own.
type Loader struct {
	ds Dataset // nil for a stream
	st Stream
	c  Config
	to *mover // nil: batches stay where they are made

	note string

	mu      sync.Mutex
	seed    uint64 // Config's, or that of a loaded state
	next    place  // where the next loop begins
	seen    place  // what the latest loop has come to
	turn    int    // number of the latest loop
	skipped int
}

// NewLoader returns a loader over ds. The error is a *[ConfigError], or the device's.
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
	return &Loader{ds: ds, c: c, to: to, note: note, seed: c.Seed}, nil
}

// NewStreamLoader returns a loader over a stream. One goroutine reads the stream and the workers
// call Transform and Collate, so that the order and the batches do not depend on the number of
// workers. Shuffle, Sampler and Batches are for datasets: see [ShuffleStream], [ShardStream] and
// [Interleave]. A state within an epoch is resumed by reading again, without Transform, what was
// seen. With Skip an error of the stream leaves one sample out; what a stream that ends with an
// error would have given is lost. The error is a *[ConfigError], or the device's.
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
	return &Loader{st: s, c: c, to: to, note: note, seed: c.Seed}, nil
}

func (l *Loader) sampler(seed uint64) BatchSampler { return l.c.sampler(l.ds.Len(), seed) }

// String tells how many samples come in which batches.
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

// Note says which setting means nothing on this machine and was ignored, "" for none: Pin without a
// GPU.
func (l *Loader) Note() string { return l.note }

// Len returns the number of batches in an epoch, -1 for a stream.
func (l *Loader) Len() int {
	if l.ds == nil {
		return -1
	}
	return l.sampler(0).Len()
}

// Order returns the order of the samples in an epoch, nil for a stream.
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

// Batches loops over the batches of the next epoch, or what is left of it after
// [Loader.LoadStateDict]. An error ends the loop: a *[SampleError], also for a panic in the
// dataset. A loop that is left early is over: the next one is the next epoch.
func (l *Loader) Batches() iter.Seq2[*Batch, error] { return l.BatchesContext(context.Background()) }

// BatchesContext is Batches that also ends when ctx does, with an error that wraps the context's
// cause. A sample that is being made at that time is waited for.
func (l *Loader) BatchesContext(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		from, seed, turn := l.begin()
		r := l.start(from, seed)
		defer r.end()
		var held *Batch // until the loop has it
		defer func() { held.Free() }()
		for {
			res := r.next(ctx)
			r.moveLate(&res, r.at)
			held = res.b
			for _, e := range res.skipped {
				if l.c.OnSkip != nil {
					l.c.OnSkip(e)
				}
			}
			switch {
			case res.err != nil:
				l.saw(turn, place{from.epoch, r.at}, len(res.skipped))
				yield(nil, res.err)
				return
			case res.end:
				l.saw(turn, place{epoch: from.epoch + 1}, len(res.skipped))
				return
			}
			r.at++
			l.saw(turn, place{from.epoch, r.at}, len(res.skipped))
			held = nil
			if res.b != nil && !yield(res.b, nil) {
				return
			}
		}
	}
}

// A job is a batch to make.
type job struct {
	number  int            // of the batch in the epoch
	start   int            // place of its first sample in the epoch
	index   []int          // of its samples
	samples []Sample       // of a stream
	bad     []*SampleError // samples of the stream that could not be had
}

// A result is a batch that is made, or why there is none.
type result struct {
	b       *Batch // nil if all its samples were skipped
	skipped []*SampleError
	err     error
	end     bool // there are no more batches
	late    bool // it is not where it is to be yet
	failed  bool // and that because memory has run out for it
}

// free gives back a batch that nobody has seen.
func (r result) free() { r.b.Free() }

// A run is one loop over an epoch: a goroutine that hands out jobs, and the workers.
type run struct {
	l     *Loader
	epoch int
	seed  uint64
	apart bool // samples may come several times
	first int  // batch of the epoch
	at    int  // number of the batch that the loop sees next

	// batches that memory has run out for, and that the loop has not asked for yet
	short atomic.Int32
	slots []chan result // of batch i: i modulo their number
	ahead chan struct{} // an entry for each batch that is on its way
	jobs  chan job
	stop  chan struct{}
	wg    sync.WaitGroup

	callers []uintptr // of who loops, for a tracer
}

func (l *Loader) start(from place, seed uint64) *run {
	r := &run{l: l, epoch: from.epoch, seed: seed, first: from.at, at: from.at, slots: make([]chan result, l.c.Prefetch),
		ahead: make(chan struct{}, l.c.Prefetch), jobs: make(chan job), stop: make(chan struct{})}
	if l.to != nil {
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
		r.apart = repeats(s)
		jobs = datasetJobs(s, from.epoch)
	}
	r.wg.Go(func() { r.deal(jobs) })
	for range l.c.Workers {
		r.wg.Go(r.work)
	}
	return r
}

// next waits for the next batch.
func (r *run) next(ctx context.Context) result {
	if ctx.Err() == nil {
		select {
		case res := <-r.slots[r.at%len(r.slots)]:
			<-r.ahead
			return res
		case <-ctx.Done():
		}
	}
	return result{err: fmt.Errorf("data: epoch %d, batch %d: %w", r.epoch, r.at, context.Cause(ctx))}
}

// end stops the goroutines, waits for them and frees what nobody has seen.
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

// put stores the result of a batch. The slot is free: its turn in ahead has been waited for.
func (r *run) put(number int, res result) { r.slots[number%len(r.slots)] <- res }

// reserve waits until one more batch may be on its way; false means that the loop is over.
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
