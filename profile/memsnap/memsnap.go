// Package memsnap writes the history of a device's memory to files. A file is a page for any
// browser, or the pickle that PyTorch's memory viewer reads.
//
// A device records its history after RecordMemoryHistory. Its MemorySnapshot is the argument of
// [Write]. The extension of the file's name chooses the format: .html or .pickle. The pickle has
// the format of torch.cuda.memory._dump_snapshot, for https://pytorch.org/memory_viz.
//
// The page is one file without references to anything else. It shows:
//
//   - the allocated bytes over time, stacked by category, op, call site or scope;
//   - the blocks that were alive at the peak and at the end of the recording, with the stacks of
//     the allocations;
//   - the blocks of each segment, and the last events.
//
// The size of the page has a limit, whatever the length of the history. The timeline has at most
// 1,200 points. A point represents several events and shows their maximum, so every peak is
// visible. Tables and charts say how much they leave out.
//
// The pickle has every event and frame. Categories that PyTorch's viewer does not know become the
// viewer's category "unknown".
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
	Path string // path of the file; "" if the destination is an io.Writer
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

// errNone is the cause of an error if no snapshots were given.
var errNone = errors.New("no snapshot was given; cuda.MemorySnapshot(dev) takes one")

// Write writes the snapshots of one or more devices to a file. The extension of path chooses the
// format: a page for .html and .htm, and PyTorch's pickle for .pickle and .pkl. Write replaces an
// existing file when the new one is complete.
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

// checked returns an error if there are no snapshots to write.
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
