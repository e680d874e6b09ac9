package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/safetensors"
)

// command runs a command line in this process. It returns the exit status and the outputs.
func command(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	status = run(args, &o, &e)
	return status, o.String(), e.String()
}

// lastLine parses the JSON object that --json prints.
func lastLine(t *testing.T, out string) (r result) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return r
}

func TestTrainOnTheCPU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.safetensors")
	status, out, errOut := command(t, "train", "--device", "cpu", "--json", "--losses", "--out", path)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, errOut)
	}
	r := lastLine(t, out)
	if r.Device != "cpu" || r.Emulated || r.Steps != len(r.Losses) || r.Steps < 100 || r.PeakDeviceBytes <= 0 || r.SamplesPerSecond <= 0 {
		t.Errorf("%+v", r)
	}
	if float64(*r.TestAccuracy) < 0.97 {
		t.Errorf("test accuracy %v", float64(*r.TestAccuracy))
	}
	weights, _, err := safetensors.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if w := weights["0.weight"]; w == nil || w.Dim(1) != 64 {
		t.Errorf("weights %v", weights)
	}
}

// The same command gives the same bits, and another seed gives other bits.
func TestTrainIsReproducible(t *testing.T) {
	losses := func(seed string) string {
		_, out, _ := command(t, "train", "--device", "cpu", "--steps", "20", "--json", "--losses", "--seed", seed)
		r := lastLine(t, out)
		text, _ := json.Marshal(r.Losses)
		return string(text)
	}
	if a, b := losses("3"), losses("3"); a != b || len(a) < 20 {
		t.Errorf("%s\n%s", a, b)
	}
	if losses("3") == losses("4") {
		t.Error("the seed has no effect")
	}
}

func TestMistakes(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"", 2, "Try: flambeau train"},
		{"trian", 2, `did you mean "train"`},
		{"train --stepz 3", 2, "unknown flag --stepz"},
		{"train --epochs 0", 2, "--epochs 0"},
		{"train --batch=-1", 2, "--batch -1"},
		{"train --lr 0", 2, "--lr 0"},
		{"train --lr 1e20 --device cpu", 1, `the loss is (NaN|[+-]Inf) at step \d+; try a smaller --lr than 1e\+20`},
		{"train --device tpu", 1, `no kind of device "tpu"; known are`},
		{"train --device cpu:999", 1, "the processor has at most 256 ranks"},
		{"train --device cuda:x", 1, `"x" is not the number of a device`},
		{"train --device gpu", 1, `known are cpu, cuda and auto\n$`},
		{"train --steps 1 --losses", 2, "--losses.* add --json"},
		{"train --device cpu --out " + filepath.Join(dir, "no", "dir", "x"), 1, `^flambeau: --out .*(no such file|cannot find)`},
		{"train --device cpu --out " + dir, 1, "^flambeau: --out .* is a folder"},
		{"train --device cpu --out " + filepath.Join(file, "x"), 1, "^flambeau: --out .*(not a (folder|directory)|cannot find)"},
		{"train --resume", 2, "--resume: --checkpoint says from which directory"},
		{"train --every 5", 2, "add --checkpoint DIR"},
		{"train --model vgg", 2, "--model vgg: known are mlp, cnn, resnet18, "},
		{"train --optim fastest", 2, "--optim fastest: known are adafactor, adam, adamw, "},
		{"train --sched never", 2, "--sched never: known are constant, cosine, "},
		{"train --dropout 1", 2, "--dropout 1"},
		{"train --accumulate=-2", 2, "--accumulate -2"},
		{"train --accumulate 0", 2, "--accumulate 0: at least 1"},
		{"train --keep=-2 --checkpoint " + dir, 2, "--keep"},
		{"train --keep 0 --checkpoint " + dir, 2, "--keep 0: at least 1"},
		{"train --device cpu --data " + filepath.Join(dir, "none"), 1, "none.*(no such file|cannot find)"},
		{"train --device cpu --data " + dir, 1, "flambeau: detect: " + regexp.QuoteMeta(dir)},
		{"train --device cpu --model vit", 1, "a vit wants square images of three channels .* not samples of shape .1 8 8."},
		{"train --device cpu --size 16", 1, "--size is for pictures of --data; the embedded digits have 8×8 pixels"},
		{"train --device cpu --data mnit", 1, "mnit: no such file .*; nor is it the name of a published set: .*mnist"},
		{"train --device cpu --model gpt", 1, "--model gpt does not go with digits"},
		{"train --device cpu --init " + filepath.Join(dir, "none"), 1, "flambeau: --init .*none.*(no such file|cannot find)"},
		{"train --device cpu --init " + file, 1, "flambeau: --init .*file is neither"},
		{"train --device cpu --checkpoint " + file, 1, "not a directory|cannot find"},
		{"train --device cpu --steps 1 --tensorboard " + file, 1, "flambeau: tensorboard: .*not a directory|cannot find"},
		{"eval", 2, "expected .<weights>"},
		{"eval --device cpu " + filepath.Join(dir, "none"), 1, "none.*(no such file|cannot find)"},
		{"eval --device cpu " + dir, 1, "there are no checkpoints"},
		{"predict --device cpu " + file, 2, "expected .<inputs>"},
		{"predict --top 0 " + file + " x", 2, "--top 0"},
		{"generate --tokens 0 " + file, 2, "--tokens 0"},
		{"generate --vocab x " + file, 2, "--vocab and --merges belong together"},
		{"generate --top-p 2 " + file, 2, "--top-p 2"},
	} {
		status, _, errOut := command(t, strings.Fields(c.args)...)
		if status != c.status || !regexp.MustCompile(c.want).MatchString(errOut) {
			t.Errorf("flambeau %s: status %d\n%s", c.args, status, errOut)
		}
	}
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("%d files are left", len(files))
	}
}

func TestInterruptKeepsTheModel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errOut strings.Builder
	path := filepath.Join(t.TempDir(), "m.safetensors")
	keep := filepath.Join(t.TempDir(), "keep")
	c := &trainCmd{Device: "cpu", Optim: "adamw", Sched: "cosine", Seed: seedFlag{n: 1}, Out: path, Checkpoint: keep, JSON: true}
	if err := c.Run(&env{ctx: ctx, out: &out, err: &errOut}); err != errInterrupted {
		t.Fatalf("got %v", err)
	}
	if _, _, err := safetensors.Load(path); err != nil {
		t.Fatal(err)
	}
	if l, err := checkpoint.Load(keep); err != nil || l.Info.Step != 0 {
		t.Fatal(l, err)
	}
	if !strings.Contains(errOut.String(), "interrupted") || lastLine(t, out.String()).Steps != 0 {
		t.Fatalf("%s%s", out.String(), errOut.String())
	}
}

func TestDevicesAndVersion(t *testing.T) {
	status, out, _ := command(t, "devices")
	if status != 0 || !regexp.MustCompile(`(?m)^cpu .*SIMD `).MatchString(out) || !strings.Contains(out, "optional libraries") {
		t.Errorf("%s", out)
	}
	status, out, _ = command(t, "devices", "--json")
	var r devicesReport
	if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil || len(r.Devices) == 0 || r.Devices[0].Name != "cpu" || r.Devices[0].Cores < 1 {
		t.Errorf("%v %s", err, out)
	}
	if status, out, _ = command(t, "--version"); status != 0 || !strings.HasPrefix(out, "flambeau ") {
		t.Errorf("--version: %d, %q", status, out)
	}
	if status, out, _ = command(t, "version"); status != 0 || !strings.HasPrefix(out, "flambeau ") {
		t.Errorf("%s", out)
	}
	for _, args := range [][]string{{"train", "--help"}, {"help", "train"}} {
		if status, out, _ = command(t, args...); status != 0 || !strings.Contains(out, "--losses") {
			t.Errorf("%q: %s", args, out)
		}
	}
	if status, out, _ = command(t, "help"); status != 0 || !strings.Contains(out, "devices") {
		t.Errorf("%s", out)
	}
}
