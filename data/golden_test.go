package data_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// torchGolden holds the contents of the file that _golden/dataloader.py wrote.
type torchGolden struct {
	Distributed []struct {
		N, World int
		Drop     bool
		Ranks    [][]int
	}
	Batches []struct {
		N, Size, Len int
		Drop         bool
		Sizes        []int
	}
	Repeated []struct{ N, Samples, Least, Most int }
	Splits   []struct {
		Fractions []float64
		Sizes     []int
	}
	Collate map[string]any
	Padded  map[string]any
}

func readGolden(t *testing.T) (g torchGolden) {
	t.Helper()
	b, err := os.ReadFile("testdata/torch.json")
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestSamplersAreTorchs(t *testing.T) {
	g := readGolden(t)
	if len(g.Distributed) < 30 || len(g.Batches) < 30 || len(g.Repeated) < 3 || len(g.Splits) < 5 {
		t.Fatal("cases are missing")
	}
	for _, c := range g.Distributed {
		for rank, want := range c.Ranks {
			for _, shuffle := range []bool{false, true} {
				s, err := data.NewDistributedSampler(c.N, data.DistributedConfig{Rank: rank, World: c.World, DropLast: c.Drop, Shuffle: shuffle, Seed: 3})
				if err != nil {
					t.Fatal(err)
				}
				got := slices.Collect(s.Indices(1))
				// PyTorch shuffles into another order. So do not compare the samples, but their
				// positions in the shuffled order, which must equal PyTorch's.
				if shuffle {
					order := slices.Collect(data.RandomSampler{N: c.N, Seed: 3}.Indices(1))
					for k := range got {
						got[k] = slices.Index(order, got[k])
					}
				}
				if !slices.Equal(got, want) || s.Len() != len(want) {
					t.Errorf("%d samples, rank %d of %d, drop %v, shuffle %v: %v (Len %d), torch %v", c.N, rank, c.World, c.Drop, shuffle, got, s.Len(), want)
				}
			}
		}
	}
	for _, c := range g.Batches {
		s, err := data.NewBatchSampler(data.SequentialSampler{N: c.N}, c.Size, c.Drop)
		if err != nil {
			t.Fatal(err)
		}
		sizes := []int{}
		for b := range s.Batches(0) {
			sizes = append(sizes, len(b))
		}
		if !slices.Equal(sizes, c.Sizes) || s.Len() != c.Len {
			t.Errorf("%d samples by %d, drop %v: %v (Len %d), torch %v", c.N, c.Size, c.Drop, sizes, s.Len(), c.Sizes)
		}
	}
	for _, c := range g.Repeated {
		s := data.RandomSampler{N: c.N, Samples: c.Samples}
		times := make([]int, c.N)
		for i := range s.Indices(0) {
			times[i]++
		}
		if least, most := slices.Min(times), slices.Max(times); least != c.Least || most != c.Most || s.Len() != c.Samples {
			t.Errorf("%d of %d samples: each %d to %d times, torch %d to %d", c.Samples, c.N, least, most, c.Least, c.Most)
		}
	}
}

// plain converts collated values to the types in the golden file.
func plain(v any) any {
	switch v := v.(type) {
	case *tensor.Tensor:
		shape := []any{}
		for _, d := range v.Shape().Slice() {
			shape = append(shape, float64(d))
		}
		values := []any{}
		for _, x := range v.Floats() {
			values = append(values, x)
		}
		return map[string]any{"shape": shape, "dtype": v.Type().String(), "data": values}
	case map[string]any:
		m := map[string]any{}
		for k, x := range v {
			m[k] = plain(x)
		}
		return m
	case []any:
		l := []any{}
		for _, x := range v {
			l = append(l, plain(x))
		}
		return l
	case []string:
		l := []any{}
		for _, x := range v {
			l = append(l, x)
		}
		return l
	}
	return v
}

func TestCollateIsTorchs(t *testing.T) {
	f := func(v ...float32) *tensor.Tensor { return tensor.From(v) }
	cases := map[string][]any{
		"float":  {1.5, 2.5},
		"int":    {3, 4, 5},
		"tensor": {f(1, 2), f(3, 4)},
		"string": {"a", "b"},
		"map": {map[string]any{"ids": []int64{1, 2}, "name": "x", "weight": 0.5},
			map[string]any{"ids": []int64{3, 4}, "name": "y", "weight": 0.25}},
		"list":    {[]any{f(1), 7, "p"}, []any{f(2), 8, "q"}},
		"nested":  {map[string][]any{"a": {1, map[string]float64{"b": 2}}}, map[string][]any{"a": {3, map[string]float64{"b": 4}}}},
		"strings": {[]string{"a", "b"}, []string{"c", "d"}},
	}
	padded := map[string][]any{
		"ints":   {[]int64{1, 2, 3}, []int64{4}, []int64{}},
		"floats": {[]float64{1}, []float64{2, 3}},
		"bytes":  {[]int8{1}, []int8{2, 3}},
		"rows": {tensor.From([][]float32{{1, 2}}), tensor.From([][]float32{{3, 4}, {5, 6}, {7, 8}}),
			tensor.From([][]float32{{9, 10}, {11, 12}})},
		"even": {[]float32{1, 2}, []float32{3, 4}},
	}
	g := readGolden(t)
	if !slices.Equal(slices.Sorted(maps.Keys(padded)), slices.Sorted(maps.Keys(g.Padded))) {
		t.Fatal("the cases are not those of the golden file")
	}
	for name, values := range padded {
		var samples []data.Sample
		for _, v := range values {
			samples = append(samples, data.Sample{X: map[string]any{"in": []any{v}}, Y: v})
		}
		b, err := data.PadCollate(-1)(samples)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		in := b.Nested.X.(map[string]any)["in"].([]any)[0]
		if p, q := plain(in), plain(b.Y); !reflect.DeepEqual(p, g.Padded[name]) || !reflect.DeepEqual(q, g.Padded[name]) {
			t.Errorf("%s:\n%v %v, torch\n%v", name, p, q, g.Padded[name])
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(cases)), slices.Sorted(maps.Keys(g.Collate))) {
		t.Fatal("the cases are not those of the golden file")
	}
	for name, values := range cases {
		got, err := data.CollateValues(values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p := plain(got); !reflect.DeepEqual(p, g.Collate[name]) {
			t.Errorf("%s:\n%v, torch\n%v", name, fmt.Sprint(p), fmt.Sprint(g.Collate[name]))
		}
	}
}
