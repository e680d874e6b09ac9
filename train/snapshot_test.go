package train_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/train"
)

// counted is a profile that counts the calls of Step. Step fails in call number limit.
type counted struct{ steps, limit int }

var errOver = errors.New("the profile is over")

func (c *counted) Step() error {
	if c.steps++; c.steps == c.limit {
		return errOver
	}
	return nil
}

// The history of memory is written when memory first runs out, or at the end. The profile's Step is
// called after every step. If it fails, the training returns its error at the end.
func TestFitSnapshotAndProfile(t *testing.T) {
	set := pictures(t, 22)
	fit := func(dev *cuda.Device, path string, p *counted) (*train.Result, string, error) {
		m, log := convNet(dev), new(strings.Builder)
		c := train.Config{Model: m, Optimizer: optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.01}), Train: loader(t, set, data.Config{Batch: 11}), Steps: 3,
			MemorySnapshot: path, Log: log}
		if p != nil {
			c.Profile = p
		}
		r, err := train.Fit(context.Background(), c)
		return r, log.String(), err
	}
	small := emulate(t, "mem=1MiB,segment=16KiB")
	small.SetMemoryLimit(512 << 10)
	for ext, begin := range map[string]string{".html": "<!doctype html>", ".pickle": "\x80"} {
		for name, dev := range map[string]*cuda.Device{"small": small, "large": emulate(t, "mem=16MiB,segment=16KiB")} {
			path := filepath.Join(t.TempDir(), "memory"+ext)
			_, log, err := fit(dev, path, nil)
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			if err != nil || !strings.EqualFold(string(b[:min(len(b), len(begin))]), begin) || !bytes.Contains(b, []byte("relu")) {
				t.Errorf("%s, %s: %v, %d bytes, %q", name, ext, err, len(b), b[:min(len(b), 40)])
			}
			told, split := strings.Index(log, "a snapshot of memory is in "+path), strings.Index(log, "out of memory")
			if told < 0 || (name == "small") != (split > told) {
				t.Errorf("%s: the snapshot is told of at %d, the split at %d:\n%s", name, told, split, log)
			}
		}
	}
	large := emulate(t, "mem=16MiB,segment=16KiB")
	if _, _, err := fit(large, "memory.txt", nil); err == nil || !strings.Contains(err.Error(), "MemorySnapshot: memory.txt: name it .html") {
		t.Errorf("a name that says no format: %v", err)
	}
	r, log, err := fit(large, filepath.Join(t.TempDir(), "none", "memory.html"), &counted{limit: 2})
	if r == nil || r.Step != 3 || !errors.Is(err, errOver) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(log, "the profile ends here") || !strings.Contains(log, "could not be written") {
		t.Errorf("what goes wrong beside the training: %v, %+v\n%s", err, r, log)
	}
	p := &counted{}
	if _, _, err := fit(large, "", p); err != nil || p.steps != 3 {
		t.Errorf("the profile hears of %d steps, %v", p.steps, err)
	}
}
