package data

import (
	"fmt"
	"iter"
)

// datasetJobs yields a job for each batch of an epoch of the sampler.
func datasetJobs(s BatchSampler, epoch int) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		start := 0
		for index := range s.Batches(epoch) {
			if !yield(job{start: start, index: index}, nil) {
				return
			}
			start += len(index)
		}
	}
}

// streamJobs yields a job for each batch of an epoch of the stream. An error of the stream ends the
// sequence, unless Skip is set.
func (l *Loader) streamJobs(epoch int) iter.Seq2[job, error] {
	return func(yield func(job, error) bool) {
		var j job
		n := 0 // number of samples read so far, including those that failed
		for s, err := range l.st.Samples(epoch) {
			switch bad := (&SampleError{n, err}); {
			case err == nil:
				j.samples, j.index = append(j.samples, s), append(j.index, n)
			case !l.c.Skip:
				yield(job{}, bad)
				return
			default:
				j.bad = append(j.bad, bad)
			}
			if n++; n%l.c.Batch == 0 {
				if !yield(j, nil) {
					return
				}
				j = job{start: n}
			}
		}
		if n%l.c.Batch != 0 && !l.c.DropLast {
			yield(j, nil)
		}
	}
}

// deal sends the jobs of an epoch to the workers. It starts with the first batch that the loop has
// to receive.
func (r *run) deal(jobs iter.Seq2[job, error]) {
	defer close(r.jobs)
	number := 0
	last := func(res result) {
		if r.reserve() {
			r.store(max(number, r.firstBatch), res)
		}
	}
	returned := false
	defer func() {
		if !returned {
			last(result{err: &SampleError{-1, errExit}})
		}
	}()
	var failed error
	err := guard(func() error {
		for j, err := range jobs {
			if err != nil {
				failed = err
				return nil
			}
			if number >= r.firstBatch {
				if !r.reserve() {
					return nil
				}
				j.number = number
				select {
				case r.jobs <- j:
				case <-r.stop:
					return nil
				}
			}
			number++
		}
		return nil
	})
	returned = true
	switch {
	case err != nil && r.l.ds == nil:
		last(result{err: &SampleError{-1, fmt.Errorf("the stream: %w", err)}})
	case err != nil:
		last(result{err: &SampleError{-1, fmt.Errorf("the sampler: %w", err)}})
	case failed != nil:
		last(result{err: failed})
	default:
		last(result{end: true})
	}
}
