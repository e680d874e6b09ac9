package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/train"
)

// modeFlags holds the flags that say how a training computes: precision, memory and profiling.
type modeFlags struct {
	Amp           string `help:"Mixed precision: bf16, or fp16 with a scaled loss." placeholder:"TYPE"`
	TF32          bool   `help:"Let float32 products round their factors to TF32 on a GPU's tensor cores." name:"tf32"`
	MicroBatch    int    `help:"At most this many samples of a batch are computed at once. 0 stands for all of them, as long as they fit into memory." default:"0"`
	Checkpointing bool   `help:"Compute activations again in the backward pass instead of keeping them. This takes less memory and more time."`

	Profile        string `help:"Write a profile of ten steps, after the first two, to this file: .json or .json.gz (a trace for ui.perfetto.dev), .pb.gz (go tool pprof), .stacks (flame graph) or .txt (tables)." type:"path" placeholder:"FILE"`
	MemorySnapshot string `help:"Write the history of the device's memory to this file: .html for a browser, .pickle for PyTorch's viewer. The history ends when memory first runs out, or with the training." name:"memory-snapshot" type:"path" placeholder:"FILE"`
}

func (m *modeFlags) checkModes() error {
	switch {
	case m.Amp != "" && m.Amp != "bf16" && m.Amp != "fp16":
		return fmt.Errorf("--amp %s: known are bf16 and fp16", m.Amp)
	case m.Profile != "" && !slices.ContainsFunc(profileForms, func(end string) bool { return strings.HasSuffix(m.Profile, end) }):
		return fmt.Errorf("--profile %s: the end of the name says the form: %s", m.Profile, strings.Join(profileForms, ", "))
	case m.MemorySnapshot != "" && filepath.Ext(m.MemorySnapshot) != ".html" && filepath.Ext(m.MemorySnapshot) != ".pickle":
		return fmt.Errorf("--memory-snapshot %s: name it .html, to look at, or .pickle, for PyTorch's viewer", m.MemorySnapshot)
	case m.MicroBatch < 0:
		return fmt.Errorf("--micro-batch %d: a number of samples cannot be negative", m.MicroBatch)
	}
	return nil
}

var profileForms = []string{".json", ".json.gz", ".pb.gz", ".pprof", ".stacks", ".txt"}

// The profile leaves out the first two steps, which load kernels and allocate the optimizer's
// state.
const (
	profileSkip  = 2
	profileSteps = 10
)

// profiled starts a profile if --profile is set. steps is the number of the training's steps. The
// returned function ends the profile and writes it.
func (m *modeFlags) profiled(e *env, cfg *train.Config, steps int) (end func() error, err error) {
	if m.Profile == "" {
		return func() error { return nil }, nil
	}
	o := profile.Options{Shapes: true, FLOPs: true, Memory: true, Stacks: true, Modules: nn.ModuleNames(cfg.Model, "model")}
	if steps > profileSkip {
		o.Schedule = profile.Schedule{SkipFirst: profileSkip - 1, Warmup: 1, Active: min(profileSteps, steps-profileSkip), Repeat: 1}
	}
	written := false
	o.OnTraceReady = func(p *profile.Profile) error {
		if err := p.WriteFile(m.Profile); err != nil {
			return fmt.Errorf("--profile: %w", err)
		}
		written = true
		return nil
	}
	p, err := profile.Start(o)
	if err != nil {
		return nil, err
	}
	cfg.Profile = p
	return func() error {
		err := p.Stop()
		if written { // print this only at the end, after the progress bar
			fmt.Fprintln(e.err, "a profile is in "+m.Profile)
		}
		return err
	}, nil
}

// modes sets the training's configuration from the flags.
func (m *modeFlags) modes(cfg *train.Config) {
	cfg.MemorySnapshot = m.MemorySnapshot
	cfg.MicroBatch, cfg.Checkpointing, cfg.TF32 = m.MicroBatch, m.Checkpointing, m.TF32
	switch m.Amp {
	case "bf16":
		cfg.Autocast = dtype.BF16
	case "fp16":
		cfg.Autocast, cfg.Scaler = dtype.F16, amp.NewGradScaler()
	}
}

// writable returns an error if the file that a flag names cannot be written.
func writable(flag, path string) error {
	if path == "" {
		return nil
	}
	if isDir(path) {
		return fmt.Errorf("%s %s is a folder; name a file in it", flag, path)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil {
		return fmt.Errorf("%s %s: %w", flag, path, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s %s: %s is not a folder", flag, path, filepath.Dir(path))
	}
	// The file need not exist. Any other error is returned, for example if the name is too long.
	if _, err := os.Lstat(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s %s: nothing can be written there: %w", flag, path, err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("%s %s: nothing can be written there: %w", flag, path, err)
	}
	f.Abort()
	return nil
}
