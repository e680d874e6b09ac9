package data_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// squares is a dataset of numbers and their squares. Some of its samples fail or panic.
type squares struct {
	n, failAt, panicAt int
	slow               bool
	calls              atomic.Int64
}

func (s *squares) Len() int { return s.n }

func (s *squares) Get(i int) (data.Sample, error) {
	s.calls.Add(1)
	switch {
	case s.slow && i%3 == 0:
		time.Sleep(time.Millisecond)
	case s.failAt > 0 && i == s.failAt:
		return data.Sample{}, errors.New("unreadable")
	case s.panicAt > 0 && i == s.panicAt:
		panic("corrupt")
	}
	return data.Sample{X: []float32{float32(i), 1}, Y: int64(i * i)}, nil
}

func load(t *testing.T, d data.Dataset, c data.Config) *data.Loader {
	t.Helper()
	l, err := data.NewLoader(d, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestBatches(t *testing.T) {
	l := load(t, &squares{n: 10}, data.Config{Batch: 4, Workers: 3})
	var sizes []int
	at := 0
	for b, err := range l.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, b.X.Dim(0))
		if b.X.Rank() != 2 || b.X.Dim(1) != 2 || b.Y.Rank() != 1 {
			t.Fatalf("shapes %v %v", b.X.Shape(), b.Y.Shape())
		}
		for k, y := range tensor.Data[int64](b.Y) {
			if b.Index[k] != at || y != int64(at*at) || tensor.Data[float32](b.X)[2*k] != float32(at) {
				t.Fatalf("sample %d: index %d, target %d", at, b.Index[k], y)
			}
			at++
		}
	}
	if !slices.Equal(sizes, []int{4, 4, 2}) || l.Len() != 3 {
		t.Fatalf("sizes %v", sizes)
	}
	if l := load(t, &squares{n: 10}, data.Config{Batch: 4, DropLast: true}); l.Len() != 2 {
		t.Fatal("DropLast")
	}
	for range load(t, &squares{}, data.Config{Batch: 4}).Batches() {
		t.Fatal("no samples, no batches")
	}
}

// The order of samples depends only on seed and epoch, not on the number of workers. It differs
// from epoch to epoch, and each epoch visits all samples.
func TestOrder(t *testing.T) {
	order := func(workers int, seed uint64) (out [][]int) {
		l := load(t, &squares{n: 100, slow: true}, data.Config{Batch: 7, Shuffle: true, Seed: seed, Workers: workers})
		for range 2 {
			var e []int
			for b, err := range l.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				e = append(e, b.Index...)
			}
			out = append(out, e)
		}
		return out
	}
	a, b, c := order(1, 5), order(8, 5), order(1, 6)
	if !slices.Equal(a[0], b[0]) || !slices.Equal(a[1], b[1]) {
		t.Fatal("workers changed the order")
	}
	if slices.Equal(a[0], a[1]) || slices.Equal(a[0], c[0]) {
		t.Fatal("epochs and seeds must differ")
	}
	sorted := slices.Clone(a[1])
	slices.Sort(sorted)
	for i, v := range sorted {
		if i != v {
			t.Fatal("every sample once")
		}
	}
}

func TestBadSamplesAreNamed(t *testing.T) {
	for want, d := range map[string]*squares{
		"data: sample 13: unreadable":     {n: 40, failAt: 13},
		"data: sample 17: panic: corrupt": {n: 40, panicAt: 17},
	} {
		var got error
		n := 0
		for _, err := range load(t, d, data.Config{Batch: 5, Workers: 2}).Batches() {
			if err != nil {
				got = err
			} else {
				n++
			}
		}
		var s *data.SampleError
		if !errors.As(got, &s) || !strings.HasPrefix(got.Error(), want) {
			t.Errorf("%s: got %v", want, got)
		}
		if n == 0 {
			t.Error("the batches before the bad one are good")
		}
	}
	for _, c := range []data.Config{{}, {Batch: -1}, {Batch: 1, Workers: -1}, {Batch: 1, Prefetch: -1}} {
		if _, err := data.NewLoader(&squares{n: 1}, c); err == nil {
			t.Errorf("%+v must be refused", c)
		}
	}
}

// A loop that is left early leaves no goroutine behind, and the number of batches prepared ahead is
// bounded.
func TestNothingStaysBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	d := &squares{n: 1000}
	l := load(t, d, data.Config{Batch: 2, Workers: 4, Prefetch: 8})
	for range l.Batches() {
		break
	}
	if n := d.calls.Load(); n > 2*(8+4+1) {
		t.Errorf("%d samples were fetched for one batch", n)
	}
	for i := 0; runtime.NumGoroutine() > before && i < 100; i++ {
		time.Sleep(time.Millisecond)
	}
	if now := runtime.NumGoroutine(); now > before {
		t.Fatalf("%d goroutines, %d before", now, before)
	}
}

func TestTensorDataset(t *testing.T) {
	x, y := tensor.From([][]float32{{1, 2}, {3, 4}, {5, 6}}), tensor.From([]int64{7, 8, 9})
	d, err := data.NewTensorDataset(x, y)
	if err != nil {
		t.Fatal(err)
	}
	for _, ds := range []data.Dataset{d, data.Subset{Of: d, Index: []int{0, 1, 2}}} {
		for b, err := range load(t, ds, data.Config{Batch: 3}).Batches() {
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(b.X.Floats(), b.Y.Floats()); got != "[1 2 3 4 5 6] [7 8 9]" {
				t.Fatalf("%T: %s", ds, got)
			}
		}
	}
	if _, err := data.NewTensorDataset(x, tensor.From([]int64{1})); err == nil {
		t.Fatal("different numbers of samples")
	}
}

// tensors is a dataset of tensors. The tensor with index odd has a different shape.
type tensors struct{ odd int }

func (tensors) Len() int { return 6 }

func (d tensors) Get(i int) (data.Sample, error) {
	if i == d.odd {
		return data.Sample{X: tensor.Ones(3), Y: i}, nil
	}
	return data.Sample{X: tensor.Full(float64(i), 2), Y: i}, nil
}

func TestTensorSamples(t *testing.T) {
	for b, err := range load(t, tensors{-1}, data.Config{Batch: 3}).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		if y, x := b.Y.Floats(), b.X.Floats(); b.X.Rank() != 2 || x[0] != y[0] || x[5] != y[2] {
			t.Fatalf("%v with targets %v", x, y)
		}
	}
	var got error
	for b, err := range load(t, tensors{4}, data.Config{Batch: 3}).Batches() {
		if got = err; err == nil && b.Index[0] != 0 {
			t.Errorf("the batch %v cannot be made", b.Index)
		}
	}
	var s *data.SampleError
	if !errors.As(got, &s) || !strings.Contains(got.Error(), "data: sample 4: in its batch it is a float32 tensor of shape [3], the first a float32 tensor of shape [2] (data.PadCollate") {
		t.Errorf("got %v", got)
	}
}
