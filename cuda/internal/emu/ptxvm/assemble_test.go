package ptxvm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// assembler finds ptxas: FLAMBEAU_PTXAS, the PATH, then the user's cache. Where FLAMBEAU_PTXAS_REQUIRED is 1 (as in continuous
// integration) its absence fails.
func assembler(t *testing.T) string {
	candidates := []string{os.Getenv("FLAMBEAU_PTXAS"), "ptxas"}
	if dir, err := os.UserCacheDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "flambeau", "ptxas", "bin", "ptxas"), filepath.Join(dir, "flambeau", "ptxas", "ptxas"))
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

func assemble(t *testing.T, ptxas, arch, src string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "k.ptx")
	if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(ptxas, "-O0", "-arch="+arch, "-o", os.DevNull, path).CombinedOutput()
	return string(out), err
}

// What the tests of this package execute is PTX to the real assembler too, and what Parse refuses, the real assembler refuses.
func TestAgainstAssembler(t *testing.T) {
	ptxas := assembler(t)
	if ptxas == "" {
		t.Log("ptxas was not found: nothing was compared; set FLAMBEAU_PTXAS to its path")
		return
	}
	var all strings.Builder
	all.WriteString(header)
	n := 0
	for _, list := range [][]conform{integerCases, floatCases, convertCases, miscCases} {
		for _, c := range list {
			all.WriteString(c.entry(fmt.Sprintf("c%d", n)))
			n++
		}
	}
	for _, b := range planted {
		all.WriteString(entry(fmt.Sprintf("c%d", n), b.body))
		n++
	}
	for _, b := range innocent {
		all.WriteString(entry(fmt.Sprintf("c%d", n), b.body))
		n++
	}
	if out, err := assemble(t, ptxas, "sm_90", all.String()); err != nil {
		lines := strings.Split(all.String(), "\n")
		for l := range strings.SplitSeq(out, "\n") {
			var at int
			if i := strings.Index(l, "line "); i >= 0 {
				if _, err := fmt.Sscanf(l[i:], "line %d;", &at); err == nil && at > 0 && at <= len(lines) {
					l += "\n\t" + lines[at-1]
				}
			}
			t.Error(l)
		}
	}
	for _, src := range []string{vaddSrc, softmaxSrc, gemmSrc(), elementwiseSrc, strings.ReplaceAll(mmaSrc, "TYPE", "bf16")} {
		if out, err := assemble(t, ptxas, "sm_80", src); err != nil {
			t.Errorf("%s\n%s", out, src)
		}
	}
	for _, c := range rejected {
		if out, err := assemble(t, ptxas, "sm_80", rejectedSource(c.body)); err == nil {
			t.Errorf("ptxas accepts what Parse refuses: %s %s", c.body, out)
		}
	}
}
