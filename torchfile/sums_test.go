package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// flipped writes a copy of a file in which one bit of an entry's contents is flipped.
func flipped(t *testing.T, path, entry string, at int) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := zipfile.Entries(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(e zipfile.Entry) bool { return e.Name == entry })
	if i < 0 {
		t.Fatalf("there is no %s", entry)
	}
	b[list[i].From+int64(at)] ^= 1
	bad := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(bad, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return bad
}

// The test flips a bit in the pickle, in a short entry, or in a tensor's values. If Load reads that
// bit, its error names the entry. Load reads the values of a mapped file only with Checked.
func TestFlippedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	if err := Save(path, map[string]any{"a": tensor.From([]float32{1, 2, 3}), "b": tensor.From([]int64{4}), "bool": tensor.From([]bool{true, false}), "text": "word"}); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]Option{nil, {Mapped(), Checked()}, {Mapped()}} {
		if _, err := Load(path, opts...); err != nil {
			t.Fatal(err)
		}
		for _, r := range []struct {
			entry string
			at    int
		}{{"m/data.pkl", 20}, {"m/byteorder", 0}, {"m/data/0", 5}, {"m/data/1", 7}, {"m/data/2", 1}} {
			_, err := Load(flipped(t, path, r.entry, r.at), opts...)
			var e *Error
			// Bools other than 0 and 1 become 1, so this storage is copied even from a mapped file.
			if lazy := len(opts) == 1 && filepath.Dir(r.entry) == "m/data" && r.entry != "m/data/2"; lazy {
				if err != nil {
					t.Errorf("%s, mapped: it was read: %v", r.entry, err)
				}
				continue
			} else if len(opts) == 1 && r.entry == "m/data/2" {
				continue
			}
			if !errors.As(err, &e) || e.Entry != r.entry || !errors.Is(err, zip.ErrChecksum) {
				t.Errorf("%s: %v", r.entry, err)
			}
		}
	}
}

// A file without checksums can be read. PyTorch writes such a file after set_crc32_options(False).
func TestNoChecksums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	if err := Save(path, map[string]any{"a": tensor.From([]float32{1, 2, 3})}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []struct {
		mark string
		at   int
	}{{"PK\x03\x04", 14}, {"PK\x01\x02", 16}} {
		for i := 0; ; {
			k := bytes.Index(b[i:], []byte(sig.mark))
			if k < 0 {
				break
			}
			i += k
			clear(b[i+sig.at : i+sig.at+4])
			i += 4
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]Option{nil, {Mapped(), Checked()}} {
		if _, err := Load(path, opts...); err != nil {
			t.Error(err)
		}
	}
}
