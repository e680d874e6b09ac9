package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// archive returns a zip archive. files alternates between names and contents. method is Store or
// Deflate.
func archive(t testing.TB, method uint16, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.CreateHeader(&zip.FileHeader{Name: files[i], Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func pt(t testing.TB, pickle string) []byte {
	return archive(t, zip.Store, "m/data.pkl", "\x80\x02"+pickle, "m/byteorder", "little", "m/data/0", "01234567")
}

// str, num and storage return parts of pickles.
func str(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func num(v int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

func storage(class, key string, n int64) string {
	return "(" + str("storage") + "ctorch\n" + class + "\n" + str(key) + str("cpu") + num(n) + "tQ"
}

func view(storage string, offset int64, sizes, strides string) string {
	return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + num(offset) + "(" + sizes + "t(" + strides + "t\x89}tR"
}

// marked returns a pickled tensor with metadata.
func marked(items string) string {
	return strings.Replace(view(storage("FloatStorage", "0", 2), 0, num(2), num(1)), "\x89}tR", "\x89}}("+items+"utR.", 1)
}

// hostile returns files that need too much memory or use unsupported features. The key of each file
// is part of the expected error.
func hostile(t testing.TB) map[string][]byte {
	// Each of these memo entries contains the previous entry ten times.
	bomb := "]q\x000"
	for i := range 60 {
		bomb += "](" + strings.Repeat("h"+string(byte(i)), 10) + "eq" + string(byte(i+1)) + "0"
	}
	dicts := strings.Repeat("}0", 3<<20)
	wide := "(" // a tuple as a key, whose text is near the limit
	for i := range 40 {
		wide += str(fmt.Sprintf("%02d", i) + strings.Repeat("a", 80))
	}
	wide += "t"
	overlap := bytes.Replace(archive(t, zip.Store, "m/data.pkl", "\x80\x02N.", "m/data/0", strings.Repeat("a", 100), "m/data/1", strings.Repeat("b", 100)),
		[]byte("aaaa"), []byte("aaaa"), 1)
	// This is the entry for data/1 in the archive's directory.
	at := bytes.LastIndex(overlap, []byte("PK\x01\x02"))
	copy(overlap[at+42:], overlap[bytes.LastIndex(overlap[:at], []byte("PK\x01\x02"))+42:][:4])
	lying := pt(t, view(storage("FloatStorage", "0", 2), 0, num(2), num(1))+".")
	at = bytes.LastIndex(lying, []byte("PK\x01\x02"))
	binary.LittleEndian.PutUint32(lying[at+20:], 1<<31)
	binary.LittleEndian.PutUint32(lying[at+24:], 1<<31)
	legacy := "\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}(" + str("little_endian") + "\x88u."
	return map[string][]byte{
		"os.system is not a tensor, a number, a string or a container; nothing of the file was run": pt(t, "cos\nsystem\n"+str("touch hacked")+"\x85R."),
		"posix.system is not a tensor":       pt(t, "\x8c\x05posix\x8c\x06system\x93"+str("touch hacked")+"\x85R."),
		"builtins.eval is not a tensor":      pt(t, "c__builtin__\neval\n"+str("1")+"\x85R."),
		"makes an object of a class":         pt(t, "(ios\nsystem\n."),
		"builtins.getattr is not":            []byte("\x80\x02cbuiltins\ngetattr\n."),
		"torch.Tensor is called":             pt(t, "ctorch\nTensor\n)R."),
		"a call of a string":                 pt(t, str("os.system")+")R."),
		"attributes are set on a list":       pt(t, "]}b."),
		"values on the stack":                pt(t, strings.Repeat("N", 1e6)+strings.Repeat("a", 1e6-1)+"."),
		"makes far more than it":             pt(t, "]("+strings.Repeat("]", 200_000)+"e("+strings.Repeat("]", 190_000)+"e."),
		"makes far more than it con":         pt(t, "]("+strings.Repeat("N\x85", 200_000)+"e("+strings.Repeat("N\x85", 190_000)+"e."),
		"makes far more":                     pt(t, wide+"q\x010}"+strings.Repeat("h\x01Ns", 8000)+"."),
		"marks in marks":                     pt(t, strings.Repeat("(", 1e6)+strings.Repeat("t", 1e6)+"."),
		"more than 1000 deep":                pt(t, strings.Repeat("]", 1e5)+strings.Repeat("a", 1e5-1)+"."),
		"contains itself":                    pt(t, "]q\x00h\x00a."),
		"makes far more than it contains":    pt(t, dicts+"N."),
		"what is repeated in it makes":       pt(t, bomb+"h\x3c."),
		"repeated in it makes a tree of":     pt(t, str(strings.Repeat("a", 1<<16))+"q\x000]("+strings.Repeat("h\x00", 1<<16)+"e."),
		"v2 of itself":                       pt(t, "ctorch._tensor\n_rebuild_from_type_v2\nq\x000Nq\x01"+strings.Repeat("0(h\x00Nh\x01Ntq\x01", 1<<16)+"0h\x00h\x01R."),
		"is a tuple of more than 4096 bytes": pt(t, "}"+str(strings.Repeat("\x01", 5000))+"\x85Ns."),
		"OrderedDict of 0 values":            pt(t, "ccollections\nOrderedDict\n]("+")e\x85R."),
		"of 4 values in the place of":        pt(t, "ccollections\nOrderedDict\n]("+"(NNNNte\x85R."),
		"to be negated":                      pt(t, marked(str("neg")+"\x88")),
		`with the property "sign"`:           pt(t, marked(str("sign")+"K\x01")),
		"a list for its metadata":            pt(t, strings.Replace(marked(""), "}(u", "]", 1)),
		`os\x1b[2J.system is not`:            pt(t, "cos\x1b[2J\nsystem\n."),
		"Save vars(args) instead of args":    pt(t, "cargparse\nNamespace\n."),
		"and saved again without it":         pt(t, "c__main__\nNet\n."),
		"nothing of the file was run. Save":  pt(t, "cenum\nEnum\n."),
		"bytes are announced":                pt(t, "\x8d"+strings.Repeat("\xff", 7)+"\x3f"+"a."),
		"bytes are announced, ":              pt(t, "B\xff\xff\xff\xffa."),
		"bytes are announced, 1 ":            pt(t, "\x8b\xff\xff\xff\x7f."),
		"an integer of 250 bytes":            pt(t, "\x8a\xfa"+strings.Repeat("\x7f", 250)+"."),
		"a negative number of bytes":         pt(t, "\x8b\xff\xff\xff\xff."),
		"place 1000 of the memo is empty":    pt(t, "j\xe8\x03\x00\x00."),
		"takes from an empty stack":          pt(t, "a."),
		"takes 3 values from a stack of 1":   pt(t, "N\x87."),
		"a mark that is not there":           pt(t, "t."),
		"ends without an end mark":           pt(t, "N"),
		"2 values are left":                  pt(t, "NNN."),
		"0xff is no instruction":             pt(t, "\xff."),
		"a key of a dict is a list":          pt(t, "}]Ns."),
		"a key of a dict is a tuple of":      pt(t, "}]\x85Ns."),
		"a key of a dict has no value":       pt(t, "}(Nu."),
		"not UTF-8":                          pt(t, "U\x01\xff."),
		"protocol 0 of pickle":               archive(t, zip.Store, "m/data.pkl", "\x80\x00N."),
		"of pickle's text protocol":          pt(t, "I1\n."),
		"no value":                           pt(t, "ctorch\nFloatStorage\n."),
		"is larger than the file":            pt(t, view(storage("FloatStorage", "0", 1<<62), 0, num(1), num(1))+"."),
		"the tensors on it say 16":           pt(t, view(storage("FloatStorage", "0", 4), 0, num(1), num(1))+"."),
		"the tensors on it say 4":            pt(t, view(storage("FloatStorage", "0", 1), 0, num(1), num(1))+"."),
		`storage "1" is not in the file`:     pt(t, view(storage("FloatStorage", "1", 2), 0, num(1), num(1))+"."),
		`storage "../0" is not in the file`:  pt(t, view(storage("FloatStorage", "../0", 2), 0, num(1), num(1))+"."),
		"is described in two ways":           pt(t, "]"+view(storage("FloatStorage", "0", 2), 0, num(1), num(1))+"a"+view(storage("IntStorage", "0", 2), 0, num(1), num(1))+"a."),
		"of class os.FloatStorage":           nil,
		"a tensor with the offset -1":        pt(t, view(storage("FloatStorage", "0", 2), -1, num(1), num(1))+"."),
		"offset 2 does not lie in its":       pt(t, view(storage("FloatStorage", "0", 2), 2, num(1), num(1))+"."),
		"shape [3], strides [1], offset 0":   pt(t, view(storage("FloatStorage", "0", 2), 0, num(3), num(1))+"."),
		"strides [2], offset 0 does not lie": pt(t, view(storage("FloatStorage", "0", 2), 0, num(2), num(2))+"."),
		"a tensor with size -1":              pt(t, view(storage("FloatStorage", "0", 2), 0, num(-1), num(1))+"."),
		"and stride -1":                      pt(t, view(storage("FloatStorage", "0", 2), 1, num(2), num(-1))+"."),
		"far larger than the file":           pt(t, view(storage("FloatStorage", "0", 2), 0, num(1<<40), num(0))+"."),
		"in dimension 1 is far larger":       pt(t, view(storage("FloatStorage", "0", 2), 0, num(1<<20)+num(1<<50), num(0)+num(0))+"."),
		"size 4611686018427387904":           pt(t, view(storage("FloatStorage", "0", 2), 0, num(1<<62), num(1<<62))+"."),
		"which is too many elements":         pt(t, view(storage("FloatStorage", "0", 2), 0, num(0)+num(1<<50)+num(1<<50), num(1)+num(1)+num(1))+"."),
		"9 dimensions":                       pt(t, view(storage("FloatStorage", "0", 2), 0, strings.Repeat(num(1), 9), strings.Repeat(num(1), 9))+"."),
		"2 sizes and 1 strides":              pt(t, view(storage("FloatStorage", "0", 2), 0, num(1)+num(1), num(1))+"."),
		"a whole module was saved":           pt(t, "("+str("module")+"NtQ."),
		"no storage of a tensor":             pt(t, "("+str("x")+"NtQ."),
		"a storage that is wrongly":          pt(t, "("+str("storage")+"NNNNtQ."),
		"a tensor with 1 arguments":          pt(t, "ctorch._utils\n_rebuild_tensor_v2\n(NtR."),
		"it is compressed":                   archive(t, zip.Deflate, "m/data.pkl", strings.Repeat("N", 1<<20)),
		"it is compressed, which":            archive(t, zip.Deflate, "m/data.pkl", "N.", "m/data/0", strings.Repeat("\x00", 1<<24)),
		"it overlaps":                        overlap,
		"do not lie in the file":             lying,
		"the archive has two files":          archive(t, zip.Store, "m/data.pkl", "N.", "m/data.pkl", "N."),
		"has no data.pkl":                    archive(t, zip.Store, "a", "b"),
		"are big-endian":                     archive(t, zip.Store, "m/data.pkl", "N.", "m/byteorder", "big"),
		"where a word is expected":           archive(t, zip.Store, "m/data.pkl", "N.", "m/byteorder", strings.Repeat("b", 1000)),
		"no whole zip archive":               []byte("PK\x03\x04 and nothing"),
		"too short":                          []byte("PK"),
		"neither a zip archive nor a pickle": []byte("hello, world"),
		"compressed by gzip":                 []byte("\x1f\x8b\x08\x00 and more"),
		"a safetensors file":                 append(binary.LittleEndian.AppendUint64(nil, 2), "{} "...),
		"a tar archive":                      append(append(make([]byte, 257), "ustar"...), make([]byte, 500)...),
		"not one that PyTorch wrote":         []byte("\x80\x02]."),
		"version the value 7":                []byte(strings.Replace(legacy, "M\xe9\x03", "M\x07\x00", 1)),
		"big-endian, only":                   []byte(strings.Replace(legacy, "\x88u.", "\x89u.", 1)),
		"there is no list of storages":       []byte(legacy + "\x80\x02N.\x80\x02N."),
		"the file ends before storage":       []byte(legacy + "\x80\x02" + view(storage("FloatStorage", "0", 2), 0, num(1), num(1)) + ".\x80\x02](" + str("0") + "e.a"),
		"does not lie in the file":           []byte(legacy + "\x80\x02" + view(storage("FloatStorage", "0", 2), 0, num(1), num(1)) + ".\x80\x02](" + str("0") + "e." + strings.Repeat("\x3f", 8)),
		"which no tensor uses":               []byte(legacy + "\x80\x02N.\x80\x02](" + str("0") + "e."),
		"is a view of another storage":       []byte(legacy + "\x80\x02(" + str("storage") + "ctorch\nFloatStorage\n" + str("0") + str("cpu") + num(1) + str("v") + "tQ."),
	}
}

// A malicious file causes an error that says what the file would do. Load runs nothing, and uses
// less than 64 MiB of memory.
func TestHostileFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	path := filepath.Join(dir, "x.pt")
	for want, data := range hostile(t) {
		if data == nil {
			continue
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]Option{nil, {Mapped()}} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			v, err := Load(path, opts...)
			runtime.ReadMemStats(&after)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(e.Msg, strings.TrimSpace(want)) {
				t.Errorf("want %q: %v, %v", want, v, err)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("%s: %d MiB of memory", want, n>>20)
			}
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("files were made: %v", files)
	}
}

// The largest allowed tree of a file below 1 MiB takes less than 64 MiB.
func TestLargestTrees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	for _, one := range []string{"]", "}", "\x8f", "N\x85", "K\x01\x85", "](K\x01e", "}(K\x01Nu", "\x8c\x01a\x85"} {
		load := func(n int) (int, error) {
			pickle := "]"
			for ; n > 0; n -= 50_000 {
				pickle += "(" + strings.Repeat(one, min(n, 50_000)) + "e"
			}
			if err := os.WriteFile(path, pt(t, pickle+"."), 0o600); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Load(path)
			runtime.ReadMemStats(&after)
			return int(after.TotalAlloc-before.TotalAlloc) >> 20, err
		}
		for _, n := range []int{50_000, 140_000, 200_000} {
			if n*len(one) > 1<<20 {
				break
			}
			m, err := load(n)
			if m >= 64 {
				t.Errorf("%q, %d of them: %d MiB, %v", one, n, m, err)
			}
			if n == 50_000 && err != nil {
				t.Errorf("%q: only less than %d of them are read: %v", one, n, err)
			}
		}
	}
}

// An error names the file, the entry of the archive and the offset.
func TestErrorsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := os.WriteFile(path, pt(t, "NNN0cos\nsystem\n."), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	want := "torchfile: " + path + ": m/data.pkl at byte 6: os.system is not a tensor, a number, a string or a container; nothing of the file was run"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	_, err = Load(path + "no")
	if !errors.Is(err, os.ErrNotExist) || err.Error() != "torchfile: "+path+"no: "+errors.Unwrap(errors.Unwrap(err)).Error() {
		t.Errorf("%v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.HasSuffix(err.Error(), "this is not a file") {
		t.Errorf("%v", err)
	}
}

func FuzzTorchfile(f *testing.F) {
	for _, data := range hostile(f) {
		if len(data) < 1<<12 {
			f.Add(data)
		}
	}
	files, err := filepath.Glob("testdata/*.pt")
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
		read := func(data []byte, o options) (any, error) {
			return (&file{path: "x.pt", r: bytes.NewReader(data), size: int64(len(data))}).tree(o)
		}
		v, err := read(data, options{exact: true})
		var e *Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if _, err := read(data, options{}); err != nil {
			t.Fatalf("without Exact: %v", err)
		}
		// Every tree that can be read can be written and read again.
		s, err := newSaver("y.pt", v, nil)
		if err != nil {
			t.Fatalf("saving %v: %v", v, err)
		}
		var out memoryFile
		if err := s.write(&out); err != nil {
			t.Fatalf("saving %v: %v", v, err)
		}
		w, err := read(out, options{exact: true})
		if err != nil {
			t.Fatalf("reading what was saved: %v", err)
		}
		if a, b := outline(v), outline(w); a != b {
			t.Fatalf("%s\nbecame\n%s", a, b)
		}
	})
}

type memoryFile []byte

func (m *memoryFile) Write(b []byte) (int, error) {
	*m = append(*m, b...)
	return len(b), nil
}

func (m memoryFile) WriteAt(b []byte, at int64) (int, error) { return copy(m[at:], b), nil }

// outline formats a tree as text.
func outline(v any) string { return fmt.Sprintf("%.4000s", outlineTo(v, 0)) }
