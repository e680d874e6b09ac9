package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
)

// A program uses the kernels of the file that FLAMBEAU_KERNELS names.
func TestKernelsPack(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ device, want string }{{"cuda", "with machine code for cuda:0"}, {"a100", "as PTX"}} {
		path := filepath.Join(dir, c.device)
		out, err := process(t, "emulate", "kernels", "pack", "-o", path, "--device", c.device, "--amp", "bf16", "--tf32", "--seq", "32", "gpt2", "bert-base").CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Fatalf("%v: %s", err, out)
		}
		p, err := cuda.OpenPack(path)
		if err != nil {
			t.Fatal(err)
		}
		gpus, err := cuda.Emulate("emulate")
		if err != nil {
			t.Fatal(err)
		}
		all, ready := p.Kernels(gpus[0])
		if all < 50 || c.device == "cuda" && ready != all || c.device != "cuda" && ready != 0 {
			t.Errorf("%s: %d of %d kernels have code", c.device, ready, all)
		}
	}
	for args, want := range map[string]string{
		"pack -o " + dir + "/x nonesuch":               "known are",
		"pack gpt2":                                    "--out",
		"pack -o " + dir + "/x --device cpu mlp":       "no kernels to pack",
		"pack -o " + dir + "/x --device rtx9999 mlp":   "rtx9999",
		"pack -o " + dir + "/none/x --device h100 mlp": "none",
	} {
		out, err := process(t, "emulate", append([]string{"kernels"}, strings.Fields(args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
	// A file that holds no kernels causes a message and has no other effect.
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]int{bad: 1, filepath.Join(dir, "cuda"): 0} {
		c := process(t, "emulate", "train", "--device", "cuda", "--steps", "1")
		c.Env = append(c.Env, "FLAMBEAU_KERNELS="+file)
		out, err := c.CombinedOutput()
		if err != nil || strings.Count(string(out), "kernels are compiled as they come") != want {
			t.Errorf("%v: %s", err, out)
		}
	}
}
