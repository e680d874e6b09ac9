package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/filemap"
	"github.com/flambeau-go/flambeau/tensor"
)

// A File is an open file, or all files of an open sharded model. Several goroutines may call its
// methods.
type File struct {
	path     string
	infos    []*Info
	index    map[string]*Info
	metadata map[string]string
	parts    []*shard
	mu       sync.Mutex // guards closed and the shards' counts of tensors in use
	closed   bool
}

// A shard is one file of a File.
type shard struct {
	path string
	f    *os.File     // open file; nil once it is mapped and has no checksums to verify
	mem  *filemap.Map // mapped file; nil if it is not mapped
	lent bool         // whether any tensor uses, or has used, the mapped file
	live map[string]int
}

// Open opens a safetensors file, or all files of a sharded model. For a sharded model, path names
// the index. Its name ends in .json, such as model.safetensors.index.json. Open reads and checks
// the headers. Tensors are read when they are accessed.
//
// Files are mapped into memory, copy on write. A CPU tensor uses the bytes of the file directly.
// Writes to the tensor change only memory. The file must not be truncated while its tensors are in
// use, which would end the process on Unix. Replacing the file, as [Save] does, is safe. If a file
// cannot be mapped, or a tensor is not aligned in it, [File.Tensor] reads the tensor.
func Open(path string) (*File, error) { return open(path, true) }

func open(path string, mapped bool) (_ *File, err error) {
	f := &File{path: path, index: map[string]*Info{}}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if strings.HasSuffix(path, ".json") {
		return f, f.openIndex(mapped)
	}
	f.metadata, err = f.add(path, mapped)
	return f, err
}

// add opens one file.
func (f *File) add(path string, mapped bool) (map[string]string, error) {
	// Opening a pipe would block until another process writes to it.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is not a file"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, failed(path, err)
	}
	p := &shard{path: path, f: file, live: map[string]int{}}
	f.parts = append(f.parts, p)
	info, err := file.Stat()
	if err != nil {
		return nil, failed(path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is not a file"}
	}
	infos, metadata, err := header(path, file, info.Size())
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		if old := f.index[i.Name]; old != nil {
			return nil, &Error{Path: path, Tensor: i.Name, Offset: -1, Msg: "it is in " + old.Path + " too"}
		}
		i.part = p
		f.infos = append(f.infos, i)
		f.index[i.Name] = i
	}
	if mapped {
		switch p.mem, err = filemap.Open(file); {
		case err == nil && int64(len(p.mem.Bytes())) != info.Size():
			return nil, &Error{Path: path, Offset: -1, Msg: "the file changed while it was opened"}
		case err == nil && !slices.ContainsFunc(infos, func(i *Info) bool { return i.summed }):
			// No tensor has a checksum, so Verify need not read the file.
			p.f = nil
			file.Close()
		case err == nil:
		case !errors.Is(err, filemap.ErrUnsupported):
			return nil, failed(path, err)
		}
	}
	return metadata, nil
}

// maxIndex is the largest accepted size of an index, in bytes.
const maxIndex = 100 << 20

// openIndex opens the files that an index names, in the directory of the index.
func (f *File) openIndex(mapped bool) error {
	bad := func(format string, a ...any) error {
		return &Error{Path: f.path, Offset: -1, Msg: fmt.Sprintf(format, a...)}
	}
	weights, err := readIndex(f.path)
	if err != nil {
		return err
	}
	files := map[string]bool{}
	for _, name := range weights {
		files[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != filepath.Base(name) || name == "." || name == ".." || strings.ContainsAny(name, `/\`) {
			return bad("the index names the file %q, which is not beside it", name)
		}
		metadata, err := f.add(filepath.Join(filepath.Dir(f.path), name), mapped)
		if err != nil {
			return err
		}
		if f.metadata == nil {
			f.metadata = metadata
		}
	}
	for name, file := range weights {
		switch i := f.index[name]; {
		case i == nil:
			return bad("the index says that tensor %q is in %s, which does not hold it", name, file)
		case filepath.Base(i.Path) != file:
			return bad("the index says that tensor %q is in %s, and it is in %s", name, file, filepath.Base(i.Path))
		}
	}
	if len(weights) != len(f.infos) {
		for _, i := range f.infos {
			if weights[i.Name] == "" {
				return bad("tensor %q of %s is not in the index", i.Name, filepath.Base(i.Path))
			}
		}
	}
	return nil
}

// readIndex returns the file name of each tensor.
func readIndex(path string) (map[string]string, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is not a file"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, failed(path, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxIndex+1))
	if err != nil {
		return nil, failed(path, err)
	}
	if len(text) > maxIndex {
		return nil, &Error{Path: path, Offset: -1, Msg: fmt.Sprintf("the index has more than %d bytes", maxIndex)}
	}
	if at := loneSurrogate(text); at >= 0 {
		return nil, &Error{Path: path, Offset: int64(at), Msg: aboutSurrogate(text[at:])}
	}
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, &Error{Path: path, Offset: -1, Msg: "the index is not valid: " + err.Error(), Err: err}
	}
	if index.Weights == nil {
		return nil, &Error{Path: path, Offset: -1, Msg: "this is no index of a sharded model: it has no weight_map"}
	}
	return index.Weights, nil
}

// failed returns an *Error for an error of the operating system.
func failed(path string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	msg := err.Error()
	var p *fs.PathError
	if errors.As(err, &p) {
		msg = p.Err.Error()
	}
	return &Error{Path: path, Offset: -1, Msg: msg, Err: err}
}

// Names returns the names of the tensors in file order.
func (f *File) Names() []string {
	names := make([]string, len(f.infos))
	for i, x := range f.infos {
		names[i] = x.Name
	}
	return names
}

// Infos describes the tensors in file order, including those whose type cannot be read.
func (f *File) Infos() []Info {
	infos := make([]Info, len(f.infos))
	for i, x := range f.infos {
		infos[i] = *x
		infos[i].Shape = slices.Clone(x.Shape)
	}
	return infos
}

// Metadata returns the file's metadata, which may be nil. For a sharded model it is the metadata of
// the first file.
func (f *File) Metadata() map[string]string { return f.metadata }

// Mapped reports whether the file is mapped into memory.
func (f *File) Mapped() bool {
	return !slices.ContainsFunc(f.parts, func(p *shard) bool { return p.mem == nil })
}

// Tensor returns the tensor of the given name, on the CPU, in the root scope. A tensor of a mapped
// file is not read before it is accessed. All results for the same name share memory while any of
// them is in use. When the last one is freed, its pages are released, and writes to them are lost.
func (f *File) Tensor(name string) (*tensor.Tensor, error) {
	i := f.index[name]
	if i == nil {
		return nil, &Error{Path: f.path, Tensor: name, Offset: -1, Msg: "the file has no tensor of that name"}
	}
	if err := i.readable(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, f.closedError(name)
	}
	p := i.part
	m, file := p.mem, p.f
	if m != nil {
		p.lent = true
		p.live[name]++
	}
	f.mu.Unlock()
	var x *tensor.Tensor
	var err error
	if terr := tensor.Try(func() {
		if m == nil {
			x, err = i.read(file)
			return
		}
		mem := m.Bytes()[i.offset : i.offset+i.Bytes]
		x = tensor.FromMemory(i.Type, mem, func() { f.giveBack(p, m, name, mem) }, i.Shape...)
	}); terr != nil {
		return nil, &Error{Path: i.Path, Tensor: name, Offset: i.offset, Msg: terr.Error(), Err: terr}
	}
	return x, err
}

func (f *File) closedError(name string) error {
	return &Error{Path: f.path, Tensor: name, Offset: -1, Msg: "the file has been closed", Err: fs.ErrClosed}
}

// giveBack notes that a tensor of this name is no longer in use. With the last such tensor it
// releases the pages. The argument m keeps the file mapped until giveBack is called.
func (f *File) giveBack(p *shard, m *filemap.Map, name string, mem []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.live[name]--; p.live[name] == 0 {
		m.Drop(mem)
	}
}

// read reads the tensor from a file that is not mapped.
func (i *Info) read(file io.ReaderAt) (*tensor.Tensor, error) {
	x := tensor.Typed(i.Type).Empty(i.Shape...)
	if i.Bytes == 0 {
		return x, i.agrees(0)
	}
	var err error
	tensor.Raw("load", []*tensor.Tensor{x}, nil, func(_ device.Stream, outs, _ []device.View) error {
		b := outs[0].Buf.Host()
		if _, err = file.ReadAt(b, i.offset); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && i.summed {
			err = i.agrees(crc32.Checksum(b, castagnoli))
		}
		if i.Type == dtype.Bool {
			for k, v := range b {
				if v != 0 {
					b[k] = 1
				}
			}
		}
		return nil
	})
	if err != nil {
		x.Free()
		if errors.Is(err, ErrChecksum) {
			return nil, err
		}
		return nil, &Error{Path: i.Path, Tensor: i.Name, Offset: i.offset, Msg: err.Error(), Err: err}
	}
	return x, nil
}

// Tensors returns all tensors by name. If any tensor cannot be read, it returns an error.
func (f *File) Tensors() (map[string]*tensor.Tensor, error) {
	all := make(map[string]*tensor.Tensor, len(f.infos))
	for _, i := range f.infos {
		x, err := f.Tensor(i.Name)
		if err != nil {
			for _, x := range all {
				x.Free()
			}
			return nil, err
		}
		all[i.Name] = x
	}
	return all, nil
}

// Close closes the file. Its tensors stay valid. A mapping that no tensor has used is released
// immediately. The garbage collector releases any other mapping when no tensor uses it any more.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	for _, p := range f.parts {
		if p.f != nil {
			p.f.Close() // the file was only read, so its error does not matter
		}
		if p.mem != nil && !p.lent {
			p.mem.Close()
		}
		p.mem, p.f = nil, nil
	}
	return nil
}

// Load reads all tensors of a file into memory, and the file's metadata. path may be the index of a
// sharded model. The tensors are in the root scope on the CPU. Load checks the sizes in the header
// against the file's size before it allocates memory. If the file has checksums ([Checksums]), Load
// verifies them. [Open] reads only the tensors that are used.
func Load(path string) (tensors map[string]*tensor.Tensor, metadata map[string]string, err error) {
	f, err := open(path, false)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if tensors, err = f.Tensors(); err != nil {
		return nil, nil, err
	}
	return tensors, f.metadata, nil
}
