package data_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/data"
)

// FuzzLoader runs loaders with random settings over samples, one of which may fail. It leaves a
// loop at some batch, and a second loop continues from the saved state. Together they must yield
// the samples in the order of Loader.Order. With Skip the failing sample must be missing. Without
// Skip the loops must end before its batch.
func FuzzLoader(f *testing.F) {
	f.Add(uint8(10), uint8(3), uint8(2), uint8(1), uint8(4), uint8(2), uint64(1), true, false, true)
	f.Add(uint8(0), uint8(1), uint8(1), uint8(0), uint8(0), uint8(0), uint64(0), false, true, false)
	f.Add(uint8(33), uint8(8), uint8(7), uint8(2), uint8(200), uint8(4), uint64(9), true, true, false)
	f.Fuzz(func(t *testing.T, n, batch, workers, prefetch, bad, leave uint8, seed uint64, shuffle, drop, skip bool) {
		d := &several{n: int(n % 64), bad: []int{int(bad)}}
		c := data.Config{Batch: int(batch), Workers: int(workers % 9), Prefetch: int(prefetch % 9), Seed: seed, Shuffle: shuffle, DropLast: drop, Skip: skip}
		l, err := data.NewLoader(d, c)
		var ce *data.ConfigError
		if err != nil {
			if !errors.As(err, &ce) || batch > 0 {
				t.Fatalf("%+v: %v", c, err)
			}
			return
		}
		order := l.Order(0)
		if want := d.n; drop && len(order) != want/c.Batch*c.Batch || !drop && len(order) != want {
			t.Fatalf("%+v: an order of %d of %d samples", c, len(order), want)
		}
		var want []string // the expected batches, and the expected error, if any
		for b := range slices.Chunk(order, c.Batch) {
			if slices.Contains(b, int(bad)) {
				if !skip {
					want = append(want, fmt.Sprintf("data: sample %d: torn", bad))
					break
				}
				if b = slices.DeleteFunc(slices.Clone(b), func(i int) bool { return i == int(bad) }); len(b) == 0 {
					continue
				}
			}
			want = append(want, fmt.Sprint(b))
		}
		run := func(l *data.Loader, most int) (got []string) {
			for b, err := range l.Batches() {
				if err != nil {
					got = append(got, err.Error())
					continue
				}
				if got = append(got, fmt.Sprint(b.Index)); len(got) == most {
					break
				}
			}
			return got
		}
		got := run(l, int(leave))
		c.Workers, c.Seed = 1+int(leave%3), seed+1
		rest, err := data.NewLoader(d, c)
		if err == nil {
			err = rest.LoadStateDict(l.StateDict())
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(want) > 0 && len(got) == len(want) && got[len(got)-1] == want[len(want)-1] && rest.Epoch() == 1 {
			rest.SetEpoch(1) // for the case that the first loop saw the whole epoch
		} else if !skip && len(got) > 0 && got[len(got)-1] == fmt.Sprintf("data: sample %d: torn", bad) {
			got = got[:len(got)-1] // the continued loop returns the failed batch again
			got = append(got, run(rest, -1)...)
		} else if rest.Epoch() == 0 {
			got = append(got, run(rest, -1)...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v, left after %d: %v, want %v", c, leave, got, want)
		}
	})
}
