package main

import (
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// bundle is a folder like the one that scripts/gpu-bundle makes, but its programs only record
// their calls. The real cuda.test and "compare against" compile kernels in their first call. Here
// the first call sleeps for the given number of seconds instead.
type bundle struct {
	dir string
	env []string
}

func newBundle(t *testing.T, compiling string) *bundle {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if runtime.GOOS != "linux" || err != nil {
		t.Skip("the bundle is for Linux")
	}
	dir := t.TempDir()
	b := &bundle{dir, append(os.Environ(), "CALLS="+dir, "COMPILING="+compiling, "XDG_CACHE_HOME="+dir+"/cache", "TMPDIR="+dir, "OUT="+dir+"/out")}
	script, err := os.ReadFile("../../scripts/gpu-run.sh")
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, "run.sh", string(script))
	b.write(t, "commit.txt", "0123\n")
	for name, body := range map[string]string{
		"flambeau":  `case "$*" in "devices --json") echo '{"devices":[{"name":"cuda:0","product":"H","driver_version":"12.4"}]}' ;; esac`,
		"compare":   `if [ "$1" = against ]; then [ -e "$CALLS/compiled" ] || { sleep "$COMPILING" & wait; touch "$CALLS/compiled"; }; fi; if [ "$1" = report ]; then cp "$3/steps.txt" "$4/steps.txt"; echo {} >"$4/results-$2.json"; fi`,
		"cuda.test": `[ -e "$CALLS/compiled" ] || { sleep "$COMPILING" & wait; touch "$CALLS/compiled"; }`,
		"python3":   `exit "${NO_TORCH:-1}"`,
	} {
		f, err := os.Create(filepath.Join(dir, name+".gz"))
		if err != nil {
			t.Fatal(err)
		}
		z := gzip.NewWriter(f)
		_, err = z.Write([]byte("#!" + bash + "\necho " + name + ` "$@" >>"$CALLS/calls"` + "\n" + body + "\n"))
		if e := z.Close(); err == nil {
			err = e
		}
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b *bundle) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// run runs the script. It returns the reported steps, whether the script succeeded, how many times
// it called cuda.test, and its output.
func (b *bundle) run(t *testing.T, limits []string, args ...string) (steps string, ok bool, tests int, said string) {
	t.Helper()
	_ = os.Remove(filepath.Join(b.dir, "calls")) // calls of an earlier run
	c := exec.Command("bash", append([]string{filepath.Join(b.dir, "run.sh")}, args...)...)
	c.Env = append(b.env, limits...)
	out, err := c.CombinedOutput()
	list, e := os.ReadFile(filepath.Join(b.dir, "out", "steps.txt"))
	calls, e2 := os.ReadFile(filepath.Join(b.dir, "calls"))
	if e != nil || e2 != nil {
		t.Fatalf("%v, %v: %s", e, e2, out)
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		f := strings.Split(line, "\t")
		if f[0] != "nvidia_smi" { // only machines with nvidia-smi have this step
			names = append(names, f[0]+":"+f[1])
		}
	}
	return strings.Join(names, " "), err == nil, strings.Count(string(calls), "cuda.test "), string(out)
}

// If caches are empty, the script first compiles, with a separate time limit. The limits of the
// steps apply only to their measurements.
func TestBundleCompilesFirst(t *testing.T) {
	// Compiling takes longer than a step may take, but less than the limit for compiling.
	b := newBundle(t, "8")
	limits := []string{"LIMIT=7", "WARM_LIMIT=60"}
	for i, want := range []int{2, 1} {
		steps, ok, tests, said := b.run(t, limits, "sweep")
		if steps != "devices:0 sweep:0" || !ok || tests != want {
			t.Errorf("run %d: steps %q, success %v, %d runs of the tests, want %d\n%s", i, steps, ok, tests, want, said)
		}
	}
	b.write(t, "commit.txt", "4567\n") // another commit has other kernels
	if _, ok, tests, said := b.run(t, limits, "warm", "sweep"); !ok || tests != 1 {
		t.Errorf("warm alone: success %v, %d runs of the tests\n%s", ok, tests, said)
	}
	if steps, ok, tests, said := b.run(t, limits, "sweep"); steps != "devices:0 sweep:0" || !ok || tests != 1 {
		t.Errorf("behind it: steps %q, success %v, %d runs of the tests\n%s", steps, ok, tests, said)
	}
}

// If compiling exceeds its limit, the script measures nothing, and says so.
func TestBundleSaysWhatIsNotCompiled(t *testing.T) {
	b := newBundle(t, "20")
	steps, ok, tests, said := b.run(t, []string{"WARM_LIMIT=6"}, "sweep")
	if steps != "devices:0 cold:1" || ok || tests != 1 {
		t.Errorf("steps %q, success %v, %d runs of the tests\n%s", steps, ok, tests, said)
	}
	if marks, err := filepath.Glob(filepath.Join(b.dir, "cache", "flambeau", "warm-*")); err != nil || len(marks) != 0 {
		t.Errorf("marked as compiled: %v, %v", marks, err)
	}
	b.write(t, "compiled", "")
	if steps, ok, _, said := b.run(t, nil, "sweep"); steps != "devices:0 sweep:0" || !ok {
		t.Errorf("run again: steps %q, success %v\n%s", steps, ok, said)
	}
}

// Before the first comparison with PyTorch, and only then, both sides compile in a short run with a
// separate time limit. Without PyTorch, the script says so, measures only our side, and fails.
func TestBundleAgainstPyTorch(t *testing.T) {
	b := newBundle(t, "8")
	limits := []string{"LIMIT=7", "WARM_LIMIT=60", "NO_TORCH=0"}
	const measured = "compare against cuda:0 python3 torch_against.py cuda:0\n"
	const warmed = "compare against -rounds 1 -seconds 0.01 cuda:0 python3 torch_against.py cuda:0\n"
	for i, want := range []string{warmed + measured, measured} {
		steps, ok, _, said := b.run(t, limits, "against")
		if steps != "devices:0 against:0" || !ok || b.calls(t, "compare against") != want {
			t.Errorf("run %d: steps %q, success %v, calls\n%s%s", i, steps, ok, b.calls(t, "compare against"), said)
		}
	}
	steps, ok, _, said := b.run(t, []string{"LIMIT=20", "NO_TORCH=1"}, "against")
	if steps != "devices:0 no_pytorch:1 against:0" || ok || b.calls(t, "compare against") != "compare against cuda:0\n" {
		t.Errorf("without PyTorch: steps %q, success %v, calls\n%s%s", steps, ok, b.calls(t, "compare against"), said)
	}
}

// calls returns those calls of the last run whose text starts with begin.
func (b *bundle) calls(t *testing.T, begin string) (list string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, begin) {
			list += line
		}
	}
	return list
}
