package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// tool returns the path of the program ptxas or nvdisasm. It tries the program that the
// environment variable names, and then the PATH. For ptxas, tool also tries the user's cache. It
// skips the cache for nvdisasm, because the tests with nvdisasm take longer than all other tests
// of this package together. If there is no such program, tool returns "". If
// FLAMBEAU_PTXAS_REQUIRED is 1, as in continuous integration, it then fails the test.
func tool(t *testing.T, name, variable string) string {
	candidates := []string{os.Getenv(variable), name}
	if dir, err := os.UserCacheDir(); err == nil && name == "ptxas" {
		candidates = append(candidates, filepath.Join(dir, "flambeau", "ptxas", "bin", name))
	}
	for _, c := range candidates {
		if c != "" {
			if path, err := exec.LookPath(c); err == nil {
				return path
			}
		}
	}
	if os.Getenv("FLAMBEAU_PTXAS_REQUIRED") == "1" {
		t.Fatalf("%s was not found and FLAMBEAU_PTXAS_REQUIRED is 1; set %s to its path", name, variable)
	}
	return ""
}

var spills = regexp.MustCompile(`([1-9][0-9]*) bytes spill`)

// TestAssemble runs NVIDIA's assembler on every golden kernel and every kernel of [gates], for each
// generation of GPUs. It must accept them without spilling registers.
func TestAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas", "FLAMBEAU_PTXAS")
	if ptxas == "" {
		t.Log("ptxas was not found: the golden files were NOT assembled; set FLAMBEAU_PTXAS to its path")
		return
	}
	files, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	dir := t.TempDir()
	for _, g := range gates(t) {
		list, err := g.plan(newMachine(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			file := filepath.Join(dir, l.Kernel.Name+".ptx")
			if err := os.WriteFile(file, []byte(l.Kernel.PTX), 0o644); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	var wg sync.WaitGroup
	slots := make(chan bool, 4)
	for _, file := range files {
		for _, arch := range []string{"sm_80", "sm_90", "sm_120"} {
			wg.Go(func() {
				slots <- true
				defer func() { <-slots }()
				out, err := exec.Command(ptxas, "-v", "-arch", arch, "-o", os.DevNull, file).CombinedOutput()
				if err != nil {
					t.Errorf("%s for %s: %v\n%s", file, arch, err, out)
				} else if spills.Match(out) {
					t.Errorf("%s for %s spills:\n%s", file, arch, out)
				} else if testing.Verbose() {
					t.Logf("%s %s: %s", file, arch, registers.Find(out))
				}
			})
		}
	}
	wg.Wait()
}
