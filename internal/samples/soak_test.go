package samples

import (
	"fmt"
	"strings"
	"testing"
)

// A tally counts the samples of one entry in the folder FLAMBEAU_SAMPLES.
type tally struct {
	rows map[string]int // number of samples by type, source and mode
	// least possible length of PyTorch's list of samples, by type, source and mode
	length map[string]int
	left   int  // number of samples that could not be recorded
	end    bool // the folder has the entry's last row
}

type tallies map[string]*tally

func (c tallies) add(r *row) {
	t := c[r.Op]
	if t == nil {
		t = &tally{rows: map[string]int{}, length: map[string]int{}}
		c[r.Op] = t
	}
	switch r.From {
	case "entry":
		t.end = true
		for _, n := range r.Left {
			t.left += n
		}
	case "sample", "reference":
		k := fmt.Sprint(r.Type, r.From, r.Training)
		t.rows[k]++
		t.length[k] = max(t.length[k], r.N+1)
	}
}

// lacks describes samples that are missing in a folder. It returns "" if the folder has all samples
// of the given entries. Samples that the script's flag --most left out count as missing, but
// samples that could not be recorded do not.
func (c tallies) lacks(entries map[string]bool) string {
	for _, op := range sortedKeys(entries) {
		t := c[op]
		if t == nil || !t.end {
			return "the entry " + op
		}
		gaps := 0
		for k, n := range t.rows {
			gaps += t.length[k] - n
		}
		if gaps > t.left {
			return fmt.Sprintf("%d samples of %s", gaps-t.left, op)
		}
	}
	return ""
}

// ofLayers reports whether a row of soak.tsv is about an entry of module_db, and not of op_db.
func ofLayers(e *exception) bool {
	return strings.HasPrefix(e.op, "nn.") && !strings.HasPrefix(e.op, "nn.functional.")
}

// TestWholeFolder checks what the function lacks() reports for several folders. A folder is
// complete if it has all entries and all their samples, except samples that could not be recorded.
func TestWholeFolder(t *testing.T) {
	entries := map[string]bool{"add": true}
	end := row{Op: "add", From: "entry", Left: map[string]int{"complex": 1}}
	for _, c := range []struct {
		places []int
		end    bool
		want   string
	}{
		{[]int{0, 1, 2, 3}, true, ""},
		{[]int{0, 1, 3}, true, ""},
		{[]int{0, 3}, true, "1 samples of add"}, // the script that records samples was run with --most 2
		{[]int{0, 1, 2, 3}, false, "the entry add"},
		{nil, false, "the entry add"},
	} {
		there := tallies{}
		for _, n := range c.places {
			there.add(&row{Op: "add", Type: "float32", From: "sample", N: n})
		}
		if c.end {
			there.add(&end)
		}
		if got := there.lacks(entries); got != c.want {
			t.Errorf("%v: lacks %q, want %q", c.places, got, c.want)
		}
	}
}

// TestRowsOfSize tests exceptions whose message is a factor, such as ×4, or a bound, such as ≤1e-6.
// Such an exception must match only errors up to that size.
func TestRowsOfSize(t *testing.T) {
	const off = "element 3 is 3e-07, want 0: off by 3e-07, 1e-07 is allowed"
	for msg, want := range map[string]bool{
		"×4": true, "×2": false, "≤1e-6": true, "≤2e-7": false,
		"want 0": true, "want 1": false, "": true,
	} {
		if got := (&exception{msg: msg}).fits(off); got != want {
			t.Errorf("a row with %q: %v, want %v", msg, got, want)
		}
	}
	if (&exception{msg: "≤1"}).fits("type is int64, want bool") {
		t.Error("a row with a bound excuses what has no size")
	}
}
