package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func count(n int, dims ...int) *tensor.Tensor { return tensor.Root().Arange(n).Reshape(dims...) }

func equal(t *testing.T, name string, got, want *tensor.Tensor) {
	t.Helper()
	if got == nil || got.Type() != want.Type() || got.Shape() != want.Shape() || !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%s: %v, want %v", name, got, want)
	}
}

// Files that NumPy wrote can be loaded. The script _golden/files.py has written them.
func TestLoadWhatNumPyWrote(t *testing.T) {
	pattern := tensor.From([]float64{0, 4, 1, 5, 2, 6}, 2, 3)
	for _, name := range []string{"arrays", "compressed"} {
		for _, opts := range [][]Option{nil, {Mapped()}} {
			path := "testdata/" + name + ".npz"
			all, err := LoadArchive(path, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 13 {
				t.Errorf("%d arrays", len(all))
			}
			for ty := range codes {
				name := ty.String()
				equal(t, name, all[name], pattern.Cast(ty))
			}
			equal(t, "fortran", all["fortran"], count(24, 2, 3, 4).Double())
			if s := all["fortran"].Strides().Slice(); !slices.Equal(s, []int{1, 2, 6}) {
				t.Errorf("fortran: strides %v", s)
			}
			equal(t, "big", all["big"], count(4, 4).Cast(dtype.I32))
			equal(t, "scalar", all["scalar"], tensor.From(float32(2.5)))
			equal(t, "empty", all["empty"], tensor.Zeros(0, 3))
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all["float32"].Fill(1)
			if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
				t.Error("the file was written to")
			}
		}
	}
	for _, name := range []string{"version1", "version2", "version3"} {
		for _, opts := range [][]Option{nil, {Mapped()}} {
			x, err := Load("testdata/"+name+".npy", opts...)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, name, x, count(24, 2, 3, 4).Double())
		}
	}
}

func TestRefusedByName(t *testing.T) {
	for name, want := range map[string]string{
		"structured": "a structured array: only arrays of one type are supported", "complex": `type "<c8": complex numbers`, "object": "Python objects, which are not read",
		"text": `"<U2": text`, "uint32": "unsigned integers wider than a byte",
	} {
		path := "testdata/" + name + ".npy"
		_, err := Load(path)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, want) || e.Offset < 10 || !strings.HasPrefix(err.Error(), "npy: "+path+": at byte ") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Arrays can be saved and loaded. If FLAMBEAU_EXCHANGE names a folder, the test writes the files
// there for NumPy to read.
func TestSave(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_EXCHANGE")
	if dir == "" {
		dir = t.TempDir()
	}
	in := map[string]*tensor.Tensor{"scalar": tensor.From(2.5), "empty": tensor.Zeros(0, 4), "vector": tensor.From([]float32{1, 2}),
		"strided": count(6, 2, 3).T(), "layer/weight": tensor.Ones(2, 2), "ä": tensor.Ones(1)}
	for ty := range codes {
		in[ty.String()] = count(6, 2, 3).Cast(ty)
	}
	path := filepath.Join(dir, "ours.npz")
	if err := SaveArchive(path, in); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]Option{nil, {Mapped()}} {
		all, err := LoadArchive(path, opts...)
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range in {
			equal(t, name, all[name], x)
		}
	}
	path = filepath.Join(dir, "ours.npy")
	x := count(6, 2, 3).Float()
	if err := Save(path, x); err != nil {
		t.Fatal(err)
	}
	y, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "npy", y, x)
}

func TestSaveOptions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.npz")
	half := tensor.Ones(3).BFloat16()
	for _, in := range []map[string]*tensor.Tensor{{"a": half}, {"../a": tensor.Ones(1)}, {"a": nil}} {
		var e *Error
		if err := SaveArchive(path, in); !errors.As(err, &e) {
			t.Errorf("%v: %v", in, err)
		}
	}
	freed := tensor.Ones(1)
	freed.Free()
	if err := SaveArchive(path, map[string]*tensor.Tensor{"a": freed}); err == nil {
		t.Error("a freed tensor was saved")
	}
	if err := SaveArchive(path, nil, Cast(dtype.BF16)); err == nil {
		t.Error("Cast to bfloat16")
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("left: %v", files)
	}
	if err := SaveArchive(path, map[string]*tensor.Tensor{"a": half, "b": half, "n": tensor.From([]int16{3})}, Cast(dtype.F32), Consume()); err != nil {
		t.Fatal(err)
	}
	if err := tensor.Try(func() { half.Item() }); !errors.Is(err, tensor.ErrFreed) {
		t.Errorf("not consumed: %v", err)
	}
	all, err := LoadArchive(path)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "a", all["a"], tensor.Ones(3))
	equal(t, "n", all["n"], tensor.From([]int16{3}))
}

func npy(header string, data ...byte) []byte {
	b := append([]byte(magic), 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	return append(append(b, header...), data...)
}

func packed(t testing.TB, method uint16, name string, contents []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func damaged(t testing.TB) map[string][]byte {
	ok := "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
	lying := packed(t, zip.Deflate, "a.npy", npy(ok, make([]byte, 8)...))
	at := bytes.LastIndex(lying, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(lying[at+24:], 1<<31)
	claims := packed(t, zip.Deflate, "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (30000000,), }", make([]byte, 8)...))
	at = bytes.LastIndex(claims, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(claims[at+24:], uint32(74+120_000_000))
	broken := packed(t, zip.Deflate, "a.npy", npy(ok, make([]byte, 8)...))
	broken[bytes.LastIndex(broken, []byte("PK\x01\x02"))+16] ^= 1
	return map[string][]byte{
		"does not begin with NumPy's mark": []byte("hello"),
		"LoadArchive reads it":             []byte("PK\x03\x04...."),
		"version 4.0 of the format":        []byte(magic + "\x04\x00\x00\x00\x00\x00"),
		"ends in its header":               []byte(magic + "\x01\x00\x00"),
		"the header claims 65535 bytes":    []byte(magic + "\x01\x00\xff\xff{}"),
		"claims 4294967295 bytes":          []byte(magic + "\x02\x00\xff\xff\xff\xff{}"),
		"the header is no dict":            npy("[]"),
		"no dict with names":               npy("{1: 2}"),
		"lacks descr":                      npy("{}"),
		"twice":                            npy("{'descr': '<f4', 'descr': '<f4'}"),
		"which the format does not know":   npy("{'order': 1}"),
		"neither True nor False":           npy("{'fortran_order': 1}"),
		"a comma is missing":               npy("{'descr': '<f4' 'shape': ()}"),
		"more behind the header's dict":    npy(ok + ";import os"),
		"elements of an unknown type":      npy("{'descr': 'x'}"),
		"type \"|f4\"":                     npy("{'descr': '|f4'}"),
		"shape is no tuple":                npy("{'shape': (2)}"),
		"shape is no tuple ":               npy("{'shape': 2}"),
		"no size":                          npy("{'shape': (-1,)}"),
		"no size ":                         npy("{'shape': (99999999999999999999,)}"),
		"more than 8 dimensions":           npy("{'shape': (1,1,1,1,1,1,1,1,1)}"),
		"needs 8 bytes, 4 are left":        npy(ok, 1, 2, 3, 4),
		"9 bytes of elements, shape [2]":   npy(ok, make([]byte, 9)...),
		"too many elements":                npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"),
		"too many elements ":               npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 0), }"),
		"its name does not end in .npy":    packed(t, zip.Store, "a.txt", nil),
		"far more than the file":           lying,
		"bytes cannot be the":              claims,
		"check sum":                        broken,
	}
}

func loadAny(data []byte) error {
	f := &file{path: "x", r: bytes.NewReader(data), size: int64(len(data))}
	if len(data) > 40 && data[0] == 'P' {
		_, err := f.archive()
		return err
	}
	_, err := f.array("", 0, f.size)
	return err
}

// Damaged files, and files that claim large sizes, cause an error before memory is allocated.
func TestDamagedFiles(t *testing.T) {
	for want, data := range damaged(t) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := loadAny(data)
		runtime.ReadMemStats(&after)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes of memory", want, n)
		}
	}
	// An archive that expands too much is an error, unless MaxBytes allows it.
	path := filepath.Join(t.TempDir(), "bomb.npz")
	zeros := npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1048576,), }", make([]byte, 1<<20)...)
	if err := os.WriteFile(path, packed(t, zip.Deflate, "a.npy", zeros), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadArchive(path, MaxBytes(1<<20)); err == nil || !strings.Contains(err.Error(), "MaxBytes allows more") {
		t.Error(err)
	}
	if all, err := LoadArchive(path, MaxBytes(2<<20)); err != nil || all["a"].Size() != 1<<20 {
		t.Error(err)
	}
	if _, err := Load(path + "no"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Error(err)
	}
}

func FuzzNPY(f *testing.F) {
	for _, data := range damaged(f) {
		f.Add(data)
	}
	files, err := filepath.Glob("testdata/*.np[yz]")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e *Error
		if err := loadAny(data); err != nil && !errors.As(err, &e) {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

// The checksum of an uncompressed array is verified too.
func TestCheckSums(t *testing.T) {
	data := packed(t, zip.Store, "a.npy", npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", 41, 42, 43))
	data[bytes.Index(data, []byte{41, 42, 43})+1] ^= 4
	path := filepath.Join(t.TempDir(), "x.npz")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadArchive(path); !errors.Is(err, zip.ErrChecksum) {
		t.Errorf("%v", err)
	}
}

// If a bit of an archive is flipped, the error names the array. This holds for a file that is
// read, and for a file that is mapped with Checked.
func TestFlippedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.npz")
	if err := SaveArchive(path, map[string]*tensor.Tensor{"a": tensor.Ones(4), "b": tensor.Zeros(3)}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(b, []byte("\x93NUMPY")) + 128 + 5 // a byte of the elements of array b
	b[at] ^= 1
	bad := filepath.Join(t.TempDir(), "m.npz")
	if err := os.WriteFile(bad, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]Option{nil, {Mapped(), Checked()}} {
		if _, err := LoadArchive(path, opts...); err != nil {
			t.Fatal(err)
		}
		var e *Error
		if _, err := LoadArchive(bad, opts...); !errors.As(err, &e) || e.Entry != "b.npy" || !errors.Is(err, zip.ErrChecksum) {
			t.Error(err)
		}
	}
}
