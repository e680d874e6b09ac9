package data

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
)

// A Stream yields samples one after another, and their number need not be known: torch's
// IterableDataset. Each call of Samples restarts the epoch. The samples, their order and their
// errors depend only on the epoch. An error stands for a sample that could not be read, and the
// stream may continue after it. Only one goroutine at a time reads a stream. Several functions of
// this package make a stream from other streams. [Interleave] reads these ahead. The other
// functions read a sample only when it is needed.
type Stream interface {
	Samples(epoch int) iter.Seq2[Sample, error]
}

// A StreamFunc is a function that implements [Stream].
type StreamFunc func(epoch int) iter.Seq2[Sample, error]

// Samples calls f.
func (f StreamFunc) Samples(epoch int) iter.Seq2[Sample, error] { return f(epoch) }

// A Sharder is a Stream that can read a part of itself, such as one of several files, without
// reading the rest. The parts together make up the whole stream.
type Sharder interface {
	Stream
	Shard(rank, world int) Stream
}

// StreamOf returns the samples of a dataset in the order of a sampler. If s is nil, the samples
// come in the order of their indexes. A panic in the dataset becomes a *[PanicError] in place of
// the sample. The random numbers of a [RandDataset] depend only on the epoch and the sample's
// index. If the sampler draws with replacement, they depend on the sample's position in the epoch
// instead of its index.
func StreamOf(ds Dataset, s Sampler) Stream {
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			order := s
			if order == nil {
				order = SequentialSampler{ds.Len()}
			}
			pcg := rand.NewPCG(0, 0)
			rng, draws, apart, k := rand.New(pcg), random(ds), repeats(order), 0
			for i := range order.Indices(epoch) {
				var v Sample
				err := guard(func() (err error) {
					if !draws {
						v, err = ds.Get(i)
						return err
					}
					of := i
					if apart {
						of = k
					}
					pcg.Seed(streamSeed(0, epoch, of))
					v, err = GetRand(ds, i, rng)
					return err
				})
				if k++; !yield(v, err) {
					return
				}
			}
		}
	})
}

// ShardStream divides a stream among world processes, and returns the part that process number rank
// reads. If the stream is a [Sharder], its method Shard returns this part. Otherwise the part
// consists of the samples whose number modulo world equals rank. If rank or world is invalid, the
// error is a *[ConfigError].
func ShardStream(s Stream, rank, world int) (Stream, error) {
	switch {
	case world < 1:
		return nil, &ConfigError{"world", fmt.Sprintf("%d processes, at least 1 is needed", world)}
	case rank < 0 || rank >= world:
		return nil, &ConfigError{"rank", fmt.Sprintf("%d is not between 0 and %d", rank, world-1)}
	}
	if sh, ok := s.(Sharder); ok {
		return sh.Shard(rank, world), nil
	}
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			k := 0
			for v, err := range s.Samples(epoch) {
				if k%world == rank && !yield(v, err) {
					return
				}
				k++
			}
		}
	}), nil
}

// ShuffleStream returns the samples of s in a random order, by means of a buffer of the given
// number of samples. It draws each sample from the buffer at random, and replaces it by the next
// sample of s. The order depends only on the seed and the epoch. ShuffleStream passes errors on
// immediately. If buffer is less than 1, the error is a *[ConfigError].
func ShuffleStream(s Stream, buffer int, seed uint64) (Stream, error) {
	if buffer < 1 {
		return nil, &ConfigError{"buffer", fmt.Sprintf("%d samples, at least 1 is needed", buffer)}
	}
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			rng := rand.New(rand.NewPCG(seed, uint64(epoch)))
			var buf []Sample
			for v, err := range s.Samples(epoch) {
				switch {
				case err != nil:
					if !yield(v, err) {
						return
					}
				case len(buf) < buffer:
					buf = append(buf, v)
				default:
					k := rng.IntN(len(buf))
					out := buf[k]
					buf[k] = v
					if !yield(out, nil) {
						return
					}
				}
			}
			rng.Shuffle(len(buf), func(i, j int) { buf[i], buf[j] = buf[j], buf[i] })
			for _, v := range buf {
				if !yield(v, nil) {
					return
				}
			}
		}
	}), nil
}

// MapStream applies f to every sample. f runs in the goroutine that reads the stream, while
// Config.Transform runs in the workers. A panic in f becomes a *[PanicError] in place of the
// sample.
func MapStream(s Stream, f func(s Sample) (Sample, error)) Stream {
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			for v, err := range s.Samples(epoch) {
				if err == nil {
					err = guard(func() (err error) { v, err = f(v); return err })
				}
				if !yield(v, err) {
					return
				}
			}
		}
	})
}

// FilterStream returns the samples for which pred returns true, and all errors.
func FilterStream(s Stream, pred func(s Sample) bool) Stream {
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			for v, err := range s.Samples(epoch) {
				if (err != nil || pred(v)) && !yield(v, err) {
					return
				}
			}
		}
	})
}

// TakeStream returns the first n samples. An error counts as a sample.
func TakeStream(s Stream, n int) Stream {
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			if n <= 0 {
				return
			}
			k := 0
			for v, err := range s.Samples(epoch) {
				if k++; !yield(v, err) || k == n {
					return
				}
			}
		}
	})
}

// ConcatStreams returns the samples of several streams, one stream after another: torch's
// ChainDataset.
func ConcatStreams(streams ...Stream) Stream {
	streams = slices.Clone(streams)
	return StreamFunc(func(epoch int) iter.Seq2[Sample, error] {
		return func(yield func(Sample, error) bool) {
			for _, s := range streams {
				for v, err := range s.Samples(epoch) {
					if !yield(v, err) {
						return
					}
				}
			}
		}
	})
}
