package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/vet"
)

// TestMain lets child processes of this test binary run the command flambeau instead of the tests.
// Some tests need a new process, because a process reads some environment variables only once.
func TestMain(m *testing.M) {
	if os.Getenv("FLAMBEAU_TEST_COMMAND") == "1" {
		if vet.Asked(os.Args[1:]) {
			vet.Main()
		}
		status := run(os.Args[1:], os.Stdout, os.Stderr)
		if os.Getenv("FLAMBEAU_TEST_HWM") == "1" { // the child process prints its peak memory
			if b, err := os.ReadFile("/proc/self/status"); err == nil {
				os.Stderr.Write(b)
			}
		}
		os.Exit(status)
	}
	// Under nohup, child processes would inherit the ignored SIGHUP. Notify prevents that.
	if signal.Ignored(hangUp) {
		signal.Notify(make(chan os.Signal, 1), hangUp)
	}
	os.Exit(m.Run())
}

func process(t *testing.T, cuda string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "FLAMBEAU_TEST_COMMAND=1", "FLAMBEAU_CUDA="+cuda)
	return c
}

// Forty training steps on the CPU and on an emulated GPU have nearly equal losses. A second run on
// each device gives the same bits.
func TestEmulatedGPUAgreesWithCPU(t *testing.T) {
	train := func(device string) result {
		c := process(t, "emulate", "train", "--device", device, "--steps", "40", "--seed", "1", "--losses", "--json")
		var errOut bytes.Buffer
		c.Stderr = &errOut
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", device, err, errOut.String())
		}
		return lastLine(t, string(out))
	}
	gpu, again, cpu := train("cuda"), train("cuda"), train("cpu")
	if gpu.Device != "cuda:0" || !gpu.Emulated || cpu.Device != "cpu" || len(gpu.Losses) != 40 || gpu.PeakDeviceBytes <= 0 {
		t.Fatalf("%+v\n%+v", gpu, cpu)
	}
	if !slices.Equal(gpu.Losses, again.Losses) {
		t.Error("two runs on the emulated GPU differ")
	}
	for i, l := range cpu.Losses {
		if d := math.Abs(gpu.Losses[i] - l); d > 1e-4*math.Max(1, l) {
			t.Errorf("step %d: %v on the GPU, %v on the CPU", i+1, gpu.Losses[i], l)
		}
	}
}

func TestDeviceChoice(t *testing.T) {
	for _, c := range []struct {
		cuda, args, want string
		status           int
	}{
		{"off", "train --steps 1", "no GPU: switched off by FLAMBEAU_CUDA=off; using the CPU", 0},
		{"off", "train --steps 1 --device cuda", "--device cpu works without it", 1},
		{"emulate", "train --steps 1 --device cuda:7", `device "cuda:7" is not available: there is 1 cuda device`, 1},
		{"emulate", "train --steps 1", "using cuda:0 (Emulated GPU (sm_90)): EMULATED", 0},
		{"emulate:2", "devices", "cuda:1", 0},
		{"nonsense", "train --steps 1", "nonsense", 0},
		{"emulate,mem=much", "devices", "mem=much", 0},
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

// A missing driver is reported once, in a short line. The command "flambeau doctor" gives more
// details.
func TestMissingDriverInOneLine(t *testing.T) {
	if _, err := device.Open("cuda"); err == nil {
		t.Skip("there is a driver")
	}
	short := regexp.MustCompile(`(?m)^no NVIDIA driver: [^(;]{1,40} not found; using the CPU \(flambeau doctor says more\)$`)
	out, err := process(t, "", "train", "--steps", "1").CombinedOutput()
	if err != nil || len(short.FindAll(out, -1)) != 1 || bytes.Count(out, []byte("driver")) != 1 || bytes.Contains(out, []byte("looked in")) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = process(t, "", "devices").CombinedOutput()
	if err != nil || bytes.Count(out, []byte("no NVIDIA driver")) != 1 || !regexp.MustCompile(`(?m)^no GPU: no NVIDIA driver: .{1,40} not found \(flambeau doctor says more, and what to do\)$`).Match(out) {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := process(t, "", "doctor").CombinedOutput(); !bytes.Contains(out, []byte("; it is not in /")) {
		t.Errorf("%s", out)
	}
}

// Ctrl-C ends a training cleanly, and so does SIGTERM, which service managers send. The weights are
// written, and the exit status is 130.
func TestInterruptedProcess(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no way to interrupt another process")
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, hangUp} {
		interrupt(t, sig)
	}
}

// begun starts an endless training in a new process, and reads its output up to the line that names
// the device.
func begun(t *testing.T, c *exec.Cmd) *bufio.Reader {
	t.Helper()
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // ends the process if the test fails
	messages := bufio.NewReader(pipe)
	if line, err := messages.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	return messages
}

// A closing terminal sends SIGHUP more than once, and the training ends cleanly. Under nohup SIGHUP
// has no effect.
func TestHangup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no SIGHUP")
	}
	dir := t.TempDir()
	path, keep := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "keep")
	args := []string{"train", "--device", "cpu", "--epochs", "100000", "--out", path, "--checkpoint", keep, "--every", "1000000"}
	c := process(t, "off", args...)
	messages := begun(t, c)
	for range 3 {
		if err := c.Process.Signal(hangUp); err != nil {
			t.Fatal(err)
		}
	}
	rest, _ := io.ReadAll(messages)
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 || !exists(path) {
		t.Fatalf("%v\n%s", err, rest)
	}
	if l, err := checkpoint.List(keep); err != nil || len(l) != 1 {
		t.Error(l, err)
	}
	c = process(t, "off", "train", "--device", "cpu", "--epochs", "100000")
	c.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`}, c.Args...)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	c.Path = sh
	messages = begun(t, c)
	if err := c.Process.Signal(hangUp); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { io.Copy(io.Discard, messages); ended <- c.Wait() }()
	select {
	case err := <-ended:
		t.Fatalf("the training has ended by a hangup that is ignored: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Error(err)
	}
}

// A training reaches its end even if no process reads its output, or if the standard streams are
// closed.
func TestClosedStreams(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no SIGPIPE")
	}
	dir := t.TempDir()
	path, keep := filepath.Join(dir, "m.safetensors"), filepath.Join(dir, "keep")
	saved := func(err error) {
		t.Helper()
		if _, _, lost := safetensors.Load(path); err != nil || lost != nil {
			t.Errorf("%v, %v", err, lost)
		}
		if l, err := checkpoint.Load(keep); err != nil || l.Info.Step < 40 {
			t.Error(l, err)
		}
		for _, p := range []string{path, keep} {
			if err := os.RemoveAll(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := []string{"train", "--device", "cpu", "--epochs", "2", "--out", path, "--checkpoint", keep}
	c := process(t, "off", args...)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr, c.Stdout = write, write
	read.Close() // from the start, no process reads the output
	err = c.Run()
	write.Close()
	saved(err)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	c = process(t, "off", args...)
	c.Args, c.Path = append([]string{"sh", "-c", `exec "$0" "$@" >&- 2>&-`}, c.Args...), sh
	saved(c.Run())
}

// If --out cannot be written, the command fails before the training. If only the write after the
// training fails, the weights are written to the checkpoint directory or to the working directory.
func TestUnwritableOut(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		strings.Repeat("x", 260):                 "--out .*nothing can be written there: .*(too long|syntax is incorrect)",
		filepath.Join("none", "w.safetensors"):   "--out .*(no such file|cannot find)",
		filepath.Join("file", "w.safetensors"):   "--out .*(not a folder|not a directory|cannot find)",
		filepath.Join("closed", "w.safetensors"): "--out .*permission denied",
	} {
		switch {
		case strings.HasPrefix(name, "file"):
			write(t, filepath.Join(dir, "file"), "")
		case strings.HasPrefix(name, "closed"):
			if err := os.Mkdir(filepath.Join(dir, "closed"), 0o500); err != nil {
				t.Fatal(err)
			}
			// The user root can write everywhere, so this case is left out for root.
			if f, err := os.Create(filepath.Join(dir, "closed", "probe")); err == nil {
				f.Close()
				continue
			}
		}
		status, _, errOut := command(t, "train", "--device", "cpu", "--steps", "1", "--out", filepath.Join(dir, name))
		if status != 1 || !regexp.MustCompile(want).MatchString(errOut) || strings.Contains(errOut, "steps in") {
			t.Errorf("%.20s: status %d\n%s", name, status, errOut)
		}
	}
	if runtime.GOOS == "windows" {
		t.Skip("windows has no way to interrupt another process")
	}
	for _, keep := range []string{filepath.Join(dir, "keep"), ""} {
		out := filepath.Join(dir, "gone", "w.safetensors")
		if err := os.Mkdir(filepath.Dir(out), 0o700); err != nil {
			t.Fatal(err)
		}
		args, place := []string{"train", "--device", "cpu", "--epochs", "100000", "--out", out}, t.TempDir()
		if keep != "" {
			args = append(args, "--checkpoint", keep)
		}
		c := process(t, "off", args...)
		c.Dir = place
		messages := begun(t, c)
		time.Sleep(100 * time.Millisecond)
		if err := os.RemoveAll(filepath.Dir(out)); err != nil {
			t.Fatal(err)
		}
		if err := c.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(messages)
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("%v\n%s", err, rest)
		}
		if keep != "" {
			place = keep
		}
		found, err := filepath.Glob(filepath.Join(place, "w-*.safetensors"))
		if err != nil || len(found) != 1 || !strings.Contains(string(rest), "the weights are in ") || !strings.Contains(string(rest), filepath.Base(found[0])+" instead") {
			t.Fatalf("%q, %v\n%s", found, err, rest)
		}
		if _, meta, err := safetensors.Load(found[0]); err != nil || meta[cardKey] == "" {
			t.Error(meta, err)
		}
		if keep != "" {
			if _, err := checkpoint.Load(keep); err != nil {
				t.Error(err)
			}
		}
	}
}

func interrupt(t *testing.T, signal os.Signal) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	c := process(t, "off", "train", "--epochs", "100000", "--out", path)
	pipe, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	messages := bufio.NewReader(pipe)
	// The first line names the device. After it, the process handles an interrupt.
	first, err := messages.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := c.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(messages)
	if err != nil {
		t.Fatal(err)
	}
	text := first + string(rest)
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		t.Fatalf("%v\n%s", err, text)
	}
	if _, _, err := safetensors.Load(path); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if !strings.Contains(text, "weights written") {
		t.Fatal(text)
	}
}
