package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// results is the contents of the file that a mode of scripts/gpu-run.sh writes.
type results struct {
	OK       bool         `json:"ok"`
	Mode     string       `json:"mode"`
	Commit   string       `json:"commit"`
	Date     string       `json:"date"`
	Steps    []stepResult `json:"steps"`
	Failures []failure    `json:"failures"`
	Verdicts []verdict    `json:"verdicts"`
	// Pieces are the outputs of the steps "devices", "training" and "measurements".
	Pieces map[string]any `json:"pieces"`
}

// stepResult is a line of the file steps.txt: name, exit status and seconds, separated by tabs.
type stepResult struct {
	Name    string  `json:"name"`
	Status  string  `json:"status"`
	Seconds float64 `json:"seconds"`
	Passed  int     `json:"passed"` // number of tests that passed, including subtests
	Failed  int     `json:"failed"`
}

// failure is a failed test, or a failed step without tests. Lines is the beginning of its output.
type failure struct {
	Step  string   `json:"step"`
	Test  string   `json:"test"`
	Lines []string `json:"lines"`
}

// These limits keep the output short, because some machines return only the last 12,000 characters
// of the terminal.
const (
	failureLines = 40
	lineWidth    = 240
	terminal     = 11000
)

// report writes results-MODE.json and log-MODE.txt to the folder out, from the files in the folder
// work, and prints the most important results. It writes valid JSON even if files in work are
// missing or broken. It returns 1 if anything failed.
func report(args []string) int {
	if len(args) != 3 || !slices.Contains([]string{"tests", "bench", "against", "sweep", "sanitizer"}, args[0]) {
		fmt.Fprintln(os.Stderr, "usage: compare report tests|bench|against|sweep|sanitizer WORK OUT")
		return 2
	}
	mode, work, out := args[0], args[1], args[2]
	r := results{Mode: mode, Date: time.Now().UTC().Format(time.RFC3339), Pieces: map[string]any{}, Steps: []stepResult{}, Failures: []failure{}, Verdicts: []verdict{}}
	if b, err := os.ReadFile("commit.txt"); err == nil {
		r.Commit = strings.TrimSpace(string(b))
	}
	var log bytes.Buffer
	text, _ := os.ReadFile(filepath.Join(work, "steps.txt"))
	r.OK = len(text) > 0
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 3 {
			continue
		}
		s := stepResult{Name: f[0], Status: f[1]}
		s.Seconds, _ = strconv.ParseFloat(f[2], 64)
		said, _ := os.ReadFile(filepath.Join(work, s.Name+".log"))
		list := s.read(said)
		if s.Status != "0" && len(list) == 0 {
			list = []failure{{Step: s.Name, Lines: tail(said, failureLines)}}
		}
		r.OK = r.OK && s.Status == "0"
		r.Steps, r.Failures = append(r.Steps, s), append(r.Failures, list...)
		fmt.Fprintf(&log, "== %s: status %s, %.0f s\n", s.Name, s.Status, s.Seconds)
		const most = 2 << 20 // greatest number of bytes of a step's output
		if n := len(said); n > most {
			said = append(append(said[:most/2:most/2], fmt.Sprintf("\n… %d bytes left out …\n", n-most)...), said[n-most/2:]...)
		}
		log.Write(said)
	}
	pieces, _ := filepath.Glob(filepath.Join(work, "*.json"))
	for _, p := range pieces {
		r.Pieces[strings.TrimSuffix(filepath.Base(p), ".json")] = readJSON(p)
	}
	r.Verdicts = judge(mode, work)
	for _, v := range r.Verdicts {
		r.OK = r.OK && v.Word != fails
	}
	b, err := json.MarshalIndent(r, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(out, "results-"+mode+".json"), append(b, '\n'), 0o644)
	}
	if e := os.WriteFile(filepath.Join(out, "log-"+mode+".txt"), log.Bytes(), 0o644); err == nil {
		err = e
	}
	r.print()
	if err != nil {
		fmt.Println(err)
	}
	if !r.OK || err != nil {
		return 1
	}
	return 0
}

// readJSON returns the contents of a file: a JSON value, a list if each line is a JSON value, or
// the text if the file is not JSON.
func readJSON(path string) any {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var list []any
	for d := json.NewDecoder(bytes.NewReader(b)); d.More(); {
		var v any
		if d.Decode(&v) != nil {
			return map[string]any{"not_json": string(b[:min(len(b), 2000)]), "before": list}
		}
		list = append(list, v)
	}
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// read counts the passed and failed tests in the log of a test binary (-test.v). It returns the
// failed tests with their output, but not a test that failed only because of a subtest.
func (s *stepResult) read(log []byte) (list []failure) {
	said, current := map[string][]string{}, ""
	var failed []string
	sc := bufio.NewScanner(bytes.NewReader(log))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		line := sc.Text()
		trimmed := strings.TrimSpace(line)
		word, rest, _ := strings.Cut(trimmed, " ")
		switch word {
		case "===":
			if f := strings.Fields(rest); len(f) == 2 {
				current = f[1] // a line "=== RUN", "=== CONT" or "=== NAME" names the current test
			}
			continue
		case "---":
			f := strings.Fields(rest)
			if len(f) < 2 {
				break
			}
			switch f[0] {
			case "PASS:":
				s.Passed++
			case "FAIL:":
				s.Failed++
				failed = append(failed, f[1])
			}
			current = f[1]
			continue
		}
		if l := said[current]; len(l) < failureLines {
			said[current] = append(l, clip(line))
		} else if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			said[current] = append(l[:failureLines-1], clip(line))
		}
	}
	inner := map[string]bool{}
	for _, f := range failed {
		for i := strings.LastIndexByte(f, '/'); i >= 0; i = strings.LastIndexByte(f[:i], '/') {
			inner[f[:i]] = true
		}
	}
	for _, f := range failed {
		if !inner[f] {
			list = append(list, failure{s.Name, f, said[f]})
		}
	}
	return list
}

func clip(line string) string {
	if len(line) > lineWidth {
		return strings.ToValidUTF8(line[:lineWidth], "") + "…"
	}
	return strings.ToValidUTF8(line, "?")
}

// tail returns the last lines of a text.
func tail(b []byte, n int) []string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		lines[i] = clip(l)
	}
	return lines
}

// print prints as many failures as fit on the terminal, then the steps, and then the verdicts. The
// verdicts about promises come last.
func (r *results) print() {
	var end strings.Builder
	broken := 0
	fmt.Fprintf(&end, "\n%-28s %8s %8s %7s %7s\n", "step", "status", "seconds", "passed", "failed")
	for _, s := range r.Steps {
		fmt.Fprintf(&end, "%-28s %8s %8.0f %7d %7d\n", s.Name, s.Status, s.Seconds, s.Passed, s.Failed)
	}
	if len(r.Verdicts) > 0 {
		head := [3]string{"promise", "bound", "measured"}
		switch r.Mode {
		case "sweep":
			head = [3]string{"case", "chosen", "best variant, where it is another"}
		case "against":
			head = [3]string{"case", "of bound", "median, and how many times as fast as PyTorch"}
		}
		fmt.Fprintf(&end, "\n%-50s %-12s %s\n", head[0], head[1], head[2])
		for _, promised := range []bool{false, true} { // verdicts about promises come last
			for _, v := range r.Verdicts {
				if (v.Word != noPromise) != promised {
					continue
				}
				fmt.Fprintf(&end, "%-50s %-12s %-36s %s\n", v.What, v.Bound, v.Measured, v.Word)
				if v.Word == fails {
					broken++
				}
			}
		}
	}
	word := "ok"
	if !r.OK {
		word = "FAILED"
	}
	fmt.Fprintf(&end, "%s: %s, %d failures, %d promises not kept\n", r.Mode, word, len(r.Failures), broken)
	room := terminal - end.Len()
	each := failureLines
	for ; each > 2 && len(r.Failures)*each*80 > room; each /= 2 {
	}
	left := 0
	for _, f := range r.Failures {
		text := fmt.Sprintf("-- %s %s\n", f.Step, f.Test)
		lines := f.Lines[:min(each, len(f.Lines))]
		if f.Test == "" { // for a program, print the end of its output
			lines = f.Lines[max(0, len(f.Lines)-each):]
		}
		for _, l := range lines {
			text += l + "\n"
		}
		if room -= len(text); room < 0 {
			left++
			continue
		}
		fmt.Print(text)
	}
	if left > 0 {
		fmt.Printf("-- and %d failures more, in results-%s.json\n", left, r.Mode)
	}
	fmt.Print(end.String())
}

// A verdict says whether the measurements meet one expectation.
type verdict struct {
	What     string `json:"what"`
	Bound    string `json:"bound"`
	Measured string `json:"measured"`
	Word     string `json:"word"`
}

const (
	holds     = "PASS"
	fails     = "FAIL"
	none      = "not measured"
	noPromise = "-" // bound of a verdict that is not a promise
)

// rows returns the measurements on devices of one kind, by case.
func rows(path, device string) map[string]row {
	m := map[string]row{}
	f, err := os.Open(path)
	if err != nil {
		return m
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var r row
		if d.Decode(&r) != nil {
			break // the end of the file is missing
		}
		if r.Error == "" && strings.HasPrefix(r.Device, device) {
			m[r.Case] = r
		}
	}
	return m
}

func judge(mode, work string) (list []verdict) {
	switch mode {
	case "bench":
	case "against":
		return judgeAgainst(work)
	case "sweep":
		return judgeSweep(work)
	default:
		return []verdict{}
	}
	ours, theirs := rows(filepath.Join(work, "bench.json"), "cuda"), rows(filepath.Join(work, "torch.json"), "cuda")
	cpu := rows(filepath.Join(work, "bench.json"), "cpu")
	// compare adds a verdict about the ratio a/b, which must be between low and high.
	compare := func(what, bound string, a, b, low, high float64, format string) {
		v := verdict{what, bound, none, fails}
		if a > 0 && b > 0 {
			v.Measured = fmt.Sprintf(format, a, b, a/b)
			if q := a / b; q >= low && q <= high {
				v.Word = holds
			}
		}
		if low == 0 && math.IsInf(high, 1) {
			v.Word = noPromise
		}
		list = append(list, v)
	}
	const hbm = 4800
	any := math.Inf(1)
	for _, c := range []string{"add_256M_f32", "relu_256M_f32", "add_256M_bf16"} {
		compare(c+": of the memory's 4.8 TB/s", ">= 80 %", ours[c].Rate, hbm, 0.8, any, "%.0f of %.0f GB/s: %.2f")
	}
	compare("copy by the driver: of 4.8 TB/s", "", ours["copy_1GiB"].Rate, hbm, 0, any, "%.0f of %.0f GB/s: %.2f")
	for _, c := range []string{"add_256M_f32", "relu_256M_f32", "softmax_256M_f32", "sum_256M_f32", "transpose_16K_f32"} {
		compare(c+": of the driver's copy", "", ours[c].Rate, ours["copy_1GiB"].Rate, 0, any, "%.0f of %.0f GB/s: %.2f")
	}
	compare("matmul_4096_f32: of PyTorch (cuBLAS, no TF32)", ">= 60 %", ours["matmul_4096_f32"].Rate, theirs["matmul_4096_f32"].Rate, 0.6, any, "%.0f of %.0f GFLOP/s: %.2f")
	for _, c := range []string{"mlp_784_4096_4096_10_b128", "cnn_b256", "chargpt_b32"} {
		compare(c+": peak over PyTorch's", "<= 1.05", float64(ours[c].Peak), float64(theirs[c].Peak), 0, 1.05, "%.0f over %.0f bytes: %.3f")
		compare(c+": plan over measured peak", "0.95 to 1.05", float64(ours[c].Planned), float64(ours[c].Peak), 0.95, 1.05, "%.0f over %.0f bytes: %.3f")
		compare(c+": context beside the pool, GiB", "", float64(ours[c].Context)/(1<<30), 1, 0, any, "%.2[1]f")
	}
	for _, c := range []string{"mlp_digits_b32", "cnn_b256", "chargpt_b32"} {
		compare(c+": graph over eager time", "<= 1", ours[c+"_graph"].Median, ours[c].Median, 0, 1, "%.3g over %.3g s: %.2f")
	}
	for _, c := range cases {
		if t, ok := theirs[c.name]; ok {
			compare(c.name+": speed over PyTorch's", "", 1/nonzero(ours[c.name].Median), 1/nonzero(t.Median), 0, any, "%.4g over %.4g /s: %.2f")
		}
		if t, ok := cpu[c.name]; ok {
			compare(c.name+": speed over the CPU's", "", 1/nonzero(ours[c.name].Median), 1/nonzero(t.Median), 0, any, "%.4g over %.4g /s: %.2f")
		}
	}
	return append(list, losses(work)...)
}

// nonzero returns x, or NaN if x is 0, because 0 means that nothing was measured. A ratio with such
// a number is then NaN too.
func nonzero(x float64) float64 {
	if x > 0 {
		return x
	}
	return math.Inf(1)
}

// losses returns verdicts that compare the losses of the same training on a GPU and on the CPU.
func losses(work string) []verdict {
	read := func(name string) (v struct {
		Losses []float64 `json:"losses"`
	}) {
		b, _ := os.ReadFile(filepath.Join(work, name))
		_ = json.Unmarshal(b, &v)
		return v
	}
	gpu, cpu := read("train_cuda.json").Losses, read("train_cpu.json").Losses
	v := verdict{"losses of training, cuda:0 and cpu", "within 1 %", none, fails}
	if len(gpu) == len(cpu) && len(cpu) > 0 {
		worst := 0.0
		for i, c := range cpu {
			if d := math.Abs(gpu[i]-c) / max(1, c); !(d <= worst) {
				worst = d
			}
		}
		v.Measured = fmt.Sprintf("%d losses, worst %.3g", len(cpu), worst)
		if worst <= 1e-2 {
			v.Word = holds
		}
	}
	return []verdict{v}
}
