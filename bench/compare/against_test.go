package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/train"
)

// pairRun measures a case in a trial of two rounds.
func pairRun(dev device.Device, p *peer, c pairCase) (*run, bool) {
	r := newRun(dev, c.benchCase, 0.01, true)
	r.rounds = 2
	return r, measurePair(r, p, c)
}

// All cases run alternately on an emulated GPU and in a peer. The program reports no ratios,
// because the clocks cannot be compared.
func TestAgainstOnEmulatedGPU(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=256MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pairs() {
		p := stubPeer(t, "")
		r, ok := pairRun(gpus[0], p, c)
		if !ok || r.Error != "" || len(r.Rounds) != 2 || r.Rate <= 0 {
			t.Errorf("%s: %v, %+v", c.name, ok, r.row)
		}
		if v := r.Theirs["fast"]; v == nil || len(v.Rounds) != 2 || v.Ratio != 0 {
			t.Errorf("%s: the other side %+v", c.name, v)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPeer is not a test but the main function of the peer process, which the tests of this file
// start. FLAMBEAU_TEST_PEER says how the peer fails.
func TestPeer(t *testing.T) {
	mode, ok := os.LookupEnv("FLAMBEAU_TEST_PEER")
	if !ok {
		t.Skip("it is started by other tests")
	}
	var line, name string
	for {
		if n, err := fmt.Scanln(&line, &name); n == 0 && err != nil {
			os.Exit(0)
		}
		switch {
		case line == "case" && mode == "half":
			fmt.Println(`{"slow": {"error": "no kernel"}}`)
		case line == "round" && mode == "dies":
			os.Exit(3)
		case line == "round" && mode == "half":
			fmt.Println(`{"fast": {"seconds": 1000}}`)
		case line == "round" && mode == "talks":
			fmt.Println("a warning")
		case line == "round":
			fmt.Println(`{"fast": {"seconds": 1000}, "slow": {"seconds": 2000}}`)
		default:
			fmt.Println("{}")
		}
	}
}

func stubPeer(t *testing.T, mode string) *peer {
	t.Helper()
	t.Setenv("FLAMBEAU_TEST_PEER", mode)
	p, err := startPeer([]string{os.Args[0], "-test.run", "^TestPeer$"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The ratio of a variant is the median over its rounds. If a variant fails, or if the peer ends,
// the row reports it, and our side is still measured.
func TestAgainstPeers(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	linear := pairs()[len(pairs())-1]
	for mode, want := range map[string]string{"": "", "half": "no kernel", "dies": "no answer", "talks": "a warning"} {
		r, ok := pairRun(cpu, stubPeer(t, mode), linear)
		if r.Error != "" || len(r.Rounds) != 2 || ok != (want == "") {
			t.Errorf("%q: %v, %+v", mode, ok, r.row)
		}
		said := ""
		for _, v := range r.Theirs {
			said += v.Error
		}
		if !strings.Contains(said, want) || (want == "") != (said == "") {
			t.Errorf("%q: %q, want %q", mode, said, want)
		}
		if mode == "" || mode == "half" {
			ratio := median([]float64{1000 / r.Rounds[0], 1000 / r.Rounds[1]})
			if got := r.Theirs["fast"].Ratio; got != ratio {
				t.Errorf("%q: a ratio of %v, want %v", mode, got, ratio)
			}
		}
	}
}

// pythonWithTorch returns the Python interpreter that FLAMBEAU_PYTHON names. It skips the test if
// that interpreter has no PyTorch.
func pythonWithTorch(t *testing.T) string {
	t.Helper()
	python := cmp.Or(os.Getenv("FLAMBEAU_PYTHON"), "python3")
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		t.Skipf("%s has no PyTorch: set FLAMBEAU_PYTHON", python)
	}
	return python
}

// Both sides have the same cases, and PyTorch can measure them. FLAMBEAU_PYTHON names a Python
// interpreter that has PyTorch.
func TestAgainstPyTorch(t *testing.T) {
	text, err := os.ReadFile("torch_against.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pairs() {
		stem := regexp.MustCompile(`^(linear|attention)_|_d[xw]$|_both$`).ReplaceAllString(c.name, "")
		if !strings.Contains(string(text), `"`+stem+`"`) {
			t.Errorf("%s is not measured in PyTorch", c.name)
		}
	}
	python := pythonWithTorch(t)
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	p, err := startPeer([]string{python, "-W", "ignore", "torch_against.py", "--trial", "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pairs() {
		if strings.HasSuffix(c.name, "_graph") {
			continue // the CPU has no graphs
		}
		r, ok := pairRun(cpu, p, c)
		if !ok || r.Theirs["eager"] == nil || strings.HasPrefix(c.name, "gpt2") && len(r.Theirs) != 3 {
			t.Errorf("%s: %+v, %v", c.name, r.row, r.Theirs)
		}
		for name, v := range r.Theirs {
			if len(v.Rounds) != 2 || !(v.Ratio > 0) {
				t.Errorf("%s, %s: %+v", c.name, name, v)
			}
		}
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// The program judges the promise that the step is faster than PyTorch's fastest eager variant. If
// no eager variant was measured, the promise counts as broken.
func TestJudgeAgainst(t *testing.T) {
	for text, want := range map[string]string{
		`{"eager":{"ratio":1.2},"flash":{"ratio":1.1},"compiled":{"ratio":0.8}}`: holds,
		`{"eager":{"ratio":1.2},"flash":{"ratio":0.9}}`:                          fails,
		`{"eager":{"error":"no memory"},"compiled":{"ratio":2}}`:                 fails,
		`{}`: fails,
	} {
		work := t.TempDir()
		line := `{"device":"cuda:0","case":"gpt2_8x1024_bf16","median_seconds":0.04,"bound_seconds":0.01,"theirs":` + text + `}`
		if err := os.WriteFile(filepath.Join(work, "against.json"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		list := judge("against", work)
		if len(list) != len(pairs())+1 || list[0].Bound != "0.25" || !strings.HasPrefix(list[0].Measured, "40.00 ms") || list[1].Word != want {
			t.Errorf("%s: %+v", text, list[:2])
		}
		if last := list[len(list)-1]; last.Measured != none || last.Word != noPromise {
			t.Errorf("%+v", last)
		}
	}
}

// The minimum time of a step of GPT-2 follows from its products. Each token needs six operations
// per weight, as in J. Kaplan et al. (arXiv:2001.08361, table 1), and in addition the products of
// the last layer and of attention.
func TestLeast(t *testing.T) {
	h100, err := train.FindGPU("h100")
	if err != nil {
		t.Fatal(err)
	}
	flops, bytes := 0.0, 0.0
	list := gpt2Pieces()
	for _, p := range list {
		flops, bytes = flops+p.FLOPs, bytes+p.Bytes
	}
	weights := 12.0*12*gptWidth*gptWidth + gptVocab*gptWidth
	attention := 3.5 * 4 * 12 * 8 * 12 * 64 * 1024 * 1025 / 2
	if want := 6*gptTokens*weights + attention; flops < 0.999*want || flops > 1.001*want {
		t.Errorf("%g operations, want %g", flops, want)
	}
	if got, low := minSeconds(h100, list), flops/h100.Half; got < low || got < bytes/h100.Bandwidth || got > 1.5*low {
		t.Errorf("a bound of %v s, %v s for the operations alone", got, low)
	}
	if got := minSeconds(h100, []piece{{h100.Half, 0}, {0, 2 * h100.Bandwidth}}); got != 3 {
		t.Errorf("a second behind two takes %v s", got)
	}
}

var writePage = flag.Bool("write", false, "TestTransformersPage writes its page")

// The page bench/results/transformers.md lists the cases and their minimum times.
func TestTransformersPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(pageHead)
	var gpus []train.Machine
	for _, name := range []string{"a100", "h100", "h200", "4090"} {
		m, err := train.FindGPU(name)
		if err != nil {
			t.Fatal(err)
		}
		gpus = append(gpus, m)
	}
	for _, c := range pairs() {
		all := piece{}
		for _, p := range c.pieces {
			all.FLOPs, all.Bytes = all.FLOPs+p.FLOPs, all.Bytes+p.Bytes
		}
		fmt.Fprintf(&b, "| %s | %.4g | %.4g", c.name, all.FLOPs/1e9, all.Bytes/1e6)
		for _, m := range gpus {
			b.WriteString(" | " + seconds(minSeconds(m, c.pieces)))
		}
		b.WriteString(" | not run | not run |\n")
	}
	const page = "../results/transformers.md"
	if *writePage {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != b.String() {
		t.Errorf("%s is not what the cases say (%v): -write writes it", page, err)
	}
}

const pageHead = `# Transformers beside PyTorch

Nothing on this page was measured: it has not run on a GPU. It has the cases, and the least time that
each takes.

    scripts/gpu-bundle
    build/gpu/run.sh against

builds the bundle, and on a machine with a GPU and PyTorch measures all of them. Both sides take turns
within one run, five rounds of each case, and the median of the five ratios is told. PyTorch is eager as
it comes, eager with the flash kernels alone, compiled, and as a graph. A step of GPT-2 is promised to
be ahead of the faster of the eager two, and the run fails where it is not.

- gpt2 is a training step of GPT-2 124M, with 8 rows of 1024 tokens, bfloat16 by autocast, AdamW and
  dropout 0.1.
- attention is scaled dot product attention of bfloat16, batch × heads × queries × features. Behind
  both stands the gradient with it.
- linear is the product of one of GPT-2's layers with 8192 tokens, dx and dw those of its gradients.
- The bound is the least time by NVIDIA's datasheets, which ` + "`train/machine.go`" + ` cites: of each product,
  attention pass and the optimizer the longer of its operations and its bytes, one after the other. In
  the step's bound nothing else counts.

    go test ./bench/compare -run TestTransformersPage -args -write

writes this page.

| case | GFLOP | MB | A100 | H100 | H200 | 4090 | Flambeau | PyTorch |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
`
