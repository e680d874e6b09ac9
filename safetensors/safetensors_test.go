package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	in := map[string]*tensor.Tensor{}
	for _, ty := range dtype.Types() {
		in[ty.String()] = tensor.From([]float64{0, 1, 2, 3, 4, 5}, 2, 3).Cast(ty)
	}
	in["scalar"] = tensor.From(float32(7))
	in["empty"] = tensor.Zeros(0, 4)
	in["strided"] = tensor.From([][]int64{{1, 2}, {3, 4}}).T()
	if err := Save(path, in, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	out, meta, err := Load(path)
	if err != nil || meta["format"] != "pt" || len(out) != len(in) {
		t.Fatalf("%v %v %d tensors", err, meta, len(out))
	}
	for k, x := range in {
		if y := out[k]; y.Type() != x.Type() || y.Shape() != x.Shape() || fmt.Sprint(y.Floats()) != fmt.Sprint(x.Floats()) {
			t.Errorf("%s: %v became %v", k, x, y)
		}
	}
	// A failing save leaves the old file and no other.
	freed := tensor.Ones(2)
	freed.Free()
	if err := Save(path, map[string]*tensor.Tensor{"x": freed}, nil); err == nil {
		t.Fatal("a freed tensor cannot be saved")
	}
	if _, _, err := Load(path); err != nil {
		t.Fatalf("the old file is damaged: %v", err)
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Fatalf("%d files are left", len(files))
	}
	if err := Save(filepath.Join(t.TempDir(), "no", "such", "dir"), in, nil); err == nil {
		t.Fatal("no such directory")
	}
}

func file(header string, body int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, body)...)
}

func TestDamagedFiles(t *testing.T) {
	for want, data := range map[string][]byte{
		"too short":              {1, 2, 3},
		"the header claims":      binary.LittleEndian.AppendUint64(nil, 1<<62),
		"not valid JSON":         file("{", 0),
		"unknown type":           file(`{"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}}`, 1),
		"does not fit the file":  file(`{"a":{"dtype":"F32","shape":[1048576,1048576,1048576],"data_offsets":[0,4]}}`, 4),
		"shape [2] needs 8":      file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 8),
		"at [4 12]":              file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 8),
		"9 dimensions":           file(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1),
		"does not fit the file ": file(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1),
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Load(path); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestNamesThatCannotBeSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for _, m := range []map[string]*tensor.Tensor{{"a": nil}, {metadataKey: tensor.Ones(1)}} {
		var e *Error
		if err := Save(path, m, nil); !errors.As(err, &e) {
			t.Errorf("%v: got %v", m, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("nothing may be written")
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, _ = Load(path) // any answer but a panic
	})
}
