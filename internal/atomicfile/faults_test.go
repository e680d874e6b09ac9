package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/npy"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

type tensors = map[string]*tensor.Tensor

// faulty is a kind of file or directory, with functions that save and load it.
type faulty struct {
	name string
	path string // path relative to the test's directory
	// save writes tensors whose elements are all v. load returns that v, or 0 if it finds that a
	// set of files is incomplete.
	save func(path string, v float64) error
	load func(path string) (float64, error)
	// typed returns the path in an error, and whether err is an error of the library
	typed func(error) (path string, ok bool)
}

// big is a size in bytes. A save of this many bytes makes several writes.
const big = 300_000

func both(v float64) tensors { return tensors{"a": tensor.Full(v, big), "b": tensor.Full(v, 3)} }

// value returns the value that all elements of the tensors have.
func value(list tensors, err error) (float64, error) {
	if err != nil {
		return 0, err
	}
	v := list["b"].Floats()[0]
	for name, x := range list {
		if x.Amin().Item() != v || x.Amax().Item() != v {
			return 0, errors.New(name + " is mixed")
		}
	}
	return v, nil
}

func ofSafetensors(err error) (string, bool) {
	var e *safetensors.Error
	return at(err, &e, func() string { return e.Path })
}

func ofTorchfile(err error) (string, bool) {
	var e *torchfile.Error
	return at(err, &e, func() string { return e.Path })
}

func ofNpy(err error) (string, bool) {
	var e *npy.Error
	return at(err, &e, func() string { return e.Path })
}

func ofCheckpoint(err error) (string, bool) {
	var e *checkpoint.Error
	return at(err, &e, func() string { return e.Path })
}

func at(err error, target any, path func() string) (string, bool) {
	if !errors.As(err, target) {
		return "", false
	}
	return path(), true
}

func tree(v float64) map[string]any { return map[string]any{"a": tensor.Full(v, big), "v": v} }

var kinds = []faulty{
	{"safetensors", "m.safetensors", func(path string, v float64) error { return safetensors.Save(path, both(v), nil) },
		func(path string) (float64, error) {
			list, _, err := safetensors.Load(path)
			return value(list, err)
		}, ofSafetensors},
	{"safetensors in shards", "m.safetensors", func(path string, v float64) error {
		return safetensors.Save(path, both(v), nil, safetensors.MaxShard(1<<20))
	}, func(path string) (float64, error) {
		if _, err := os.Stat(path + ".index.json"); err != nil {
			return 0, nil // the index file is missing as long as new and old files are mixed
		}
		list, _, err := safetensors.Load(path + ".index.json")
		return value(list, err)
	}, ofSafetensors},
	{"torchfile", "m.pt", func(path string, v float64) error { return torchfile.Save(path, both(v)) },
		func(path string) (float64, error) {
			list, err := torchfile.Load(path)
			if err != nil {
				return 0, err
			}
			return value(torchfile.StateDict(list))
		}, ofTorchfile},
	{"npy", "m.npy", func(path string, v float64) error { return npy.Save(path, tensor.Full(v, big)) },
		func(path string) (float64, error) {
			x, err := npy.Load(path)
			return value(tensors{"b": x}, err)
		}, ofNpy},
	{"npz", "m.npz", func(path string, v float64) error { return npy.SaveArchive(path, both(v)) },
		func(path string) (float64, error) {
			list, err := npy.LoadArchive(path)
			return value(list, err)
		}, ofNpy},
	{"checkpoint", "c.safetensors", func(path string, v float64) error { return checkpoint.Write(path, tree(v), checkpoint.Info{}) },
		func(path string) (float64, error) {
			list, _, err := checkpoint.Read(path)
			if err != nil {
				return 0, err
			}
			return list["v"].(float64), nil
		}, ofCheckpoint},
	{"store of checkpoints", "d", func(path string, v float64) (err error) {
		s, err := checkpoint.Open(checkpoint.Config{Dir: path, Keep: 1})
		if err != nil {
			return err
		}
		if err = s.Save(tree(v), checkpoint.Info{Step: int(v)}); err != nil {
			return errors.Join(err, s.Close())
		}
		return s.Close()
	}, func(path string) (float64, error) {
		l, err := checkpoint.Load(path)
		if err != nil {
			return 0, err
		}
		return l.Tree["v"].(float64), nil
	}, ofCheckpoint},
}

// TestEachCallFails makes the n-th call of the operating system fail, for every n. The error must
// be an error of the library, with the path and the failed call. No temporary file may remain.
// Either the old file or the new file must be complete.
func TestEachCallFails(t *testing.T) {
	fault := errors.New("the system fails here")
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			seen := map[string]int{}
			for n := int64(1); ; n++ {
				dir := t.TempDir()
				path := filepath.Join(dir, k.path)
				if err := k.save(path, 1); err != nil {
					t.Fatal(err)
				}
				var calls atomic.Int64
				var op, on string
				restore := atomicfile.Intercept(func(o, p string) error {
					if calls.Add(1) != n {
						return nil
					}
					op, on = o, p
					return fault
				})
				err := k.save(path, 2)
				restore()
				got, lerr := k.load(path)
				if op == "" { // the save makes fewer than n calls
					if err != nil || lerr != nil || got != 2 {
						t.Errorf("without a fault: %v, %v, %v", err, got, lerr)
					}
					break
				}
				seen[op]++
				where, ok := k.typed(err)
				if !ok || !errors.Is(err, fault) || !strings.HasPrefix(where, filepath.Dir(path)) || !strings.Contains(err.Error(), where) {
					t.Errorf("%s of %s: %v names %q", op, on, err, where)
				}
				// if only the sync of the directory failed, the new file is at its path
				info, _ := os.Stat(on)
				late := op == "remove" || info != nil && info.IsDir()
				if lerr != nil || got == 2 && !late || got == 0 && k.name != "safetensors in shards" {
					t.Errorf("%s of %s: there is %v, %v", op, on, got, lerr)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, "*", ".*.tmp-*")); len(left) > 0 {
					t.Errorf("%s of %s leaves %v", op, on, left)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, ".*.tmp-*")); len(left) > 0 {
					t.Errorf("%s of %s leaves %v", op, on, left)
				}
				if err := k.save(path, 3); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			}
			for _, op := range []string{"lstat", "open", "write", "sync", "rename"} {
				if seen[op] == 0 {
					t.Errorf("no %s: %v", op, seen)
				}
			}
			if seen["write"] < 2 {
				t.Errorf("%d writes", seen["write"])
			}
		})
	}
}
