package samples

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// ways holds the ways to run a float32 sample: as in PyTorch, in float64, and with other memory
// layouts.
var ways = []variant{
	{name: "", order: 2},
	{name: "float64", double: true, order: 2},
	{name: "strided", form: gapped, order: 1},
	{name: "permuted", form: permuted, order: 1},
}

// layoutDependent holds the entries whose results depend on the memory layout.
var layoutDependent = map[string]bool{
	"as_strided": true, "as_strided.partial_views": true, "as_strided_copy": true,
	"as_strided_scatter": true,
	"view":               true, "view_as": true, "view_copy": true,
}

// A walk compares the library's results for the samples in some files with PyTorch's.
type walk struct {
	list  exceptions
	only  string // name of the only entry to compare, from FLAMBEAU_SAMPLES_ONLY
	whole bool   // testdata has all samples that were recorded, not only a selection
	soak  bool   // samples outside of testdata are compared too

	dev device.Device // device of the first sample of each entry; nil means the CPU for all samples

	seen, good                         map[string]bool
	samples, refusals                  int
	results, grads, seconds, leftCount int

	there tallies // samples in the folder FLAMBEAU_SAMPLES
	gap   string  // text that describes the samples that are missing in that folder

	// number of samples outside of testdata, and how many of them needed twice the allowed error
	more, near int
}

// twice is the tolerance for files that a script wrote with the flag --all: twice the error that
// the rule allows. The scripts measured the terms of the rule in four tries for these files, and in
// eight for testdata. In a large sample, the rounding errors of some elements are larger than in
// any of four tries.
var twice = &exception{msg: "×2"}

// files returns the files in testdata. With FLAMBEAU_SOAK=1 it adds the files in the folder
// FLAMBEAU_SAMPLES.
func (w *walk) files(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/" + pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("files: %v, %v", paths, err)
	}
	dir := os.Getenv("FLAMBEAU_SAMPLES")
	w.soak = os.Getenv("FLAMBEAU_SOAK") == "1" && dir != "" && w.dev == nil && !w.whole
	if !w.soak {
		return paths
	}
	more, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(more) == 0 {
		t.Fatalf("FLAMBEAU_SAMPLES=%s has no files %s: %v", dir, pattern, err)
	}
	return append(paths, more...)
}

// compare compares all rows of the files with PyTorch. The function find returns the call for an
// entry, or nil if the entry has no adapter.
func (w *walk) compare(t *testing.T, pattern, exceptionFile string, ways []variant,
	find func(r *row) call) {
	t.Helper()
	w.seen, w.good, w.only = map[string]bool{}, map[string]bool{},
		os.Getenv("FLAMBEAU_SAMPLES_ONLY")
	w.list = readExceptions(t, exceptionFile)
	paths := w.files(t, pattern)
	if w.soak {
		w.there = tallies{}
		for _, e := range readExceptions(t, "testdata/soak.tsv") {
			if ofLayers(e) == strings.HasPrefix(pattern, "modules") {
				w.list = append(w.list, e)
			}
		}
	}
	for _, path := range paths {
		rows, err := rowsOf(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			r := &rows[i]
			r.more = filepath.Dir(path) != "testdata"
			if w.only != "" && r.Op != w.only {
				continue
			}
			if r.more {
				w.there.add(r)
			}
			f := find(r)
			switch {
			case w.dev != nil:
				if f != nil && r.From == "sample" && !w.seen[r.Op] {
					w.seen[r.Op] = true
					w.row(t, f, r, ways)
				}
			case r.From == "entry":
				for _, n := range r.Left {
					w.leftCount += n
				}
				if !w.seen[r.Op] && f == nil && !w.list.excuses(r.Op, "", "entry", "") {
					t.Errorf("%s: has no adapter", r.Op)
				}
				w.seen[r.Op] = true
			case f != nil:
				w.row(t, f, r, ways)
			}
		}
	}
	if w.soak {
		w.gap = w.there.lacks(w.seen)
	}
	if w.dev == nil {
		w.list.report(t, w.only == "" && w.gap == "")
	}
}

func (w *walk) row(t *testing.T, f call, r *row, ways []variant) {
	t.Helper()
	if r.Type != "float32" || r.Random {
		ways = ways[:1]
	}
	for _, how := range ways {
		if how.form != nil && layoutDependent[r.Op] {
			continue
		}
		var opts []tensor.Option
		if w.dev != nil {
			opts = append(opts, tensor.On(w.dev))
		}
		out := runs(f, r, how, opts...)
		w.results, w.grads, w.seconds = w.results+out.results, w.grads+out.grads,
			w.seconds+out.seconds
		kind := r.Type
		switch {
		case r.From == "error":
			w.refusals++
			kind = "error"
		case how.name == "":
			w.samples++
		default:
			kind = how.name
		}
		if r.more && how.name == "" {
			w.more++
		}
		if out.what == "" {
			w.good[r.Op] = w.good[r.Op] || r.From != "error"
			continue
		}
		if r.more && twice.fits(out.msg) {
			w.near++
			continue
		}
		if out.what == isBroken || !w.list.excuses(r.Op, kind, out.what, out.msg) {
			t.Errorf("%s\t%s\t%s\t%s #%d %s%s", r.Op, kind, out.what, out.msg, r.N, r.From, formatArgs(r))
		}
	}
}

// summary logs the number of comparisons. The test fails if fewer than least entries were compared.
func (w *walk) summary(t *testing.T, what string, least int) {
	t.Helper()
	t.Logf("%d entries of %s, %d of them compared; %d samples and %d inputs to refuse; "+
		"%d results, %d gradients, %d second gradients; %d samples and inputs to refuse are not written down",
		len(w.seen), what, len(w.good), w.samples, w.refusals, w.results, w.grads, w.seconds,
		w.leftCount)
	if w.soak {
		t.Logf("%d of them are in FLAMBEAU_SAMPLES; there %d comparisons were off by more than the "+
			"rule allows, and by no more than twice that", w.more, w.near)
		if w.gap != "" {
			t.Logf("no row of soak.tsv has to be needed: FLAMBEAU_SAMPLES lacks %s", w.gap)
		}
	}
	if w.only == "" && len(w.good) < least {
		t.Errorf("only %d entries were compared, want %d", len(w.good), least)
	}
}

// TestOps compares the operators with op_db.
func TestOps(t *testing.T) {
	var w walk
	w.compare(t, "ops*.safetensors.gz", "testdata/ops.tsv", ways,
		func(r *row) call { return calls[r.Op] })
	w.summary(t, "op_db", 500)
	for op := range calls {
		if w.only == "" && !w.seen[op] {
			t.Errorf("%s has an adapter, and there is no such entry", op)
		}
	}
}

// TestLayers compares the layers with module_db.
func TestLayers(t *testing.T) {
	var w walk
	w.compare(t, "modules*.safetensors.gz", "testdata/modules.tsv", ways[:2], func(r *row) call {
		if l, ok := layers[r.Op]; ok {
			return callLayer(l, r)
		}
		return nil
	})
	w.summary(t, "module_db", 104)
}

func formatArgs(r *row) string {
	var b strings.Builder
	for _, v := range r.Args {
		fmt.Fprintf(&b, " %s", v)
	}
	for _, k := range sortedKeys(r.Kw) {
		fmt.Fprintf(&b, " %s=%s", k, r.Kw[k])
	}
	return brief(b.String())
}
