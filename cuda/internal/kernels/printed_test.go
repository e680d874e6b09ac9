package kernels

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPrintedKernels writes the golden kernels, and the kernels of [gates] and [codeGates], into
// the folder that FLAMBEAU_PRINT_PTX names. Each is planned for large operands. The command
// ".ci/run ptxas" compiles these kernels with the compilers of older drivers.
func TestPrintedKernels(t *testing.T) {
	folder := os.Getenv("FLAMBEAU_PRINT_PTX")
	if folder == "" || folder == "0" || folder == "1" {
		t.Skip("FLAMBEAU_PRINT_PTX names no folder")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write("golden_"+filepath.Base(f), b)
	}
	launches := func(family string, list []Launch, err error) {
		if err != nil || len(list) == 0 {
			t.Fatalf("%s: %d launches, %v", family, len(list), err)
		}
		for _, l := range list {
			write(l.Kernel.Name+".ptx", []byte(l.Kernel.PTX))
		}
	}
	for _, g := range gates(t) {
		list, err := g.plan(newMachine(t))
		launches(g.name, list, err)
	}
	for _, g := range codeGates(t) {
		list, err := g.plan()
		launches(g.name, list, err)
	}
}
