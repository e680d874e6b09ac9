package digits

import "testing"

// splitSum is a checksum of the labels of the test set.
const splitSum = 168098

func TestSplitIsStratifiedAndFixed(t *testing.T) {
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != Len {
		t.Fatalf("%d digits", s.Len())
	}
	train, test := s.Split()
	if train.Len()+test.Len() != Len {
		t.Fatalf("%d + %d digits", train.Len(), test.Len())
	}
	var all, held [Classes]int
	for _, l := range s.labels {
		all[l]++
	}
	for _, l := range test.labels {
		held[l]++
	}
	for c := range all {
		if held[c] != all[c]/5 {
			t.Errorf("class %d: %d of %d held out", c, held[c], all[c])
		}
	}
	// The labels of the test set must never change, so that results of different versions can be
	// compared.
	_, again := s.Split()
	sum := 0
	for i, l := range test.labels {
		if again.labels[i] != l {
			t.Fatal("the split differs from call to call")
		}
		sum = (sum*31 + int(l) + int(16*test.pixels[i*Pixels+20])) % 1000003
	}
	if sum != splitSum {
		t.Fatalf("the split has changed: checksum %d, it was %d", sum, splitSum)
	}
	x, y, err := test.GetBatch([]int{0, 1})
	if err != nil || x.Dim(1) != Pixels || y.Dim(0) != 2 {
		t.Fatal(err)
	}
	if _, _, err := test.GetBatch([]int{test.Len()}); err == nil {
		t.Fatal("out of range")
	}
}
