package data_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestCollateFunction(t *testing.T) {
	c := data.Config{Batch: 3, Workers: 2, Collate: func(s []data.Sample) (*data.Batch, error) {
		b, err := data.Collate(s)
		if err == nil {
			b.Nested.X = map[string]any{"x": b.X, "names": []string{"a"}}
			b.X = nil
		}
		return b, err
	}}
	for b, err := range load(t, &squares{n: 5}, c).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		m := b.Nested.X.(map[string]any)
		if b.X != nil || b.Y == nil || b.Nested.Y != nil || m["x"].(*tensor.Tensor).Dim(0) != len(b.Index) {
			t.Errorf("%+v", b)
		}
		old := m["x"].(*tensor.Tensor)
		tensor.Do(func(s *tensor.Scope) {
			if b.Into(s); b.Y.Scope() != s || m["x"].(*tensor.Tensor).Scope() != s {
				t.Error("the batch belongs to the scope")
			}
		})
		if err := tensor.Try(func() { old.Sum() }); !errors.Is(err, tensor.ErrFreed) {
			t.Errorf("the tensors are freed with the scope: %v", err)
		}
	}
	// crops collates four values of each sample. The last value is longer.
	crops := func(s []data.Sample) (*data.Batch, error) {
		values := slices.Repeat([]any{[]float32{1}}, 4*len(s))
		values[len(values)-1] = []float32{1, 2}
		_, err := data.CollateValues(values)
		return nil, err
	}
	wrapped := func(s []data.Sample) (*data.Batch, error) {
		_, err := data.CollateValues([]any{1, "a"})
		return nil, fmt.Errorf("my collate: %w", err)
	}
	for want, f := range map[string]func([]data.Sample) (*data.Batch, error){
		"data: batch: sample 11 of the batch has 2 values, the first 1 (data.PadCollate": crops,
		"data: sample 1: my collate: sample 1 of the batch holds a string":               wrapped,
		"data: batch: no":                       func([]data.Sample) (*data.Batch, error) { return nil, errors.New("no") },
		"data: batch: panic: oh":                func([]data.Sample) (*data.Batch, error) { panic("oh") },
		"data: batch: Collate returned neither": func([]data.Sample) (*data.Batch, error) { return nil, nil },
	} {
		for _, err := range load(t, &squares{n: 5}, data.Config{Batch: 3, Collate: f}).Batches() {
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

func TestCollateErrors(t *testing.T) {
	f := tensor.From([]float32{1})
	for want, v := range map[string][]any{
		"sample 0 of the batch has nil as a value":                                                      {nil},
		"sample 1 of the batch holds a string, the first a int":                                         {1, "a"},
		"sample 1 of the batch holds a int, the first a string":                                         {"a", 1},
		"sample 2 of the batch has 1 values, the first 2":                                               {[]float32{1, 2}, []float32{1, 2}, []float32{1}},
		"sample 1 of the batch has values of shape [2 1], the first [2 2]":                              {[][]int16{{1, 2}, {3, 4}}, [][]int16{{1}, {2}}},
		"sample 1 of the batch holds a <nil>, the first a bool":                                         {true, nil},
		"sample 1 of the batch is a int64 tensor of shape [1], the first a float32 tensor of shape [1]": {f, tensor.From([]int64{1})},
		`key "a": sample 1 of the batch has 2 values, the first 1`:                                      {map[string]any{"a": []int{1}}, map[string]any{"a": []int{1, 2}}},
		`sample 1 of the batch has no key "a", which the first has`:                                     {map[string]any{"a": 1}, map[string]any{"b": 1}},
		"sample 1 of the batch has 2 keys, the first 1":                                                 {map[string]any{"a": 1}, map[string]any{"a": 1, "b": 1}},
		"sample 1 of the batch has 1 values, the first 2":                                               {[]any{1, 2}, []any{1}},
		`place 1: key "k": sample 1 of the batch holds a bool, the first a`:                             {[]any{f, map[string]any{"k": 1}}, []any{f, map[string]any{"k": true}}},
		"cannot make a tensor from elements of type struct":                                             {struct{}{}, struct{}{}},
		"data: no values to collate":                                                                    {},
	} {
		if _, err := data.CollateValues(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", v, err, want)
		}
	}
	for want, v := range map[string][2]any{
		"pad with, -1, cannot be in a []uint8":                                            {[]uint8{1}, []uint8{}},
		"pad with, -1, cannot be in a []uint16":                                           {[]uint16{1}, []uint16{}},
		"has values of shape [0], the first [1]":                                          {[]dtype.Float16{1}, []dtype.Float16{}},
		"is a float32 tensor of shape [2, 2], the first a float32 tensor of shape [1]":    {f, tensor.Ones(2, 2)},
		"is a float32 tensor of shape [2, 3], the first a float32 tensor of shape [2, 2]": {tensor.Ones(2, 2), tensor.Ones(2, 3)},
		"is a float32 tensor of shape [1], the first a float32 tensor of shape []":        {tensor.Ones(), tensor.Ones(1)},
		"sample 1 of the batch holds a []int64, the first a []float32":                    {[]float32{1}, []int64{1, 2}},
		"sample 1 of the batch has values of shape [1 1], the first [2 1]":                {[][]int16{{1}, {2}}, [][]int16{{3}}},
	} {
		if _, err := data.PadCollate(-1)([]data.Sample{{X: v[0], Y: 0}, {X: v[1], Y: 0}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", v, err, want)
		}
	}
	if b, err := data.PadCollate(0.5)([]data.Sample{{X: []float32{1}, Y: 0}, {X: []float32{}, Y: 0}}); err != nil || b.X.Sum().Item() != 1.5 {
		t.Error(b, err)
	}
	var bad *data.SampleError
	for _, err := range load(t, tensors{4}, data.Config{Batch: 6, Shuffle: true, Seed: 1}).Batches() {
		if !errors.As(err, &bad) || bad.Index == -1 {
			t.Errorf("the error names a sample: %v", err)
		}
	}
}
