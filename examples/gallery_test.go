package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// gallery has the programs of the gallery, with a pattern for the end of their output. The number
// in the output must lie between the fields least and most. A program with flags gets a text file
// as its last argument.
var gallery = []struct {
	name, result string
	least, most  float64
	flags        []string
}{
	{"digits", `epoch 10: loss (\d\.\d+)\n$`, 0, 1, nil},
	{"timeseries", `step 300: loss (\d\.\d+)\n( *o\n){20}( *\*\n){20}$`, 0, 0.05, nil},
	{"table", `of 120 cars held out, a price is off by (\d+\.\d+) on average\n$`, 0, 1, nil},
	{"folders", `epoch 12: loss \d\.\d+, (\d+) of 24 right\n$`, 17, 24, nil},
	{"bert", `(\d+) of 200 new sentences right\n$`, 140, 200, nil},
	{"resume", `went on from step-0+(\d+).safetensors to 87 steps\nthe weights are the same, bit for bit: true\n$`, 43, 43, nil},
	{"reinforce", `round 40: the pole stands for (\d+) of 200 pushes\n$`, 100, 200, nil},
	{"pinn", `at most (0\.\d+) off the exact solution\n$`, 0, 0.03, nil},
	{"kernel", `tensor\(\[-(\d)., -1.,  0.,  4.\]\)\ntensor\(\[6., 2., 0., 4.\]\)\nthe gradient is right: true\n$`, 9, 9, nil},
	{"chargpt", `step 30 of 30: loss (\d\.\d+)\n[a-z, ]+\n$`, 0, 1.5, []string{"-steps=30", "-write=20"}},
}

func TestGallery(t *testing.T) {
	bin := t.TempDir()
	args := []string{"build", "-o", bin + string(filepath.Separator)}
	for _, g := range gallery {
		args = append(args, "./"+g.name)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	book := filepath.Join(t.TempDir(), "book.txt")
	if err := os.WriteFile(book, []byte(strings.Repeat("to be or not to be, ", 50)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, g := range gallery {
		t.Run(g.name, func(t *testing.T) {
			name := filepath.Join(bin, g.name)
			if runtime.GOOS == "windows" {
				name += ".exe"
			}
			if g.flags != nil {
				g.flags = append(g.flags, book)
			}
			run := exec.Command(name, g.flags...)
			run.Env = append(os.Environ(), "FLAMBEAU_CUDA=off")
			out, err := run.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			m := regexp.MustCompile(g.result).FindStringSubmatch(string(out))
			if m == nil {
				t.Fatalf("the output does not end as %s:\n%s", g.result, out)
			}
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil || v < g.least || v > g.most {
				t.Errorf("%s, not from %v to %v, in:\n%s", m[1], g.least, g.most, out)
			}
		})
	}
}

// Each program of the gallery is short, and the gallery's page lists all of them.
func TestGalleryPage(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 12 {
		t.Fatalf("%d programs, %v", len(programs), err)
	}
	for _, p := range programs {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > 120 {
			t.Errorf("%s has %d lines, at most 120", p, n)
		}
		if dir := filepath.Dir(p); !strings.Contains(string(page), "]("+dir+"/main.go)") {
			t.Errorf("README.md does not have %s", dir)
		}
	}
}
