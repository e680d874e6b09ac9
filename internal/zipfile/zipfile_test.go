package zipfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

type memory []byte

func (m *memory) Write(b []byte) (int, error) {
	*m = append(*m, b...)
	return len(b), nil
}

func (m memory) WriteAt(b []byte, at int64) (int, error) { return copy(m[at:], b), nil }

// TestWriter writes archives with Writer and reads them with the standard library. The contents of
// entries must be aligned. One archive has more entries than the format without Zip64 can count.
func TestWriter(t *testing.T) {
	const n = 70_000
	var m memory
	w := NewWriter(&m)
	for i := range n {
		w.Add(fmt.Sprint("d/", i), []byte(fmt.Sprint(i)))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := Entries(bytes.NewReader(m), int64(len(m)))
	if err != nil || len(list) != n {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for i, e := range list {
		if e.Name != fmt.Sprint("d/", i) || e.From%64 != 0 || string(m[e.From:e.From+e.Stored]) != fmt.Sprint(i) {
			t.Fatalf("entry %d: %s at %d, %d bytes", i, e.Name, e.From, e.Stored)
		}
	}
	r, err := list[n-1].Open() // reading to the end verifies the checksum
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != fmt.Sprint(n-1) {
		t.Errorf("%q, %v", b, err)
	}
}

func TestWrongSizes(t *testing.T) {
	for _, n := range []uint64{1, 3} {
		var m memory
		w := NewWriter(&m)
		w.Begin("a", n)
		_, err := w.Write([]byte("ab"))
		if err == nil {
			err = w.End()
		}
		if err == nil || !strings.Contains(err.Error(), "bytes than were announced") {
			t.Errorf("%d announced: %v", n, err)
		}
	}
}

// sparse is a file in memory. It reads as zeros where nothing was written.
type sparse struct {
	size  int64
	small map[int64][]byte
}

func (s *sparse) Write(b []byte) (int, error) {
	if text := bytes.TrimRight(b, "\x00"); len(text) > 0 {
		s.small[s.size] = bytes.Clone(text)
	}
	s.size += int64(len(b))
	return len(b), nil
}

func (s *sparse) WriteAt(b []byte, at int64) (int, error) {
	s.small[at] = append(s.small[at][:0:0], b...)
	return len(b), nil
}

func (s *sparse) ReadAt(b []byte, at int64) (int, error) {
	n := int(min(int64(len(b)), s.size-at))
	clear(b[:n])
	for from, piece := range s.small {
		for i, c := range piece {
			if k := from + int64(i) - at; k >= 0 && k < int64(n) {
				b[k] = c
			}
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// TestLargeEntries writes entries larger than 4 GiB, and entries that begin beyond 4 GiB. Without
// FLAMBEAU_SOAK the test does not write the bytes and only sets these sizes.
func TestLargeEntries(t *testing.T) {
	s := &sparse{small: map[int64][]byte{}}
	w := NewWriter(s)
	const size = 1<<32 + 5
	w.Begin("large", size)
	if os.Getenv("FLAMBEAU_SOAK") == "" {
		// the rest of the contents is skipped, as if it had been written
		if err := w.w.Flush(); err != nil {
			t.Fatal(err)
		}
		w.left, w.offset, s.size = 0, w.offset+size, s.size+size
	} else {
		zeros := make([]byte, 2<<20)
		for left := uint64(size); left > 0; {
			n, err := w.Write(zeros[:min(left, uint64(len(zeros)))])
			if err != nil {
				t.Fatal(err)
			}
			left -= uint64(n)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	w.Add("behind", []byte("text"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := Entries(s, s.size)
	if err != nil || len(list) != 2 || list[0].Stored != size || list[1].From < size || list[1].From%64 != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	b := make([]byte, 4)
	if _, err := s.ReadAt(b, list[1].From); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestEntriesRefuses(t *testing.T) {
	pack := func(names ...string) []byte {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, n := range names {
			f, err := w.CreateHeader(&zip.FileHeader{Name: n, Method: zip.Store})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(bytes.Repeat([]byte("x"), 50)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	second := func(b []byte) []byte { return b[bytes.LastIndex(b, []byte("PK\x01\x02")):] }
	overlap := pack("a", "b")
	clear(second(overlap)[42:46]) // entry b now has the offset of entry a
	encrypted := pack("a", "b")
	second(encrypted)[8] |= 1
	lying := pack("a", "b")
	copy(second(lying)[20:28], []byte{0, 0, 0, 0x40, 0, 0, 0, 0x40})
	for want, data := range map[string][]byte{
		"two files of that name": pack("a", "a"),
		"it overlaps":            overlap,
		"it is encrypted":        encrypted,
		"do not lie in the file": lying,
		"no whole zip archive":   pack("a")[:60],
	} {
		var e *Error
		if _, err := Entries(bytes.NewReader(data), int64(len(data))); !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{"m/data 0": "m/data 0", "модель/é": "модель/é", "a\x1b[2J\nb": `a\x1b[2J\nb`, "a\xffb": `a\xffb`, "\u202egnp": `\u202egnp`} {
		if got := Printable(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
