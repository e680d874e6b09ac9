// Package memsnap writes the history and the state of a device's allocator
// ([device.MemorySnapshot]) to files. One format is a page for any browser. The other is the pickle
// that PyTorch's memory viewer reads (torch.cuda.memory._dump_snapshot,
// https://pytorch.org/memory_viz).
//
// The page is one file without references to others. It shows the allocated bytes over time,
// stacked by category, op, call site or scope. It shows the live blocks at the peak of the
// recording and at its end, with the stacks of their allocations. It also shows the blocks of each
// segment, and the last events. Its size is bounded whatever the length of the history. The
// timeline has at most 1,200 points. Each point is the highest of the events that it stands for, so
// that no peak is lost. Tables and drawings say what they leave out.
//
// The pickle has every event and frame. Categories that the viewer does not know appear as
// "unknown".
//
// Files are written completely or not at all. Errors are of type *[Error].
package memsnap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
)

// Error says which file could not be written, and why.
type Error struct {
	Path string // "" if the destination is an io.Writer
	Err  error
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "memsnap: " + e.Err.Error()
	}
	return fmt.Sprintf("memsnap: %s: %v", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errNone is the cause if there are no snapshots to write.
var errNone = errors.New("no snapshot was given; cuda.MemorySnapshot(dev) takes one")

// Write writes the snapshots of one or more devices to a file. The ending of its name chooses the
// format: a page for .html and .htm, PyTorch's pickle for .pickle and .pkl. An existing file is
// replaced once the new one is complete.
func Write(path string, snaps ...*device.MemorySnapshot) error {
	var write func(io.Writer, ...*device.MemorySnapshot) error
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".html", ".htm":
		write = WriteHTML
	case ".pickle", ".pkl":
		write = WritePickle
	default:
		return &Error{path, fmt.Errorf("the extension %q says no format; use .html for a page or .pickle for PyTorch's viewer", ext)}
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return &Error{path, err}
	}
	defer f.Close()
	b := bufio.NewWriterSize(f, 1<<20)
	err = write(b, snaps...)
	if err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return &Error{path, err}
	}
	return nil
}

// checked returns an error if there is nothing to write.
func checked(snaps []*device.MemorySnapshot) error {
	for _, s := range snaps {
		if s == nil {
			return &Error{Err: errNone}
		}
	}
	if len(snaps) == 0 {
		return &Error{Err: errNone}
	}
	return nil
}
