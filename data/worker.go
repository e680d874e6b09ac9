package data

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// errStopped is the error of a batch that was not made because the loop has ended.
var errStopped = errors.New("the loop is over")

// A worker is a goroutine that makes batches.
type worker struct {
	r      *run
	random bool
	// batch makes a whole batch. If it is nil, batches are made sample by sample.
	batch func(index []int) (*Batch, error)
	// at is the index of the sample that is being made, or -1 for none.
	at      int
	pcg     *rand.PCG
	rng     *rand.Rand
	samples []Sample
	index   []int
}

// work makes batches until there are no more jobs.
func (r *run) work() {
	c := &r.l.c
	w := &worker{r: r, random: r.l.ds != nil && random(r.l.ds) || c.Transform != nil, pcg: rand.NewPCG(0, 0)}
	w.rng = rand.New(w.pcg)
	if !w.random && c.Collate == nil && r.l.ds != nil {
		w.batch = batcher(r.l.ds)
	}
	open := -1 // number of the batch in progress
	defer func() {
		if open >= 0 {
			r.store(open, result{err: &SampleError{w.at, errExit}})
		}
	}()
	for j := range r.jobs {
		open = j.number
		res := w.make(j)
		if res.b != nil {
			r.moveAhead(&res, j.number)
		}
		open = -1
		r.store(j.number, res)
	}
}

func (w *worker) make(j job) (res result) {
	w.at = -1
	if ds := w.r.l.ds; ds != nil {
		n := ds.Len()
		for _, i := range j.index {
			if i < 0 || i >= n {
				return result{err: &SampleError{i, fmt.Errorf("the sampler gave this index, the dataset has %d samples", n)}}
			}
		}
		if len(j.index) == 0 {
			return result{err: &SampleError{-1, errors.New("the sampler gave a batch without samples")}}
		}
	}
	res.skipped = j.bad
	var whole error
	if w.batch != nil {
		var b *Batch
		whole = guard(func() (err error) {
			if b, err = w.batch(j.index); err == nil {
				b.Index = j.index
				b.distinct()
			}
			return err
		})
		if whole == nil {
			return result{b: b}
		}
		// GetBatch has failed. Make the batch sample by sample to find the sample that fails.
	}
	w.samples, w.index = w.samples[:0], w.index[:0]
	defer func() { clear(w.samples) }()
	for k, i := range j.index {
		select {
		case <-w.r.stop:
			return result{err: errStopped}
		default:
		}
		w.at = i
		s, err := w.sample(&j, k)
		if err != nil {
			bad := &SampleError{i, err}
			if !w.r.l.c.Skip {
				return result{err: bad}
			}
			res.skipped = append(res.skipped, bad)
			continue
		}
		w.samples, w.index = append(w.samples, s), append(w.index, i)
	}
	w.at = -1
	// In the list, errors of the stream precede those of Transform, so the errors are sorted by
	// index.
	if w.r.l.ds == nil {
		slices.SortFunc(res.skipped, func(a, b *SampleError) int { return a.Index - b.Index })
	}
	if whole != nil && len(res.skipped) == 0 {
		return result{err: &SampleError{-1, whole}}
	}
	if len(w.samples) == 0 {
		return res
	}
	collate := w.r.l.c.Collate
	if collate == nil {
		collate = Collate
	}
	var b *Batch
	err := guard(func() (err error) {
		if b, err = collate(w.samples); err == nil && b != nil {
			b.distinct()
		}
		return err
	})
	var odd *oddError
	switch {
	case errors.As(err, &odd) && odd.at < len(w.index): // a Collate may make several of a sample
		res.err = &SampleError{w.index[odd.at], err}
	case err != nil:
		res.err = &SampleError{-1, err}
	case b == nil:
		res.err = &SampleError{-1, errors.New("Collate returned neither a batch nor an error")}
	default:
		b.Index = append(j.index[:0:0], w.index...)
		res.b = b
	}
	return res
}

// sample returns sample k of the batch of job j.
func (w *worker) sample(j *job, k int) (s Sample, err error) {
	l, i := w.r.l, j.index[k]
	err = guard(func() (err error) {
		if w.random {
			of := i
			if w.r.repeats {
				of = j.start + k
			}
			w.pcg.Seed(streamSeed(w.r.seed, w.r.epoch, of))
		}
		switch {
		case l.ds == nil:
			s = j.samples[k]
		case w.random:
			s, err = GetRand(l.ds, i, w.rng)
		default:
			s, err = l.ds.Get(i)
		}
		if err == nil && l.c.Transform != nil {
			s, err = l.c.Transform(s, w.rng)
		}
		return err
	})
	return s, err
}

// streamSeed returns the seeds of a sample's random numbers.
func streamSeed(seed uint64, epoch, sample int) (hi, lo uint64) {
	// The bits spell "data". They make these random numbers independent of those for the order of
	// samples.
	hi = mix(seed ^ 0x64617461)
	hi = mix(hi + uint64(epoch))
	return hi, mix(hi ^ mix(uint64(sample)))
}

// mix adds SplitMix64's increment to z and applies its finalizer (G. Steele, D. Lea, C. Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014). The constants are those of S.
// Vigna's splitmix64.c.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
