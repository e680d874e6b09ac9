package checkpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// A tree from Capture can be saved as a PyTorch file. Restore accepts the tree that torchfile loads
// from this file.
func TestStatesGoThroughTorchFiles(t *testing.T) {
	train := func() (*nn.Linear, *optim.Adam, checkpoint.Parts) {
		l := nn.NewLinear(2, 3)
		o := optim.NewAdam(nn.Parameters(l), optim.AdamConfig{LR: 0.1})
		return l, o, checkpoint.Parts{"model": l, "optimizer": o}
	}
	step := func(l *nn.Linear, o *optim.Adam) {
		l.Forward(tensor.Ones(1, 2)).Square().Sum().Backward()
		o.Step()
		o.ZeroGrad()
	}
	l, o, parts := train()
	step(l, o)
	tree, err := checkpoint.Capture(parts)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := torchfile.Save(path, tree); err != nil {
		t.Fatal(err)
	}
	loaded, err := torchfile.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	l2, o2, parts2 := train()
	if err := checkpoint.Restore(parts2, loaded.(map[string]any)); err != nil {
		t.Fatal(err)
	}
	step(l, o) // both trainings make the same step from the same state
	step(l2, o2)
	if a, b := tensor.Data[float32](l.Weight), tensor.Data[float32](l2.Weight); len(a) != len(b) || a[0] != b[0] || a[5] != b[5] {
		t.Errorf("%v, %v", a, b)
	}
}
