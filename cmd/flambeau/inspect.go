package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// inspectCmd lists the tensors in a weights file.
type inspectCmd struct {
	File  string `arg:"" help:"A file that ends in .safetensors, .safetensors.index.json, .pt, .pth, .bin, .ckpt, .npz or .npy." type:"path"`
	JSON  bool   `name:"json" help:"Print one JSON object instead of lines."`
	Check bool   `help:"Read the whole file, and compare it with its checksums. Files of .npz and .pt have them, and safetensors files that flambeau wrote."`
}

// inspected is the output of inspect as JSON.
type inspected struct {
	File     string            `json:"file"`
	Format   string            `json:"format"`
	Tensors  []tensorLine      `json:"tensors"`
	Elements int64             `json:"elements"`
	Bytes    int64             `json:"bytes"`
	ByDType  map[string]int64  `json:"bytes_by_dtype"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Values are the values in a PyTorch file that are not tensors.
	Values []valueLine `json:"values,omitempty"`
}

type tensorLine struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

type valueLine struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

func (c *inspectCmd) Run(e *env) error {
	r, err := c.read()
	if err != nil {
		return err
	}
	if c.Check {
		fmt.Fprintln(e.err, "the check sums agree")
	}
	r.ByDType = map[string]int64{}
	for _, t := range r.Tensors {
		n := int64(1)
		for _, d := range t.Shape {
			n *= int64(d)
		}
		r.Elements += n
		r.Bytes += t.Bytes
		r.ByDType[t.DType] += t.Bytes
	}
	if c.JSON {
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, string(text))
		return err
	}
	rows := [][]string{{"name", "dtype", "shape", "bytes"}}
	for _, t := range r.Tensors {
		rows = append(rows, []string{zipfile.Printable(t.Name), zipfile.Printable(t.DType), strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ", "), fmt.Sprint(t.Bytes)})
	}
	if err := columns(e.err, e.out, rows); err != nil {
		return err
	}
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(r.ByDType)) {
		parts = append(parts, t+" "+sizeText(r.ByDType[t]))
	}
	if len(parts) > 1 {
		parts = []string{": " + strings.Join(parts, ", ")}
	} else {
		parts = nil
	}
	fmt.Fprintf(e.err, "%s: %d tensors, %d elements, %s%s\n", r.Format, len(r.Tensors), r.Elements, sizeText(r.Bytes), strings.Join(parts, ""))
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		fmt.Fprintf(e.err, "metadata %s: %s\n", cut(k), cut(r.Metadata[k]))
	}
	for _, v := range r.Values {
		fmt.Fprintf(e.err, "value %s: %s\n", cut(v.Name), cut(strings.ReplaceAll(fmt.Sprint(v.Value), "<nil>", "None")))
	}
	return nil
}

// cut truncates a text to one line, and removes characters that control a terminal.
func cut(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		s = string(r[:100]) + "…"
	}
	return zipfile.Printable(s)
}

// read reads the descriptions of the tensors. For safetensors it reads only the header, so it can
// also list types that Flambeau does not support.
func (c *inspectCmd) read() (*inspected, error) {
	format, err := formatOf(c.File)
	if err != nil {
		return nil, err
	}
	r := &inspected{File: c.File, Format: format, Tensors: []tensorLine{}}
	if format == formatSafetensors || format == formatSharded {
		f, err := safetensors.Open(c.File)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r.Metadata = f.Metadata()
		if c.Check {
			n, err := f.Verify()
			if err != nil {
				return nil, err
			}
			if n == 0 && len(f.Infos()) > 0 {
				return nil, c.noSums()
			}
		}
		for _, i := range f.Infos() {
			t := i.DType
			if i.Type != dtype.Invalid {
				t = i.Type.String()
			}
			r.Tensors = append(r.Tensors, tensorLine{i.Name, t, append([]int{}, i.Shape...), i.Bytes})
		}
		return r, nil
	}
	if c.Check {
		if has, err := archived(c.File); err != nil {
			return nil, err
		} else if !has {
			return nil, c.noSums()
		}
	}
	w, err := readWeights(c.File, c.Check)
	if err != nil {
		return nil, err
	}
	for _, n := range w.list {
		if x, ok := n.value.(*tensor.Tensor); ok {
			r.Tensors = append(r.Tensors, tensorLine{n.name, x.Type().String(), append([]int{}, x.Shape().Slice()...), int64(x.Size()) * int64(x.Type().Size())})
			continue
		}
		r.Values = append(r.Values, valueLine{n.name, plainValue(n.value)})
	}
	return r, nil
}

func (c *inspectCmd) noSums() error {
	return fmt.Errorf("%s: --check: the file has no check sums; flambeau convert writes them into .safetensors, .pt and .npz files", c.File)
}

// archived reports whether a file is a zip archive, in which every member has a checksum.
func archived(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var head [4]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:]) != "PK\x03\x04" {
		return false, nil
	}
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	list, err := zipfile.Entries(f, info.Size())
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return slices.ContainsFunc(list, func(e zipfile.Entry) bool { return e.CRC32 != 0 }), nil
}

// plainValue converts v to a value that JSON can represent.
func plainValue(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v)
		}
		return v
	case dtype.Type:
		return "torch." + v.String()
	case []byte:
		return fmt.Sprintf("%d bytes", len(v))
	case *torchfile.Dict: // an empty dict
		return map[string]any{}
	case []any:
		return plainValues(v)
	case torchfile.Tuple:
		return plainValues(v)
	case torchfile.Set:
		return plainValues(v)
	}
	return v
}

func plainValues(list []any) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = plainValue(v)
	}
	return out
}
