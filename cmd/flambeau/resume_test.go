package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// If a training resumes with other settings, the command names the settings that affect its
// results.
func TestResumeTellsWhatIsOther(t *testing.T) {
	dir := t.TempDir()
	args := []string{"train", "--device", "cpu", "--sched", "constant", "--checkpoint", dir}
	must(t, append(args, "--epochs", "1")...)
	_, errOut := must(t, append(args, "--epochs", "2", "--resume", "--json", "--tensorboard", filepath.Join(dir, "e"), "--workers", "3")...)
	if strings.Contains(errOut, "settings") || strings.Contains(errOut, "--seed") {
		t.Errorf("nothing that counts is other\n%s", errOut)
	}
	_, errOut = must(t, append(args, "--epochs", "3", "--resume", "--accumulate", "2", "--amp", "bf16", "--seed", "9", "--lr", "0.5")...)
	for _, want := range []string{"Accumulate was 1 and is 2; Autocast was full and is bfloat16", "--seed 9: the training was begun with 1, and goes on with that", "lr 0.003 and not 0.5"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("nothing says %q\n%s", want, errOut)
		}
	}
}

// Two trainings cannot write checkpoints to the same directory at the same time, but other
// processes can read it. After the first training is killed, another one can write.
func TestTwoTrainingsInADirectory(t *testing.T) {
	dir := t.TempDir()
	args := []string{"train", "--device", "cpu", "--checkpoint", dir, "--resume", "--every", "1", "--keep", "1", "--sched", "constant"}
	first := process(t, "off", append(args, "--epochs", "100000")...)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Process.Kill() }()
	for i := 0; ; i++ {
		if files, _ := filepath.Glob(filepath.Join(dir, "step-*")); len(files) > 0 {
			break
		}
		if i == 3000 {
			t.Fatal("there is no checkpoint")
		}
		time.Sleep(10 * time.Millisecond)
	}
	profile := filepath.Join(dir, "p.json")
	status, _, errOut := command(t, append(args, "--epochs", "1", "--profile", profile)...)
	if status != 1 || !strings.Contains(errOut, dir+": the training of process "+fmt.Sprint(first.Process.Pid)+" on ") {
		t.Errorf("a second training: status %d\n%s", status, errOut)
	}
	if _, err := os.Stat(profile); err == nil {
		t.Error("it has written a profile of nothing")
	}
	if status, _, errOut := command(t, "eval", dir, "--device", "cpu"); status != 0 {
		t.Errorf("eval: status %d\n%s", status, errOut)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	if _, errOut := must(t, append(args, "--epochs", "1", "--steps", "1")...); !strings.Contains(errOut, "going on from") {
		t.Error(errOut)
	}
}
