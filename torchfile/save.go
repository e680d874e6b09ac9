package torchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/internal/tensorbytes"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// A SaveOption changes what [Save] writes.
type SaveOption func(*saver)

// Cast writes floating-point tensors as type t, which must be a floating-point type. dtype.BF16
// halves the size of float32 weights.
func Cast(t dtype.Type) SaveOption { return func(s *saver) { s.cast = t } }

// Consume frees each tensor of the tree as soon as it is written. The tensors of a [Mapped] file
// can then be saved again without being in memory all at once.
func Consume() SaveOption { return func(s *saver) { s.consume = true } }

// Save writes a tree to path in the format of torch.save, so that torch.load(path,
// weights_only=True) can read it. The file is a zip archive whose tensors begin at multiples of 64
// bytes. The tree may hold everything that [Load] returns, with and without [Exact]. It may also
// hold plain Go types: integers of any width, float32, slices, arrays, maps, and defined types
// whose underlying type is one of these. Slices and arrays become lists, []byte becomes bytes, and
// maps become dicts with sorted keys. Structs and pointers are errors. A dict whose values are all
// tensors becomes an OrderedDict.
//
// Tensors that share memory also share it in the file. Save writes only the part of the memory that
// the tensors reach. Tensors of a GPU are written as CPU tensors. Save writes a temporary file and
// renames it, so path never holds an incomplete file. The error is an *[Error].
func Save(path string, tree any, opts ...SaveOption) error {
	s, err := newSaver(path, tree, opts)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return s.fault(err)
	}
	defer f.Abort()
	if err := s.write(f); err != nil {
		return s.fault(err)
	}
	if err := f.Commit(); err != nil {
		return s.fault(err)
	}
	return nil
}

// newSaver checks the tree and makes its pickle.
func newSaver(path string, tree any, opts []SaveOption) (*saver, error) {
	s := &saver{path: path, index: map[tensor.Storage]*saved{}}
	for _, o := range opts {
		o(s)
	}
	if s.cast != dtype.Invalid && !s.cast.IsFloat() {
		return nil, s.bad("$", "Cast to %v, which is no floating-point type", s.cast)
	}
	var err error
	if terr := tensor.Try(func() {
		if err = s.find(tree, "$", 0); err == nil {
			s.pickle(tree)
		}
	}); terr != nil {
		return nil, s.fault(terr)
	}
	return s, err
}

func (s *saver) fault(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Path: s.path, Offset: -1, Msg: plainCause(err), Err: err}
}

// saved is a storage in the file. Save writes its elements lo to hi, inclusive.
type saved struct {
	key    int
	lo, hi int
	t      dtype.Type
	of     []*tensor.Tensor
}

type saver struct {
	path    string
	cast    dtype.Type
	consume bool
	index   map[tensor.Storage]*saved
	list    []*saved
	out     []byte // part of the pickle written so far
}

func (s *saver) bad(where, format string, a ...any) error {
	return &Error{Path: s.path, Entry: "tree" + strings.TrimPrefix(where, "$"), Offset: -1, Msg: fmt.Sprintf(format, a...)}
}

// find checks the tree and lists its storages in the order of their first use.
func (s *saver) find(v any, where string, depth int) error {
	if depth == maxDepth {
		return s.bad("$", "containers in containers, more than %d deep; does one contain itself?", maxDepth)
	}
	each := func(items []any) error {
		for i, x := range items {
			if err := s.find(x, fmt.Sprintf("%s[%d]", where, i), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	switch v := v.(type) {
	case *tensor.Tensor:
		if v == nil {
			return s.bad(where, "the tensor is nil")
		}
		s.tensor(v)
		return nil
	case []any:
		return each(v)
	case Tuple:
		return each(v)
	case Set:
		return each(v)
	}
	if keys, values, ok := dictItems(v); ok {
		for i, k := range keys {
			if _, err := comparableKey(k); err != nil {
				return s.bad(where, "%v", err)
			}
			if text, ok := k.(string); ok && !utf8.ValidString(text) {
				return s.bad(where, "the key %.40q is not UTF-8", text)
			}
			if err := s.find(values[i], fmt.Sprintf("%s[%#v]", where, k), depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if text, ok := v.(string); ok && !utf8.ValidString(text) {
		return s.bad(where, "the string %.40q is not UTF-8; save it as []byte", text)
	}
	if isScalar(v) || numbers(v) {
		return nil
	}
	if p, ok := plain(v); ok {
		return s.find(p, where, depth)
	}
	return s.bad(where, "a value of Go type %T cannot be saved; numbers, bools, strings, bytes and tensors can, and slices and maps of these", v)
}

func (s *saver) tensor(x *tensor.Tensor) {
	l := x.Strides()
	lo, hi := x.StorageOffset(), x.StorageOffset()
	for i := range x.Rank() {
		hi += (x.Dim(i) - 1) * l.At(i)
	}
	if x.Size() == 0 {
		lo, hi = 0, -1
	}
	st := x.Storage()
	e := s.index[st]
	if e == nil {
		e = &saved{key: len(s.list), lo: lo, hi: hi, t: x.Type()}
		s.index[st] = e
		s.list = append(s.list, e)
	}
	if x.Size() > 0 {
		if e.hi < e.lo {
			e.lo, e.hi = lo, hi
		}
		e.lo, e.hi = min(e.lo, lo), max(e.hi, hi)
	}
	e.of = append(e.of, x)
}

// write writes the archive, with the entries in PyTorch's order.
func (s *saver) write(f zipfile.Output) error {
	name := filepath.Base(s.path)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if name == "" {
		name = "archive"
	}
	z := zipfile.NewWriter(f)
	root := name + "/"
	names, sums := fnv.New64a(), fnv.New64a()
	for _, e := range []struct{ name, text string }{
		{"data.pkl", string(s.out)}, {".format_version", "1"}, {".storage_alignment", "64"}, {"byteorder", "little"},
	} {
		z.Add(root+e.name, []byte(e.text))
	}
	for _, e := range s.list {
		if err := s.storage(z, root, e); err != nil {
			return err
		}
	}
	z.Add(root+"version", []byte("3\n"))
	z.Sums(func(name string, crc uint32) {
		names.Write([]byte(name))
		sums.Write(binary.LittleEndian.AppendUint32(nil, crc))
	})
	z.Add(root+".data/serialization_id", fmt.Appendf(nil, "%020d%020d", names.Sum64(), sums.Sum64()))
	return z.Close()
}

// storage writes the part of a storage that the tensors reach.
func (s *saver) storage(z *zipfile.Writer, root string, e *saved) error {
	x := e.of[0]
	n := e.hi - e.lo + 1
	t := tensorbytes.Type(x, s.cast)
	z.Begin(root+fmt.Sprintf("data/%d", e.key), uint64(n)*uint64(t.Size()))
	if n > 0 {
		var all *tensor.Tensor
		if err := tensor.Try(func() {
			d := x.Detach()
			defer d.Free() // otherwise the copy's memory would stay allocated
			all = d.AsStrided([]int{n}, []int{1}, e.lo)
		}); err != nil {
			return err
		}
		err := tensorbytes.Write(z, all, s.cast)
		all.Free()
		if err != nil {
			return err
		}
	}
	if s.consume {
		for _, x := range e.of {
			x.Free()
		}
	}
	return z.End()
}
