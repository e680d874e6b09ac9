package train

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile/memsnap"
)

// record starts to record the history of memory, if the configuration has a file for it.
func (t *trainer) record() error {
	path := t.c.MemorySnapshot
	if path == "" {
		return nil
	}
	if ext := filepath.Ext(path); ext != ".html" && ext != ".pickle" {
		return &Error{"MemorySnapshot", fmt.Sprintf("%s: name it .html, to look at, or .pickle, for PyTorch's viewer", path)}
	}
	h, ok := t.c.Device.(device.MemoryHistorian)
	if !ok {
		return &Error{"MemorySnapshot", fmt.Sprintf("%s keeps no history of its memory", t.c.Device.Name())}
	}
	h.RecordMemoryHistory()
	t.history = h
	return nil
}

// snapshot writes the history of memory and stops recording. It is called when memory first runs
// out, or at the end of the training.
func (t *trainer) snapshot() {
	h := t.history
	if h == nil {
		return
	}
	t.history = nil
	snap := h.MemorySnapshot()
	h.StopMemoryHistory()
	var params []uintptr
	for _, p := range nn.Parameters(t.c.Model) {
		params = append(params, p.DataPtr())
	}
	snap.Label(device.CategoryParameter, params...)
	if err := memsnap.Write(t.c.MemorySnapshot, snap); err != nil {
		t.broken = errors.Join(t.broken, err)
		t.print(fmt.Sprintf("the snapshot of memory could not be written: %v", err))
		return
	}
	t.print("a snapshot of memory is in " + t.c.MemorySnapshot)
}
