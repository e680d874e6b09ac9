package models_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

// ownersAtPeak runs a step with a history of memory. It returns the source lines that had allocated
// most of the memory at the peak.
func ownersAtPeak(t *testing.T, dev device.Device, step func()) string {
	before, err := cuda.MemorySnapshot(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := cuda.RecordMemoryHistory(dev, device.MaxHistoryEntries(1<<20)); err != nil {
		t.Fatal(err)
	}
	step()
	snap, err := cuda.MemorySnapshot(dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := cuda.StopMemoryHistory(dev); err != nil {
		t.Fatal(err)
	}
	type block struct {
		size uint64
		who  string
	}
	live, total := map[uint64]block{}, uint64(0)
	for _, s := range before.Segments {
		for _, b := range s.Blocks {
			if b.State == device.BlockActiveAllocated {
				live[b.Number] = block{b.Size, "from before the step"}
				total += b.Size
			}
		}
	}
	peak, at := uint64(0), uint64(0)
	for _, e := range snap.Events {
		switch e.Action {
		case device.ActionAlloc:
			total += e.Size
		case device.ActionFreeCompleted:
			total -= e.Size
		}
		if total > peak {
			peak, at = total, e.Sequence
		}
	}
	for _, e := range snap.Events {
		if e.Sequence > at {
			break
		}
		switch e.Action {
		case device.ActionAlloc:
			var lines []string
			for _, f := range snap.Stacks[e.Stack] {
				if strings.Contains(f.File, "/tensor/") || strings.Contains(f.File, "/nn/") || strings.Contains(f.File, "/models/") {
					lines = append(lines, fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line))
				}
			}
			live[e.Number] = block{e.Size, fmt.Sprint(snap.Owners[e.Owner], " ", strings.Join(lines[:min(len(lines), 9)], " < "))}
		case device.ActionFreeCompleted:
			delete(live, e.Number)
		}
	}
	by := map[string]uint64{}
	for _, b := range live {
		by[b.who] += b.size
	}
	names := slices.Collect(maps.Keys(by))
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(by[b], by[a]) })
	var text strings.Builder
	fmt.Fprintf(&text, "%d bytes at the peak:\n", peak)
	for _, w := range names[:min(len(names), 25)] {
		fmt.Fprintf(&text, "%12d %s\n", by[w], w)
	}
	return text.String()
}
