package safetensors

import (
	"bytes"
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
	// A failed save leaves the old file unchanged, and leaves no other file.
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

// damaged maps a part of each expected error to the invalid file that causes the error.
var damaged = map[string][]byte{
	"too short":                            {1, 2, 3},
	"the header claims":                    binary.LittleEndian.AppendUint64(nil, 1<<62),
	"not valid JSON":                       file("{", 0),
	"there is more behind its end":         file("{} {}", 0),
	"it is not UTF-8":                      file("{\"\xff\":1}", 0),
	"the header is no {":                   file("[]", 0),
	"no string":                            file(`{"__metadata__":{"a":1}}`, 0),
	"this is a zip file":                   []byte("PK\x03\x04\xff\xff\xff\xff and more"),
	"far more":                             file(`{"a":{"dtype":"F32","shape":[1048576,1048576,1048576],"data_offsets":[0,4]}}`, 4),
	"shape [0 4611686018427387904 4] has":  file(`{"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}}`, 0),
	"too many elements":                    file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}`, 4),
	"shape [2] of F32 needs 8":             file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4),
	"shape [1] of F4 needs a part of a":    file(`{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}`, 1),
	"its data end at 12, the file's at 8":  file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}`, 8),
	"before they begin at 8":               file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}}`, 8),
	"there is a hole":                      file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3),
	"begin at 4, and those before":         file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
	"overlap those of another":             file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
	"2 bytes behind the last tensor":       file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 4),
	"the key \"a\" appears twice":          file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
	"the key \"dtype\" appears twice":      file(`{"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1),
	"the key \"DType\", which the format":  file(`{"a":{"DType":"U8","shape":[1],"data_offsets":[0,1]}}`, 1),
	"it lacks a dtype":                     file(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1),
	"holds -1, which is no size":           file(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1),
	"holds 1.5, which is no size":          file(`{"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}}`, 1),
	"more than 2 numbers":                  file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1),
	"tensors of type F8_E4M3 are not supp": file(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}}`, 1),
	"unknown type \"F3\"":                  file(`{"a":{"dtype":"F3","shape":[1],"data_offsets":[0,1]}}`, 1),
	"9 dimensions":                         file(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1),
	"more than 1000 numbers":               file(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 1000)+`1],"data_offsets":[0,1]}}`, 1),
}

func TestDamagedFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for want, data := range damaged {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(path)
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "safetensors: "+path+": ") {
			t.Errorf("%s: got %v", want, err)
		}
	}
	// Tensors of types that cannot be read are listed, and other tensors are read.
	if err := os.WriteFile(path, file(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	infos := f.Infos()
	if len(infos) != 2 || infos[0].DType != "F8_E4M3" || infos[0].Type != dtype.Invalid || infos[1].Type != dtype.U8 || infos[1].Path != path {
		t.Errorf("%+v", infos)
	}
	if _, err := f.Tensor("a"); err == nil {
		t.Error("a type that is not supported was read")
	}
	if x, err := f.Tensor("b"); err != nil || x.Item() != 0 {
		t.Errorf("%v, %v", x, err)
	}
	if _, err := f.Tensor("c"); err == nil || !strings.Contains(err.Error(), "no tensor of that name") {
		t.Errorf("%v", err)
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

func FuzzSafetensors(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8))
	for _, data := range damaged {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		infos, _, err := header("x", bytes.NewReader(data), int64(len(data)))
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		sum := int64(0)
		for _, i := range infos {
			sum += i.Bytes
			if i.offset < 8 || i.offset+i.Bytes > int64(len(data)) {
				t.Fatalf("%+v in %d bytes", i, len(data))
			}
			if i.readable() == nil {
				x, err := i.read(bytes.NewReader(data))
				if err != nil {
					t.Fatal(err)
				}
				if x.Type() != dtype.Bool && !bytes.Equal(x.Bytes(), data[i.offset:i.offset+i.Bytes]) {
					t.Fatalf("%+v: other bytes", i)
				}
			}
		}
		if n := int64(binary.LittleEndian.Uint64(data)); 8+n+sum != int64(len(data)) {
			t.Fatalf("%d bytes of tensors", sum)
		}
	})
}
