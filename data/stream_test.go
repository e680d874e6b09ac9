package data_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data"
)

// count is a stream of the numbers 0 to n-1. An error replaces each number in bad.
func count(n int, bad ...int) data.Stream {
	return data.StreamFunc(func(epoch int) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			for i := range n {
				var err error
				if slices.Contains(bad, i) {
					err = fmt.Errorf("line %d is torn", i)
				}
				if !yield(data.Sample{X: i, Y: epoch}, err) {
					return
				}
			}
		}
	})
}

// values returns the values of a stream's epoch, with -1 for each error.
func values(t *testing.T, s data.Stream, epoch int) (out []int) {
	t.Helper()
	for v, err := range s.Samples(epoch) {
		if err != nil {
			out = append(out, -1)
			continue
		}
		out = append(out, v.X.(int))
	}
	return out
}

func stream(t *testing.T) func(s data.Stream, err error) data.Stream {
	return func(s data.Stream, err error) data.Stream {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func TestStreams(t *testing.T) {
	ok := stream(t)
	even := func(s data.Sample) bool { return s.X.(int)%2 == 0 }
	twice := func(s data.Sample) (data.Sample, error) {
		s.X = 2 * s.X.(int)
		if s.X == 6 {
			return s, errors.New("three")
		}
		return s, nil
	}
	for _, c := range []struct {
		s    data.Stream
		want []int
	}{
		{count(4), []int{0, 1, 2, 3}},
		{count(0), nil},
		{data.FilterStream(count(6, 3), even), []int{0, 2, -1, 4}},
		{data.MapStream(count(5, 1), twice), []int{0, -1, 4, -1, 8}},
		{data.TakeStream(count(5, 1), 3), []int{0, -1, 2}},
		{data.TakeStream(count(5), 0), nil},
		{data.ConcatStreams(count(2), count(0), count(3)), []int{0, 1, 0, 1, 2}},
		{ok(data.ShardStream(count(7, 4), 1, 3)), []int{1, -1}},
		{ok(data.ShardStream(files{3}, 1, 2)), []int{100, 101}},
		{ok(data.Interleave(1, count(1), count(4, 2), count(2))), []int{0, 0, 0, 1, 1, -1, 3}},
		{ok(data.Interleave(3)), nil},
		{ok(data.ShuffleStream(count(4, 2), 1, 0)), []int{0, -1, 1, 3}},
		{data.StreamOf(data.Subset{Of: &several{n: 12}, Index: []int{5, 7}}, nil), []int{5, 7}},
		{data.StreamOf(&several{n: 12}, data.SubsetRandomSampler{Index: []int{9}}), []int{9}},
	} {
		for range 2 {
			if got := values(t, c.s, 0); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		}
		for range c.s.Samples(0) { // the loop over the stream is left early
			break
		}
	}
	for _, err := range []error{second(data.ShuffleStream(count(1), 0, 0)), second(data.ShardStream(count(1), 1, 1)), second(data.ShardStream(count(1), 0, 0)),
		second(data.Interleave(0))} {
		var c *data.ConfigError
		if !errors.As(err, &c) {
			t.Errorf("%v", err)
		}
	}
}

func second(_ data.Stream, err error) error { return err }

// files is a stream of n files, which can be read separately. File f holds the numbers 100f and
// 100f+1.
type files struct{ n int }

func (f files) Samples(epoch int) iter.Seq2[data.Sample, error] { return f.part(0, 1).Samples(epoch) }

func (f files) part(rank, world int) data.Stream {
	var of []data.Stream
	for k := rank; k < f.n; k += world {
		of = append(of, data.MapStream(count(2), func(s data.Sample) (data.Sample, error) {
			s.X = 100*k + s.X.(int)
			return s, nil
		}))
	}
	return data.ConcatStreams(of...)
}

func (f files) Shard(rank, world int) data.Stream { return f.part(rank, world) }

// A shuffle buffer loses no sample, and mixes the samples. A sample may move towards the start by
// at most the buffer's size.
func TestShuffleBuffer(t *testing.T) {
	const n, buffer = 1000, 50
	s := stream(t)(data.ShuffleStream(count(n), buffer, 3))
	a, b := values(t, s, 0), values(t, s, 1)
	if slices.Equal(a, b) || !slices.Equal(a, values(t, s, 0)) {
		t.Error("the order is a function of the epoch")
	}
	if c := values(t, stream(t)(data.ShuffleStream(count(n), buffer, 4)), 0); slices.Equal(a, c) {
		t.Error("the order is a function of the seed")
	}
	moved := 0
	for at, v := range a {
		if v > at+buffer {
			t.Fatalf("sample %d comes at place %d", v, at)
		}
		if v != at {
			moved++
		}
	}
	if moved < n*8/10 {
		t.Errorf("%d of %d samples moved", moved, n)
	}
	slices.Sort(a)
	for i, v := range a {
		if i != v {
			t.Fatal("each sample once")
		}
	}
}

func streamLoader(t *testing.T, s data.Stream, c data.Config) *data.Loader {
	t.Helper()
	l, err := data.NewStreamLoader(s, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// The batches and random numbers of a stream do not depend on the number of workers. A loader can
// continue from a state saved within an epoch.
func TestStreamLoader(t *testing.T) {
	s := stream(t)(data.ShuffleStream(count(22), 5, 1))
	c := data.Config{Batch: 4, Seed: 2, Workers: 3, Transform: func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
		if s.X.(int)%3 == 0 {
			time.Sleep(time.Millisecond)
		}
		return data.Sample{X: []float64{float64(s.X.(int)), rng.Float64()}, Y: s.Y}, nil
	}}
	l := streamLoader(t, s, c)
	if l.Len() != -1 || l.Order(0) != nil {
		t.Error("the length of a stream is not known")
	}
	var want [][]string
	for range 2 {
		want = append(want, firstBatches(t, l, -1))
	}
	if len(want[0]) != 6 || !strings.HasPrefix(want[0][5], "[20 21]") || want[0][0] == want[1][0] {
		t.Fatal(want)
	}
	for at := 0; at <= 6; at++ {
		c.Workers = 1 + at%4
		l := streamLoader(t, s, c)
		firstBatches(t, l, -1)
		firstBatches(t, l, at)
		state := l.StateDict()
		l2 := streamLoader(t, s, c)
		if err := l2.LoadStateDict(state); err != nil {
			t.Fatal(err)
		}
		want := want[1][at:]
		if got := firstBatches(t, l2, -1); !slices.Equal(got, want) {
			t.Fatalf("after %d batches: %v, want %v", at, got, want)
		}
	}
	c.DropLast = true
	if n := len(firstBatches(t, streamLoader(t, s, c), -1)); n != 5 {
		t.Errorf("%d full batches", n)
	}
	for field, c := range map[string]data.Config{"Batch": {}, "Shuffle": {Batch: 1, Shuffle: true}, "Sampler": {Batch: 1, Sampler: data.SequentialSampler{}},
		"Batches": {Batches: mustBatches(t)}} {
		var e *data.ConfigError
		if _, err := data.NewStreamLoader(s, c); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := data.NewStreamLoader(nil, data.Config{Batch: 1}); err == nil {
		t.Error("no stream")
	}
}

func TestStreamErrors(t *testing.T) {
	bad := func(s data.Sample, _ *rand.Rand) (data.Sample, error) {
		if s.X == 5 {
			return s, errors.New("five")
		}
		return s, nil
	}
	before := runtime.NumGoroutine()
	run := func(s data.Stream, c data.Config) string {
		c.Batch, c.Workers, c.Prefetch = 3, 2, 8
		l := streamLoader(t, s, c)
		var out []any
		for b, err := range l.Batches() {
			if err != nil {
				out = append(out, strings.SplitN(err.Error(), "\n", 2)[0])
				continue
			}
			out = append(out, b.Index)
		}
		return strings.TrimSpace(fmt.Sprintln(append(out, l.Skipped())...))
	}
	torn := func(s data.Sample) (data.Sample, error) {
		if s.X == 4 {
			panic("torn")
		}
		return s, nil
	}
	inter := stream(t)(data.Interleave(4, count(4), panicking(2)))
	exit := stream(t)(data.Interleave(4, count(4), exitingStream(2)))
	for _, c := range []struct {
		s    data.Stream
		c    data.Config
		want string
	}{
		{count(8, 4), data.Config{}, "[0 1 2] data: sample 4: line 4 is torn 0"},
		{count(8), data.Config{Transform: bad}, "[0 1 2] data: sample 5: five 0"},
		{count(8, 0, 4), data.Config{Transform: bad, Skip: true}, "[1 2] [3] [6 7] 3"},
		{count(8, 3, 4), data.Config{Transform: bad, Skip: true}, "[0 1 2] [6 7] 3"},
		{panicking(4), data.Config{}, "[0 1 2] data: batch: the stream: panic: torn 0"},
		{data.StreamOf(&squares{n: 6, panicAt: 4}, nil), data.Config{}, "[0 1 2] data: sample 4: panic: corrupt 0"},
		{data.StreamOf(&squares{n: 6, panicAt: 4}, nil), data.Config{Skip: true}, "[0 1 2] [3 5] 1"},
		{data.MapStream(count(6), torn), data.Config{Skip: true}, "[0 1 2] [3 5] 1"},
		{exitingStream(4), data.Config{}, "[0 1 2] data: batch: the function ended its goroutine (runtime.Goexit) instead of returning 0"},
		{inter, data.Config{}, "[0 1 2] data: sample 5: panic: torn 0"},
		{inter, data.Config{Skip: true}, "[0 1 2] [3 4] [6] 1"},
		{exit, data.Config{}, "[0 1 2] data: sample 5: the function ended its goroutine (runtime.Goexit) instead of returning 0"},
	} {
		if got := run(c.s, c.c); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		quiet(t, before, c.want)
	}
	for range streamLoader(t, stream(t)(data.Interleave(4, count(400), count(500))), data.Config{Batch: 2}).Batches() {
		break
	}
	quiet(t, before, "break")
}

func panicking(n int) data.Stream {
	return data.StreamFunc(func(epoch int) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			for s := range count(n).Samples(epoch) {
				if !yield(s, nil) {
					return
				}
			}
			panic("torn")
		}
	})
}

// Augmented samples get new random numbers in each epoch, and each time that a sample is drawn.
func TestStreamOfRandom(t *testing.T) {
	draw := data.Map(&squares{n: 3}, func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
		return data.Sample{X: rng.Uint64(), Y: 0}, nil
	})
	read := func(s data.Sampler, epoch int) (out []uint64) {
		for v, err := range data.StreamOf(draw, s).Samples(epoch) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, v.X.(uint64))
		}
		return out
	}
	seen := map[uint64]bool{}
	first := read(nil, 0)
	for _, v := range slices.Concat(first, read(nil, 1), read(data.RandomSampler{N: 3, Replacement: true, Samples: 9}, 2)) {
		if seen[v] {
			t.Errorf("%d was drawn twice", v)
		}
		seen[v] = true
	}
	if again := read(nil, 0); !slices.Equal(first, again) {
		t.Errorf("the first epoch drew %v, then %v", first, again)
	}
	for i, want := range first {
		if s, _ := draw.Get(i); s.X != want {
			t.Errorf("sample %d: %v by itself, %d in the stream", i, s.X, want)
		}
	}
}

func exitingStream(n int) data.Stream {
	return data.MapStream(count(n+1), func(s data.Sample) (data.Sample, error) {
		if s.X == n {
			runtime.Goexit()
		}
		return s, nil
	})
}

func TestCombinedDatasets(t *testing.T) {
	n := func(k int) data.Dataset { return &squares{n: k} }
	c := data.NewConcat(n(2), n(0), n(3), &noisy{squares{n: 2}})
	var got []any
	for i := range c.Len() {
		s, err := c.Get(i)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s.Y)
	}
	if fmt.Sprint(got) != "[0 1 0 1 4 0 1]" {
		t.Error(got)
	}
	for _, i := range []int{-1, 7} {
		if _, err := c.Get(i); err == nil {
			t.Errorf("sample %d", i)
		}
	}
	if e := data.NewConcat(); e.Len() != 0 {
		t.Error(e.Len())
	}
	// The loader's random numbers reach the innermost dataset through all datasets that wrap it.
	whole := data.Subset{Of: data.NewConcat(&noisy{squares{n: 4}}, &noisy{squares{n: 3}}), Index: []int{6, 2, 0}}
	draw := data.Map(whole, func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
		s.X = append(s.X.([]float64), rng.Float64())
		return s, nil
	})
	epochs := func(workers int) []string {
		l := load(t, draw, data.Config{Batch: 1, Workers: workers, Shuffle: true})
		return append(firstBatches(t, l, -1), firstBatches(t, l, -1)...)
	}
	all := epochs(1)
	if !slices.Equal(all, epochs(3)) || strings.Count(all[0], "0.") < 3 {
		t.Error(all)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 6 {
		t.Errorf("two epochs draw the same: %v", all)
	}
	a, err1 := data.Map(n(3), func(s data.Sample, rng *rand.Rand) (data.Sample, error) { s.X = rng.Uint64(); return s, nil }).Get(2)
	b, err2 := data.Map(n(3), func(s data.Sample, rng *rand.Rand) (data.Sample, error) { s.X = rng.Uint64(); return s, nil }).Get(2)
	if err := errors.Join(err1, err2); err != nil || !reflect.DeepEqual(a, b) {
		t.Errorf("%v %v %v", a, b, err)
	}
	if s, err := data.GetRand(n(3), 2, nil); err != nil || s.Y != int64(4) {
		t.Error(s, err)
	}
	if _, err := data.GetRand(data.NewConcat(n(3)), 3, nil); err == nil {
		t.Error("out of range")
	}
}

func TestRandomSplit(t *testing.T) {
	d := &squares{n: 10}
	sizes := func(p []data.Subset) (n []int) {
		var all []int
		for _, s := range p {
			n = append(n, s.Len())
			all = append(all, s.Index...)
		}
		if slices.Sort(all); !slices.Equal(all, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("the parts are %v", all)
		}
		return n
	}
	p, err := data.RandomSplit(d, 1, 7, 0, 3)
	if err != nil || !slices.Equal(sizes(p), []int{7, 0, 3}) {
		t.Fatal(p, err)
	}
	q, err := data.RandomSplit(d, 1, 7, 3)
	if err != nil || !slices.Equal(q[0].Index, p[0].Index) {
		t.Error(q, err)
	}
	for _, c := range readGolden(t).Splits {
		p, err := data.RandomSplitFractions(&squares{n: 10}, 1, c.Fractions...)
		if err != nil || !slices.Equal(sizes(p), c.Sizes) {
			t.Errorf("%v: %v %v, torch %v", c.Fractions, sizes(p), err, c.Sizes)
		}
	}
	for _, err := range []error{third(data.RandomSplit(d, 1, 5)), third(data.RandomSplit(d, 1, 12, -2)), third(data.RandomSplitFractions(d, 1, 0.5, 0.4)),
		third(data.RandomSplitFractions(d, 1, 1.5, -0.5)), third(data.RandomSplitFractions(d, 1))} {
		var c *data.ConfigError
		if !errors.As(err, &c) {
			t.Errorf("%v", err)
		}
	}
}

func third(_ []data.Subset, err error) error { return err }
