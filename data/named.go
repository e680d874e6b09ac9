package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/internal/didyoumean"
	"github.com/flambeau-go/flambeau/tensor"
)

// NamedDataset is a dataset whose samples have several named inputs. All its tensors are on the
// CPU, and their first dimension counts the samples.
type NamedDataset struct {
	X map[string]*tensor.Tensor
	Y *tensor.Tensor
}

// NewNamedDataset returns the dataset of the inputs x, by name, and the targets y. It is torch's
// TensorDataset for more than two tensors. The first dimensions of all tensors must be equal.
// [Batch.Tensor] returns an input of a batch by its name, and the batch's Y holds the targets.
func NewNamedDataset(x map[string]*tensor.Tensor, y *tensor.Tensor) (*NamedDataset, error) {
	if len(x) == 0 {
		return nil, fmt.Errorf("data: a dataset of no inputs")
	}
	if y == nil {
		return nil, fmt.Errorf("data: the targets are nil")
	}
	n := -1
	check := func(what string, t *tensor.Tensor) error {
		switch {
		case t == nil:
			return fmt.Errorf("data: %s is nil", what)
		case t.Rank() == 0:
			return fmt.Errorf("data: %s is a scalar, samples lie along the first dimension", what)
		case !t.Device().Info().Host:
			return fmt.Errorf("data: a dataset is on the CPU, %s is on %s", what, t.Device().Name())
		case n >= 0 && t.Dim(0) != n:
			return fmt.Errorf("data: %s of shape %v does not have the %d samples of the targets", what, t.Shape(), n)
		}
		n = t.Dim(0)
		return nil
	}
	if err := check("target y", y); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if err := check(fmt.Sprintf("input %q", name), x[name]); err != nil {
			return nil, err
		}
	}
	return &NamedDataset{maps.Clone(x), y}, nil
}

// String lists the names, shapes and types of the tensors.
func (d *NamedDataset) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(d.X)) {
		fmt.Fprintf(&b, "%s %v %v, ", name, d.X[name].Shape(), d.X[name].Type())
	}
	return fmt.Sprintf("NamedDataset(%sy %v %v)", b.String(), d.Y.Shape(), d.Y.Type())
}

// Len returns the number of samples.
func (d *NamedDataset) Len() int { return d.Y.Dim(0) }

// Get returns sample i, whose X is a map of the inputs.
func (d *NamedDataset) Get(i int) (Sample, error) {
	if i < 0 || i >= d.Len() {
		return Sample{}, fmt.Errorf("index %d is out of range for %d samples", i, d.Len())
	}
	x := make(map[string]any, len(d.X))
	for name, t := range d.X {
		x[name] = t.Select(0, i)
	}
	return Sample{x, d.Y.Select(0, i)}, nil
}

// getBatch returns the samples with the given indexes.
func (d *NamedDataset) getBatch(index []int) (b *Batch, err error) {
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			at := s.On(d.Y.Device()).From(index)
			y, x := d.Y.In(s).IndexSelect(0, at), make(map[string]any, len(d.X))
			keep := []*tensor.Tensor{y}
			for name, t := range d.X {
				row := t.In(s).IndexSelect(0, at)
				x[name], keep = row, append(keep, row)
			}
			s.Close(keep...)
			b = &Batch{Y: y, Nested: Sample{X: x}}
		}, tensor.NoGrad())
	})
	return b, err
}

// Tensor returns the tensor with the given name in a batch whose samples are maps, such as those of
// a [NamedDataset]. It looks first among the inputs, and then among the targets. If neither has the
// name, Tensor panics, and the error lists the existing names.
func (b *Batch) Tensor(name string) *tensor.Tensor {
	var names []string
	for _, v := range []any{b.Nested.X, b.Nested.Y} {
		of, _ := v.(map[string]any)
		switch v := of[name].(type) {
		case *tensor.Tensor:
			return v
		case nil:
			for _, other := range slices.Sorted(maps.Keys(of)) {
				if !slices.Contains(names, other) { // an input and a target may have the same name
					names = append(names, other)
				}
			}
		default:
			panic(tensor.NewError("batch", tensor.ErrType, fmt.Sprintf("%q is a %T, not a tensor: Nested has it", name, v)))
		}
	}
	msg, hint := fmt.Sprintf("it has no tensor %q", name), ""
	if len(names) == 0 {
		msg += ": its samples are no maps with names"
		hint = "X and Y have what is one tensor, Nested all else; NewNamedDataset gives names"
	} else {
		msg += "; it has " + strings.Join(names, ", ")
		if near := didyoumean.Nearest(name, names, 2); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
	}
	e := tensor.NewError("batch", tensor.ErrValue, msg)
	e.Hint = hint
	panic(e)
}
