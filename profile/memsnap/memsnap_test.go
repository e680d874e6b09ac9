package memsnap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// sample returns a small snapshot with every kind of event and state. Every call returns the same
// snapshot.
func sample() *device.MemorySnapshot {
	const base = 0x7f0000000000
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &device.MemorySnapshot{Device: "cuda:1", Product: "Sample GPU", Time: at, Recording: true, Since: at, MaxEntries: 100, Dropped: 3,
		Allocated: 4096 + 1536, AllocatedPeak: 8192, Reserved: 4<<20 + 1<<31, ReservedPeak: 4<<20 + 1<<31, Total: 1 << 33,
		Owners: []device.MemoryOwner{{},
			{Op: "empty", Type: "float32", Shape: []int{16, 64}, Where: "net/main.go:10", Stack: 1},
			{Op: "matmul", Scope: "step/forward", Type: "float32", Shape: []int{4, 96}, Where: "net/main.go:20", Stack: 2},
			{Op: "add", Scope: "step/forward", Type: "float32", Shape: []int{}, Where: "</script><b>&\"'ü", Stack: 0}},
		Stacks: [][]device.Frame{nil,
			{{Function: "github.com/flambeau-go/flambeau/nn.NewLinear", File: "/src/nn/linear.go", Line: 50}, {Function: "main.main", File: "/src/net/main.go", Line: 10}},
			{{Function: "github.com/flambeau-go/flambeau/tensor.alloc", File: "/src/tensor/storage.go", Line: 100}, {Function: "main.step", File: "/src/net/main.go", Line: 20},
				{Function: "main.main", File: "/src/net/main.go", Line: 12}}},
		Segments: []device.MemorySegment{
			{Addr: base, Size: 2 << 20, Stream: 0, Small: true, Blocks: []device.MemoryBlock{
				{Addr: base, Size: 4096, Requested: 4096, State: device.BlockActiveAllocated, Number: 1, Owner: 1, Category: device.CategoryParameter},
				{Addr: base + 4096, Size: 1536, Requested: 1500, State: device.BlockActiveAllocated, Number: 4, Owner: 2, Category: device.CategoryActivation},
				{Addr: base + 5632, Size: 2<<20 - 5632}}},
			{Addr: base + 1<<30, Size: 2 << 20, Stream: 7, Small: true, Blocks: []device.MemoryBlock{
				{Addr: base + 1<<30, Size: 512, Requested: 4, State: device.BlockActiveAwaitingFree, Number: 3, Owner: 3, Category: device.CategoryOther},
				{Addr: base + 1<<30 + 512, Size: 2<<20 - 512}}},
			{Addr: base + 1<<40, Size: 1 << 31, Stream: 7, Expandable: true, Blocks: []device.MemoryBlock{{Addr: base + 1<<40, Size: 1 << 31}}},
		},
	}
	add := func(e device.HistoryEvent) {
		e.Sequence = 4 + uint64(len(s.Events))
		e.Time = at.UnixNano() + int64(len(s.Events))*1_500_000
		s.Events = append(s.Events, e)
	}
	const act, oth = device.CategoryActivation, device.CategoryOther
	add(device.HistoryEvent{Action: device.ActionAlloc, Addr: base + 4096, Size: 2560, Requested: 2500, Number: 2, Owner: 2, Stack: 2, Category: act})
	add(device.HistoryEvent{Action: device.ActionSegmentAlloc, Addr: base + 1<<30, Size: 2 << 20, Stream: 7, Stack: 2})
	add(device.HistoryEvent{Action: device.ActionAlloc, Addr: base + 1<<30, Size: 512, Requested: 4, Stream: 7, Number: 3, Owner: 3, Category: oth})
	add(device.HistoryEvent{Action: device.ActionFreeRequested, Addr: base + 4096, Size: 2560, Requested: 2500, Number: 2, Owner: 2, Stack: 2, Category: act})
	add(device.HistoryEvent{Action: device.ActionFreeCompleted, Addr: base + 4096, Size: 2560, Requested: 2500, Number: 2, Owner: 2, Category: act})
	add(device.HistoryEvent{Action: device.ActionSegmentMap, Addr: base + 1<<40, Size: 1 << 31, Stream: 7})
	add(device.HistoryEvent{Action: device.ActionSegmentMap, Addr: base + 1<<40 + 1<<31, Size: 2 << 20, Stream: 7})
	add(device.HistoryEvent{Action: device.ActionSegmentUnmap, Addr: base + 1<<40 + 1<<31, Size: 2 << 20, Stream: 7})
	add(device.HistoryEvent{Action: device.ActionOOM, Size: 1 << 34, Requested: 1 << 34, Free: 12345, Owner: 2, Stack: 2, Category: act})
	add(device.HistoryEvent{Action: device.ActionAlloc, Addr: base + 4096, Size: 1536, Requested: 1500, Number: 4, Owner: 2, Stack: 2, Category: act})
	add(device.HistoryEvent{Action: device.ActionFreeRequested, Addr: base + 1<<30, Size: 512, Requested: 4, Stream: 7, Number: 3, Owner: 3, Category: oth})
	add(device.HistoryEvent{Action: device.ActionSegmentFree, Addr: base + 1<<35, Size: 20 << 20, Stream: 7})
	add(device.HistoryEvent{Action: device.ActionSnapshot})
	return s
}

// TestPickle compares the pickle with a file that _golden/memsnap.py has read with PyTorch. With
// FLAMBEAU_UPDATE=1 it writes this file.
func TestPickle(t *testing.T) {
	var b bytes.Buffer
	if err := WritePickle(&b, sample()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "snapshot.pickle")
	if os.Getenv("FLAMBEAU_UPDATE") == "1" {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("the pickle of %d bytes is not the golden one of %d", b.Len(), len(want))
	}
}

// TestReplay computes a timeline from a history that has dropped its oldest events. It checks the
// first and last points, the peak and the groups.
func TestReplay(t *testing.T) {
	s := sample()
	first, last := initial(s), final(s)
	if first.allocated != 4096 || first.late != 0 || first.mapped != 2<<20+20<<20 || len(first.live) != 1 {
		t.Errorf("the first state is %+v", first)
	}
	if last.allocated != s.Allocated || last.late != 512 || last.mapped != s.Reserved {
		t.Errorf("the last state is %+v", last)
	}
	h := timeline(s, maxPoints)
	if h.peak != 4096+2560+512 || h.peakEvent != 3 || len(h.peakLive) != 3 || h.oom != 1 || len(h.points) != len(s.Events) {
		t.Errorf("peak %d after %d events with %d blocks, %d failures, %d points", h.peak, h.peakEvent, len(h.peakLive), h.oom, len(h.points))
	}
	if want := []string{device.CategoryParameter, device.CategoryActivation, device.CategoryOther}; !slices.Equal(h.groups[byCategory], want) {
		t.Errorf("categories %q", h.groups[byCategory])
	}
	if want := []string{"no named scope", "step/forward"}; !slices.Equal(h.groups[byScope], want) {
		t.Errorf("scopes %q", h.groups[byScope])
	}
	for i, p := range h.points {
		for by := range groupings {
			var sum uint64
			for _, n := range p.sums[by] {
				sum += n
			}
			if sum != p.total {
				t.Errorf("point %d: the parts by %s are %d of %d", i, groupingNames[by], sum, p.total)
			}
		}
	}
	if p := h.points[len(h.points)-1]; p.total != s.Allocated || p.waiting != 512 || p.reserved < s.Reserved {
		t.Errorf("the last point is %+v", p)
	}
	few := timeline(s, 4)
	if n := len(few.points); n < 2 || n > 4 {
		t.Errorf("%d points of at most 4", n)
	}
	if !slices.ContainsFunc(few.points, func(p point) bool { return p.total == few.peak }) {
		t.Error("the peak is lost in a short timeline")
	}
}

// long returns a snapshot with the given number of events, and with many owners, blocks and
// segments.
func long(events int) *device.MemorySnapshot {
	s := &device.MemorySnapshot{Device: "cuda:0", Product: "Long GPU", Time: time.Unix(2000, 0), Recording: true, MaxEntries: events,
		Owners: []device.MemoryOwner{{}}, Stacks: [][]device.Frame{nil}}
	for i := range 3000 {
		var frames []device.Frame
		for k := range 40 {
			frames = append(frames, device.Frame{Function: fmt.Sprintf("example.com/some/long/package/path.(*Receiver%d).Method%d", i, k), File: "/a/long/path/to/a/file.go", Line: i + k})
		}
		s.Stacks = append(s.Stacks, frames)
		s.Owners = append(s.Owners, device.MemoryOwner{Op: fmt.Sprintf("operation%d", i%40), Type: "float32", Shape: []int{i, 128}, Where: fmt.Sprintf("file.go:%d", i), Stack: i + 1})
	}
	categories := []string{device.CategoryParameter, device.CategoryActivation, device.CategoryGradient, device.CategoryOptimizer}
	number := uint64(0)
	for len(s.Events) < events {
		number++
		o := int(number)%3000 + 1
		e := device.HistoryEvent{Action: device.ActionAlloc, Addr: uintptr(number * 4096), Size: 4096, Requested: 4000, Number: number, Owner: o, Stack: o, Category: categories[number%4]}
		s.Events = append(s.Events, e)
		e.Action, e.Stack = device.ActionFreeRequested, 0
		s.Events = append(s.Events, e)
		e.Action = device.ActionFreeCompleted
		s.Events = append(s.Events, e)
	}
	for i := range s.Events {
		s.Events[i].Sequence, s.Events[i].Time = uint64(i+1), int64(i)*1000
	}
	for i := range 600 {
		g := device.MemorySegment{Addr: uintptr(1<<40 + i<<21), Size: 2 << 20}
		for k := range 64 {
			number++
			g.Blocks = append(g.Blocks, device.MemoryBlock{Addr: g.Addr + uintptr(k)<<15, Size: 1 << 15, Requested: 1<<15 - 8, State: device.BlockActiveAllocated, Number: number,
				Owner: int(number)%3000 + 1, Category: device.CategoryActivation})
		}
		s.Segments = append(s.Segments, g)
		s.Reserved += g.Size
		s.Allocated += g.Size
	}
	return s
}

// TestBoundedPage writes the pages of a short and of a long history. The second must not be much
// larger, and must say what it leaves out.
func TestBoundedPage(t *testing.T) {
	for _, events := range []int{15_000, 90_000} {
		s := long(events)
		d := describe(s)
		if len(d.Points) > maxPoints || len(d.LastEvents) != maxEvents || d.LastEvents[0].Action != "free" || d.Events != len(s.Events) {
			t.Errorf("%d points, %d of %d events", len(d.Points), len(d.LastEvents), d.Events)
		}
		var drawn, drawnBytes uint64
		for _, g := range d.Segments {
			drawn += uint64(len(g.Blocks))
			drawnBytes += g.Size
		}
		if drawn > maxBlocks || len(d.Segments)+d.MoreSegments != 600 || drawnBytes+d.MoreBytes != s.Reserved {
			t.Errorf("%d blocks in %d segments, and %d not drawn", drawn, len(d.Segments), d.MoreSegments)
		}
		for _, table := range []tableData{d.Peak, d.Now} {
			sum := table.MoreBytes
			for _, r := range table.Rows {
				sum += r.Bytes
			}
			if len(table.Rows) != maxRows || table.MoreRows == 0 || sum != table.Bytes {
				t.Errorf("%d rows, %d more, %d of %d bytes", len(table.Rows), table.MoreRows, sum, table.Bytes)
			}
		}
		var b bytes.Buffer
		if err := WriteHTML(&b, s); err != nil {
			t.Fatal(err)
		}
		if b.Len() > 5<<20 {
			t.Errorf("a page of %d bytes for %d events", b.Len(), events)
		}
		t.Logf("%d events: a page of %d KiB", events, b.Len()>>10)
	}
}

// TestPageIsSelfContained checks that a page refers to no other file, and that no text of a
// snapshot can end the page's script.
func TestPageIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	if err := WriteHTML(&b, sample()); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"https://", "src=", "@import", "url(", "</script><b>"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q in it", bad)
		}
	}
	// the namespace of SVG, which no browser loads
	if n := strings.Count(page, "http://"); n != 1 {
		t.Errorf("%d addresses", n)
	}
	_, rest, _ := strings.Cut(page, `<script id="data" type="application/json">`)
	data, _, _ := strings.Cut(rest, "</script>")
	var back pageData
	if err := json.Unmarshal([]byte(data), &back); err != nil || len(back.Devices) != 1 || back.Devices[0].Name != "cuda:1" {
		t.Errorf("the data comes back as %+v, %v", back, err)
	}
}

type failing struct{ after int }

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errors.New("the disk is full")
	}
	return len(b), nil
}

// TestFiles writes files of all formats. They must be complete and have the format of their
// extension. Errors must be typed and name the file.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.html", "a.HTM", "a.pickle", "a.pkl"} {
		if err := Write(filepath.Join(dir, name), sample()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || len(b) < 500 {
			t.Fatalf("%s: %d bytes, %v", name, len(b), err)
		}
		if page := bytes.HasPrefix(b, []byte("<!DOCTYPE html>")); page != strings.HasPrefix(strings.ToLower(filepath.Ext(name)), ".htm") {
			t.Errorf("%s is a page: %v", name, page)
		}
	}
	for _, c := range []struct {
		path  string
		snaps []*device.MemorySnapshot
		want  string
	}{
		{filepath.Join(dir, "b.txt"), []*device.MemorySnapshot{sample()}, `".txt"`},
		{filepath.Join(dir, "b.html"), nil, "no snapshot"},
		{filepath.Join(dir, "b.pkl"), []*device.MemorySnapshot{nil}, "no snapshot"},
		{filepath.Join(dir, "none", "b.pkl"), []*device.MemorySnapshot{sample()}, "none"},
	} {
		err := Write(c.path, c.snaps...)
		var e *Error
		if !errors.As(err, &e) || e.Path != c.path || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "memsnap:") != 1 {
			t.Errorf("%s: %v", c.path, err)
		}
	}
	for _, write := range []func(io.Writer, ...*device.MemorySnapshot) error{WriteHTML, WritePickle} {
		var e *Error
		if err := write(&failing{100}, sample()); !errors.As(err, &e) || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("a full disk gave %v", err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 4 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}
