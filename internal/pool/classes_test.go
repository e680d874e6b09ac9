package pool

import "testing"

// checkClasses checks that the statistics of small blocks and of large blocks add up to the total.
func checkClasses(t *testing.T, s Stats) {
	t.Helper()
	all := Class{s.AllocatedBytes, s.RequestedBytes, s.ActiveBytes, s.InactiveSplitBytes, s.ReservedBytes, s.Allocated, s.Active, s.InactiveSplit, s.Segments}
	a, b, c := &all, &s.Small, &s.Large
	for name, q := range map[string][3]*Stat{
		"allocated bytes": {&a.AllocatedBytes, &b.AllocatedBytes, &c.AllocatedBytes}, "requested bytes": {&a.RequestedBytes, &b.RequestedBytes, &c.RequestedBytes},
		"active bytes": {&a.ActiveBytes, &b.ActiveBytes, &c.ActiveBytes}, "split bytes": {&a.InactiveSplitBytes, &b.InactiveSplitBytes, &c.InactiveSplitBytes},
		"reserved bytes": {&a.ReservedBytes, &b.ReservedBytes, &c.ReservedBytes}, "allocated": {&a.Allocated, &b.Allocated, &c.Allocated},
		"active": {&a.Active, &b.Active, &c.Active}, "split": {&a.InactiveSplit, &b.InactiveSplit, &c.InactiveSplit}, "segments": {&a.Segments, &b.Segments, &c.Segments},
	} {
		if q[0].Current != q[1].Current+q[2].Current || q[0].Allocated != q[1].Allocated+q[2].Allocated || q[0].Freed != q[1].Freed+q[2].Freed {
			t.Fatalf("%s: %+v in all, %+v small, %+v large", name, *q[0], *q[1], *q[2])
		}
		for _, r := range q {
			if r.Peak < r.Current || q[0].Peak > q[1].Peak+q[2].Peak {
				t.Fatalf("%s: %+v in all, %+v small, %+v large", name, *q[0], *q[1], *q[2])
			}
		}
	}
}

func TestClasses(t *testing.T) {
	d := newFake(1 << 20)
	p := New(d, Options{Round: 64, SmallMax: 256, SmallSegment: 1024, MediumMax: 2048, MediumSegment: 4096, LargeRound: 1024})
	small, err := p.Alloc(100, 1, Origin{})
	if err != nil {
		t.Fatal(err)
	}
	large, err := p.Alloc(1000, 1, Origin{})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Stats()
	if s.Small.AllocatedBytes.Current != 128 || s.Small.RequestedBytes.Current != 100 || s.Small.ReservedBytes.Current != 1024 || s.Small.Segments.Current != 1 ||
		s.Small.InactiveSplitBytes.Current != 896 || s.Large.AllocatedBytes.Current != 1024 || s.Large.ReservedBytes.Current != 4096 || s.Large.Allocated.Current != 1 {
		t.Errorf("%+v\n%+v", s.Small, s.Large)
	}
	checkClasses(t, s)
	p.Free(large, large.Generation())
	p.Free(small, small.Generation())
	p.ResetAccumulated()
	if s = p.Stats(); s.Small.AllocatedBytes != (Stat{Peak: 128}) || s.Large.ReservedBytes != (Stat{Current: 4096, Peak: 4096}) || s.Allocations != 0 || s.Frees != 0 {
		t.Errorf("after the reset %+v", s)
	}
	p.ResetPeak()
	p.Empty()
	if s = p.Stats(); s.Small.ReservedBytes != (Stat{Peak: 1024, Freed: 1024}) || s.ReservedBytes != (Stat{Peak: 5120, Freed: 5120}) || s.Small.AllocatedBytes != (Stat{}) {
		t.Errorf("after Empty %+v", s)
	}
}
