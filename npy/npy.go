// Package npy reads and writes NumPy's files: .npy for one array, and .npz for arrays by name
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// [Load] and [Save] read and write .npy files, and [LoadArchive] and [SaveArchive] .npz files. The
// tensors that they read are on the CPU, in the root scope.
//
// Arrays may have any type that tensors have, and either byte order. They may have C or Fortran
// order, which becomes the tensor's strides. The package reads versions 1 to 3 of the format.
// Structured arrays, text, dates, complex numbers, unsigned integers wider than a byte and pickled
// objects are errors that name the kind. The package never runs code from a file. NumPy has no
// bfloat16, so [Cast] is needed to write such tensors in another type.
package npy

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/internal/filemap"
	"github.com/flambeau-go/flambeau/internal/tensorbytes"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Error says what is wrong with a file, and where.
type Error struct {
	Path   string
	Entry  string // array in a .npz file; "" for a .npy file
	Offset int64  // offset of the byte in the entry or the file; -1 if not known
	Msg    string
	Err    error // cause; nil if the file's contents are wrong
}

func (e *Error) Error() string {
	s := "npy: " + e.Path + ": "
	if e.Entry != "" {
		s += zipfile.Printable(e.Entry) + ": "
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf("at byte %d: ", e.Offset)
	}
	return s + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An Option changes what [Load] and [LoadArchive] do.
type Option func(*options)

type options struct {
	mapped  bool
	checked bool
	most    int64
}

// Mapped maps the file into memory instead of reading it, copy on write (NumPy's mmap_mode="c").
// The file must not be truncated while its tensors are in use. Arrays that are compressed,
// unaligned or big-endian are read instead, and so are files that cannot be mapped.
//
// LoadArchive verifies the checksums of everything that it reads. It does not read mapped arrays,
// and verifies them only with [Checked].
func Mapped() Option { return func(o *options) { o.mapped = true } }

// Checked makes LoadArchive verify the checksums of a [Mapped] file's arrays too. For this it reads
// all of them. A .npy file has no checksums.
func Checked() Option { return func(o *options) { o.checked = true } }

// MaxBytes sets the greatest total size, in bytes, of an archive's compressed arrays after
// decompression. The default is a hundred times the size of the file, and at least 256 MiB.
func MaxBytes(n int64) Option { return func(o *options) { o.most = n } }

// fail returns an *Error about invalid contents at the given offset, which may be -1 for unknown.
func fail(path, entry string, offset int64, format string, a ...any) error {
	return &Error{Path: path, Entry: entry, Offset: offset, Msg: fmt.Sprintf(format, a...)}
}

func failed(path, entry string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	msg := err.Error()
	if errors.Is(err, zipfile.ErrChecksum) {
		msg = zipfile.Damaged
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		msg = p.Err.Error()
	}
	return &Error{Path: path, Entry: entry, Offset: -1, Msg: msg, Err: err}
}

// file is a file that [Load] or [LoadArchive] is reading.
type file struct {
	path string
	r    io.ReaderAt
	size int64
	mem  *filemap.Map // mapped file; nil if it is not mapped
	options
}

func open(path string, opts []Option) (*file, func(), error) {
	f := &file{path: path}
	for _, o := range opts {
		o(&f.options)
	}
	// Opening a pipe would block until another process writes to it.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, nil, fail(path, "", -1, "this is not a file")
	}
	of, err := os.Open(path)
	if err != nil {
		return nil, nil, failed(path, "", err)
	}
	info, err := of.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fail(path, "", -1, "this is not a file")
	}
	if err == nil && f.mapped {
		if f.mem, err = filemap.Open(of); errors.Is(err, filemap.ErrUnsupported) {
			f.mem, err = nil, nil
		} else if err == nil && int64(len(f.mem.Bytes())) != info.Size() {
			err = fail(path, "", -1, "the file changed while it was opened")
		}
	}
	if err != nil {
		of.Close()
		return nil, nil, failed(path, "", err)
	}
	f.r, f.size = of, info.Size()
	return f, func() { of.Close() }, nil
}

// Load reads the array in a .npy file. The error is an *[Error].
func Load(path string, opts ...Option) (*tensor.Tensor, error) {
	f, done, err := open(path, opts)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.array("", 0, f.size)
}

// LoadArchive reads the arrays of a .npz file by name. Everything that it reads must match the
// archive's checksums (CRC-32). The error is an *[Error].
func LoadArchive(path string, opts ...Option) (map[string]*tensor.Tensor, error) {
	f, done, err := open(path, opts)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.archive()
}

func (f *file) archive() (all map[string]*tensor.Tensor, err error) {
	list, err := zipfile.Entries(f.r, f.size)
	if err != nil {
		var e *zipfile.Error
		if errors.As(err, &e) {
			return nil, &Error{Path: f.path, Entry: e.Entry, Offset: -1, Msg: e.Msg, Err: e.Err}
		}
		return nil, failed(f.path, "", err)
	}
	left := f.most
	if left <= 0 {
		left = max(256<<20, 100*min(f.size, 1<<50))
	}
	all = map[string]*tensor.Tensor{}
	defer func() {
		if err != nil {
			for _, x := range all {
				x.Free()
			}
			all = nil
		}
	}()
	for _, e := range list {
		name, ok := strings.CutSuffix(e.Name, ".npy")
		if !ok {
			return nil, fail(f.path, e.Name, -1, "it is no array: its name does not end in .npy")
		}
		if all[name] != nil {
			return nil, fail(f.path, e.Name, -1, "the archive has two arrays of that name")
		}
		var x *tensor.Tensor
		switch e.Method {
		case zip.Store:
			if f.mem != nil {
				if f.checked {
					sum := crc32.NewIEEE()
					if _, err = io.Copy(sum, io.NewSectionReader(f.r, e.From, e.Stored)); err == nil {
						err = e.Check(sum.Sum32())
					}
					if err != nil {
						return nil, failed(f.path, e.Name, err)
					}
				}
				x, err = f.array(e.Name, e.From, e.Stored)
			} else {
				x, err = f.inflate(e) // also verifies the checksum
			}
		case zip.Deflate:
			if e.UncompressedSize64 > uint64(left) {
				return nil, fail(f.path, e.Name, -1, "it says that it is %d bytes decompressed, far more than the file; MaxBytes allows more", e.UncompressedSize64)
			}
			left -= int64(e.UncompressedSize64)
			x, err = f.inflate(e)
		default:
			err = fail(f.path, e.Name, -1, "it is compressed by method %d, only deflate is supported", e.Method)
		}
		if err != nil {
			return nil, err
		}
		all[name] = x
	}
	return all, nil
}

// array reads the array that is stored in size bytes of the file, at the given offset.
func (f *file) array(entry string, offset, size int64) (*tensor.Tensor, error) {
	h, err := readHeader(f.path, entry, io.NewSectionReader(f.r, offset, size), size)
	if err != nil {
		return nil, err
	}
	if rest := size - h.length - h.bytes; rest != 0 {
		return nil, fail(f.path, entry, h.length, "%d bytes of elements, shape %v of %v needs %d", size-h.length, h.dims, h.t, h.bytes)
	}
	if m := f.mem; m != nil && !h.swap {
		var x *tensor.Tensor
		mem := m.Bytes()[offset+h.length : offset+size]
		if err := tensor.Try(func() { x = h.place(tensor.FromMemory(h.t, mem, func() { m.Drop(mem) }, h.stored()...)) }); err != nil {
			return nil, failed(f.path, entry, err)
		}
		return x, nil
	}
	return h.read(f.path, entry, io.NewSectionReader(f.r, offset+h.length, h.bytes))
}

// inflate reads an array, which may be compressed, and verifies its checksum.
func (f *file) inflate(e zipfile.Entry) (*tensor.Tensor, error) {
	r, err := e.Open()
	if err != nil {
		return nil, failed(f.path, e.Name, err)
	}
	defer r.Close()
	size := int64(e.UncompressedSize64)
	h, err := readHeader(f.path, e.Name, r, size)
	if err != nil {
		return nil, err
	}
	if h.length+h.bytes != size {
		return nil, fail(f.path, e.Name, h.length, "%d bytes of elements, shape %v of %v needs %d", size-h.length, h.dims, h.t, h.bytes)
	}
	// A compressed byte becomes at most 1032 bytes. A larger size is refused before memory is
	// allocated.
	if e.Stored < size/1040 {
		return nil, fail(f.path, e.Name, -1, "%d bytes cannot be the %d that it says", e.Stored, size)
	}
	return h.read(f.path, e.Name, r)
}

func (h *header) read(path, entry string, r io.Reader) (x *tensor.Tensor, err error) {
	terr := tensor.Try(func() {
		base := tensor.Typed(h.t).Empty(h.stored()...)
		tensor.Raw("load", []*tensor.Tensor{base}, nil, func(_ device.Stream, outs, _ []device.View) error {
			b := outs[0].Buf.Host()[:h.bytes]
			if _, err = io.ReadFull(r, b); err == nil {
				_, err = io.ReadFull(r, make([]byte, 1)) // reading to the end verifies the checksum
				if err == nil {
					err = errors.New("there is more behind the last element")
				} else if err == io.EOF {
					err = nil
				}
			}
			h.fix(b)
			return nil
		})
		if err != nil {
			base.Free()
			return
		}
		x = h.place(base)
	})
	if terr != nil {
		err = terr
	}
	if err != nil {
		return nil, failed(path, entry, err)
	}
	return x, nil
}

// fix converts elements to the form that a tensor needs: little-endian, and 0 or 1 for bools.
func (h *header) fix(b []byte) {
	n := h.t.Size()
	if h.swap {
		for i := 0; i+n <= len(b); i += n {
			slices.Reverse(b[i : i+n])
		}
	}
	if h.t == dtype.Bool {
		for i, v := range b {
			if v != 0 {
				b[i] = 1
			}
		}
	}
}

// stored returns the sizes of the dimensions in the order in which the elements are stored.
func (h *header) stored() []int {
	d := slices.Clone(h.dims)
	if h.fortran {
		slices.Reverse(d)
	}
	return d
}

// place gives x the array's shape. The elements of x are in stored order. The result is x or a view
// of x.
func (h *header) place(x *tensor.Tensor) *tensor.Tensor {
	if !h.fortran || len(h.dims) < 2 {
		return x
	}
	order := make([]int, len(h.dims))
	for i := range order {
		order[i] = len(order) - 1 - i
	}
	y := x.Permute(order...)
	x.Free() // the view keeps the memory alive
	return y
}

// A SaveOption changes what [Save] and [SaveArchive] write.
type SaveOption func(*saver)

type saver struct {
	cast    dtype.Type
	consume bool
}

// Cast writes floating-point tensors as type t, which must be dtype.F16, dtype.F32 or dtype.F64.
func Cast(t dtype.Type) SaveOption { return func(s *saver) { s.cast = t } }

// Consume frees each tensor as soon as it is written.
func Consume() SaveOption { return func(s *saver) { s.consume = true } }

func newSaver(path string, opts []SaveOption) (*saver, error) {
	s := &saver{}
	for _, o := range opts {
		o(s)
	}
	if s.cast != dtype.Invalid && (!s.cast.IsFloat() || codes[s.cast] == "") {
		return nil, fail(path, "", -1, "Cast to %v, which is no floating-point type of NumPy", s.cast)
	}
	return s, nil
}

// Save writes a tensor of any device as a .npy file, which np.load can read. It writes a temporary
// file in the same directory, syncs it and renames it. The error is an *[Error].
func Save(path string, x *tensor.Tensor, opts ...SaveOption) error {
	s, err := newSaver(path, opts)
	if err != nil {
		return err
	}
	head, err := s.head(path, "", x)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return failed(path, "", err)
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(head); err != nil {
		return failed(path, "", err)
	}
	if err := tensorbytes.Write(w, x, s.cast); err != nil {
		return failed(path, "", err)
	}
	if err := w.Flush(); err != nil {
		return failed(path, "", err)
	}
	if s.consume {
		x.Free()
	}
	if err := f.Commit(); err != nil {
		return failed(path, "", err)
	}
	return nil
}

// SaveArchive writes named tensors as a .npz file without compression, as np.savez does. Elements
// begin at multiples of 64 bytes. Like [Save], it replaces an existing file as a whole.
func SaveArchive(path string, tensors map[string]*tensor.Tensor, opts ...SaveOption) error {
	s, err := newSaver(path, opts)
	if err != nil {
		return err
	}
	heads := map[string][]byte{}
	uses := map[*tensor.Tensor]int{}
	for name, x := range tensors {
		if heads[name], err = s.head(path, name, x); err != nil {
			return err
		}
		uses[x]++
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return failed(path, "", err)
	}
	defer f.Abort()
	z := zipfile.NewWriter(f)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		var size uint64
		if err := tensor.Try(func() { size = uint64(x.Size()) * uint64(tensorbytes.Type(x, s.cast).Size()) }); err != nil {
			return failed(path, name, err)
		}
		z.Begin(name+".npy", uint64(len(heads[name]))+size)
		_, err := z.Write(heads[name])
		if err == nil {
			err = tensorbytes.Write(z, x, s.cast)
		}
		if err == nil {
			err = z.End()
		}
		if err != nil {
			return failed(path, name, err)
		}
		if uses[x]--; s.consume && uses[x] == 0 {
			x.Free()
		}
	}
	if err := z.Close(); err != nil {
		return failed(path, "", err)
	}
	if err := f.Commit(); err != nil {
		return failed(path, "", err)
	}
	return nil
}

// head returns the header for a tensor.
func (s *saver) head(path, entry string, x *tensor.Tensor) ([]byte, error) {
	if x == nil {
		return nil, fail(path, entry, -1, "the tensor is nil")
	}
	if len(entry) > 1<<15 || strings.ContainsAny(entry, "\\\x00") || strings.HasPrefix(entry, "/") || slices.Contains(strings.Split(entry, "/"), "..") {
		return nil, fail(path, fmt.Sprintf("%.100q", entry), -1, "this cannot be the name of a file in an archive")
	}
	t := tensorbytes.Type(x, s.cast)
	code := codes[t]
	if code == "" {
		return nil, fail(path, entry, -1, "NumPy has no type for %v; write it with Cast(dtype.F32)", t)
	}
	dims := strings.Trim(strings.ReplaceAll(fmt.Sprint(x.Shape().Slice()), " ", ", "), "[]")
	if x.Rank() == 1 {
		dims += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", code, dims)
	n := len(magic) + 4 + len(text) + 1
	text += strings.Repeat(" ", -n&63) + "\n"
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...), nil
}
