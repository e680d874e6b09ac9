package ptx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// assembler finds ptxas: in FLAMBEAU_PTXAS, in the PATH, or in the user's cache. Where
// FLAMBEAU_PTXAS_REQUIRED is 1 (as in continuous integration) a missing ptxas fails the test.
func assembler(t *testing.T) string {
	candidates := []string{os.Getenv("FLAMBEAU_PTXAS"), "ptxas"}
	if dir, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "flambeau", "ptxas", "bin", "ptxas"))
	}
	for _, c := range candidates {
		if c != "" {
			if path, err := exec.LookPath(c); err == nil {
				return path
			}
		}
	}
	if os.Getenv("FLAMBEAU_PTXAS_REQUIRED") == "1" {
		t.Fatal("ptxas was not found and FLAMBEAU_PTXAS_REQUIRED is 1; set FLAMBEAU_PTXAS to its path")
	}
	return ""
}

var spills = regexp.MustCompile(`([1-9][0-9]*) bytes spill`)

// TestAssemble assembles every golden file for each generation of devices with NVIDIA's
// assembler. The assembler must accept the file and spill no registers.
func TestAssemble(t *testing.T) {
	ptxas := assembler(t)
	if ptxas == "" {
		t.Log("ptxas was not found: the golden files were NOT assembled; set FLAMBEAU_PTXAS to its path")
		return
	}
	files, err := filepath.Glob("testdata/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		for _, arch := range []string{"sm_80", "sm_90", "sm_120"} {
			switch name := filepath.Base(file); {
			case name == "hopper.ptx" && arch == "sm_80":
				continue // this kernel has the .target sm_90
			case name == "hopper_alone.ptx" && arch != "sm_90":
				continue
			case name == "hopper_alone.ptx":
				arch = "sm_90a"
			}
			out, err := exec.Command(ptxas, "-v", "-arch", arch, "-o", os.DevNull, file).CombinedOutput()
			if err != nil {
				t.Errorf("%s for %s: %v\n%s", file, arch, err, out)
			} else if spills.Match(out) {
				t.Errorf("%s for %s spills:\n%s", file, arch, out)
			}
		}
	}
}
