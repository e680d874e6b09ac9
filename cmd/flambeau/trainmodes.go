package main

import (
	"fmt"
	"path/filepath"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/train"
)

// modeFlags say how a training computes, beyond what it learns.
type modeFlags struct {
	Amp           string `help:"Mixed precision: bf16, or fp16 with a loss that is scaled." placeholder:"TYPE"`
	MicroBatch    int    `help:"Samples of a batch that are computed at once at most, 0 for all of them until they do not fit into memory." default:"0"`
	Checkpointing bool   `help:"Compute activations again in the backward pass instead of keeping them: memory for time."`

	MemorySnapshot string `help:"Write the history of the device's memory, up to the first out of memory or to the end, to this file: .html to look at, .pickle for PyTorch's viewer." name:"memory-snapshot" type:"path" placeholder:"FILE"`
}

func (m *modeFlags) checkModes() error {
	switch {
	case m.Amp != "" && m.Amp != "bf16" && m.Amp != "fp16":
		return fmt.Errorf("--amp %s: known are bf16 and fp16", m.Amp)
	case m.MemorySnapshot != "" && filepath.Ext(m.MemorySnapshot) != ".html" && filepath.Ext(m.MemorySnapshot) != ".pickle":
		return fmt.Errorf("--memory-snapshot %s: name it .html, to look at, or .pickle, for PyTorch's viewer", m.MemorySnapshot)
	case m.MicroBatch < 0:
		return fmt.Errorf("--micro-batch %d: a number of samples cannot be negative", m.MicroBatch)
	}
	return nil
}

// modes tells a training.
func (m *modeFlags) modes(cfg *train.Config) {
	cfg.MemorySnapshot = m.MemorySnapshot
	cfg.MicroBatch, cfg.Checkpointing = m.MicroBatch, m.Checkpointing
	switch m.Amp {
	case "bf16":
		cfg.Autocast = dtype.BF16
	case "fp16":
		cfg.Autocast, cfg.Scaler = dtype.F16, amp.NewGradScaler()
	}
}
