package memsnap

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
)

// These constants limit the data of each device, and with it the size of a page.
const (
	maxPoints   = 1200
	maxRows     = 100
	maxBlocks   = 20_000
	maxSegments = 400
	maxEvents   = 1000
	maxOOMs     = 20
)

//go:embed page.html
var pageHTML []byte

// dataMark is the text in the page's template that the data replaces.
var dataMark = []byte(`{"devices":[]}`)

// WriteHTML writes a page that shows the snapshots. The page needs no network and no other file.
func WriteHTML(w io.Writer, snaps ...*device.MemorySnapshot) error {
	if err := checked(snaps); err != nil {
		return err
	}
	var page pageData
	for _, s := range snaps {
		page.Devices = append(page.Devices, describe(s))
	}
	// json.Marshal escapes <, > and &, so no text can end the page's script
	data, err := json.Marshal(page)
	if err != nil {
		return &Error{Err: err}
	}
	before, after, ok := bytes.Cut(pageHTML, dataMark)
	if !ok {
		panic("memsnap: the page has no place for data")
	}
	for _, b := range [][]byte{before, data, after} {
		if _, err := w.Write(b); err != nil {
			return &Error{Err: err}
		}
	}
	return nil
}

type pageData struct {
	Devices []deviceData `json:"devices"`
}

// deviceData is the data about a device for the page's script. Sizes are in bytes, and times in
// milliseconds.
type deviceData struct {
	Name          string     `json:"name"`
	Product       string     `json:"product"`
	Emulated      bool       `json:"emulated"`
	Taken         string     `json:"taken"`
	Recording     bool       `json:"recording"`
	Events        int        `json:"events"`
	Dropped       uint64     `json:"dropped"`
	MaxEntries    int        `json:"maxEntries"`
	Allocated     uint64     `json:"allocated"`
	AllocatedPeak uint64     `json:"allocatedPeak"`
	Reserved      uint64     `json:"reserved"`
	ReservedPeak  uint64     `json:"reservedPeak"`
	Total         uint64     `json:"total"`
	Limit         uint64     `json:"limit"`
	Groupings     []string   `json:"groupings"`
	Groups        [][]string `json:"groups"`
	// each point: the number of events so far, the time, and the allocated, waiting and reserved
	// bytes
	Points [][5]float64 `json:"points"`
	// bytes of each group at each point, by grouping, group and point
	Sums         [][][]uint64  `json:"sums"`
	Peak         tableData     `json:"peak"`
	Now          tableData     `json:"now"`
	Segments     []segmentData `json:"segments"`
	MoreSegments int           `json:"moreSegments"`
	MoreBytes    uint64        `json:"moreBytes"`
	Owners       []string      `json:"owners"`
	Categories   []string      `json:"categories"`
	Stacks       [][]string    `json:"stacks"`
	LastEvents   []eventData   `json:"lastEvents"`
	// how many of the latest events the page lists
	LastCount int         `json:"lastCount"`
	OOMs      []eventData `json:"ooms"`
	OOMCount  int         `json:"oomCount"`
}

type tableData struct {
	Bytes     uint64    `json:"bytes"`
	Event     int       `json:"event"`
	Blocks    int       `json:"blocks"`
	Rows      []rowData `json:"rows"`
	MoreRows  int       `json:"moreRows"`
	MoreBytes uint64    `json:"moreBytes"`
}

type rowData struct {
	Bytes    uint64 `json:"bytes"`
	Blocks   int    `json:"blocks"`
	Wasted   uint64 `json:"wasted"` // bytes lost by rounding up sizes
	Op       string `json:"op"`
	Tensor   string `json:"tensor"`
	Where    string `json:"where"`
	Scope    string `json:"scope"`
	Category string `json:"category"`
	Stack    int    `json:"stack"`
}

type segmentData struct {
	Addr       string `json:"addr"`
	Size       uint64 `json:"size"`
	Stream     int    `json:"stream"`
	Kind       string `json:"kind"`
	Expandable bool   `json:"expandable"`
	// each block: size, requested size, state, number of owner, number of category
	Blocks [][5]uint64 `json:"blocks"`
}

type eventData struct {
	Sequence uint64  `json:"sequence"`
	Time     float64 `json:"time"`
	Action   string  `json:"action"`
	Addr     string  `json:"addr"`
	Size     uint64  `json:"size"`
	Stream   int     `json:"stream"`
	Owner    int     `json:"owner"`
	Category string  `json:"category"`
	Stack    int     `json:"stack"`
	Free     uint64  `json:"free"`
}

// tables hold each string once. The page's data refers to a string by its number.
type tables struct {
	s          *device.MemorySnapshot
	d          *deviceData
	owners     map[int]int
	categories map[string]int
	stacks     map[int]int
	streams    map[uint64]int
}

// stream returns a small number for a stream, because the driver's handle says nothing to a reader.
func (t *tables) stream(handle uint64) int {
	n, ok := t.streams[handle]
	if !ok {
		n = len(t.streams)
		t.streams[handle] = n
	}
	return n
}

func (t *tables) owner(i int) int {
	at, ok := t.owners[i]
	if !ok {
		at = len(t.d.Owners)
		t.owners[i] = at
		text := owner(t.s, i).String()
		if i == 0 {
			text = notRecorded
		}
		t.d.Owners = append(t.d.Owners, text)
	}
	return at
}

func (t *tables) category(c string) int {
	at, ok := t.categories[c]
	if !ok {
		at = len(t.d.Categories)
		t.categories[c] = at
		t.d.Categories = append(t.d.Categories, c)
	}
	return at
}

func (t *tables) stack(i int) int {
	if i <= 0 || i >= len(t.s.Stacks) {
		return 0
	}
	at, ok := t.stacks[i]
	if !ok {
		at = len(t.d.Stacks)
		t.stacks[i] = at
		var lines []string
		for _, f := range t.s.Stacks[i] {
			lines = append(lines, fmt.Sprintf("%s:%d  %s", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line,
				strings.TrimPrefix(f.Function, "github.com/flambeau-go/flambeau/")))
		}
		t.d.Stacks = append(t.d.Stacks, lines)
	}
	return at
}

func describe(s *device.MemorySnapshot) deviceData {
	d := deviceData{Name: s.Device, Product: s.Product, Emulated: s.Emulated, Taken: s.Time.Format("2 January 2006, 15:04:05"),
		Recording: s.Recording, Events: len(s.Events), Dropped: s.Dropped, MaxEntries: s.MaxEntries, Allocated: s.Allocated,
		AllocatedPeak: s.AllocatedPeak, Reserved: s.Reserved, ReservedPeak: s.ReservedPeak, Total: s.Total, Limit: s.Limit,
		Groupings: groupingNames[:], Stacks: [][]string{{}}, Owners: []string{}, Categories: []string{}, LastEvents: []eventData{}, OOMs: []eventData{}}
	t := &tables{s: s, d: &d, owners: map[int]int{}, categories: map[string]int{}, stacks: map[int]int{}, streams: map[uint64]int{}}
	for _, g := range s.Segments {
		t.stream(g.Stream)
	}
	h := timeline(s, maxPoints)
	for by := range groupings {
		d.Groups = append(d.Groups, append([]string{}, h.groups[by]...))
		sums := make([][]uint64, len(h.groups[by]))
		for g := range sums {
			sums[g] = make([]uint64, len(h.points))
			for i, p := range h.points {
				sums[g][i] = p.sums[by][g]
			}
		}
		d.Sums = append(d.Sums, sums)
	}
	for _, p := range h.points {
		d.Points = append(d.Points, [5]float64{float64(p.event), float64(p.time/1000) / 1000, float64(p.total), float64(p.waiting), float64(p.reserved)})
	}
	d.Peak = t.table(h.peakLive, h.peak, h.peakEvent)
	end := final(s)
	d.Now = t.table(end.live, end.allocated, len(s.Events))
	t.segments()
	t.events(h)
	return d
}

func (t *tables) table(live map[uint64]alive, bytes uint64, event int) tableData {
	out := tableData{Bytes: bytes, Event: event, Blocks: len(live), Rows: []rowData{}}
	for i, r := range rows(t.s, live) {
		if i >= maxRows {
			out.MoreRows++
			out.MoreBytes += r.bytes
			continue
		}
		shape := ""
		if o := r.owner; o.Type != "" {
			shape = strings.ReplaceAll(fmt.Sprint(o.Shape), " ", ", ") + " " + o.Type
		}
		op := r.owner.Op
		if op == "" {
			op = notRecorded
		}
		out.Rows = append(out.Rows, rowData{Bytes: r.bytes, Blocks: r.blocks, Wasted: r.wasted, Op: op, Tensor: shape, Where: r.owner.Where,
			Scope: r.owner.Scope, Category: r.category, Stack: t.stack(r.stack)})
	}
	return out
}

// segments describes the largest segments, up to a fixed total number of blocks.
func (t *tables) segments() {
	t.d.Segments = []segmentData{}
	order := make([]int, len(t.s.Segments))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch x, y := t.s.Segments[a].Size, t.s.Segments[b].Size; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	blocks := 0
	for _, i := range order {
		g := &t.s.Segments[i]
		if blocks+len(g.Blocks) > maxBlocks || len(t.d.Segments) >= maxSegments {
			t.d.MoreSegments++
			t.d.MoreBytes += g.Size
			continue
		}
		blocks += len(g.Blocks)
		out := segmentData{Addr: fmt.Sprintf("%#x", g.Addr), Size: g.Size, Stream: t.stream(g.Stream), Kind: "large", Expandable: g.Expandable}
		if g.Small {
			out.Kind = "small"
		}
		for _, b := range g.Blocks {
			v := [5]uint64{b.Size, b.Requested, uint64(b.State), 0, 0}
			if b.State != device.BlockInactive {
				v[3], v[4] = uint64(t.owner(b.Owner)), uint64(t.category(b.Category))
			}
			out.Blocks = append(out.Blocks, v)
		}
		t.d.Segments = append(t.d.Segments, out)
	}
}

// events describes the latest events, and all allocations that have failed.
func (t *tables) events(h *history) {
	if len(t.s.Events) == 0 {
		return
	}
	start := t.s.Events[0].Time
	convert := func(e device.HistoryEvent) eventData {
		out := eventData{Sequence: e.Sequence, Time: float64((e.Time-start)/1000) / 1000, Action: e.Action.String(), Size: e.Size, Stream: t.stream(e.Stream),
			Owner: t.owner(e.Owner), Category: e.Category, Stack: t.stack(e.Stack), Free: e.Free}
		if e.Addr != 0 {
			out.Addr = fmt.Sprintf("%#x", e.Addr)
		}
		return out
	}
	for i := len(t.s.Events) - 1; i >= 0 && len(t.d.LastEvents) < maxEvents; i-- {
		e := t.s.Events[i]
		t.d.LastCount++
		// the page shows this event and the next, which completes the free, as one entry
		if freedAtOnce(t.s.Events, i) {
			last := &t.d.LastEvents[len(t.d.LastEvents)-1]
			last.Action, last.Sequence, last.Stack = "free", e.Sequence, t.stack(e.Stack)
			continue
		}
		t.d.LastEvents = append(t.d.LastEvents, convert(e))
	}
	t.d.OOMCount = h.oom
	for _, e := range slices.Backward(t.s.Events) {
		if e.Action == device.ActionOOM && len(t.d.OOMs) < maxOOMs {
			t.d.OOMs = append(t.d.OOMs, convert(e))
		}
	}
}
