package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// planOf runs "flambeau plan" in a new process and parses the last line of its output.
func planOf(t *testing.T, args ...string) (r planReport, status int, errOut string) {
	t.Helper()
	c := process(t, "off", append([]string{"plan", "--json"}, args...)...)
	var e strings.Builder
	c.Stderr = &e
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %s", len(lines), out)
	}
	if err := json.Unmarshal([]byte(lines[0]), &r); err != nil && status != 1 && status != 2 {
		t.Fatalf("%v in %q\n%s", err, out, e.String())
	}
	return r, status, e.String()
}

// Planning the training of a GPT-2 on a machine without a GPU needs little memory and no file.
func TestPlanGPT2(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	t.Setenv("XDG_CACHE_HOME", temp)
	t.Setenv("FLAMBEAU_TEST_HWM", "1")
	r, status, errOut := planOf(t, "--model", "gpt2", "--batch", "8", "--seq", "1024", "--device", "h100")
	if status != 0 || r.Fits == nil || !*r.Fits || r.MaxBatch == nil || *r.MaxBatch < 20 || r.Parameters != 124439808 || r.Seconds == nil || *r.Seconds < 0.02 || *r.Seconds > 1 {
		t.Errorf("status %d, %+v", status, r)
	}
	// The expected number follows J. Kaplan et al., arXiv:2001.08361. Each token needs 3·2
	// operations for each weight of the matrix products. Attention adds 2·2·3·layers·width for each
	// pair of a query and a visible key. With causal attention, half of all pairs are visible.
	const tokens = 8 * 1024
	want := 6*124e6*tokens + 12*12*768*1024*tokens/2
	if got := float64(r.FLOPs.MatMul); got < 0.95*want || got > 1.05*want {
		t.Errorf("%v operations in matrix products, want about %v", got, want)
	}
	if r.Launches < 300 || r.Modules < 20 || r.Modules > 200 || r.Bytes < 10e9 || r.TensorFLOPs+r.OtherFLOPs != r.FLOPs.Total || r.LeastSeconds["h100"] > *r.Seconds ||
		r.LeastSeconds["h100"] < *r.Seconds/2 || r.LaunchSeconds <= 0 || len(r.LeastSeconds) < 4 {
		t.Errorf("counts %+v of a step of %v s", r.planCounts, *r.Seconds)
	}
	b := r.Breakdown
	if sum := b.Weights + b.Gradients + b.Optimizer + b.Activations + b.Workspace + b.Other + b.Rounding; sum != r.Peak || b.Weights < 4*r.Parameters || b.Optimizer < 8*r.Parameters || b.Rounding < 0 {
		t.Errorf("%+v is %d, the peak %d", b, sum, r.Peak)
	}
	if !strings.Contains(errOut, "launches alone") || !strings.Contains(errOut, "on tensor cores") {
		t.Errorf("people do not hear of launches and units: %s", errOut)
	}
	if !strings.Contains(errOut, "it fits") || !strings.Contains(errOut, "activations") {
		t.Errorf("no report for people: %s", errOut)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if runtime.GOOS == "linux" {
		m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(errOut)
		if m == nil {
			t.Fatal(errOut)
		}
		if kib, _ := strconv.Atoi(m[1]); kib < 1000 || kib > 300<<10 {
			t.Errorf("%d KiB of memory at most, want less than 300 MiB", kib)
		} else {
			t.Logf("%d KiB of memory at most", kib)
		}
	}
}

// TF32 moves float32 products to the tensor cores, at half the rate of 16-bit products.
func TestPlanTF32(t *testing.T) {
	args := []string{"--model", "gpt2", "--batch", "4", "--seq", "256", "--max-batch", "0", "--device", "a100"}
	plain, _, _ := planOf(t, args...)
	r, status, errOut := planOf(t, append(args, "--tf32")...)
	if status != 0 || plain.TensorFLOPs != 0 || plain.TF32 || !r.TF32 || !strings.Contains(errOut, "TF32") {
		t.Errorf("status %d, %+v\n%+v", status, plain, r)
	}
	if r.OtherProducts > plain.OtherProducts/10 || r.TensorIssued < r.TensorFLOPs || r.TensorFLOPs+r.OtherFLOPs != r.FLOPs.Total {
		t.Errorf("%+v\n%+v", plain, r)
	}
	if least := float64(r.TensorFLOPs) / 156e12; r.LeastSeconds["a100"] < least || r.LeastSeconds["a100"] > plain.LeastSeconds["a100"]/2 {
		t.Errorf("%v s, products alone take %v s, float32 %v s", r.LeastSeconds["a100"], least, plain.LeastSeconds["a100"])
	}
}

// Recomputed activations and a smaller batch need less memory.
func TestPlanLess(t *testing.T) {
	all, _, _ := planOf(t, "--model", "gpt2", "--batch", "4", "--seq", "256", "--max-batch", "0", "--device", "gpu")
	again, _, _ := planOf(t, "--model", "gpt2", "--batch", "4", "--seq", "256", "--checkpointing", "--max-batch", "0")
	half, _, _ := planOf(t, "--model", "gpt2", "--batch", "4", "--seq", "256", "--amp", "bf16", "--max-batch", "0")
	// In 16 bits, the kernel of the attention gradient skips keys that no query sees.
	if half.Breakdown.Activations >= all.Breakdown.Activations || half.Parameters != all.Parameters || half.FLOPs.MatMul > all.FLOPs.MatMul {
		t.Errorf("%+v\n%+v", all, half)
	}
	if all.Fits != nil || all.MaxBatch != nil || all.Seconds != nil || again.Breakdown.Activations > all.Breakdown.Activations/2 || again.FLOPs.Backward <= all.FLOPs.Backward {
		t.Errorf("%+v\n%+v", all, again)
	}
	r, status, errOut := planOf(t, "--model", "gpt2", "--batch", "64", "--device-memory", "8GiB")
	if status != 3 || r.Fits == nil || *r.Fits || r.Peak < 8<<30 || r.MaxBatch == nil || *r.MaxBatch < 1 || *r.MaxBatch >= 64 || !strings.Contains(errOut, "DOES NOT FIT") {
		t.Errorf("status %d, %+v", status, r)
	}
	if _, status, _ := planOf(t, "--model", "gpt2", "--batch", strconv.Itoa(*r.MaxBatch), "--device-memory", "8GiB", "--max-batch", "0"); status != 0 {
		t.Errorf("the largest batch, %d, does not fit", *r.MaxBatch)
	}
}

// Every model can be planned. Most of the larger variants are planned only with FLAMBEAU_SOAK=1.
func TestPlanModels(t *testing.T) {
	for name := range planModels {
		if slices.Contains([]string{"gpt2-medium", "gpt2-large", "gpt2-xl", "bert-large", "resnet34", "resnet101"}, name) && os.Getenv("FLAMBEAU_SOAK") != "1" {
			continue
		}
		args := []string{"plan", "--json", "--model", name, "--batch", "2", "--max-batch", "0", "--optimizer", "sgd"}
		status, out, errOut := command(t, args...)
		var r planReport
		if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil || r.Peak < 4*r.Parameters || r.Parameters == 0 {
			t.Errorf("%s: status %d, %v, %s %s", name, status, err, out, errOut)
		}
	}
}

func TestPlanMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"":                                     "--model",
		"--model gpt3":                         "gpt2-medium",
		"--model gpt2 --batch 0":               "--batch 0",
		"--model gpt2 --seq 2000":              "--seq 2000: gpt2 takes at most 1024 tokens",
		"--model gpt2 --image 3":               "--seq is its length",
		"--model resnet18 --seq 3":             "--image is their size",
		"--model lenet --image 30":             "[28 32]",
		"--model vit-b/16 --image 8":           "multiple of 16",
		"--model gpt2 --device t4":             "4090",
		"--model gpt2 --device A100-40GB":      "did you mean a100, the A100 SXM 80GB? known are 3090, 4090, a100, h100, h200, l4, l40s, cpu, gpu",
		"--model gpt2 --device-memory much":    "24GiB",
		"--model gpt2 --device-memory 1KiB":    "1MiB",
		"--model gpt2 --amp fp8":               "bf16",
		"--model gpt2 --optimizer best":        "adamw",
		"--model gpt2 --max-batch=-3":          "negative",
		"--model gpt2 --device-memory 9999TiB": "4TiB",
	} {
		status, _, errOut := command(t, append([]string{"plan"}, strings.Fields(args)...)...)
		if status != 2 || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d, %s; want %q", args, status, errOut, want)
		}
	}
	if status, out, _ := command(t, "plan", "--help"); status != 0 || !strings.Contains(out, "gpt2-xl") || !strings.Contains(out, "l40s") {
		t.Errorf("status %d, %s", status, out)
	}
}

// The flag --device accepts every common spelling of a GPU's name.
func TestPlanDeviceSpellings(t *testing.T) {
	for _, name := range []string{"rtx4090", "RTX 4090", "geforce-rtx-4090"} {
		status, out, errOut := command(t, "plan", "--model", "mlp", "--max-batch", "0", "--json", "--device", name)
		var r planReport
		if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil || r.Device != "4090" || r.Memory != 24207<<20 {
			t.Errorf("%s: status %d, %v\n%s%s", name, status, err, out, errOut)
		}
	}
}

// full is a writer that always fails.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// The command fails if the report cannot be written.
func TestPlanIntoNothing(t *testing.T) {
	for _, args := range [][]string{{"plan", "--model", "mlp", "--device", "gpu", "--max-batch", "0"}, {"plan", "--model", "mlp", "--device", "gpu", "--max-batch", "0", "--json"}} {
		var errOut strings.Builder
		if status := run(args, full{}, &errOut); status != 1 || !strings.Contains(errOut.String(), "no room") {
			t.Errorf("%v: status %d\n%s", args, status, errOut.String())
		}
	}
}
