package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The command rehearses every training, because each of its models can run on a device without
// memory. The results equal those of a training without a rehearsal.
func TestTrainRehearses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "words.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("to be or not to be, that is the question. ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"--model cnn --batch 2 --amp bf16", "--model mlp", "--batch 1 --hidden 16 --data " + text} {
		var losses []number
		for _, when := range []string{"never", "always"} {
			line := "train --device cuda --steps 1 --json --rehearse " + when + " " + args
			c := process(t, "emulate", strings.Fields(line)...)
			said := &strings.Builder{}
			c.Stderr = said
			out, err := c.Output()
			if err != nil || strings.Contains(said.String(), "as they come") {
				t.Fatalf("%s: %v: %s", line, err, said)
			}
			losses = append(losses, lastLine(t, string(out)).TrainLoss)
		}
		if losses[0] != losses[1] {
			t.Errorf("%s: losses %v, without and with a rehearsal", args, losses)
		}
	}
}
