package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/npy"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// convertCmd converts a weights file to another format.
type convertCmd struct {
	In        string `arg:"" help:"The file to read." type:"path"`
	Out       string `arg:"" help:"The file to write." type:"path"`
	DType     string `name:"dtype" help:"Write floating-point tensors as float32, float16, bfloat16 or float64." placeholder:"TYPE"`
	Weights   bool   `help:"Take only the model's state dict out of a PyTorch checkpoint."`
	MaxShard  string `help:"Write safetensors files of at most this size, such as 5GB, and an index." placeholder:"SIZE"`
	Overwrite bool   `help:"Replace the output file if it exists."`
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *convertCmd) Validate() error {
	if _, ok := floatTypes[c.DType]; c.DType != "" && !ok {
		return fmt.Errorf("--dtype %s: the types are %s", c.DType, strings.Join(slices.Sorted(maps.Keys(floatTypes)), " "))
	}
	if c.MaxShard != "" {
		if _, err := parseSize(c.MaxShard); err != nil {
			return fmt.Errorf("--max-shard: %w", err)
		}
	}
	return nil
}

// Run converts the file.
func (c *convertCmd) Run(e *env) error {
	start := time.Now()
	format, err := formatOf(c.Out)
	if err != nil {
		return err
	}
	if c.MaxShard != "" && format != formatSafetensors && format != formatSharded {
		return fmt.Errorf("--max-shard: only safetensors are written in several files, not %s", c.Out)
	}
	for _, path := range c.replaced(format) {
		if _, err := os.Lstat(path); err == nil && !c.Overwrite {
			return fmt.Errorf("%s exists; --overwrite replaces it", path)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	w, err := readWeights(c.In, true)
	if err != nil {
		return err
	}
	if c.Weights {
		if err := w.selectStateDict(e); err != nil {
			return fmt.Errorf("%s: --weights: %w", c.In, err)
		}
	}
	n, size, err := c.write(e, w, format)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.err, "%d tensors, %s, written to %s in %.1f s\n", n, sizeText(size), c.Out, time.Since(start).Seconds())
	return nil
}

// replaced returns the paths of files that the command may overwrite. If one of these files
// exists, the command needs the flag --overwrite.
func (c *convertCmd) replaced(format string) []string {
	switch single, sharded := strings.CutSuffix(c.Out, ".index.json"); {
	case format == formatSharded && sharded:
		return []string{c.Out, single}
	case c.MaxShard != "":
		return []string{c.Out, c.Out + ".index.json"}
	}
	return []string{c.Out}
}

// selectStateDict reduces the contents of a file to its state dict.
func (w *weights) selectStateDict(e *env) error {
	if w.format != formatTorch {
		return errors.New("the file is no checkpoint of PyTorch")
	}
	state, err := torchfile.StateDict(w.tree)
	if err != nil {
		return err
	}
	kept := map[*tensor.Tensor]bool{}
	for _, x := range state {
		kept[x] = true
	}
	left := 0
	for _, n := range w.list {
		if x, ok := n.value.(*tensor.Tensor); !ok || !kept[x] {
			left++
		}
	}
	w.list = w.list[:0]
	tree := &torchfile.Dict{}
	for _, name := range slices.Sorted(maps.Keys(state)) {
		w.list = append(w.list, named{name, state[name]})
		if err := tree.Set(name, state[name]); err != nil {
			return err
		}
	}
	w.tree = tree
	fmt.Fprintf(e.err, "%d values beside the weights are left out\n", left)
	return nil
}

// write writes the output file. It returns the number of tensors and their size in bytes.
func (c *convertCmd) write(e *env, w *weights, format string) (n int, size int64, err error) {
	to := floatTypes[c.DType]
	tensors, others, err := w.tensors()
	if err != nil && format != formatTorch {
		return 0, 0, fmt.Errorf("%s: %w", c.In, err)
	}
	for _, v := range w.list {
		if x, ok := v.value.(*tensor.Tensor); ok {
			t := x.Type()
			if t.IsFloat() && to != dtype.Invalid {
				t = to
			}
			n++
			size += int64(x.Size()) * int64(t.Size())
		}
	}
	if len(others) > 0 && format != formatTorch {
		more := ""
		if len(others) > 5 {
			others, more = others[:5], ", …"
		}
		return 0, 0, fmt.Errorf("%s: %s%s are no tensors, which a file of %s cannot hold; --weights takes the model's weights alone", c.In, zipfile.Printable(strings.Join(others, ", ")), more, format)
	}
	if keys := slices.Sorted(maps.Keys(w.metadata)); len(keys) > 0 && !slices.Equal(keys, []string{"format"}) && format != formatSafetensors && format != formatSharded {
		fmt.Fprintf(e.err, "the metadata (%s) are left out: the format has none\n", strings.Join(keys, ", "))
	}
	switch format {
	case formatSafetensors, formatSharded:
		path, opts := c.Out, []safetensors.SaveOption{safetensors.Consume(), safetensors.Checksums()}
		most := c.MaxShard
		if single, ok := strings.CutSuffix(c.Out, ".index.json"); ok {
			path = single
			if most == "" {
				most = "5GB"
			}
		}
		if most != "" {
			bytes, err := parseSize(most)
			if err != nil {
				return 0, 0, err
			}
			if format == formatSharded && size <= bytes {
				return 0, 0, fmt.Errorf("%s: all tensors fit into one file of %s, which has no index: write to %s, or give a smaller --max-shard", c.Out, most, path)
			}
			opts = append(opts, safetensors.MaxShard(bytes))
		}
		if to != dtype.Invalid {
			opts = append(opts, safetensors.Cast(to))
		}
		metadata := w.metadata
		if metadata == nil {
			// Hugging Face's libraries require the entry "format".
			metadata = map[string]string{"format": "pt"}
		}
		return n, size, safetensors.Save(path, tensors, metadata, opts...)
	case formatTorch:
		tree := w.tree
		if tree == nil {
			tree = tensors
		}
		opts := []torchfile.SaveOption{torchfile.Consume()}
		if to != dtype.Invalid {
			opts = append(opts, torchfile.Cast(to))
		}
		return n, size, torchfile.Save(c.Out, tree, opts...)
	}
	opts := []npy.SaveOption{npy.Consume()}
	if to != dtype.Invalid {
		if to == dtype.BF16 {
			return 0, 0, errors.New("--dtype bfloat16: NumPy has no such type")
		}
		opts = append(opts, npy.Cast(to))
	}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if to == dtype.Invalid && tensors[name].Type() == dtype.BF16 {
			return 0, 0, fmt.Errorf("%s: %s is of type bfloat16, which NumPy has not; add --dtype float32", c.In, name)
		}
	}
	if format == formatNPZ {
		return n, size, npy.SaveArchive(c.Out, tensors, opts...)
	}
	if len(tensors) != 1 {
		return 0, 0, fmt.Errorf("%s holds %d tensors, a .npy file holds one: write a .npz file", c.In, len(tensors))
	}
	for _, x := range tensors {
		err = npy.Save(c.Out, x, opts...)
	}
	return n, size, err
}
