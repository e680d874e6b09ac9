package safetensors_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// Programs that do not know the checksums can read a file that has them. A flipped bit in any byte
// of the file is an error, except in the metadata key of the checksums.
func TestChecksums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	in := map[string]*tensor.Tensor{
		"a.weight": tensor.From([]float32{1, 2, 3, 4, 5, 6}, 2, 3), "b": tensor.From([]int64{7}), "none": tensor.Zeros(0, 4),
		"half": tensor.Ones(3).BFloat16(), "strided": tensor.From([]float32{1, 2, 3, 4}, 2, 2).T(),
	}
	metadata := map[string]string{"format": "pt", "card": `{"a": "ä"}`}
	if err := safetensors.Save(path, in, metadata, safetensors.Checksums()); err != nil {
		t.Fatal(err)
	}
	if len(metadata) != 2 {
		t.Error("the caller's metadata were changed")
	}
	got, about, err := safetensors.Load(path)
	if err != nil || !maps.Equal(about, metadata) || len(got) != len(in) {
		t.Fatalf("%v, %v", about, err)
	}
	for name, x := range in {
		if y := got[name]; y.Type() != x.Type() || y.Shape() != x.Shape() || !slices.Equal(x.Floats(), y.Floats()) {
			t.Errorf("%s: %v", name, y)
		}
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Verify(); n != len(in) || err != nil || !maps.Equal(f.Metadata(), metadata) {
		t.Errorf("%d, %v, %v", n, err, f.Metadata())
	}
	f.Close()
	if _, err := f.Verify(); err == nil {
		t.Error("a closed file was verified")
	}

	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.safetensors")
	// With another metadata key, the file is valid but has no checksums.
	const key = "flambeau.crc32c.file"
	at := strings.Index(string(whole), key)
	sums, named := 0, map[string]bool{}
	for i := range whole {
		if i >= at && i < at+len(key) {
			continue
		}
		for _, bit := range []byte{1 << (i % 8)} {
			b := slices.Clone(whole)
			b[i] ^= bit
			if err := os.WriteFile(bad, b, 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err := safetensors.Load(bad)
			var e *safetensors.Error
			if !errors.As(err, &e) {
				t.Fatalf("bit %#x of byte %d: %v", bit, i, err)
			}
			if errors.Is(err, safetensors.ErrChecksum) {
				sums++
				named[e.Tensor] = true
			}
			f, err := safetensors.Open(bad)
			if err == nil {
				_, err = f.Verify()
				f.Close()
			}
			if !errors.As(err, &e) {
				t.Fatalf("bit %#x of byte %d, mapped: %v", bit, i, err)
			}
		}
	}
	if sums < 50 || len(named) != len(in)+1 || !named["a.weight"] { // "" stands for the header
		t.Errorf("%d by their sums, of %v", sums, named)
	}
}

// Each shard has checksums of its bytes as they are written, not of the original tensors. Files
// without checksums can still be read.
func TestChecksumsOfShards(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	in := map[string]*tensor.Tensor{}
	for _, name := range []string{"a", "b", "c"} {
		in[name] = tensor.Root().Rand(100)
	}
	if err := safetensors.Save(path, in, nil, safetensors.Checksums(), safetensors.MaxShard(250), safetensors.Cast(dtype.BF16)); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(path + ".index.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Verify(); n != 3 || err != nil || len(f.Metadata()) != 0 {
		t.Errorf("%d, %v, %v", n, err, f.Metadata())
	}
	shard := filepath.Join(dir, "m-00002-of-00003.safetensors")
	b, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(shard, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var e *safetensors.Error
	if _, _, err := safetensors.Load(path + ".index.json"); !errors.As(err, &e) || e.Tensor != "b" || e.Path != shard || !errors.Is(err, safetensors.ErrChecksum) {
		t.Error(err)
	}
	plain := filepath.Join(dir, "plain.safetensors")
	if err := safetensors.Save(plain, in, nil); err != nil {
		t.Fatal(err)
	}
	g, err := safetensors.Open(plain)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if n, err := g.Verify(); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := safetensors.Save(plain, in, map[string]string{"flambeau.crc32c.file": "0"}); err == nil || !strings.Contains(err.Error(), "Checksums writes") {
		t.Error(err)
	}
}
