package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The report on a run is valid JSON even if files that the run's steps have written are missing or
// broken. It contains each failed test with its output.
func TestReport(t *testing.T) {
	work, out := t.TempDir(), t.TempDir()
	files := map[string]string{
		"steps.txt":    "good\t0\t3\nbad\t1\t7\ncrash\t2\t1\nslow\tno_time\t0\nbench\t0\t9\n",
		"good.log":     "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n",
		"bad.log":      "=== RUN   TestB\n=== RUN   TestB/one\n    b_test.go:3: wrong number\n=== RUN   TestB/two\n--- FAIL: TestB (0.00s)\n    --- FAIL: TestB/one (0.00s)\n    --- PASS: TestB/two (0.00s)\nFAIL\n",
		"crash.log":    "=== RUN   TestC\n" + strings.Repeat("noise\n", 100) + "--- FAIL: TestC (0.00s)\npanic: it broke\n\ngoroutine 1 [running]:\n",
		"devices.json": "{\"devices\":[",
		"bench.json": `{"device":"cuda:0","case":"add_256M_f32","rate":4000,"median_seconds":1}` + "\n" + `{"device":"cuda:0","case":"relu_256M_f32","rate":1000,"median_seconds":1}` + "\n" +
			`{"device":"cuda:0","case":"matmul_4096_f32","rate":35000,"median_seconds":1}` + "\n" + `{"device":"cuda:0","case":"cnn_b256","peak_bytes":104,"planned_bytes":100,"median_seconds":1}` + "\n" + `{"device":"cu`,
		"torch.json":      `{"device":"cuda:0","case":"matmul_4096_f32","rate":50000,"median_seconds":1}` + "\n" + `{"device":"cuda:0","case":"cnn_b256","peak_bytes":100,"median_seconds":2}` + "\n",
		"train_cuda.json": `{"losses":[2.3,1.1]}`,
		"train_cpu.json":  `{"losses":[2.3,1.2]}`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if status := report([]string{"bench", work, out}); status != 1 {
		t.Errorf("status %d", status)
	}
	b, err := os.ReadFile(filepath.Join(out, "results-bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r results
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.OK || len(r.Steps) != 5 || r.Steps[0].Passed != 1 || r.Steps[1].Failed != 2 {
		t.Errorf("steps %+v", r.Steps)
	}
	said := map[string]string{}
	for _, f := range r.Failures {
		said[f.Step+" "+f.Test] = strings.Join(f.Lines, "\n")
	}
	if len(said) != 3 || !strings.Contains(said["bad TestB/one"], "wrong number") || !strings.Contains(said["crash TestC"], "panic: it broke") {
		t.Errorf("failures %q", said)
	}
	words := map[string]string{}
	for _, v := range r.Verdicts {
		words[v.What] = v.Word
	}
	for what, want := range map[string]string{"add_256M_f32: of the memory's 4.8 TB/s": holds, "relu_256M_f32: of the memory's 4.8 TB/s": fails, "add_256M_bf16: of the memory's 4.8 TB/s": fails,
		"matmul_4096_f32: of PyTorch (cuBLAS, no TF32)": holds, "cnn_b256: peak over PyTorch's": holds, "cnn_b256: plan over measured peak": holds,
		"chargpt_b32: peak over PyTorch's": fails, "cnn_b256: speed over PyTorch's": noPromise, "losses of training, cuda:0 and cpu": fails} {
		if words[what] != want {
			t.Errorf("%s: %q, want %q", what, words[what], want)
		}
	}
	if report([]string{"test", work, out}) != 2 {
		t.Error("an unknown mode is taken")
	}
	if report([]string{"tests", filepath.Join(work, "nothing"), out}) != 1 {
		t.Error("a run without steps was well")
	}
}

// The cases have the same names in this program and in PyTorch's program.
func TestCasesInPyTorch(t *testing.T) {
	b, err := os.ReadFile("torch_compare.py")
	if err != nil {
		t.Fatal(err)
	}
	// These cases are only for tuning.
	only := map[string]bool{"relu_256M_u8": true, "add_row_256M_f32": true}
	for _, c := range append(slices.Clone(cases), cpuCases...) {
		if !only[c.name] && !strings.Contains(string(b), `("`+c.name+`", "`+c.unit+`", `) {
			t.Errorf("%s is not measured in PyTorch", c.name)
		}
	}
}

// Cases with promises are measured first, so that even a run that is aborted early contains them.
// PyTorch's program uses the same order.
func TestPromisesComeFirst(t *testing.T) {
	b, err := os.ReadFile("torch_compare.py")
	if err != nil {
		t.Fatal(err)
	}
	asked, last := []string{}, 0
	for _, v := range judge("bench", t.TempDir()) {
		name, _, _ := strings.Cut(v.What, ":")
		if v.Word != noPromise && !strings.Contains(name, " ") && !strings.Contains(v.What, "graph") && !slices.Contains(asked, name) {
			asked = append(asked, name)
		}
	}
	// The first cases are those with a promise, and the driver's copy. Its rate limits theirs.
	first := cases[:len(asked)+1]
	for _, name := range asked {
		if !slices.ContainsFunc(first, func(c benchCase) bool { return c.name == name }) {
			t.Errorf("%s is not among the first %d cases", name, len(first))
		}
	}
	for _, c := range first {
		at := strings.Index(string(b), `("`+c.name+`", `)
		if at < last {
			t.Errorf("%s comes in another order in PyTorch", c.name)
		}
		last = at
	}
	if len(asked) < 6 {
		t.Errorf("promises are about %v", asked)
	}
}

// The output is short enough for machines that return only its end, even with many failures, long
// lines and all verdicts. The promises come last.
func TestTerminal(t *testing.T) {
	work, out := t.TempDir(), t.TempDir()
	var steps, bench, failed strings.Builder
	for i := range 60 {
		fmt.Fprintf(&failed, "=== RUN   Test%d\n%s--- FAIL: Test%d (0.00s)\n", i, strings.Repeat(strings.Repeat("wrong ", 60)+"\n", 60), i)
	}
	for i := range 24 {
		fmt.Fprintf(&steps, "step%d\t1\t3\n", i)
	}
	for _, c := range cases {
		fmt.Fprintf(&bench, `{"device":"cuda:0","case":%q,"rate":4000,"median_seconds":0.123456,"peak_bytes":123456789012,"planned_bytes":123456789012,"context_bytes":536870912}`+"\n", c.name)
		if !c.gpu {
			fmt.Fprintf(&bench, `{"device":"cpu","case":%q,"rate":4000,"median_seconds":0.123456}`+"\n", c.name)
		}
	}
	for name, text := range map[string]string{"steps.txt": steps.String(), "step3.log": failed.String(), "bench.json": bench.String(), "torch.json": bench.String()} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Create(filepath.Join(out, "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = file
	report([]string{"bench", work, out})
	os.Stdout = stdout
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, "terminal"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if len(text) > 12000-200 { // the script itself prints up to 200 characters after it
		t.Errorf("%d characters are printed: %s", len(text), text)
	}
	for _, want := range []string{"the pool, GiB +0[.]50 ", "step3 Test0", "promises not kept"} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%q is not printed in %s", want, text)
		}
	}
	if told, promised := strings.LastIndex(text, "speed over the CPU's"), strings.Index(text, "add_256M_f32: of the memory's"); promised < told || told < 0 {
		t.Errorf("promises do not stand last: %d, %d", promised, told)
	}
}
