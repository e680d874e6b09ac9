package profile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// hostile holds names with characters that a writer must escape.
var hostile = []string{"quote\" and \\ backslash", "line\nbreak\x00\x1b[31m", "not UTF-8 \xff\xfe", "</script><b>", "semi;colon", strings.Repeat("long", 500)}

// traced returns a profile of a step on the emulated GPU, with names from hostile, and with scopes
// that end in unusual orders.
func traced(t *testing.T) *profile.Profile {
	tr := newTrainer(emulate(t))
	return recorded(t, profile.Options{Memory: true, Shapes: true, Stacks: true}, func(p *profile.Profile) {
		for _, name := range hostile {
			func() {
				defer profile.Span(name)()
				s := tensor.NewScope(tensor.Named(name))
				tensor.Zeros(3).In(s).Add(tensor.Ones(3).In(s))
				later := tensor.NewScope(tensor.Named("ends elsewhere"))
				s.Close()
				done := make(chan bool)
				go func() {
					later.Close()
					close(done)
				}()
				<-done
			}()
		}
		tr.step()
	})
}

type chromeEvent struct {
	Name, Cat, Ph, ID, BP, S string
	TS, Dur                  *float64
	PID, TID                 *int
	Args                     map[string]any
}

// TestTrace checks that a trace follows the rules of its viewers. Events must have the required
// fields and be in order. Slices must nest on their track, and flows must begin and end in slices.
// Asynchronous events must come in pairs, and counters must be numbers.
func TestTrace(t *testing.T) {
	p := traced(t)
	dir := t.TempDir()
	plain, packed := filepath.Join(dir, "a.json"), filepath.Join(dir, "a.json.gz")
	for _, path := range []string{plain, packed} {
		if err := p.WriteFile(path); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || !bytes.Equal(unpacked, raw) {
		t.Errorf("the packed trace is another: %v", err)
	}
	var file struct{ TraceEvents []chromeEvent }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	type track struct{ pid, tid int }
	type slice struct {
		start, end float64
		name       string
	}
	slices := map[track][]slice{}
	last := 0.0
	count := map[string]int{}
	arrows, calls := map[string]int{}, map[float64]bool{}
	async, named := map[string]string{}, map[track]bool{}
	names := map[string]bool{}
	for i, e := range file.TraceEvents {
		if e.TS == nil || e.PID == nil || e.TID == nil || e.Name == "" || *e.TS < 0 {
			t.Fatalf("event %d lacks a field: %+v", i, e)
		}
		if *e.TS < last {
			t.Errorf("event %d goes back in time", i)
		}
		last = *e.TS
		count[e.Ph]++
		names[e.Name] = true
		at := track{*e.PID, *e.TID}
		switch e.Ph {
		case "M":
			if e.Args["name"] == "" || len(e.Args) != 1 {
				t.Errorf("%+v", e)
			}
			named[at] = named[at] || e.Name == "thread_name"
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				t.Errorf("a slice without a duration: %+v", e)
			}
			slices[at] = append(slices[at], slice{*e.TS, *e.TS + *e.Dur, e.Name})
			if number, ok := e.Args["correlation"].(float64); ok && e.Cat == "cuda_driver" {
				calls[number] = true
			}
		case "b":
			async[e.ID] = e.Name
		case "e":
			if async[e.ID] != e.Name {
				t.Errorf("%q ends and has not begun", e.Name)
			}
			delete(async, e.ID)
		case "C":
			if _, ok := e.Args["bytes"].(float64); !ok {
				t.Errorf("a counter without a number: %+v", e)
			}
		case "i":
			if e.S != "t" || e.Name != "[memory]" || e.Args["Bytes"] == 0.0 || e.Args["Addr"] == nil || e.Args["Device Id"] == nil {
				t.Errorf("%+v", e)
			}
		case "s":
			arrows[e.Cat]++
		case "f":
		default:
			t.Errorf("unknown phase %q", e.Ph)
		}
	}
	const eps = 1e-3 // both ends of a slice are rounded to half a unit of the last digit
	gpu := 0
	for at, list := range slices {
		if !named[at] {
			t.Errorf("track %v has no name", at)
		}
		if at.pid > 0 {
			gpu += len(list)
		}
		var open []slice
		for _, s := range list {
			for len(open) > 0 && open[len(open)-1].end <= s.start+eps {
				open = open[:len(open)-1]
			}
			if n := len(open); n > 0 && open[n-1].end < s.end-eps {
				t.Errorf("%.40q, %v to %v, does not nest in %.40q, %v to %v", s.name, s.start, s.end, open[n-1].name, open[n-1].start, open[n-1].end)
			}
			if at.pid > 0 && len(open) > 0 {
				t.Errorf("%q overlaps %q on one stream", s.name, open[0].name)
			}
			open = append(open, s)
		}
	}
	begun := map[string]float64{}
	within := func(e chromeEvent) bool {
		for _, s := range slices[track{*e.PID, *e.TID}] {
			if s.start-eps <= *e.TS && *e.TS <= s.end+eps {
				return true
			}
		}
		return false
	}
	for _, e := range file.TraceEvents {
		// viewers use these arguments to find the launch, the stream and the op
		if e.Cat == "kernel" || e.Cat == "gpu_memcpy" {
			number, _ := e.Args["correlation"].(float64)
			if !calls[number] || e.Args["stream"] == nil || e.Args["device"] != 0.0 || e.Cat == "kernel" && len(e.Args["grid"].([]any)) != 3 {
				t.Errorf("%+v", e)
			}
		}
		switch e.Ph {
		case "s":
			begun[e.ID] = *e.TS
		case "f":
			from, ok := begun[e.ID]
			if !ok || from > *e.TS || e.BP != "e" {
				t.Errorf("an arrow from %v to %v", from, *e.TS)
			}
			delete(begun, e.ID)
		default:
			continue
		}
		if !within(e) {
			t.Errorf("an arrow ends in no slice: %+v", e)
		}
	}
	if len(begun) > 0 || len(async) > 0 || arrows["ac2g"] != gpu || gpu < 20 || arrows["fwdbwd"] < 3 || count["i"] < 20 || count["C"] < 20 || count["b"] < len(hostile) {
		t.Errorf("%d arrows without an end, %d asynchronous spans, %d arrows for %d kernels and copies, counts %v", len(begun), len(async), count["s"], gpu, count)
	}
	for _, name := range hostile {
		if !names[strings.ToValidUTF8(name, "\ufffd")] && !names[strings.ReplaceAll(strings.ToValidUTF8(name, "\ufffd"), "\ufffd", "\ufffd\ufffd")] {
			t.Errorf("no slice is called %.40q", name)
		}
	}
}

// TestPprof reads a file with go tool pprof. The tool must print the same values as the tables.
func TestPprof(t *testing.T) {
	p := traced(t)
	path := filepath.Join(t.TempDir(), "prof.pb.gz")
	if err := p.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	// The go command builds pprof the first time, and later gets it from the build cache.
	tool, err := exec.Command("go", "tool", "-n", "pprof").Output()
	if err != nil {
		t.Fatal(err)
	}
	top := func(index string) string {
		out, err := exec.Command(strings.TrimSpace(string(tool)), "-top", "-nodecount=2000", "-unit=ns", "-sample_index="+index, path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	total := p.KeyAverages().Total()
	gpu := top("gpu")
	if want := fmt.Sprintf("of %dns total", total.CUDASelf.Nanoseconds()); !strings.Contains(gpu, want) || !strings.Contains(gpu, "gemm_float32") {
		t.Errorf("not %q in\n%s", want, gpu)
	}
	for _, frame := range []string{"profile_test.(*trainer).step", "layer Conv2d_0", "LinearBackward"} {
		if !strings.Contains(gpu, frame) {
			t.Errorf("no %q in\n%s", frame, gpu)
		}
	}
	if cpu := top("cpu"); !regexp.MustCompile(`Type: cpu`).MatchString(cpu) || !strings.Contains(cpu, "cuLaunchKernel") {
		t.Errorf("%s", cpu)
	}
	for _, index := range []string{"flops", "moved", "allocated"} {
		if out := top(index); !strings.Contains(out, "Type: "+index) || strings.Contains(out, "of 0 total") {
			t.Errorf("%s", out)
		}
	}
}

// TestStacks checks the format of stacks: semicolons separate the frames, and a number ends the
// line. The numbers must add up to the total.
func TestStacks(t *testing.T) {
	p := traced(t)
	path := filepath.Join(t.TempDir(), "prof.stacks")
	if err := p.ExportStacks(path, "self_cuda_time_total"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	sum := 0
	for _, l := range lines {
		at := strings.LastIndexByte(l, ' ')
		n := 0
		if _, err := fmt.Sscan(l[at+1:], &n); err != nil {
			t.Errorf("%q: %v", l, err)
		}
		sum += n
	}
	want := int(p.KeyAverages().Total().CUDASelf.Microseconds())
	if d := sum - want; d > len(lines) || -d > len(lines) || len(lines) < 10 || !slices.IsSorted(lines) {
		t.Errorf("%d lines sum to %d µs, the GPU worked for %d", len(lines), sum, want)
	}
}
