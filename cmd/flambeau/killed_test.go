package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// soak reports whether FLAMBEAU_SOAK requests the long forms of tests.
func soak() bool { return os.Getenv("FLAMBEAU_SOAK") == "1" }

// others returns random flags that change how a training runs and what it reports, but not its
// result.
func others(rng *rand.Rand, dir string) (list []string) {
	for _, o := range []string{
		"--every 1", "--every 3", "--keep 1", "--keep-best", "--workers 3", "--checkpointing", "--json", "--tensorboard " + filepath.Join(dir, "events"),
		"--profile " + filepath.Join(dir, "p.json"), "--profile " + filepath.Join(dir, "p.txt"), "--profile " + filepath.Join(dir, "p.pb.gz"),
		"--memory-snapshot " + filepath.Join(dir, "m.html"),
	} {
		if rng.IntN(3) == 0 {
			list = append(list, strings.Fields(o)...)
		}
	}
	return list
}

// A training is killed at random times, also while it writes a checkpoint. Each time it resumes
// with other flags and another number of workers. It must end with the same bits as a training that
// was not killed, and leave no other files behind.
func TestKilledTrainingsGoOn(t *testing.T) {
	for _, c := range []struct {
		cuda, args string
		kills      int
	}{
		{"off", "--device cpu --epochs 6", 3},
		{"emulate", "--device cuda --steps 12 --batch 16 --hidden 32 --accumulate 2", 2},
	} {
		if soak() {
			c.kills = 50
		}
		dir := t.TempDir()
		rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
		train := func(name string, more ...string) *exec.Cmd {
			args := append([]string{"train", "--seed", "3", "--every", "2", "--out", filepath.Join(dir, name)}, strings.Fields(c.args)...)
			p := process(t, c.cuda, append(args, more...)...)
			p.Env = append(p.Env, fmt.Sprint("GOMAXPROCS=", 1+rng.IntN(4)))
			return p
		}
		keep := filepath.Join(dir, "checkpoints")
		began := time.Now()
		if out, err := train("whole", "--checkpoint", filepath.Join(dir, "other")).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// longest is the latest time at which a process is killed. Some processes end earlier.
		longest := time.Since(began) * 3 / 4
		whole, err := os.ReadFile(filepath.Join(dir, "whole"))
		if err != nil {
			t.Fatal(err)
		}
		var flags []string
		ended := func(out string) {
			again, err := os.ReadFile(filepath.Join(dir, "again"))
			if err != nil || !bytes.Equal(again, whole) {
				t.Fatalf("%s, lately %q: other weights after a resume: %v\n%s", c.args, flags, err, out)
			}
			files, err := os.ReadDir(keep)
			if err != nil || len(files) == 0 {
				t.Fatal(files, err)
			}
			for _, f := range files {
				if !strings.HasPrefix(f.Name(), "step-") {
					t.Errorf("%s is left", f.Name())
				}
			}
		}
		torn, resumed := 0, 0
		for kills := 0; kills < c.kills; {
			flags = others(rng, dir)
			p := train("again", append(flags, "--checkpoint", keep, "--resume")...)
			pipe, err := p.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			messages := bufio.NewReader(pipe)
			if _, err := messages.ReadString('\n'); err != nil { // this line names the device
				t.Fatal(err)
			}
			kill := time.AfterFunc(time.Duration(rng.Int64N(int64(longest))), func() { _ = p.Process.Kill() })
			rest, _ := io.ReadAll(messages)
			err = p.Wait()
			kill.Stop()
			var exit *exec.ExitError
			switch {
			case err == nil: // the process ended before it was killed
				ended(string(rest))
				if err := os.RemoveAll(keep); err != nil {
					t.Fatal(err)
				}
			case errors.As(err, &exit) && exit.ExitCode() == -1 || isKilled(exit):
				kills++
				if strings.Contains(string(rest), "going on from") {
					resumed++
				}
				left, _ := filepath.Glob(filepath.Join(keep, ".*"))
				torn += len(left)
			default:
				t.Fatalf("%v\n%s", err, rest)
			}
		}
		out, err := train("again", "--checkpoint", keep, "--resume").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ended(string(out))
		t.Logf("%s: killed %d times, %d of them after a resume; %d unfinished files were left in the way", c.args, c.kills, resumed, torn)
	}
}

// isKilled reports whether a process was killed. On Windows a killed process has status 1.
func isKilled(e *exec.ExitError) bool {
	return e != nil && e.ExitCode() == 1 && len(e.Stderr) == 0 && os.PathSeparator == '\\'
}
