// Package checkpoint saves the state of a training in files, from which the training can continue
// after a crash, a kill or a power failure.
//
// The package has three parts:
//
//   - [Capture] makes a state of models, optimizers, schedulers, loaders and generators. [Restore]
//     copies the state back.
//   - [Write] and [Read] store a state in one file and load it.
//   - A [Store] is a directory of such files. It writes them while the training goes on, and
//     keeps the newest and the best files. [Load] finds the newest intact file.
//
// The package guarantees:
//
//   - A state is a plain tree of map[string]any, map[int64]any, []any, *tensor.Tensor, int64,
//     float64, bool, string and nil.
//   - A directory has one writer at a time. For a second writer, in this process or another, [Open]
//     returns an error that wraps an [InUseError].
//   - A file is written as a whole or not at all.
//   - Loading runs no code. The memory that it allocates is bounded by the size of the file.
//
// A file is a safetensors file, so any program that reads such files finds the weights. A tensor's
// name is its path in the tree, with "/" between the keys: "model/0.weight",
// "optimizer/state/0/exp_avg". "~" and "/" within a key become "~0" and "~1", as in RFC 6901. The
// rest of the tree is JSON in the metadata. The metadata also has a checksum of every tensor and of
// that JSON.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// version is the version of the metadata that this package writes.
const version = 1

// These are the keys of the metadata.
const (
	keyVersion = "flambeau.checkpoint" // version of the metadata, in decimal
	keyTree    = "flambeau.tree"       // tree without the contents of its tensors
	keyInfo    = "flambeau.info"       // the Info, in JSON
	// keySums has the checksums of all tensors by name. The name "" is for the checksum of the tree
	// and the Info.
	keySums = "flambeau.crc32c"
)

// An Info describes a checkpoint.
type Info struct {
	Step   int     // number of optimizer steps that the training had made
	Epoch  int     // number of epochs that the training had finished
	Metric float64 // value that [Config].Best compares; NaN if not measured
}

type infoJSON struct {
	Step   int    `json:"step"`
	Epoch  int    `json:"epoch"`
	Metric string `json:"metric"`
}

// MarshalJSON encodes Info with the metric as a string, because JSON has no NaN.
func (i Info) MarshalJSON() ([]byte, error) {
	return json.Marshal(infoJSON{i.Step, i.Epoch, strconv.FormatFloat(i.Metric, 'g', -1, 64)})
}

// UnmarshalJSON decodes the result of MarshalJSON.
func (i *Info) UnmarshalJSON(b []byte) (err error) {
	var v infoJSON
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	if v.Step < 0 || v.Epoch < 0 {
		return fmt.Errorf("step %d, epoch %d", v.Step, v.Epoch)
	}
	i.Step, i.Epoch = v.Step, v.Epoch
	i.Metric, err = strconv.ParseFloat(v.Metric, 64)
	return err
}

// An Error says what is wrong with a checkpoint, or with a state that cannot become one.
type Error struct {
	Path string // path of the file or directory; "" for a state that is not in a file
	Part string // part of the state, such as "optimizer"; "" for the whole state
	Msg  string
	Err  error // the cause, if there is one
}

func (e *Error) Error() string {
	s := "checkpoint: "
	if e.Path != "" {
		s += e.Path + ": "
	}
	if e.Part != "" {
		s += e.Part + ": "
	}
	if e.Err != nil {
		if e.Msg != "" {
			s += e.Msg + ": "
		}
		return s + e.Err.Error()
	}
	return s + e.Msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Write saves a tree to a file. The tree's tensors may be on any device. Write uses a temporary
// file in the same directory, which it syncs and renames. The error is an *[Error].
func Write(path string, tree map[string]any, info Info) error {
	s, err := copyTree(tree, info)
	if err == nil {
		err = s.write(path)
	}
	return withPath(path, err)
}

func withPath(path string, err error) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Path == "":
		return &Error{path, e.Part, e.Msg, e.Err}
	case errors.As(err, &e):
		return err
	}
	return &Error{Path: path, Err: err}
}

// A snapshot is a copy of a tree with its tensors in host memory.
type snapshot struct {
	tensors []copied
	text    string
	info    Info
}

// copied is the copy of a tensor in a snapshot: its type, shape and bytes.
type copied struct {
	name  string
	t     dtype.Type
	shape shape.Dims
	bytes []byte
}

// copyTree returns a snapshot of a tree.
func copyTree(tree map[string]any, info Info) (*snapshot, error) {
	e := encoder{names: map[*tensor.Tensor]string{}}
	v, err := e.encode("", tree, 0)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{Err: err}
	}
	return &snapshot{e.tensors, string(text), info}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errNewer = errors.New("a newer flambeau wrote it, which can read it")

// sum returns a checksum of a tensor's type, shape and bytes.
func sum(t dtype.Type, dims shape.Dims, bytes []byte) uint32 {
	c := crc32.Checksum(fmt.Appendf(nil, "%v%v", t, dims), castagnoli)
	return crc32.Update(c, castagnoli, bytes)
}

func sumOfTexts(tree, info string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(tree), castagnoli), castagnoli, []byte(info))
}

// write writes the file, and frees the snapshot.
func (s *snapshot) write(path string) error {
	info, err := json.Marshal(s.info)
	if err != nil {
		return err
	}
	tensors := make(map[string]*tensor.Tensor, len(s.tensors))
	defer free(tensors)
	sums := map[string]uint32{"": sumOfTexts(s.text, string(info))}
	for i := range s.tensors {
		h := &s.tensors[i]
		if err := tensor.Try(func() { tensors[h.name] = tensor.FromBytes(h.t, h.bytes, h.shape.Slice()...) }); err != nil {
			return err
		}
		sums[h.name] = sum(h.t, h.shape, h.bytes)
		h.bytes = nil
	}
	check, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return safetensors.Save(path, tensors, map[string]string{
		"format": "pt", keyVersion: strconv.Itoa(version), keyTree: s.text, keyInfo: string(info), keySums: string(check),
	})
}

func free(tensors map[string]*tensor.Tensor) {
	for _, t := range tensors {
		t.Free()
	}
}

// ErrNoCheckpoint is wrapped by the error of [Read] if a safetensors file is not a checkpoint.
var ErrNoCheckpoint = errors.New("this is a file of tensors, but no checkpoint of a training; safetensors.Load reads it")

// Read loads a checkpoint. Its tensors are on the CPU, in the root scope. The error is an *[Error].
// If the file does not exist, the error wraps [fs.ErrNotExist]. If the file holds tensors but is
// not a checkpoint, the error wraps [ErrNoCheckpoint], and the tensors are not read.
func Read(path string) (tree map[string]any, info Info, err error) {
	tensors, meta, err := read(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, Info{}, &Error{path, "", "there is no such checkpoint", err}
		}
		return nil, Info{}, &Error{Path: path, Err: err}
	}
	tree, info, err = assemble(tensors, meta)
	if err != nil {
		free(tensors)
		return nil, Info{}, withPath(path, err)
	}
	return tree, info, nil
}

// read returns the tensors and the metadata of the file. If the file is not a checkpoint, it
// returns an error.
func read(path string) (map[string]*tensor.Tensor, map[string]string, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, nil, err
	}
	is := f.Metadata()[keyVersion] != ""
	f.Close()
	if !is {
		return nil, nil, ErrNoCheckpoint
	}
	return safetensors.Load(path)
}

func assemble(tensors map[string]*tensor.Tensor, meta map[string]string) (map[string]any, Info, error) {
	bad := func(err error, format string, a ...any) (map[string]any, Info, error) {
		return nil, Info{}, &Error{Msg: fmt.Sprintf(format, a...), Err: err}
	}
	switch v, err := strconv.Atoi(meta[keyVersion]); {
	case meta[keyVersion] == "": // the file was replaced after its header was read
		return bad(ErrNoCheckpoint, "")
	case err != nil || v < 1:
		return bad(nil, "it claims to be of version %q", meta[keyVersion])
	case v > version:
		return bad(errNewer, "it is of version %d, this program knows up to %d", v, version)
	}
	var sums map[string]uint32
	if err := json.Unmarshal([]byte(meta[keySums]), &sums); err != nil {
		return bad(err, "it is damaged: the checksums")
	}
	if want, ok := sums[""]; !ok || sumOfTexts(meta[keyTree], meta[keyInfo]) != want {
		return bad(nil, "it is damaged: the checksum of its metadata is wrong")
	}
	for name, t := range tensors {
		if want, ok := sums[name]; !ok || sum(t.Type(), t.Shape(), t.Bytes()) != want {
			return bad(nil, "it is damaged: the checksum of the tensor %q is wrong", name)
		}
	}
	var info Info
	if err := json.Unmarshal([]byte(meta[keyInfo]), &info); err != nil {
		return bad(err, "its description")
	}
	tree, err := decode(meta[keyTree], tensors)
	return tree, info, err
}
