package data_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/data"
)

// A weighted sampler draws each index with a frequency proportional to its weight.
func TestWeightedSampler(t *testing.T) {
	w := []float64{1, 0, 3, 6}
	s, err := data.NewWeightedRandomSampler(w, 20000, true, 4)
	if err != nil {
		t.Fatal(err)
	}
	count := make([]float64, 4)
	for i := range s.Indices(2) {
		count[i]++
	}
	for i, c := range count {
		p := w[i] / 10
		if d := math.Abs(c - 20000*p); d > 5*math.Sqrt(20000*p*(1-p)) || w[i] == 0 && c != 0 {
			t.Errorf("index %d came %v times of 20000, weight %v of 10", i, c, w[i])
		}
	}
	// Two of the three indexes of positive weight are drawn without replacement. The test checks
	// how often each index is drawn first, and how often it is not drawn.
	w = []float64{1, 2, 5, 0}
	if s, err = data.NewWeightedRandomSampler(w, 2, false, 4); err != nil {
		t.Fatal(err)
	}
	first, out := make([]float64, 4), make([]float64, 4)
	const n = 20000
	for e := range n {
		o := slices.Collect(s.Indices(e))
		if len(o) != 2 || o[0] == o[1] || slices.Contains(o, 3) {
			t.Fatal(o)
		}
		first[o[0]]++
		out[3-o[0]-o[1]]++
	}
	for i := range 3 {
		a, b := (i+1)%3, (i+2)%3
		left := w[a]/8*w[b]/(8-w[a]) + w[b]/8*w[a]/(8-w[b])
		for _, c := range [][2]float64{{first[i], w[i] / 8}, {out[i], left}} {
			if p := c[1]; math.Abs(c[0]-n*p) > 5*math.Sqrt(n*p*(1-p)) {
				t.Errorf("index %d: %v of %d, want a share of %v", i, c[0], n, p)
			}
		}
	}
	for _, c := range []struct {
		w       []float64
		samples int
		replace bool
	}{{nil, 1, true}, {[]float64{1}, 0, true}, {[]float64{-1, 2}, 1, true}, {[]float64{math.NaN()}, 1, true}, {[]float64{math.Inf(1)}, 1, true},
		{[]float64{0}, 1, true}, {[]float64{1, 0}, 2, false}, {[]float64{1e308, 1e308}, 2, true}} {
		var e *data.ConfigError
		if _, err := data.NewWeightedRandomSampler(c.w, c.samples, c.replace, 1); !errors.As(err, &e) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestLengthSampler(t *testing.T) {
	lengths := make([]int, 203)
	for i := range lengths {
		lengths[i] = i * 37 % 101
	}
	for _, c := range []data.LengthConfig{
		{Batch: 8}, {Batch: 8, Shuffle: true, Seed: 1}, {Batch: 8, Pool: 50, Shuffle: true}, {Batch: 8, Bounds: []int{10, 40, 60}, Shuffle: true},
		{Batch: 8, Bounds: []int{10, 40}, DropLast: true}, {Batch: 8, Pool: 20, DropLast: true},
	} {
		s, err := data.NewLengthSampler(lengths, c)
		if err != nil {
			t.Fatal(err)
		}
		var epochs [2][][]int
		for e := range epochs {
			epochs[e] = slices.Collect(s.Batches(e))
			if len(epochs[e]) != s.Len() {
				t.Errorf("%+v: %d batches, Len %d", c, len(epochs[e]), s.Len())
			}
			var all []int
			spread := 0
			for _, b := range epochs[e] {
				if len(b) > 8 || len(b) < 8 && c.DropLast {
					t.Errorf("%+v: a batch of %d", c, len(b))
				}
				lo, hi := 1000, 0
				bucket := func(n int) int {
					for k, bound := range c.Bounds {
						if n <= bound {
							return k
						}
					}
					return len(c.Bounds)
				}
				for _, i := range b {
					lo, hi = min(lo, lengths[i]), max(hi, lengths[i])
				}
				if c.Bounds != nil && bucket(lo) != bucket(hi) {
					t.Errorf("%+v: lengths %d and %d in one batch", c, lo, hi)
				}
				spread += hi - lo
				all = append(all, b...)
			}
			slices.Sort(all)
			if u := slices.Compact(slices.Clone(all)); len(u) != len(all) || !c.DropLast && len(u) != len(lengths) {
				t.Errorf("%+v: %d samples, %d different, of %d", c, len(all), len(u), len(lengths))
			}
			// In random batches of 8 samples, lengths would differ by about 78 on average.
			if mean := float64(spread) / float64(len(epochs[e])); mean > 45 {
				t.Errorf("%+v: a mean spread of %v", c, mean)
			}
		}
		if same := slices.EqualFunc(epochs[0], epochs[1], slices.Equal); same == c.Shuffle {
			t.Errorf("%+v: the epochs are the same: %v", c, same)
		}
	}
	for _, c := range []data.LengthConfig{{}, {Batch: 1, Pool: -1}, {Batch: 1, Bounds: []int{2, 2}}, {Batch: 1, Bounds: []int{2}, Pool: 3}} {
		var e *data.ConfigError
		if _, err := data.NewLengthSampler(lengths, c); !errors.As(err, &e) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	l := load(t, &squares{n: 203}, data.Config{Workers: 2, Batches: func() data.BatchSampler {
		s, err := data.NewLengthSampler(lengths, data.LengthConfig{Batch: 8, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}()})
	if n := len(firstBatches(t, l, -1)); n != 26 || l.Len() != 26 {
		t.Errorf("%d batches", n)
	}
}

func TestSamplers(t *testing.T) {
	s := data.SubsetRandomSampler{Index: []int{3, 5, 8}, Seed: 1}
	got := slices.Sorted(s.Indices(0))
	if !slices.Equal(got, []int{3, 5, 8}) || s.Len() != 3 {
		t.Error(got)
	}
	for _, c := range []data.DistributedConfig{{}, {World: 2, Rank: 2}, {World: 1, Rank: -1}} {
		var e *data.ConfigError
		if _, err := data.NewDistributedSampler(3, c); !errors.As(err, &e) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, s := range []data.Sampler{data.RandomSampler{}, data.RandomSampler{Samples: 3}, data.SequentialSampler{}, data.SubsetRandomSampler{}} {
		if n := len(slices.Collect(s.Indices(0))); n != 0 || s.Len() != 0 {
			t.Errorf("%#v: %d", s, n)
		}
	}
	if _, err := data.NewBatchSampler(nil, 1, false); err == nil {
		t.Error("no sampler")
	}
	if _, err := data.NewBatchSampler(s, 0, false); err == nil {
		t.Error("no batch size")
	}
	// All ranks use the same order in an epoch, and another order in another epoch.
	var all [2][]int
	for rank := range 3 {
		d, err := data.NewDistributedSampler(9, data.DistributedConfig{Rank: rank, World: 3, Shuffle: true})
		if err != nil {
			t.Fatal(err)
		}
		l := load(t, &squares{n: 9}, data.Config{Batch: 3, Sampler: d})
		for e := range all {
			for b, err := range l.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				all[e] = append(all[e], b.Index...)
			}
		}
	}
	if slices.Equal(all[0], all[1]) {
		t.Error("epochs must differ")
	}
	for _, e := range all {
		if slices.Sort(e); !slices.Equal(e, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Error(e)
		}
	}
}
