package filemap

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func mapped(t *testing.T, data []byte) (*Map, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := Open(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, path
}

func TestCopyOnWrite(t *testing.T) {
	data := bytes.Repeat([]byte("flambeau"), 10_000)
	m, path := mapped(t, data)
	b := m.Bytes()
	if !bytes.Equal(b, data) {
		t.Fatal("other bytes")
	}
	clear(b[100:60_000])
	if onDisk, err := os.ReadFile(path); err != nil || !bytes.Equal(onDisk, data) {
		t.Fatalf("the file was written to: %v", err)
	}
	m.Drop(b[100:60_000])
	page := os.Getpagesize()
	if runtime.GOOS == "linux" { // drop works on whole pages within the given bytes
		if lo, hi := page, 60_000/page*page; b[100] != 0 || !bytes.Equal(b[lo:hi], data[lo:hi]) || hi < 60_000 && b[hi] != 0 {
			t.Error("Drop took other pages than those inside")
		}
	}
	m.Drop(b[:10])
	m.Drop(make([]byte, 1<<20)) // these bytes are not part of the map
	m.Close()
	m.Close()
}

func TestWhatCannotBeMapped(t *testing.T) {
	if m, _ := mapped(t, nil); len(m.Bytes()) != 0 {
		t.Error("the empty file")
	}
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := Open(d); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a directory: %v", err)
	}
}

// TestMapsAreCollected maps more files than a process may have mapped at the same time, and closes
// none. The garbage collector must unmap them.
func TestMapsAreCollected(t *testing.T) {
	_, path := mapped(t, make([]byte, 1<<20))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range 3000 {
		if _, err := Open(f); err != nil {
			t.Fatal(err)
		}
		if i%500 == 0 {
			runtime.GC()
		}
	}
}
