package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/torchfile"
)

// Training begins with weights for other classes. The last layer is not loaded, and a message says
// so. With --freeze, all other layers stay bitwise equal, including the statistics of batch norms.
func TestInitOfOtherClasses(t *testing.T) {
	dir := t.TempDir()
	set, init, out := pictures(t, filepath.Join(dir, "set")), filepath.Join(dir, "resnet18.pth"), filepath.Join(dir, "w.safetensors")
	for _, class := range []string{"3", "4", "5", "6", "7", "8", "9"} {
		if err := os.RemoveAll(filepath.Join(set, class)); err != nil {
			t.Fatal(err)
		}
	}
	m := models.ResNet18(1000, 3)
	published := nn.StateDict(m)
	if err := torchfile.Save(init, published); err != nil {
		t.Fatal(err)
	}
	train := []string{"train", "--data", set, "--model", "resnet18", "--size", "16", "--steps", "1", "--batch", "4", "--lr", "0.01", "--device", "cpu", "--out", out, "--init", init}
	_, errOut := must(t, append(train, "--freeze")...)
	for _, want := range []string{
		"--init " + init + ": the last layer, fc, is replaced by a new one: it was for 1000 classes and is for 3 classes, [\"0\" \"1\" \"2\"]\n",
		"--freeze: only the last layer, fc, learns: 1539 of 11178051 parameters; batch normalisation keeps its running statistics\n",
	} {
		if !strings.Contains(errOut, want) {
			t.Errorf("%q is not in\n%s", want, errOut)
		}
	}
	same := func(learns bool) {
		t.Helper()
		got, _, err := safetensors.Load(out)
		if err != nil || len(got) != len(published) {
			t.Fatal(len(got), err)
		}
		for name, was := range published {
			if head := strings.HasPrefix(name, "fc."); head && got[name].Dim(0) != 3 {
				t.Errorf("%s has the shape %v", name, got[name].Shape())
			} else if !head && (name == "layer1.0.conv1.weight" || strings.HasSuffix(name, "running_mean")) && got[name].AllClose(was, 0, 0) == learns {
				t.Errorf("%s: learns is %v, and yet", name, learns)
			} else if !head && !learns && !got[name].AllClose(was, 0, 0) {
				t.Errorf("%s is another one", name)
			}
		}
	}
	same(false)
	must(t, train...)
	same(true)
	// These weights have a card, which names the classes. The last layer is loaded only if the data
	// has classes of the same names.
	again := []string{"train", "--data", set, "--model", "cnn", "--steps", "1", "--device", "cpu", "--out", out}
	must(t, again...)
	_, errOut = must(t, append(again, "--init", out, "--freeze")...)
	if strings.Contains(errOut, "replaced") || !strings.Contains(errOut, "only the last layer, 10, learns") {
		t.Error(errOut)
	}
	if err := os.Rename(filepath.Join(set, "2"), filepath.Join(set, "two")); err != nil {
		t.Fatal(err)
	}
	_, errOut = must(t, append(again, "--init", out)...)
	if !strings.Contains(errOut, `it was for others, 3 classes, ["0" "1" "2"] and is for 3 classes, ["0" "1" "two"]`) {
		t.Error(errOut)
	}
	// Weights of another model are an error, not weights with other classes.
	fails(t, "nothing was loaded", append(again, "--init", init)...)
	if status, _, errOut := command(t, "train", "--freeze"); status != 2 || !strings.Contains(errOut, "add --init FILE") {
		t.Error(status, errOut)
	}
}
