package main

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Two ranks of the CPU have the same losses as one device. The output names the devices, and the
// training can be resumed on one device.
func TestTrainOnSeveralDevices(t *testing.T) {
	args := []string{"train", "--json", "--losses", "--dropout", "0", "--sched", "constant", "--batch", "30"}
	_, out, _ := command(t, append(args, "--device", "cpu", "--steps", "40")...)
	want := lastLine(t, out)
	dir := t.TempDir()
	keep := append(args, "--checkpoint", dir)
	status, out, errOut := command(t, append(keep, "--devices", "cpu,cpu", "--steps", "25")...)
	if status != 0 || !strings.Contains(errOut, "using cpu:0 (") || strings.Count(errOut, "training on 2 devices (in-process): cpu:0, cpu:1") != 1 {
		t.Fatalf("status %d\n%s", status, errOut)
	}
	r := lastLine(t, out)
	if r.Device != "cpu:0" || !slices.Equal(r.Devices, []string{"cpu:0", "cpu:1"}) || r.PeakDeviceBytes <= 0 || r.Steps != 25 {
		t.Errorf("%+v", r)
	}
	losses := r.Losses
	status, out, errOut = command(t, append(keep, "--device", "cpu", "--steps", "40", "--resume")...)
	if status != 0 || !strings.Contains(errOut, "Devices was 2 and is 1") {
		t.Fatalf("status %d\n%s", status, errOut)
	}
	losses = append(losses, lastLine(t, out).Losses...)
	if len(losses) != 40 || len(want.Losses) != 40 {
		t.Fatalf("%d losses, %d of one device", len(losses), len(want.Losses))
	}
	for i, v := range want.Losses {
		if d := math.Abs(losses[i] - v); !(d <= 1e-4*math.Max(1, v)) {
			t.Errorf("step %d: %v, on one device %v", i+1, losses[i], v)
		}
	}
}

// Models of text, of tables and of images can be trained on several devices.
func TestModelsOnSeveralDevices(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("to be or not to be, that is the question. ", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	numbers := "a,b,y\n"
	for i := range 60 {
		numbers += strings.Repeat("1", i%5+1) + "," + strings.Repeat("2", i%3+1) + "." + strings.Repeat("7", i%7+1) + "," + strings.Repeat("3", i%4+1) + ".5\n"
	}
	table := filepath.Join(dir, "table.csv")
	if err := os.WriteFile(table, []byte(numbers), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"text":    {"--data", text, "--hidden", "16", "--batch", "3"},
		"numbers": {"--data", table, "--target", "y", "--regression", "--batch", "7"},
		"images":  {"--model", "cnn", "--batch", "5", "--amp", "bf16"},
	} {
		out, _ := must(t, append([]string{"train", "--devices", "cpu,cpu", "--steps", "3", "--json", "--losses"}, args...)...)
		if r := lastLine(t, out); len(r.Losses) != 3 || len(r.Devices) != 2 || math.IsNaN(float64(r.TrainLoss)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	weights := filepath.Join(dir, "w.safetensors")
	must(t, "train", "--model", "resnet18", "--device", "cpu", "--steps", "1", "--batch", "2", "--out", weights)
	// The batch norms are frozen, so that parts of a batch give the same result as the whole batch.
	var losses [2][]float64
	for i, on := range [...]string{"--device=cpu", "--devices=cpu,cpu"} {
		out, _ := must(t, "train", "--model", "resnet18", on, "--steps", "2", "--batch", "3", "--init", weights, "--freeze", "--json", "--losses")
		losses[i] = lastLine(t, out).Losses
	}
	if a, b := losses[0], losses[1]; len(a) != 2 || len(b) != 2 || math.Abs(a[1]-b[1]) > 1e-4*a[1] {
		t.Errorf("frozen: losses are %v, on two devices %v", a, b)
	}
}

// An invalid --devices is reported before any data is read. The value "all" means all GPUs.
func TestDevicesFlag(t *testing.T) {
	for _, c := range []struct {
		cuda, args, want string
		status           int
	}{
		{"off", "train --devices all --steps 1", "--devices cpu,cpu works without it", 1},
		{"off", "train --devices cuda:0,cuda:1 --steps 1", "switched off by FLAMBEAU_CUDA=off", 1},
		{"emulate:2", "train --devices all --steps 2 --json", `"devices":["cuda:0","cuda:1"]`, 0},
		{"emulate:2", "train --devices all --steps 1", "cuda:1 (Emulated GPU (sm_90)): EMULATED", 0},
		{"emulate", "train --devices all --steps 1 --json", `"device":"cuda:0"`, 0},
		{"emulate", "train --devices cuda:0,cuda:0 --steps 1", "ranks 0 and 1 are both on cuda:0", 1},
		{"emulate", "train --devices cuda:0,cpu --steps 1", "devices of one kind", 1},
		{"off", "train --devices cpu,cpu --device cpu", "--device cpu and --devices cpu,cpu: give one of the two", 2},
		{"off", "train --devices all,cpu", "all stands alone", 2},
		{"off", "train --help", "--devices=LIST", 0},
	} {
		out, err := process(t, c.cuda, strings.Fields(c.args)...).CombinedOutput()
		var exit *exec.ExitError
		status := 0
		if errors.As(err, &exit) {
			status = exit.ExitCode()
		}
		if status != c.status || !strings.Contains(string(out), c.want) {
			t.Errorf("FLAMBEAU_CUDA=%s flambeau %s: status %d\n%s", c.cuda, c.args, status, out)
		}
	}
}
