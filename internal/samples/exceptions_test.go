package samples

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An exception is a row of testdata/ops.tsv or of a similar file. It names an entry, a difference
// from PyTorch, and the reason. An empty field matches everything. A message is a part of an
// error's text. The message "×4" matches an error of at most four times what the rule allows, and
// "≤1e-6" an error of at most 1e-6.
type exception struct {
	op     string   // name of an entry
	kinds  []string // types, or "error", "float64", "strided", "permuted"
	what   string   // what fails, as in the package comment
	msg    string
	class  string // class of the reason: a key of classes
	reason string

	line, used int
}

type exceptions []*exception

// classes holds the classes of reasons, with their meaning.
var classes = map[string]string{
	"documented": "differs, and the documents say so",
	"torch":      "PyTorch is less exact, or wrong",
	"rounding":   "ours rounds where PyTorch's formula does not",
	"absent":     "not there",
	"chance":     "the sample leaves the result open",
	"defect":     "to be mended",
	"zero":       "the sign of a zero alone",
}

func readExceptions(t *testing.T, path string) (list exceptions) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 6 || f[0] == "" || f[2] == "" || classes[f[4]] == "" || f[5] == "" {
			t.Fatalf("%s:%d: want op, types, what, message, class and reason, separated by tabs",
				path, i+1)
		}
		e := &exception{op: f[0], what: f[2], msg: f[3], class: f[4], reason: f[5], line: i + 1}
		if f[1] != "" {
			e.kinds = strings.Split(f[1], ",")
		}
		list = append(list, e)
	}
	return list
}

// excuses reports whether a row matches an outcome. It also counts the use of that row.
func (l exceptions) excuses(op, kind, what, msg string) bool {
	for _, e := range l {
		if e.op != op || e.what != what {
			continue
		}
		if e.kinds != nil && !slices.Contains(e.kinds, kind) || !e.fits(msg) {
			continue
		}
		e.used++
		return true
	}
	return false
}

// fits reports whether a message matches the row.
func (e *exception) fits(msg string) bool {
	factor, times := strings.CutPrefix(e.msg, "×")
	bound, ok := strings.CutPrefix(e.msg, "≤")
	if !times && !ok {
		return strings.Contains(msg, e.msg)
	}
	if ok {
		factor = bound
	}
	most, err := strconv.ParseFloat(factor, 64)
	_, numbers, found := strings.Cut(msg, ": off by ")
	var off, allowed float64
	if n, _ := fmt.Sscanf(numbers, "%g, %g is allowed", &off,
		&allowed); err != nil || !found || n != 2 {
		return false
	}
	if ok {
		return off <= most
	}
	return off <= most*allowed
}

// report prints the number of exceptions by reason. If a row was never used, it reports an error.
func (l exceptions) report(t *testing.T, whole bool) {
	t.Helper()
	rows, entries, samples := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range l {
		if e.used == 0 && whole {
			t.Errorf("line %d of the exceptions: %s %s needs no exception any more", e.line, e.op,
				e.what)
		}
		rows[e.class]++
		if e.what == "entry" {
			entries[e.class] += e.used
		} else {
			samples[e.class] += e.used
		}
	}
	for _, c := range sortedKeys(classes) {
		if rows[c] > 0 {
			t.Logf("%s (%s): %d entries, %d samples, in %d rows", c, classes[c], entries[c],
				samples[c], rows[c])
		}
	}
}
