package data_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// A batch with several inputs is the same whether it is made as a whole, sample by sample, or
// through a subset.
func TestNamedDataset(t *testing.T) {
	x := map[string]*tensor.Tensor{"a": tensor.Root().Arange(12).Reshape(6, 2), "b": tensor.Root().Arange(6)}
	ds, err := data.NewNamedDataset(x, tensor.Root().Arange(6).MulScalar(10))
	if err != nil {
		t.Fatal(err)
	}
	batches := func(ds data.Dataset, c data.Config) (list []string) {
		c.Batch = 2
		loader, err := data.NewLoader(ds, c)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range loader.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, fmt.Sprint(b.Tensor("a"), b.Tensor("b"), b.Y, b.Index, b.X == nil, b.Nested.Y))
		}
		return list
	}
	whole := batches(ds, data.Config{})
	if want := "tensor([[ 8,  9],\n        [10, 11]]) tensor([4, 5]) tensor([40, 50]) [4 5] true <nil>"; len(whole) != 3 || whole[2] != want {
		t.Errorf("%q", whole)
	}
	if one := batches(ds, data.Config{Collate: data.Collate}); strings.Join(one, "\n") != strings.Join(whole, "\n") {
		t.Errorf("sample by sample: %q\nwhole: %q", one, whole)
	}
	part := batches(data.Subset{Of: ds, Index: []int{5, 0}}, data.Config{})
	if want := "tensor([[10, 11],\n        [ 0,  1]]) tensor([5, 0]) tensor([50,  0]) [0 1] true <nil>"; len(part) != 1 || part[0] != want {
		t.Errorf("%q", part)
	}
	loader, err := data.NewLoader(data.Subset{Of: ds, Index: []int{0, 6}}, data.Config{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range loader.Batches() {
		var bad *data.SampleError
		if !errors.As(err, &bad) || bad.Index != 1 {
			t.Error(err)
		}
	}
}

// If the inputs do not fit together, the error names the wrong input.
func TestNamedDatasetErrors(t *testing.T) {
	y, one := tensor.Zeros(3), tensor.Zeros(3)
	for want, f := range map[string]func() (*data.NamedDataset, error){
		"no inputs": func() (*data.NamedDataset, error) { return data.NewNamedDataset(nil, y) },
		"the targets are nil": func() (*data.NamedDataset, error) {
			return data.NewNamedDataset(map[string]*tensor.Tensor{"a": one}, nil)
		},
		`input "a" is nil`: func() (*data.NamedDataset, error) {
			return data.NewNamedDataset(map[string]*tensor.Tensor{"a": nil}, y)
		},
		`input "a" is a scalar`: func() (*data.NamedDataset, error) {
			return data.NewNamedDataset(map[string]*tensor.Tensor{"a": one.Sum()}, y)
		},
		`input "b" of shape [2] does not have the 3 samples`: func() (*data.NamedDataset, error) {
			return data.NewNamedDataset(map[string]*tensor.Tensor{"a": one, "b": tensor.Zeros(2)}, y)
		},
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Tensor finds names among the inputs and the targets. It panics if the value is no tensor, or if
// the batch has no names.
func TestBatchTensor(t *testing.T) {
	b, err := data.Collate([]data.Sample{{X: map[string]any{"word": "a"}, Y: map[string]any{"class": 2}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Tensor("class").String(); got != "tensor([2])" {
		t.Error(got)
	}
	plain := &data.Batch{X: tensor.Zeros(1), Y: tensor.Zeros(1)}
	named := map[string]any{"left": plain.X, "right": plain.Y}
	both := &data.Batch{Nested: data.Sample{X: named, Y: map[string]any{"left": plain.Y, "class": plain.Y}}}
	if both.Tensor("left") != plain.X {
		t.Error("an input comes before a target of its name")
	}
	for want, f := range map[string]func(){
		`"word" is a []string, not a tensor`:           func() { b.Tensor("word") },
		`it has no tensor "x"; it has word, class`:     func() { b.Tensor("x") },
		`it has left, right, class`:                    func() { both.Tensor("x") },
		`it has no tensor "x": its samples are no map`: func() { plain.Tensor("x") },
	} {
		if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "named_test.go") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
