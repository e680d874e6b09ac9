// Package golden reads results that PyTorch computed, for comparison in tests. Tests only read
// files and do not run PyTorch. The scripts that wrote the files are in _golden at the module's
// root.
//
// # Format
//
// A golden file is a gzipped safetensors file. After decompression, the first 8 bytes hold the
// length of a JSON header, as a little-endian number. The header maps tensor names to {"dtype",
// "shape", "data_offsets"}. The bytes of the tensors follow, in row-major order and little-endian.
// The header's "__metadata__" maps strings to strings:
//
//	script, seed                  the script that wrote the file, and its seed
//	torch, numpy, python, cpu     the versions it used, and the CPU's vector unit
//	threads                       the number of threads
//	cases                         JSON, a list of cases; see below
//
// and other values that the script recorded. A case is
//
//	{"op": "add", "name": "broadcast", "args": {},
//	 "in":  [{"base": T, "views": [["transpose", [0, 1]]], "grad_f32": T, "grad_f64": T}, …],
//	 "out": [{"f32": T, "f64": T, "seed": T, "torn": T}]}
//
// where each T names a tensor. An operand is the tensor "base" after the methods in "views", which
// are applied in order: transpose(dim0, dim1), narrow(dim, start, length) or expand(sizes…). Each
// case was run twice. The first run used the operands as they are (f32). The second run used the
// float32 operands converted to float64 (f64). The f64 run is the reference: if our result differs
// from the f32 result, the reference shows which of the two has the larger error. Integer and
// boolean tensors are the same in both runs. A gradient is the gradient of sum(out × seed) with
// respect to the operand. It has the shape of the operand and not of the base. The optional mask
// torn marks zeros of PyTorch whose sign is arbitrary. This sign depends on the element's position
// in a vector register, and not on the operands.
//
// A float64 number overflows, underflows and rounds later than a float32 number. A test must
// therefore convert the f64 result to float32 before it compares special values.
package golden

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// File is a golden file in memory.
type File struct {
	Path  string            // argument of Open, or "" after Read
	Meta  map[string]string // recorded metadata, without the cases
	Cases []Case            // cases in the order in which the script wrote them

	tensors map[string]Tensor
}

// Case is one call of one op.
type Case struct {
	Op   string // the op's name in PyTorch: "add", "log_softmax"
	Name string // what the case tests: "broadcast", "empty dim=[0]"; unique within the op
	Args Args   // arguments of the op that are not tensors, by PyTorch's names
	In   []Operand
	Out  []Result
}

// Operand is a tensor argument of a case.
type Operand struct {
	Base    Tensor
	Views   []View  // views that are applied to Base in order; nil if the operand is Base itself
	GradF32 *Tensor // gradient in the float32 run, with the operand's shape; nil if there is none
	GradF64 *Tensor // gradient in the float64 run
}

// View is one method call in the sequence that makes a strided operand from a contiguous tensor.
type View struct {
	Name string // name of the method: "transpose", "narrow" or "expand"
	Args []int  // arguments of PyTorch's method with that name
}

// Result is one result of a case.
type Result struct {
	F32  Tensor  // result for float32 operands
	F64  Tensor  // result for the same operands, converted to float64
	Torn *Tensor // mask of the zeros of PyTorch whose sign is arbitrary; nil if there are none
	// The recorded gradients are those of sum(result × Seed). Seed is nil if there are none
	Seed *Tensor
}

// FormatError says what is wrong with a golden file, and where.
type FormatError struct {
	Path   string // path of the file, if known
	Where  string // part that is wrong: "header", a tensor or a case
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("golden: %s: %s: %s", e.Path, e.Where, e.Reason)
}

// maxSize limits the size of an unpacked file. The largest file in the repository has 3 MB.
const maxSize = 64 << 20

// Open reads the golden file at path. A relative path starts in the folder of the running test.
func Open(path string) (*File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("golden: %w", err)
	}
	defer r.Close()
	return read(r, path)
}

// Read reads a golden file. If it is malformed, the error is a *FormatError.
func Read(r io.Reader) (*File, error) { return read(r, "") }

func read(r io.Reader, path string) (*File, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, &FormatError{path, "gzip", err.Error()}
	}
	raw, err := io.ReadAll(io.LimitReader(z, maxSize+1))
	if err != nil {
		return nil, &FormatError{path, "gzip", err.Error()}
	}
	if len(raw) > maxSize {
		return nil, &FormatError{path, "gzip", fmt.Sprintf("unpacks to more than %d bytes", maxSize)}
	}
	f := &File{Path: path}
	f.tensors, f.Meta, err = parse(raw, path)
	if err != nil {
		return nil, err
	}
	if text, ok := f.Meta["cases"]; ok {
		delete(f.Meta, "cases")
		if err := f.parseCases(text); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Tensor returns the tensor stored under name.
func (f *File) Tensor(name string) (Tensor, error) {
	t, ok := f.tensors[name]
	if !ok {
		return Tensor{}, &FormatError{f.Path, "tensor " + name, "is not in the file"}
	}
	return t, nil
}

// parseCases replaces the tensor names in the recorded cases by the tensors.
func (f *File) parseCases(text string) error {
	var rows []struct {
		Op   string `json:"op"`
		Name string `json:"name"`
		Args Args   `json:"args"`
		In   []struct {
			Base    string  `json:"base"`
			Views   []View  `json:"views"`
			GradF32 *string `json:"grad_f32"`
			GradF64 *string `json:"grad_f64"`
		} `json:"in"`
		Out []struct {
			F32  string  `json:"f32"`
			F64  string  `json:"f64"`
			Seed *string `json:"seed"`
			Torn *string `json:"torn"`
		} `json:"out"`
	}
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return &FormatError{f.Path, "cases", err.Error()}
	}
	for _, row := range rows {
		c := Case{Op: row.Op, Name: row.Name, Args: row.Args}
		var missing error
		get := func(name string) Tensor {
			t, err := f.Tensor(name)
			if err != nil && missing == nil {
				missing = &FormatError{f.Path, "case " + row.Op + "/" + row.Name, "names tensor " + name + ", which is not in the file"}
			}
			return t
		}
		optional := func(name *string) *Tensor {
			if name == nil {
				return nil
			}
			t := get(*name)
			return &t
		}
		for _, in := range row.In {
			c.In = append(c.In, Operand{get(in.Base), in.Views, optional(in.GradF32), optional(in.GradF64)})
		}
		for _, out := range row.Out {
			c.Out = append(c.Out, Result{get(out.F32), get(out.F64), optional(out.Torn), optional(out.Seed)})
		}
		if missing != nil {
			return missing
		}
		f.Cases = append(f.Cases, c)
	}
	return nil
}

// UnmarshalJSON decodes a view from its form [name, [arguments]].
func (v *View) UnmarshalJSON(text []byte) error {
	pair := [2]any{&v.Name, &v.Args}
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	switch n := len(v.Args); {
	case v.Name == "transpose" && n == 2, v.Name == "narrow" && n == 3, v.Name == "expand":
		return nil
	}
	return fmt.Errorf("view %s(%v) is none of transpose(dim0, dim1), narrow(dim, start, length), expand(sizes)", v.Name, v.Args)
}
