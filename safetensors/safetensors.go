// Package safetensors writes and reads tensors in Hugging Face's safetensors format
// (https://github.com/huggingface/safetensors#format).
//
// [Save] writes a map of tensors. [Load] reads all of a file. [Open] maps a file into memory:
// opening takes hardly any time, and tensors that are not accessed take no memory. All three
// support sharded models: several files and an index, which Hugging Face's libraries write for
// large models.
//
// A file is eight bytes of header length, a JSON header, and the bytes of the tensors. The header
// has the name, type, shape and offsets of each tensor. The rules are those of the reference
// implementation. No key may occur twice. Tensors must follow each other without holes and
// overlaps, up to the end of the file. The header has at most 100 MB.
package safetensors

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/internal/tensorbytes"
	"github.com/flambeau-go/flambeau/tensor"
)

// maxHeader is the largest accepted JSON header in bytes, as in the format's own library.
const maxHeader = 100_000_000

const metadataKey = "__metadata__"

// An Error says what is wrong with a file, and where.
type Error struct {
	Path   string
	Tensor string // name of the tensor, or ""
	Offset int64  // offset of the byte in the file; -1 if unknown
	Msg    string
	Err    error // cause; nil if the file's contents are wrong
}

func (e *Error) Error() string {
	s := "safetensors: " + e.Path + ": "
	if e.Tensor != "" {
		s += fmt.Sprintf("tensor %q: ", e.Tensor)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf("at byte %d: ", e.Offset)
	}
	return s + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A SaveOption changes what [Save] writes.
type SaveOption func(*saver)

// Cast writes floating-point tensors as type t, which must be a floating-point type. dtype.BF16
// halves the size of float32 weights.
func Cast(t dtype.Type) SaveOption { return func(s *saver) { s.cast = t } }

// Consume frees each tensor as soon as it is written. Tensors that [Open] has mapped can then be
// saved again without being in memory all at once.
func Consume() SaveOption { return func(s *saver) { s.consume = true } }

// MaxShard divides the tensors among files of at most the given number of bytes. A larger tensor
// gets its own file. If m.safetensors needs three files, they are m-00001-of-00003.safetensors to
// m-00003-of-00003.safetensors. The index is m.safetensors.index.json. The index is written last,
// when all files are on the disk, so an earlier error leaves an older model unchanged. No index
// ever names a mixture of old and new files, even if the process is killed. Finally, Save removes
// m.safetensors and files that only the old index names.
func MaxShard(bytes int64) SaveOption { return func(s *saver) { s.shard = bytes } }

type saver struct {
	path     string
	cast     dtype.Type
	consume  bool
	shard    int64
	sums     bool
	tensors  map[string]*tensor.Tensor
	metadata map[string]string
	uses     map[*tensor.Tensor]int // number of names under which a tensor must still be written
}

// Save writes tensors of any device to path. It writes a temporary file in the same directory,
// syncs it and renames it. Therefore path never holds an incomplete file. The same tensors give the
// same bytes. The error is an *[Error].
func Save(path string, tensors map[string]*tensor.Tensor, metadata map[string]string, opts ...SaveOption) error {
	s := &saver{path: path, tensors: tensors, metadata: metadata, uses: map[*tensor.Tensor]int{}}
	for _, o := range opts {
		o(s)
	}
	if s.cast != dtype.Invalid && !s.cast.IsFloat() {
		return s.bad("", "Cast to %v, which is no floating-point type", s.cast)
	}
	if s.shard < 0 {
		return s.bad("", "MaxShard of %d bytes", s.shard)
	}
	for k, v := range metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return s.bad("", "the metadata %q is not UTF-8", k)
		}
		if k == sumsKey {
			return s.bad("", "the metadata have the key %s, which Checksums writes", k)
		}
	}
	keys := make([]string, 0, len(tensors))
	for k, t := range tensors {
		switch {
		case t == nil:
			return s.bad(k, "it is nil")
		case k == metadataKey:
			return s.bad(k, "the format keeps that name for itself")
		case !utf8.ValidString(k):
			return s.bad(k, "its name is not UTF-8")
		}
		s.uses[t]++
		keys = append(keys, k)
	}
	var size map[string]int64
	if err := tensor.Try(func() {
		size = s.sizes()
		// Wider types come first, so that every tensor is aligned to the size of its elements.
		slices.SortFunc(keys, func(a, b string) int {
			x, y := tensorbytes.Type(tensors[a], s.cast), tensorbytes.Type(tensors[b], s.cast)
			return cmp.Or(cmp.Compare(y.Size(), x.Size()), cmp.Compare(a, b))
		})
	}); err != nil {
		return s.fault(err)
	}
	shards := s.shards(keys, size)
	if len(shards) < 2 {
		if err := s.file(path, keys, size); err != nil {
			return s.fault(err)
		}
		if s.shard > 0 {
			return s.fault(s.forget(path+indexSuffix, nil))
		}
		return nil
	}
	return s.fault(s.sharded(shards, size))
}

const indexSuffix = ".index.json"

func (s *saver) bad(name, format string, a ...any) error {
	return &Error{Path: s.path, Tensor: name, Offset: -1, Msg: fmt.Sprintf(format, a...)}
}

func (s *saver) fault(err error) error {
	if err == nil {
		return nil
	}
	return failed(s.path, err)
}

func (s *saver) sizes() map[string]int64 {
	size := make(map[string]int64, len(s.tensors))
	for k, t := range s.tensors {
		size[k] = int64(t.Size()) * int64(tensorbytes.Type(t, s.cast).Size())
	}
	return size
}

func (s *saver) shards(keys []string, size map[string]int64) [][]string {
	if s.shard == 0 {
		return nil
	}
	var list [][]string
	var at []string
	sum := int64(0)
	for _, k := range keys {
		if len(at) > 0 && sum+size[k] > s.shard {
			list, at, sum = append(list, at), nil, 0
		}
		at, sum = append(at, k), sum+size[k]
	}
	return append(list, at)
}

// sharded writes the files of a model and their index.
func (s *saver) sharded(shards [][]string, size map[string]int64) error {
	base, ext := s.path, filepath.Ext(s.path)
	base = strings.TrimSuffix(base, ext)
	weights := map[string]string{}
	written := map[string]bool{}
	total := int64(0)
	var files []*atomicfile.File
	defer func() {
		for _, f := range files {
			f.Abort() // has no effect after the file was renamed
		}
	}()
	for i, keys := range shards {
		path := fmt.Sprintf("%s-%05d-of-%05d%s", base, i+1, len(shards), ext)
		f, err := s.begin(path, keys, size)
		if err != nil {
			return err
		}
		files = append(files, f)
		written[filepath.Base(path)] = true
		for _, k := range keys {
			weights[k] = filepath.Base(path)
			total += size[k]
		}
	}
	index := map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weights}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	// The new files are on the disk, but not yet under their names. If they replace files that an
	// older index lists, that index is removed first. Otherwise, during the renaming, it would name
	// a mixture of old and new files.
	old := s.listed(s.path + indexSuffix)
	if slices.ContainsFunc(old, func(name string) bool { return written[name] }) {
		if err := atomicfile.Remove(s.path + indexSuffix); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	for _, f := range files {
		if err := f.Commit(); err != nil {
			return failed(f.Path(), err)
		}
	}
	f, err := atomicfile.Create(s.path + indexSuffix)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(append(text, '\n')); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	if err := atomicfile.Remove(s.path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return s.remove(old, written)
}

// listed returns the shards of this model that an index lists.
func (s *saver) listed(index string) []string {
	weights, err := readIndex(index)
	if err != nil {
		return nil // there is no index, or this package did not write it
	}
	ext := filepath.Ext(s.path)
	ours := regexp.MustCompile("^" + regexp.QuoteMeta(strings.TrimSuffix(filepath.Base(s.path), ext)) + `-\d{5,}-of-\d{5,}` + regexp.QuoteMeta(ext) + "$")
	seen := map[string]bool{}
	var list []string
	for _, name := range weights {
		if ours.MatchString(name) && !seen[name] {
			seen[name] = true
			list = append(list, name)
		}
	}
	return list
}

func (s *saver) remove(list []string, keep map[string]bool) error {
	for _, name := range list {
		if keep[name] {
			continue
		}
		if err := atomicfile.Remove(filepath.Join(filepath.Dir(s.path), name)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// forget removes an index and the files that it lists, except the files in keep.
func (s *saver) forget(index string, keep map[string]bool) error {
	old := s.listed(index)
	if err := atomicfile.Remove(index); err != nil && !os.IsNotExist(err) {
		return err
	}
	return s.remove(old, keep)
}

// file writes one file.
func (s *saver) file(path string, keys []string, size map[string]int64) error {
	f, err := s.begin(path, keys, size)
	if err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return failed(path, err)
	}
	return nil
}

// begin writes a file to the disk under a temporary name.
func (s *saver) begin(path string, keys []string, size map[string]int64) (_ *atomicfile.File, err error) {
	text, err := s.header(path, keys, size)
	if err != nil {
		return nil, err
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, failed(path, err)
	}
	defer func() {
		if err != nil {
			f.Abort()
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))); err != nil {
		return nil, failed(path, err)
	}
	if _, err := w.Write(text); err != nil {
		return nil, failed(path, err)
	}
	sums := []uint32{crc32.Checksum(text, castagnoli)}
	for _, k := range keys {
		x, to, sum := s.tensors[k], io.Writer(w), crc32.New(castagnoli)
		if s.sums {
			to = io.MultiWriter(w, sum)
		}
		if err := tensorbytes.Write(to, x, s.cast); err != nil {
			var e *Error
			if errors.As(failed(path, err), &e) && e.Tensor == "" {
				e.Tensor = k
			}
			return nil, e
		}
		sums = append(sums, sum.Sum32())
		if s.uses[x]--; s.consume && s.uses[x] == 0 {
			x.Free()
		}
	}
	if err := w.Flush(); err != nil {
		return nil, failed(path, err)
	}
	if s.sums {
		at := sumsAt(text, sumsText(make([]uint32, len(sums))))
		if _, err := f.WriteAt([]byte(sumsText(sums)), int64(8+at)); err != nil {
			return nil, failed(path, err)
		}
	}
	if err := f.Sync(); err != nil {
		return nil, failed(path, err)
	}
	return f, nil
}

// header returns the JSON text of the header. It is padded so that the tensors begin at a multiple
// of eight bytes.
func (s *saver) header(path string, keys []string, size map[string]int64) ([]byte, error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	var text []byte
	add := func(key string, v any) {
		k, _ := json.Marshal(key) // cannot fail for strings and structs of numbers
		e, _ := json.Marshal(v)
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, k...), ':'), e...)
	}
	metadata := s.metadata
	if s.sums { // the text has zeros, which the checksums replace later
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[sumsKey] = sumsText(make([]uint32, len(keys)+1))
	}
	if len(metadata) > 0 {
		add(metadataKey, metadata)
	}
	at := int64(0)
	for _, k := range keys {
		x := s.tensors[k]
		add(k, entry{names[tensorbytes.Type(x, s.cast)], append([]int{}, x.Shape().Slice()...), [2]int64{at, at + size[k]}})
		at += size[k]
	}
	text = append(append([]byte{'{'}, text...), '}')
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return nil, &Error{Path: path, Offset: -1, Msg: fmt.Sprintf("the header would have %d bytes, at most %d can be read again", len(text), maxHeader)}
	}
	return text, nil
}
