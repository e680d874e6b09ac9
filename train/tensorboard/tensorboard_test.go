package tensorboard

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// records reads the records of a file, checks their checksums, and sets the time of each event to
// 1.5 s.
func records(t *testing.T, path string) (events [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		n := binary.LittleEndian.Uint64(b)
		body := b[12 : 12+n]
		if binary.LittleEndian.Uint32(b[8:]) != masked(b[:8]) || binary.LittleEndian.Uint32(b[12+n:]) != masked(body) {
			t.Fatal("a checksum is wrong")
		}
		if wall := math.Float64frombits(binary.LittleEndian.Uint64(body[1:])); wall < 1e9 {
			t.Fatalf("the time is %v", wall)
		}
		body = bytes.Clone(body)
		binary.LittleEndian.PutUint64(body[1:], math.Float64bits(1.5))
		events = append(events, body)
		b = b[16+n:]
	}
	return events
}

// The events equal those that TensorBoard's own classes write, byte for byte.
func TestEventsEqualTensorBoard(t *testing.T) {
	f, err := os.Open("testdata/events.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Events map[string][]byte }
	if err := json.NewDecoder(z).Decode(&file); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(filepath.Join(t.TempDir(), "run"))
	if err != nil {
		t.Fatal(err)
	}
	order := []string{"scalar", "text", "histogram", "restart"}
	w.Scalar("loss/train", 0.25, 300)
	w.Text("notes", "**bold**", 7)
	w.Histogram("weights", []float64{2, 2, 2}, 9)
	w.Restart(5)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := records(t, w.Path())
	if len(got) != 1+len(order) || !bytes.Contains(got[0], []byte("brain.Event:2")) {
		t.Fatalf("%d events, the first %q", len(got), got[0])
	}
	for i, name := range order {
		if b := record(got[i+1]); !bytes.Equal(b, file.Events[name]) {
			t.Errorf("%s:\n%x want\n%x", name, b, file.Events[name])
		}
	}
}

func TestHistogram(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, values := range [][]float64{nil, {nan, inf}, {3}, {-1, 0, 0.5, 1, nan, inf}, {-math.MaxFloat64, math.MaxFloat64}, {1e-320, 2e-320, 0}} {
		h := histogramOf(values)
		n, finite := 0.0, 0.0
		for i, c := range h.counts {
			n += c
			if i > 0 && h.limits[i] < h.limits[i-1] || math.IsNaN(h.limits[i]) {
				t.Errorf("%v: limits %v", values, h.limits)
			}
		}
		for _, v := range values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				finite++
			}
		}
		if n != finite || h.n != n || len(h.counts) != len(h.limits) {
			t.Errorf("%v: %v of %v counted", values, n, finite)
		}
	}
	if h := histogramOf([]float64{0, 64, 63.5, 1, 1.5}); h.counts[0] != 2 || h.counts[1] != 1 || h.counts[63] != 2 {
		t.Errorf("%v", h.counts)
	}
}

func TestImageAndGoroutines(t *testing.T) {
	w, err := NewWriter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := image.NewRGBA(image.Rect(0, 0, 5, 4))
	if err := w.Image("digit", m, 3); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				w.Scalar("x", float64(i), i)
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	events := records(t, w.Path())
	if len(events) != 402 {
		t.Fatalf("%d events", len(events))
	}
	at := bytes.Index(events[1], []byte("\x89PNG"))
	if at < 0 {
		t.Fatal("no PNG")
	}
	if got, err := png.Decode(bytes.NewReader(events[1][at:])); err != nil || got.Bounds() != m.Bounds() {
		t.Fatal(got, err)
	}
}

func TestErrorsAreKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWriter(file); err == nil {
		t.Fatal("a file is no directory")
	}
	w, err := NewWriter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w.f.Close() // as if the disk were removed
	w.Scalar("x", 1, 1)
	if err := w.Flush(); err == nil || !strings.HasPrefix(err.Error(), "tensorboard: ") {
		t.Fatal(err)
	}
	w.Scalar("x", 1, 2) // the event is dropped without a panic
	if err := w.Close(); err == nil {
		t.Fatal("Close says it again")
	}
}
