// Package torchfile reads and writes PyTorch's files, .pt and .pth, without Python and without
// running code from a file.
//
// [Load] returns a file's content as a plain tree. [StateDict] takes the weights out of the tree,
// for nn.LoadStateDict. [Save] writes such trees for torch.load(path, weights_only=True). A tree
// has these Go values:
//
//	dict                 map[string]any; map[int64]any if all keys are ints; else *[Dict]
//	list, tuple, set     []any
//	torch.Size           []any of int64
//	tensor, parameter    *tensor.Tensor on the CPU, in the root scope, without gradients
//	int, float, bool     int64 (beyond it *big.Int), float64, bool
//	str, bytes, None     string, []byte, nil
//	torch.dtype, device  string: "torch.float32", "cuda:0"
//
// With [Exact], containers keep their kinds, and dicts keep their order. Tensors that share memory
// in the file also share it in the tree.
//
// A .pt file is a pickle: a program for a stack machine that can call any function of Python. This
// package implements such a machine, but only the functions that make tensors and containers. If a
// file calls another function, the error is an *[Error] that names the function, and nothing is
// run. Load checks lengths, sizes and positions against the file before it allocates memory.
//
// Load reads the zip format (PyTorch 1.6 and later) and the older format. Save writes the zip
// format. The formats are described in PyTorch's torch/serialization.py, torch/csrc/serialize and
// caffe2/serialize/inline_container.h. Pickle's instructions are described in CPython's
// Lib/pickletools.py.
//
// Load does not read some files: the tar format of PyTorch before 0.2, TorchScript archives, whole
// modules, big-endian files and compressed zip entries. Nor does it read complex, quantized, sparse
// and 8-bit floating tensors, views marked as negative, and unsigned integers wider than a byte.
// The error says which of these the file contains. If a file also contains other objects, such as
// argparse.Namespace or pathlib.Path, the error says what to save instead.
package torchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"

	"github.com/flambeau-go/flambeau/internal/filemap"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Error says what is wrong with a file, and where.
type Error struct {
	Path   string // path of the file; "" for a tree that is not a state dict
	Entry  string // entry of the zip archive; "" if the file is not an archive
	Offset int64  // offset of the byte in the entry or the file; -1 if unknown
	Msg    string
	Err    error // cause; nil if the file's contents are wrong
}

func (e *Error) Error() string {
	s := "torchfile: "
	if e.Path != "" {
		s += e.Path + ": "
	}
	switch {
	case e.Entry != "" && e.Offset >= 0:
		s += fmt.Sprintf("%s at byte %d: ", zipfile.Printable(e.Entry), e.Offset)
	case e.Entry != "":
		s += zipfile.Printable(e.Entry) + ": "
	case e.Offset >= 0:
		s += fmt.Sprintf("at byte %d: ", e.Offset)
	}
	return s + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An Option changes what [Load] does.
type Option func(*options)

type options struct{ exact, mapped, checked bool }

// Exact makes Load keep the kinds of values. A dict becomes a *[Dict] with its order, a tuple a
// [Tuple], a set a [Set], a torch.dtype a dtype.Type, and a device a [Device].
func Exact() Option { return func(o *options) { o.exact = true } }

// Mapped makes Load map the file into memory instead of reading it. The bytes of a tensor are read
// when they are accessed. Writes to a tensor change only memory. The file must not be truncated
// while its tensors are in use, but replacing it is safe. If a file cannot be mapped, or a tensor
// is not aligned in it, the tensors are read.
//
// Load verifies the checksums of everything that it reads. It does not read mapped tensors, and
// verifies them only with [Checked].
func Mapped() Option { return func(o *options) { o.mapped = true } }

// Checked makes Load verify the checksums of a [Mapped] file's tensors too. For this it reads all
// of them, at several GB/s from the page cache. Files of the older format have no checksums, and
// neither have files written after torch.serialization.set_crc32_options(False).
func Checked() Option { return func(o *options) { o.checked = true } }

// Load reads the file at path. The package comment describes the tree that it returns. Everything
// that Load reads from an archive must match its checksum (CRC-32). The error is an *[Error].
func Load(path string, opts ...Option) (any, error) {
	var o options
	for _, f := range opts {
		f(&o)
	}
	// Opening a pipe would block until another process writes to it.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is not a file"}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{Path: path, Offset: -1, Msg: plainCause(err), Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, &Error{Path: path, Offset: -1, Msg: plainCause(err), Err: err}
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is not a file"}
	}
	file := &file{path: path, r: f, size: info.Size()}
	if o.mapped {
		if file.mem, err = filemap.Open(f); err != nil && !errors.Is(err, filemap.ErrUnsupported) {
			return nil, &Error{Path: path, Offset: -1, Msg: plainCause(err), Err: err}
		}
		if file.mem != nil && int64(len(file.mem.Bytes())) != file.size {
			return nil, &Error{Path: path, Offset: -1, Msg: "the file changed while it was opened"}
		}
	}
	return file.tree(o)
}

// tree reads the file and returns its contents as a tree.
func (f *file) tree(o options) (tree any, err error) {
	var found *Error
	// The code for invalid contents panics with an *Error, and tensors panic with a *tensor.Error
	// if memory runs out.
	terr := tensor.Try(func() {
		defer func() {
			switch e := recover().(type) {
			case nil:
			case *Error:
				found = e
			default:
				panic(e)
			}
		}()
		tree = f.load(o)
	})
	switch {
	case found != nil:
		return nil, found
	case terr != nil:
		return nil, &Error{Path: f.path, Offset: -1, Msg: terr.Error(), Err: terr}
	}
	return tree, nil
}

// plainCause returns the text of an error without the path, which the caller prints.
func plainCause(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// A file is a file that [Load] is reading.
type file struct {
	path string
	r    io.ReaderAt
	size int64
	mem  *filemap.Map // the mapped file; nil if it is not mapped
}

// fail panics with an *Error about the given offset.
func (f *file) fail(entry string, offset int64, format string, a ...any) {
	panic(&Error{Path: f.path, Entry: entry, Offset: offset, Msg: fmt.Sprintf(format, a...)})
}

// read fills b with the bytes of the file from offset on.
func (f *file) read(entry string, b []byte, offset int64) {
	if _, err := f.r.ReadAt(b, offset); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		panic(&Error{Path: f.path, Entry: entry, Offset: -1, Msg: err.Error(), Err: err})
	}
}

func (f *file) load(o options) any {
	var head [4]byte
	if f.size < 4 {
		f.fail("", -1, "the file has %d bytes, it is too short", f.size)
	}
	f.read("", head[:], 0)
	var l *loaded
	if binary.LittleEndian.Uint32(head[:]) == 0x04034b50 {
		l = f.loadZip()
	} else {
		l = f.loadLegacy(head[:])
	}
	return (&converter{loaded: l, file: f, options: o, made: map[any]any{}, tensors: map[*tensorRef]*tensor.Tensor{}}).tree(l.root)
}

// loaded is the result of unpickling a file.
type loaded struct {
	root  any
	bytes int64                              // length of the pickle
	entry string                             // entry of the pickle in the archive
	place func(key string) (storageAt, bool) // returns where the bytes of a storage are
}

// storageAt says where the bytes of a storage are in the file.
type storageAt struct {
	entry      string
	from, size int64
	// entry of the archive, which has the checksum; zero in the older format
	zip zipfile.Entry
}

// check verifies the checksum of an entry. sum is the checksum of the entry's first offset bytes.
// check reads the remaining bytes.
func (f *file) check(at storageAt, sum uint32, offset int64) {
	if at.zip.File == nil {
		return
	}
	for buf := make([]byte, min(at.size-offset, 256<<10)); offset < at.size; offset += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), at.size-offset)]
		f.read(at.entry, buf, at.from+offset)
		sum = crc32.Update(sum, crc32.IEEETable, buf)
	}
	if err := at.zip.Check(sum); err != nil {
		f.failed(err)
	}
}

// failed panics with an *Error that describes err, an error of package zipfile.
func (f *file) failed(err error) {
	var e *zipfile.Error
	if errors.As(err, &e) {
		panic(&Error{Path: f.path, Entry: e.Entry, Offset: -1, Msg: e.Msg, Err: e.Err})
	}
	panic(&Error{Path: f.path, Offset: -1, Msg: err.Error(), Err: err})
}
