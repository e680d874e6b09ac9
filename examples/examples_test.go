// Package examples_test runs the programs in the folders next to this file, as their users do.
package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/internal/glyphs"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/torchfile"
)

// firstWeek has the programs that people usually write first. The same folder has each program in
// PyTorch.
var firstWeek = []string{"vae", "transformer", "transfer", "gan"}

// A Go program has at most 1.5 times as many lines of code as the PyTorch program in the same
// folder. Blank lines and comments do not count.
func TestLinesBesidePyTorch(t *testing.T) {
	for _, name := range firstWeek {
		ours, theirs := codeLines(t, name, "main.go", "//"), codeLines(t, name, "main.py", "#")
		t.Logf("%s: %d lines of Go, %d of Python: %.2f", name, ours, theirs, float64(ours)/float64(theirs))
		if ours*2 > theirs*3 {
			t.Errorf("%s: %d lines of Go are more than 1.5 times the %d of Python", name, ours, theirs)
		}
	}
}

func codeLines(t *testing.T, name, file, comment string) (n int) {
	text, err := os.ReadFile(filepath.Join(name, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, comment) && !strings.HasPrefix(line, `"""`) {
			n++
		}
	}
	return n
}

// The programs run unchanged on the CPU and on an emulated GPU. In the run on the CPU, which is
// longer, the loss falls.
func TestFirstWeek(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", bin+string(filepath.Separator), "./vae", "./transformer", "./transfer", "./gan")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	weights, pictures := filepath.Join(dir, "resnet18.pth"), filepath.Join(dir, "pictures")
	state := map[string]any{}
	for name, x := range nn.StateDict(models.ResNet18(1000, 3)) {
		state[name] = x
	}
	if err := torchfile.Save(weights, state); err != nil {
		t.Fatal(err)
	}
	if err := glyphs.Folder(pictures, 2, 1); err != nil {
		t.Fatal(err)
	}
	drawn := filepath.Join(dir, "digits.png")
	book := filepath.Join(dir, "book.txt")
	if err := os.WriteFile(book, []byte(strings.Repeat("to be or not to be, ", 50)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name        string
		args        []string
		long, short string  // flags of the run on the CPU, and of the run on the emulated GPU
		below       float64 // upper limit of the loss after the run on the CPU
		result      string  // pattern for the last part of the output
	}{
		{"vae", []string{"--out", drawn}, "--epochs=4", "--epochs=1", 30, `(?s)epoch \d: loss \d+\.\d\d\n32 new digits are in .*digits.png\n$`},
		{"gan", nil, "--epochs=4", "--epochs=1", 1.5, `(?s)generator \d\.\d\d\d\n([ .:=+*#%@-]{8}\n){16}$`},
		{"transfer", []string{"--size=16", weights, pictures}, "--epochs=3", "--epochs=1", 2.5, `loss \d+\.\d{4}, \d of 4 right\n$`},
		{"transformer", []string{"--batch=2", "--write=3", book}, "--steps=60", "--steps=1", 1, `step \d+: loss \d\.\d\d\d\n[a-z, ]{4}\n$`},
	} {
		for _, on := range []string{"off", "emulate,mem=256MiB"} {
			t.Run(c.name+"/"+on, func(t *testing.T) {
				flag := c.long
				if on != "off" {
					flag = c.short
				}
				name := filepath.Join(bin, c.name)
				if runtime.GOOS == "windows" {
					name += ".exe"
				}
				run := exec.Command(name, append([]string{flag}, c.args...)...)
				run.Env = append(os.Environ(), "FLAMBEAU_CUDA="+on)
				var out, log bytes.Buffer
				run.Stdout, run.Stderr = &out, &log
				if err := run.Run(); err != nil {
					t.Fatalf("%v\n%s%s", err, out.String(), log.String())
				}
				if !regexp.MustCompile(c.result).MatchString(out.String()) {
					t.Errorf("the output does not end as %s:\n%s", c.result, out.String())
				}
				if c.name == "vae" {
					if m, err := (vision.Decode{}).Load(drawn); err != nil || m.H != 42 || m.W != 82 || len(slices.Compact(slices.Sorted(slices.Values(m.U8)))) < 50 {
						t.Errorf("no picture of digits was written: %v", err)
					}
					if err := os.Remove(drawn); err != nil {
						t.Fatal(err)
					}
				}
				if told := strings.Contains(out.String(), "Emulated GPU"); told != (on != "off") {
					t.Errorf("with FLAMBEAU_CUDA=%s: %s", on, strings.SplitN(out.String(), "\n", 2)[0])
				}
				var losses []float64
				for _, m := range regexp.MustCompile(`(?:loss|discriminator) (\d+\.\d+)`).FindAllStringSubmatch(out.String(), -1) {
					v, err := strconv.ParseFloat(m[1], 64)
					if err != nil {
						t.Fatal(err)
					}
					losses = append(losses, v)
				}
				if last := len(losses) - 1; on == "off" && (last < 1 || losses[last] > c.below) {
					t.Errorf("losses %v, the last should be below %v", losses, c.below)
				}
			})
		}
	}
}
