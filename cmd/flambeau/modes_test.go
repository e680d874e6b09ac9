package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Trainings with mixed precision, batches in parts, or recomputation have losses close to those of
// a plain training. With recomputation they are bitwise equal.
func TestTrainModes(t *testing.T) {
	losses := func(args ...string) []float64 {
		out, _ := must(t, append([]string{"train", "--device", "cpu", "--steps", "12", "--json", "--losses"}, args...)...)
		return lastLine(t, out).Losses
	}
	plain := losses()
	for _, c := range []struct {
		args string
		tol  float64 // 0 means bitwise equality
	}{{"--checkpointing", 0}, {"--tf32", 0}, {"--micro-batch 10 --dropout 0", -1}, {"--amp bf16", 0.05}, {"--amp fp16 --accumulate 1", 0.05}, {"--amp bf16 --checkpointing", 0.05}} {
		got := losses(strings.Fields(c.args)...)
		want, tol := plain, c.tol
		if tol < 0 {
			want, tol = losses("--dropout", "0"), 1e-4
		}
		far := 0.0
		for i := range want {
			far = max(far, math.Abs(got[i]-want[i]))
		}
		if len(got) != len(want) || far > tol || c.tol == 0.05 && far == 0 {
			t.Errorf("%s: losses differ by %g: %v, without %v", c.args, far, got, want)
		}
	}
}

// A profile is written in the format of its file name, even if the training ends before the last
// profiled step.
func TestTrainProfile(t *testing.T) {
	for name, want := range map[string]string{"trace.json": `"Optimizer.step`, "tables.txt": "Optimizer.step", "pprof.pb.gz": "\x1f\x8b"} {
		for _, steps := range []string{"1", "5"} {
			path := filepath.Join(t.TempDir(), name)
			_, errOut := must(t, "train", "--device", "cpu", "--steps", steps, "--profile", path)
			b, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(b, []byte(want)) || !strings.Contains(errOut, "a profile is in "+path) {
				t.Errorf("%s after %s steps: %v, %d bytes\n%s", name, steps, err, len(b), errOut)
			}
		}
	}
	// The folder of the profile does not exist, so the command fails before the training.
	path := filepath.Join(t.TempDir(), "none", "trace.json")
	if status, _, errOut := command(t, "train", "--device", "cpu", "--steps", "4", "--profile", path); status != 1 || !strings.Contains(errOut, "--profile "+path) || strings.Contains(errOut, "4 steps in") {
		t.Errorf("a file that cannot be written: status %d\n%s", status, errOut)
	}
}

func TestTrainModesMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"--amp fp8":               "--amp fp8: known are bf16 and fp16",
		"--micro-batch=-2":        "--micro-batch -2: a number of samples cannot be negative",
		"--profile p.xml":         "the end of the name says the form",
		"--memory-snapshot m.txt": "--memory-snapshot",
		"--accumulate 0":          "--accumulate 0: at least 1 batch is needed",
	} {
		if status, _, errOut := command(t, append([]string{"train", "--device", "cpu"}, strings.Fields(args)...)...); status == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%s: status %d\n%s", args, status, errOut)
		}
	}
}

// If a batch does not fit into the GPU's memory, the command trains on parts of it, and says so.
func TestTrainWhatDoesNotFit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.html")
	b, err := process(t, "emulate,mem=1MiB,segment=16KiB", "train", "--memory-snapshot", file, "--device", "cuda", "--batch", "1000", "--hidden", "128", "--steps", "3", "--json").CombinedOutput()
	out := string(b)
	if err != nil || !strings.Contains(out, "going on in parts of") || !strings.Contains(out, `"steps":3`) {
		t.Errorf("%v\n%s", err, out)
	}
	if page, err := os.ReadFile(file); err != nil || !bytes.Contains(page, []byte("out of memory")) && !bytes.Contains(page, []byte("oom")) {
		t.Errorf("the snapshot: %v, %d bytes", err, len(page))
	}
}
