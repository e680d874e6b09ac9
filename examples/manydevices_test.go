package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The programs for several devices run on two ranks of the CPU and on two emulated GPUs. The losses
// agree.
func TestManyDevices(t *testing.T) {
	bin := t.TempDir() + string(filepath.Separator)
	if out, err := exec.Command("go", "build", "-o", bin, "./ddp", "./dataparallel").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"ddp":          `^a rank on each of \[.*\]\nepoch 1: loss (\d\.\d{3})\d\naccuracy 0\.[89]\d{3} of what was held out\n$`,
		"dataparallel": `^on \[.*\]\nepoch 1: loss (\d\.\d{3})\d\n$`,
	} {
		losses := map[string]string{}
		for _, on := range []string{"off", "emulate:2,mem=64MiB"} {
			run := exec.Command(bin+name, "-epochs=1")
			run.Env = append(os.Environ(), "FLAMBEAU_CUDA="+on)
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			m := regexp.MustCompile(want).FindStringSubmatch(string(out))
			if m == nil || strings.Contains(string(out), "cuda:1") != (on != "off") {
				t.Fatalf("%s with FLAMBEAU_CUDA=%s:\n%s", name, on, out)
			}
			losses[on] = m[1]
		}
		if a, b := losses["off"], losses["emulate:2,mem=64MiB"]; a != b {
			t.Errorf("%s: loss %s on the processor, %s on emulated GPUs", name, a, b)
		}
	}
}
