package main

import (
	"encoding/json"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
)

// Training with FLAMBEAU_TUNE=1 measures matrix products. The command "kernels tuned" lists them,
// and "devices" counts them.
func TestKernelsTuned(t *testing.T) {
	dir := t.TempDir()
	run := func(tune string, args ...string) string {
		t.Helper()
		c := process(t, "emulate", args...)
		c.Env = append(c.Env, "XDG_CACHE_HOME="+dir, "LocalAppData="+dir, "HOME="+dir, "FLAMBEAU_TUNE="+tune)
		out, err := c.Output()
		if err != nil {
			e, _ := err.(*exec.ExitError)
			t.Fatalf("%v: %v, %s", args, err, e.Stderr)
		}
		return string(out)
	}
	if out := run("1", "kernels", "tuned"); !strings.Contains(out, "no products were measured on cuda:0") || !strings.Contains(out, "EMULATED") {
		t.Errorf("at first: %s", out)
	}
	run("1", "train", "--device", "cuda", "--steps", "1", "--batch", "8")
	var list []cuda.TunedProduct
	for line := range strings.Lines(run("use", "kernels", "tuned", "--json")) {
		var p cuda.TunedProduct
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, p)
	}
	if len(list) < 4 {
		t.Fatalf("%v", list)
	}
	out := run("use", "kernels", "tuned")
	for _, p := range list {
		if !strings.Contains(out, p.Product) || p.After > p.Before || p.After <= 0 {
			t.Errorf("%v: %s", p, out)
		}
	}
	if !strings.Contains(out, "FLAMBEAU_TUNE=use has them used") {
		t.Errorf("%s", out)
	}
	if out := run("", "kernels", "tuned"); !strings.Contains(out, "FLAMBEAU_TUNE=use lists") {
		t.Errorf("without FLAMBEAU_TUNE: %s", out)
	}
	if out := run("use", "devices"); !strings.Contains(out, "FLAMBEAU_TUNE=use: "+strconv.Itoa(len(list))+" products measured") {
		t.Errorf("%s", out)
	}
	for args, want := range map[string]string{"--device cpu": "no forms to choose from", "--device cuda:7": "cuda:7"} {
		out, err := process(t, "emulate", append([]string{"kernels", "tuned"}, strings.Fields(args)...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
}
