package shape

import (
	"math/rand/v2"
	"testing"
)

// walk returns the storage index of each element in row-major order.
func walk(l Layout) []int {
	idx := []int{l.Offset}
	for i := range l.Shape.Rank() {
		var next []int
		for _, o := range idx {
			for k := range l.Shape.At(i) {
				next = append(next, o+k*l.Strides.At(i))
			}
		}
		idx = next
	}
	return idx
}

func same(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// randomView returns a layout after a few random view operations.
func randomView(r *rand.Rand) Layout {
	s := Dims{}
	for range 1 + r.IntN(4) {
		s = s.Append(1 + r.IntN(4))
	}
	l := Dense(s)
	for range r.IntN(4) {
		k := l.Shape.Rank()
		switch i := r.IntN(k); r.IntN(4) {
		case 0:
			l = l.Transpose(i, r.IntN(k))
		case 1:
			n := l.Shape.At(i)
			start := r.IntN(n)
			l = l.Narrow(i, start, 1+r.IntN(n-start), 1)
		case 2:
			if k < 6 {
				l = l.Unsqueeze(i)
			}
		case 3:
			if k > 1 {
				l = l.Select(i, r.IntN(l.Shape.At(i)))
			}
		}
	}
	return l
}

func TestCollapseAndViewKeepElements(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	views := 0
	for range 20000 {
		l := randomView(r)
		want := walk(l)
		if got := walk(l.Collapse()); !same(got, want) {
			t.Fatalf("Collapse(%v) = %v", l, l.Collapse())
		}
		if l.Contiguous() && len(want) > 0 && want[len(want)-1]-want[0] != len(want)-1 {
			t.Fatalf("%v is not contiguous", l)
		}
		// draw a random factorisation of the number of elements
		n, s := l.Size(), Dims{}
		for n > 1 && s.Rank() < 6 {
			f := 1 + r.IntN(n)
			if n%f == 0 {
				s, n = s.Append(f), n/f
			}
		}
		s = s.Append(n)
		if v, ok := l.View(s); ok {
			views++
			if !same(walk(v), want) {
				t.Fatalf("View(%v, %v) = %v: %v want %v", l, s, v, walk(v), want)
			}
		} else if l.Contiguous() {
			t.Fatalf("contiguous %v must view as %v", l, s)
		}
		seen := map[int]bool{}
		twice := false
		for _, i := range want {
			twice = twice || seen[i]
			seen[i] = true
		}
		if twice && !l.Overlaps() {
			t.Fatalf("%v overlaps", l)
		}
		lo, hi, ok := l.Span()
		for _, i := range want {
			if !ok || i < lo || i > hi {
				t.Fatalf("Span(%v) = %d, %d", l, lo, hi)
			}
		}
	}
	if views < 1000 {
		t.Fatalf("only %d views were tried", views)
	}
}

func TestBroadcast(t *testing.T) {
	for _, c := range []struct {
		a, b, want Dims
		ok         bool
	}{
		{Of(2, 3), Of(3), Of(2, 3), true},
		{Of(3), Of(2, 3), Of(2, 3), true},
		{Of(2, 1), Of(1, 3), Of(2, 3), true},
		{Of(), Of(4), Of(4), true},
		{Of(0), Of(1), Of(0), true},
		{Of(1), Of(0), Of(0), true},
		{Of(2, 3), Of(2), Dims{}, false},
		{Of(0), Of(2), Dims{}, false},
	} {
		got, _, ok := Broadcast(c.a, c.b)
		if ok != c.ok || got != c.want {
			t.Errorf("Broadcast(%v, %v) = %v, %v", c.a, c.b, got, ok)
		}
	}
	l, ok := Dense(Of(3, 1)).Expand(Of(2, 3, 4))
	if !ok || l.Strides != Of(0, 1, 0) {
		t.Fatalf("Expand: %v %v", l, ok)
	}
	if _, ok := Dense(Of(3)).Expand(Of(2)); ok {
		t.Fatal("3 does not expand to 2")
	}
}

func TestCollapseTogether(t *testing.T) {
	s := Of(2, 3, 4)
	bias, _ := Dense(Of(4)).Expand(s)
	got, st := CollapseTogether(s, []Dims{s.Contiguous(), bias.Strides})
	if got != Of(6, 4) || st[0] != Of(4, 1) || st[1] != Of(0, 1) {
		t.Fatalf("%v %v", got, st)
	}
	if got, _ := CollapseTogether(Of(), nil); got.Rank() != 0 {
		t.Fatal("rank 0 stays rank 0")
	}
}

func TestAxis(t *testing.T) {
	if a, ok := Axis(-1, 3); a != 2 || !ok {
		t.Fatal("-1 of 3")
	}
	if _, ok := Axis(3, 3); ok {
		t.Fatal("3 of 3")
	}
	if a, ok := Axis(-1, 0); a != 0 || !ok {
		t.Fatal("rank 0 counts as 1")
	}
}
