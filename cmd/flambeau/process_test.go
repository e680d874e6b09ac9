package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/vet"
)

// The environment is read once a process, so these tests run the command in a process of its own: this test binary again.
func TestMain(m *testing.M) {
	if os.Getenv("FLAMBEAU_TEST_COMMAND") == "1" {
		if vet.Asked(os.Args[1:]) {
			vet.Main()
		}
		status := run(os.Args[1:], os.Stdout, os.Stderr)
		if os.Getenv("FLAMBEAU_TEST_HWM") == "1" { // the most memory that the process had
			if b, err := os.ReadFile("/proc/self/status"); err == nil {
				os.Stderr.Write(b)
			}
		}
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func process(t *testing.T, cuda string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), "FLAMBEAU_TEST_COMMAND=1", "FLAMBEAU_CUDA="+cuda)
	return c
}

// The same forty steps on the CPU and on an emulated GPU: losses agree, and each device repeats itself bit for bit.
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

// A driver that is missing is told in a short line, once; the doctor tells more.
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

// Ctrl-C, and what service managers send, end a training cleanly: the weights are written, the status is 130.
func TestInterruptedProcess(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no way to interrupt another process")
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		interrupt(t, signal)
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
	first, err := messages.ReadString('\n') // the device: from here on an interrupt is handled
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
