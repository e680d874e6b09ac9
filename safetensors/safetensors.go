// Package safetensors writes and reads tensors in the safetensors format: eight bytes of header length, a JSON header that
// says name, type, shape and place of each tensor, then their bytes
// (https://github.com/huggingface/safetensors#format).
package safetensors

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// maxHeader bounds the JSON header, as the format's own library does.
const maxHeader = 100 << 20

const metadataKey = "__metadata__"

// An Error says what is wrong with a file.
type Error struct{ Path, Msg string }

func (e *Error) Error() string { return "safetensors: " + e.Path + ": " + e.Msg }

var names = map[dtype.Type]string{dtype.Bool: "BOOL", dtype.U8: "U8", dtype.I8: "I8", dtype.I16: "I16", dtype.I32: "I32",
	dtype.I64: "I64", dtype.F16: "F16", dtype.BF16: "BF16", dtype.F32: "F32", dtype.F64: "F64"}

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Save writes tensors, from any device, to path: to a temporary file in the same directory, which is synced and renamed, so
// that path holds either the old file or the whole new one.
func Save(path string, tensors map[string]*tensor.Tensor, metadata map[string]string) error {
	keys := make([]string, 0, len(tensors))
	for k, t := range tensors {
		if t == nil || k == metadataKey {
			return &Error{path, fmt.Sprintf("the tensor %q is nil, or its name is one that the format keeps for itself", k)}
		}
		keys = append(keys, k)
	}
	// Wider types first keeps every tensor aligned to its element.
	sort.Slice(keys, func(i, j int) bool {
		a, b := tensors[keys[i]].Type().Size(), tensors[keys[j]].Type().Size()
		return a > b || a == b && keys[i] < keys[j]
	})
	header := map[string]any{}
	if len(metadata) > 0 {
		header[metadataKey] = metadata
	}
	at := int64(0)
	for _, k := range keys {
		t := tensors[k]
		n := int64(t.Size() * t.Type().Size())
		header[k] = entry{names[t.Type()], append([]int{}, t.Shape().Slice()...), [2]int64{at, at + n}}
		at += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return fmt.Errorf("safetensors: %s: %w", path, err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<20)
	var size [8]byte
	binary.LittleEndian.PutUint64(size[:], uint64(len(text)))
	w.Write(size[:])
	w.Write(text)
	for _, k := range keys {
		var data []byte
		if err := tensor.Try(func() { data = tensors[k].Bytes() }); err != nil {
			return fmt.Errorf("safetensors: %s: %w", k, err)
		}
		w.Write(data)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// Load reads all tensors of a file into the root scope, on the CPU, and the file's metadata. What the header claims is
// checked against the size of the file before anything is allocated.
func Load(path string) (tensors map[string]*tensor.Tensor, metadata map[string]string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("safetensors: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, &Error{path, "this is not a file"}
	}
	bad := func(format string, a ...any) (map[string]*tensor.Tensor, map[string]string, error) {
		return nil, nil, &Error{path, fmt.Sprintf(format, a...)}
	}
	var size [8]byte
	if _, err := io.ReadFull(f, size[:]); err != nil {
		return bad("the file has %d bytes, it is too short", info.Size())
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxHeader || int64(n) > info.Size()-8 {
		if size[0] == 'P' && size[1] == 'K' {
			return bad("this is a zip file, as PyTorch's .pt files are, not a safetensors file")
		}
		return bad("the header claims %d bytes, the file has %d", n, info.Size())
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(f, text); err != nil {
		return bad("reading the header: %v", err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		return bad("the header is not valid JSON: %v", err)
	}
	tensors = map[string]*tensor.Tensor{}
	body := info.Size() - 8 - int64(n)
	for name, v := range raw {
		if name == metadataKey {
			if err := json.Unmarshal(v, &metadata); err != nil {
				return bad("metadata: %v", err)
			}
			continue
		}
		var e entry
		if err := json.Unmarshal(v, &e); err != nil {
			return bad("tensor %q: %v", name, err)
		}
		t := dtype.Invalid
		for k, s := range names {
			if s == e.DType {
				t = k
			}
		}
		if t == dtype.Invalid {
			return bad("tensor %q: unknown type %q", name, e.DType)
		}
		if len(e.Shape) > shape.MaxRank {
			return bad("tensor %q: %d dimensions, at most %d are supported", name, len(e.Shape), shape.MaxRank)
		}
		want := int64(t.Size())
		for _, d := range e.Shape {
			if d < 0 || d > 0 && want > body/int64(d) {
				return bad("tensor %q: shape %v does not fit the file", name, e.Shape)
			}
			want *= int64(d)
		}
		if e.Offsets[0] < 0 || e.Offsets[1] > body || e.Offsets[1]-e.Offsets[0] != want {
			return bad("tensor %q: %d bytes at %v, shape %v needs %d", name, e.Offsets[1]-e.Offsets[0], e.Offsets, e.Shape, want)
		}
		data := make([]byte, want)
		if _, err := f.ReadAt(data, 8+int64(n)+e.Offsets[0]); err != nil {
			return bad("tensor %q: %v", name, err)
		}
		if err := tensor.Try(func() { tensors[name] = tensor.FromBytes(t, data, e.Shape...) }); err != nil {
			return nil, nil, err
		}
	}
	return tensors, metadata, nil
}
