package data

import (
	"fmt"
	"iter"
	"slices"
	"sync"
)

// Interleave returns a stream that takes one sample from each of several streams in turn, until all
// streams have ended. Use it to read several files at the same time. A goroutine for each stream
// reads up to ahead samples in advance. If ahead is less than 1, the error is a *[ConfigError]. The
// order does not depend on the speed of the streams. The goroutines end with the loop over the
// stream. A panic in a stream ends that stream with a *[PanicError].
func Interleave(ahead int, streams ...Stream) (Stream, error) {
	if ahead < 1 {
		return nil, &ConfigError{"ahead", fmt.Sprintf("%d samples, at least 1 is needed", ahead)}
	}
	streams = slices.Clone(streams)
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			stop := make(chan struct{})
			var wg sync.WaitGroup
			defer wg.Wait()
			defer close(stop)
			var queues []chan streamed
			for _, s := range streams {
				// The goroutine itself holds one of the samples read in advance, so the channel has
				// room for one less.
				q := make(chan streamed, ahead-1)
				queues = append(queues, q)
				wg.Go(func() { read(s, epoch, q, stop) })
			}
			for len(queues) > 0 {
				open := queues[:0]
				for _, q := range queues {
					if v, ok := <-q; ok {
						if !yield(v.s, v.err) {
							return
						}
						open = append(open, q)
					}
				}
				queues = open
			}
		}
	}), nil
}

// streamed is a sample of a stream, or an error in its place.
type streamed struct {
	s   Sample
	err error
}

// read sends the samples of a stream to q, until the stream ends or stop is closed. Finally it
// closes q.
func read(s Stream, epoch int, q chan<- streamed, stop <-chan struct{}) {
	defer close(q)
	put := func(v streamed) bool {
		select {
		case q <- v:
			return true
		case <-stop:
			return false
		}
	}
	returned := false
	defer func() {
		if !returned {
			put(streamed{err: errExit})
		}
	}()
	err := guard(func() error {
		for v, err := range s.Samples(epoch) {
			if !put(streamed{v, err}) {
				break
			}
		}
		return nil
	})
	if returned = true; err != nil {
		put(streamed{err: err})
	}
}
