package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/npy"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// These are the formats of weights files, which the ending of the file name determines.
const (
	formatSafetensors = "safetensors"
	formatSharded     = "sharded safetensors"
	formatTorch       = "torch"
	formatNPZ         = "npz"
	formatNPY         = "npy"
)

// endings lists the endings of file names. The first one that matches determines the format.
var endings = []struct{ ending, format string }{
	{".safetensors.index.json", formatSharded}, {".safetensors", formatSafetensors}, {".pt", formatTorch}, {".pth", formatTorch}, {".bin", formatTorch},
	{".ckpt", formatTorch}, {".npz", formatNPZ}, {".npy", formatNPY},
}

func formatOf(path string) (string, error) {
	var known []string
	for _, e := range endings {
		if strings.HasSuffix(strings.ToLower(path), e.ending) {
			return e.format, nil
		}
		known = append(known, e.ending)
	}
	return "", fmt.Errorf("%s: the name does not tell a format; it ends in one of %s", path, strings.Join(known, " "))
}

// A named is a value in a weights file. The name of a nested value consists of the keys, joined by
// dots.
type named struct {
	name  string
	value any // a *tensor.Tensor, or another value in a PyTorch file
}

// weights holds the contents of a weights file.
type weights struct {
	format   string
	list     []named
	metadata map[string]string
	tree     any // contents of a PyTorch file, before flatten
	text     int // total length in bytes of the names that flatten has made
}

// maxNames is the greatest total length of all names in bytes. In a hostile file, long names could
// be nested in long names.
const maxNames = 64 << 20

// readWeights maps a file into memory. The names are in the order of the file, or sorted if the
// file has no order. If checked is set, it reads the whole file to verify its checksums.
func readWeights(path string, checked bool) (*weights, error) {
	format, err := formatOf(path)
	if err != nil {
		return nil, err
	}
	w := &weights{format: format}
	var torchOpts []torchfile.Option
	var npyOpts []npy.Option
	if checked {
		torchOpts, npyOpts = append(torchOpts, torchfile.Checked()), append(npyOpts, npy.Checked())
	}
	switch format {
	case formatSafetensors, formatSharded:
		f, err := safetensors.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		w.metadata = f.Metadata()
		if checked {
			if _, err := f.Verify(); err != nil {
				return nil, err
			}
		}
		for _, name := range f.Names() {
			x, err := f.Tensor(name)
			if err != nil {
				return nil, err
			}
			w.list = append(w.list, named{name, x})
		}
	case formatTorch:
		if w.tree, err = torchfile.Load(path, append(torchOpts, torchfile.Mapped(), torchfile.Exact())...); err != nil {
			return nil, err
		}
		if err := w.flatten("", w.tree); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	case formatNPZ:
		all, err := npy.LoadArchive(path, append(npyOpts, npy.Mapped())...)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			w.list = append(w.list, named{name, all[name]})
		}
	case formatNPY:
		x, err := npy.Load(path, npy.Mapped())
		if err != nil {
			return nil, err
		}
		base := filepath.Base(path)
		w.list = []named{{strings.TrimSuffix(base, filepath.Ext(base)), x}}
	}
	return w, nil
}

// flatten adds the values inside a nested value of a PyTorch file to the list of values. Their
// names are the keys and positions, joined by dots. A list without tensors and containers counts as
// one value.
func (w *weights) flatten(prefix string, v any) error {
	below := func(key, x any) error {
		name := fmt.Sprint(key)
		if prefix != "" {
			name = prefix + "." + name
		}
		if w.text += len(name); w.text > maxNames {
			return fmt.Errorf("the names of what it holds, joined by dots, have more than %d bytes", maxNames)
		}
		return w.flatten(name, x)
	}
	var items []any
	switch v := v.(type) {
	case *torchfile.Dict:
		if v.Len() > 0 {
			for k, x := range v.All() {
				if err := below(k, x); err != nil {
					return err
				}
			}
			return nil
		}
	case []any:
		items = v
	case torchfile.Tuple:
		items = v
	case torchfile.Set:
		items = v
	}
	if !slices.ContainsFunc(items, nests) {
		w.list = append(w.list, named{prefix, v})
		return nil
	}
	for i, x := range items {
		if err := below(i, x); err != nil {
			return err
		}
	}
	return nil
}

func nests(v any) bool {
	switch v.(type) {
	case *tensor.Tensor, *torchfile.Dict, []any, torchfile.Tuple, torchfile.Set:
		return true
	}
	return false
}

// tensors returns the tensors by name, and the names of the values that are not tensors.
func (w *weights) tensors() (all map[string]*tensor.Tensor, others []string, err error) {
	all = map[string]*tensor.Tensor{}
	for _, n := range w.list {
		x, ok := n.value.(*tensor.Tensor)
		switch {
		case !ok:
			others = append(others, n.name)
		case all[n.name] != nil:
			return nil, nil, fmt.Errorf("the name %q appears twice when names are joined by dots", n.name)
		default:
			all[n.name] = x
		}
	}
	return all, others, nil
}

// floatTypes maps the names that --dtype accepts to types.
var floatTypes = map[string]dtype.Type{
	"float64": dtype.F64, "fp64": dtype.F64, "double": dtype.F64, "float32": dtype.F32, "fp32": dtype.F32, "float": dtype.F32,
	"float16": dtype.F16, "fp16": dtype.F16, "half": dtype.F16, "bfloat16": dtype.BF16, "bf16": dtype.BF16,
}

// sizeText formats a number of bytes, with units of powers of 1024.
func sizeText(n int64) string {
	v, unit := float64(n), 0
	for v >= 1024 && unit < 5 {
		v, unit = v/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, "_KMGTP"[unit])
}

// parseSize parses a number of bytes such as "500MB", "5GB" (powers of 1000), "5GiB" (powers of
// 1024) or "4096".
func parseSize(s string) (int64, error) {
	text, unit := strings.ToLower(strings.TrimSpace(s)), int64(1)
	for i, letter := range "kmgt" {
		for suffix, base := range map[string]int64{string(letter) + "ib": 1024, string(letter) + "b": 1000} {
			if cut, ok := strings.CutSuffix(text, suffix); ok {
				text, unit = cut, 1
				for range i + 1 {
					unit *= base
				}
			}
		}
	}
	text = strings.TrimSuffix(text, "b")
	var v float64
	var rest string
	if n, _ := fmt.Sscanf(text+" .", "%g %s", &v, &rest); n != 2 || rest != "." || !(v*float64(unit) >= 1) || v*float64(unit) > 1<<60 {
		return 0, fmt.Errorf("%q is no number of bytes such as 500MB or 5GiB", s)
	}
	return int64(v * float64(unit)), nil
}
