package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// noisy is a dataset whose samples contain random numbers and take different times to make.
type noisy struct{ squares }

func (d *noisy) GetRand(i int, rng *rand.Rand) (data.Sample, error) {
	s, err := d.Get(i)
	s.X = []float64{float64(i), rng.Float64(), rng.Float64()}
	return s, err
}

// firstBatches formats the first batches that a loop receives: at most limit of them, or all if
// limit is negative.
func firstBatches(t testing.TB, l *data.Loader, limit int) (out []string) {
	t.Helper()
	if limit == 0 {
		return nil
	}
	for b, err := range l.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(b.Index, b.X.Floats(), b.Y.Floats()))
		b.Free()
		if len(out) == limit {
			break
		}
	}
	return out
}

// The order of the samples and their random numbers do not depend on the number of workers.
func TestWorkersChangeNothing(t *testing.T) {
	epochs := func(workers int) (out [][]string) {
		l := load(t, &noisy{squares{n: 50, slow: true}}, data.Config{Batch: 6, Shuffle: true, Seed: 5, Workers: workers,
			Transform: func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
				s.Y = float64(s.Y.(int64)) + rng.Float64()
				return s, nil
			}})
		for range 3 {
			out = append(out, firstBatches(t, l, -1))
		}
		return out
	}
	one := epochs(1)
	for _, w := range []int{2, 3, 8} {
		if got := epochs(w); !reflect.DeepEqual(got, one) {
			t.Errorf("%d workers see\n%v\none sees\n%v", w, got, one)
		}
	}
	if one[0][0] == one[1][0] {
		t.Error("epochs must differ")
	}
	numbers := map[string]bool{}
	for _, e := range one {
		for _, b := range e {
			numbers[b] = true
		}
	}
	if len(numbers) != 27 {
		t.Errorf("%d different batches of 27", len(numbers))
	}
}

// With replacement, a sample may be drawn twice. It gets different random numbers each time.
func TestRepeatedSamplesDiffer(t *testing.T) {
	l := load(t, &noisy{squares{n: 3}}, data.Config{Batch: 1, Sampler: data.RandomSampler{N: 3, Replacement: true, Samples: 60}})
	all := firstBatches(t, l, -1)
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != 60 {
		t.Errorf("%d different samples of 60", n)
	}
	if l = load(t, &noisy{squares{n: 3}}, data.Config{Batch: 1, Seed: 1}); l.Len() != 3 {
		t.Fatal(l.Len())
	}
	a := firstBatches(t, l, -1)
	l.SetEpoch(0)
	if b := firstBatches(t, l, -1); !slices.Equal(a, b) {
		t.Error("an epoch again is the same")
	}
}

// A loader that loads a state saved within an epoch continues with the next batch, even with
// another number of workers.
func TestResume(t *testing.T) {
	c := data.Config{Batch: 4, Shuffle: true, Seed: 9, Workers: 3}
	d := &noisy{squares{n: 30, slow: true}}
	full := load(t, d, c)
	var want [][]string
	for range 3 {
		want = append(want, firstBatches(t, full, -1))
	}
	for at := 0; at <= 8; at++ {
		l := load(t, d, c)
		firstBatches(t, l, -1)
		if got := firstBatches(t, l, at); !slices.Equal(got, want[1][:at]) {
			t.Fatalf("stopped after %d: %v", at, got)
		}
		state := l.StateDict()
		if at == 8 && (state["epoch"] != int64(1) || state["position"] != int64(8)) {
			t.Errorf("in the last batch's turn the state is %v", state)
		}
		other := c
		other.Workers, other.Seed, other.Prefetch = 1+at%4, 77, 1+at%3
		d2 := &noisy{squares{n: 30}}
		l2 := load(t, d2, other)
		if err := l2.LoadStateDict(state); err != nil {
			t.Fatal(err)
		}
		if l2.SetEpoch(1); l2.Epoch() != 1 || !maps.Equal(l2.StateDict(), state) {
			t.Fatalf("the state %v became %v", state, l2.StateDict())
		}
		if got := firstBatches(t, l2, -1); !slices.Equal(got, want[1][at:]) {
			t.Fatalf("resumed after %d:\n%v, want\n%v", at, got, want[1][at:])
		}
		if n := d2.calls.Load(); n != int64(30-4*min(at, 7)-2*(at/8)) {
			t.Errorf("resumed after %d: %d samples were fetched", at, n)
		}
		if got := firstBatches(t, l2, -1); !slices.Equal(got, want[2]) {
			t.Fatalf("the epoch after: %v, want %v", got, want[2])
		}
		if s := l2.StateDict(); s["epoch"] != int64(3) || s["position"] != int64(0) {
			t.Errorf("at the end the state is %v", s)
		}
	}
}

func TestBadStates(t *testing.T) {
	l := load(t, &squares{n: 30}, data.Config{Batch: 4})
	good := l.StateDict()
	for key, v := range map[string]any{"epoch": int64(-1), "position": int64(9), "seed": "x", "batches": int64(7)} {
		for _, missing := range []bool{false, true} {
			bad := maps.Clone(good)
			if bad[key] = v; missing {
				delete(bad, key)
			}
			err := l.LoadStateDict(bad)
			var s *data.StateError
			if !errors.As(err, &s) || s.Key != key || !strings.HasPrefix(err.Error(), "data: state: "+key+": ") {
				t.Errorf("%v: %v", bad, err)
			}
			if !maps.Equal(l.StateDict(), good) {
				t.Error("a bad state changed the loader")
			}
		}
	}
	if err := l.LoadStateDict(nil); err == nil {
		t.Error("no state")
	}
}

// quiet waits for goroutines to end. It fails the test if their number stays above limit.
func quiet(t *testing.T, limit int, what string) {
	t.Helper()
	for i := 0; runtime.NumGoroutine() > limit && i < 500; i++ {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > limit {
		b := make([]byte, 1<<16)
		t.Fatalf("%s: %d goroutines, %d before\n%s", what, now, limit, b[:runtime.Stack(b, true)])
	}
}

// exiting is a dataset with a sample whose Get ends the goroutine.
type exiting struct{ squares }

func (d *exiting) Get(i int) (data.Sample, error) {
	if i == 7 {
		runtime.Goexit()
	}
	return d.squares.Get(i)
}

// However a loop ends, no goroutine remains. If a sample ended the loop, the error names the
// sample.
func TestEveryEndOfALoop(t *testing.T) {
	c := data.Config{Batch: 2, Workers: 3, Prefetch: 4}
	// The first loop starts goroutines of package tensor that never end. They must not be counted
	// as remaining.
	firstBatches(t, load(t, &squares{n: 10}, c), -1)
	before := runtime.NumGoroutine()
	loop := func(d data.Dataset, ctx context.Context, body func(n int) bool) (n int, err error) {
		for b, e := range load(t, d, c).BatchesContext(ctx) {
			if e != nil {
				err = e
				continue
			}
			b.Free()
			if n++; !body(n) {
				break
			}
		}
		return n, err
	}
	on := func(int) bool { return true }
	bg := context.Background()
	for name, f := range map[string]func() (int, error){
		"all":   func() (int, error) { return loop(&squares{n: 9}, bg, on) },
		"break": func() (int, error) { return loop(&squares{n: 9, slow: true}, bg, func(int) bool { return false }) },
		"error": func() (int, error) { return loop(&squares{n: 9, failAt: 4}, bg, on) },
		"panic": func() (int, error) { return loop(&squares{n: 9, panicAt: 4}, bg, on) },
		"exit":  func() (int, error) { return loop(&exiting{squares{n: 100}}, bg, on) },
		"cancel": func() (int, error) {
			ctx, cancel := context.WithCancelCause(bg)
			return loop(&squares{n: 100, slow: true}, ctx, func(n int) bool {
				if n == 2 {
					cancel(errors.New("enough"))
				}
				return true
			})
		},
		"cancel while waiting": func() (int, error) {
			ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
			defer cancel()
			return loop(&stuck{}, ctx, on)
		},
		"panic in the body": func() (n int, err error) {
			defer func() { err = fmt.Errorf("the body's %v", recover()) }()
			return loop(&squares{n: 100}, bg, func(int) bool { panic("panic") })
		},
		"sampler panics": func() (n int, err error) {
			for _, e := range load(t, &squares{n: 9}, data.Config{Batch: 1, Sampler: badSampler{-1}}).Batches() {
				if n++; e != nil {
					n, err = n-1, e
				}
			}
			return n, err
		},
		"sampler exits": func() (n int, err error) {
			for _, e := range load(t, &squares{n: 9}, data.Config{Batch: 1, Sampler: badSampler{-2}}).Batches() {
				if n++; e != nil {
					n, err = n-1, e
				}
			}
			return n, err
		},
		"sampler lies": func() (n int, err error) {
			for _, e := range load(t, &squares{n: 9}, data.Config{Batch: 1, Sampler: badSampler{9}}).Batches() {
				if n++; e != nil {
					n, err = n-1, e
				}
			}
			return n, err
		},
	} {
		want := map[string]string{
			"all": "5 <nil>", "break": "1 <nil>", "error": "2 data: sample 4: unreadable", "panic": "2 data: sample 4: panic: corrupt",
			"exit": "3 data: sample 7: the function ended its goroutine", "cancel": "2 data: epoch 0, batch 2: enough",
			"cancel while waiting": "0 data: epoch 0, batch 0: context deadline exceeded", "panic in the body": "0 the body's panic",
			"sampler panics": "2 data: batch: the sampler: panic: bad sampler", "sampler exits": "2 data: batch: the function ended its goroutine",
			"sampler lies": "2 data: sample 9: the sampler gave this index, the dataset has 9 samples",
		}[name]
		n, err := f()
		if got := fmt.Sprint(n, " ", err); !strings.HasPrefix(got, want) || want == "" {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		quiet(t, before, name)
	}
}

// stuck is a dataset of slow samples.
type stuck struct{}

func (*stuck) Len() int { return 10 }
func (*stuck) Get(i int) (data.Sample, error) {
	time.Sleep(50 * time.Millisecond)
	return data.Sample{X: i, Y: i}, nil
}

// badSampler returns two indexes and then fails. The field failure selects how.
type badSampler struct{ failure int }

func (badSampler) Len() int { return 5 }

func (s badSampler) Indices(int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if !yield(0) || !yield(1) {
			return
		}
		switch s.failure {
		case -1:
			panic("bad sampler")
		case -2:
			runtime.Goexit()
		}
		yield(s.failure)
	}
}

// The error of a cancelled loop wraps the context's cause. The next loop works.
func TestCancel(t *testing.T) {
	l := load(t, &squares{n: 20}, data.Config{Batch: 2})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for b, err := range l.BatchesContext(ctx) {
		if b != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v %v", b, err)
		}
	}
	if n := len(firstBatches(t, l, -1)); n != 10 {
		t.Errorf("%d batches afterwards", n)
	}
}

// faulty is a Batcher. Some of its samples fail to load.
type faulty struct {
	*data.TensorDataset
	bad []int
}

func (d faulty) Get(i int) (data.Sample, error) {
	if slices.Contains(d.bad, i) {
		return data.Sample{}, errors.New("torn")
	}
	return d.TensorDataset.Get(i)
}

func (d faulty) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	for _, i := range index {
		if slices.Contains(d.bad, i) {
			return nil, nil, errors.New("something is torn")
		}
	}
	return d.TensorDataset.GetBatch(index)
}

func TestSkip(t *testing.T) {
	x, err := data.NewTensorDataset(tensor.Root().Arange(12), tensor.Root().Arange(12))
	if err != nil {
		t.Fatal(err)
	}
	plain := &several{n: 12, bad: []int{2, 4, 5, 6, 7, 11}}
	for name, d := range map[string]data.Dataset{"samples": plain, "batches": faulty{x, plain.bad}} {
		var told []int
		l := load(t, d, data.Config{Batch: 4, Workers: 2, Skip: true, OnSkip: func(e *data.SampleError) { told = append(told, e.Index) }})
		var got [][]int
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, b.Index)
			if !slices.Equal(b.X.Floats(), b.Y.Floats()) || b.X.Floats()[0] != float64(b.Index[0]) {
				t.Errorf("%s: %v: %v", name, b.Index, b.X)
			}
			if len(got) == 2 && l.StateDict()["position"] != int64(3) {
				t.Errorf("%s: the batch that is not seen counts: %v", name, l.StateDict())
			}
		}
		if s := fmt.Sprint(got, told, l.Skipped()); s != "[[0 1 3] [8 9 10]] [2 4 5 6 7 11] 6" {
			t.Errorf("%s: %s", name, s)
		}
		var bad *data.SampleError
		for _, err := range load(t, d, data.Config{Batch: 4}).Batches() {
			if !errors.As(err, &bad) || bad.Index != 2 {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// several is a dataset in which some samples fail to load.
type several struct {
	n   int
	bad []int
}

func (d *several) Len() int { return d.n }

func (d *several) Get(i int) (data.Sample, error) {
	if slices.Contains(d.bad, i) {
		return data.Sample{}, errors.New("torn")
	}
	return data.Sample{X: i, Y: i}, nil
}

// Prefetch bounds the number of batches prepared ahead, whatever the number of workers.
func TestPrefetchIsBounded(t *testing.T) {
	for _, c := range []data.Config{{Workers: 1, Prefetch: 3}, {Workers: 8, Prefetch: 2}, {Workers: 4}} {
		var made atomic.Int64
		c.Batch, c.Collate = 1, func(s []data.Sample) (*data.Batch, error) { made.Add(1); return data.Collate(s) }
		l := load(t, &squares{n: 60}, c)
		bound := int64(c.Prefetch)
		if bound == 0 {
			bound = 8
		}
		n := int64(0)
		for b, err := range l.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			b.Free()
			n++
			if n%20 == 0 {
				time.Sleep(5 * time.Millisecond) // lets the workers run ahead
			}
			if m := made.Load(); m > n+bound {
				t.Fatalf("%+v: %d batches were made while the loop was in its %dth", c, m, n)
			}
		}
	}
}

func TestConfigErrors(t *testing.T) {
	s, b := data.SequentialSampler{N: 1}, mustBatches(t)
	for field, c := range map[string]data.Config{
		"Batch": {}, "Workers": {Batch: 1, Workers: -1}, "Prefetch": {Batch: 1, Prefetch: -1}, "OnSkip": {Batch: 1, OnSkip: func(*data.SampleError) {}},
		"Shuffle": {Batch: 1, Shuffle: true, Sampler: s}, "Batches": {Batch: 1, Batches: b},
	} {
		_, err := data.NewLoader(&squares{n: 1}, c)
		var e *data.ConfigError
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, c := range map[string]data.Config{"Workers": {Batch: 1, Workers: 1 << 40}, "Prefetch": {Batch: 1, Prefetch: 1 << 40}} {
		if _, err := data.NewLoader(&squares{n: 1}, c); err == nil || !strings.Contains(err.Error(), field+": 1099511627776") {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := data.NewLoader(nil, data.Config{Batch: 1}); err == nil {
		t.Error("no dataset")
	}
}

// If OnSkip panics, the loop frees the batch of that iteration.
func TestOnSkipPanics(t *testing.T) {
	var made []*tensor.Tensor
	l := load(t, &squares{n: 4, failAt: 1}, data.Config{Batch: 4, Skip: true, OnSkip: func(*data.SampleError) { panic("seen") },
		Collate: func(s []data.Sample) (*data.Batch, error) {
			b, err := data.Collate(s)
			made = append(made, b.X, b.Y)
			return b, err
		}})
	func() {
		defer func() {
			if v := recover(); v != "seen" {
				t.Errorf("the panic is %v", v)
			}
		}()
		for range l.Batches() {
			t.Error("the batch came")
		}
	}()
	for i, x := range made {
		if tensor.Try(func() { x.Item() }) == nil || tensor.Try(func() { x.Sum() }) == nil {
			t.Errorf("tensor %d is not freed", i)
		}
	}
	if len(made) != 2 {
		t.Errorf("%d tensors", len(made))
	}
}

func mustBatches(t *testing.T) data.BatchSampler {
	b, err := data.NewBatchSampler(data.SequentialSampler{N: 4}, 2, false)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
