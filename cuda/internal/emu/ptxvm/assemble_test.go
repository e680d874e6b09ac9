package ptxvm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// assembler returns the path of ptxas: from FLAMBEAU_PTXAS, the PATH, or the user's cache. If ptxas
// is missing and FLAMBEAU_PTXAS_REQUIRED is 1, as in continuous integration, the test fails.
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

// TestAgainstAssembler runs the real assembler on the PTX that the tests of this package use. It
// must accept what Parse accepts, and refuse what Parse refuses.
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
	wrong, _ := refusals(t, ptxas, "sm_90", all.String())
	for i, l := range strings.Split(all.String(), "\n") {
		if why, no := wrong[i+1]; no {
			t.Errorf("%s\n\t%s", why, l)
		}
	}
	for _, src := range []string{vaddSrc, softmaxSrc, gemmSrc(), elementwiseSrc, strings.ReplaceAll(mmaSrc, "TYPE", "bf16")} {
		if out, err := assemble(t, ptxas, "sm_80", src); err != nil {
			t.Errorf("%s\n%s", out, src)
		}
	}
	// Single instructions are assembled together in one module, one on each line. Other bodies are
	// assembled one by one.
	var lines []string
	for _, c := range rejected {
		if plainInstruction.MatchString(c.body) {
			lines = append(lines, c.body)
		} else if out, err := assemble(t, ptxas, "sm_80", rejectedSource(c.body)); err == nil {
			t.Errorf("ptxas accepts what Parse refuses: %s %s", c.body, out)
		}
	}
	together := rejectedSource(strings.Join(lines, "\n"))
	refused, _ := refusals(t, ptxas, "sm_80", together)
	for i, l := range strings.Split(together, "\n") {
		if _, no := refused[i+1]; no || !slices.Contains(lines, l) {
			continue
		}
		// ptxas reports errors of later phases only if earlier phases have none
		if out, err := assemble(t, ptxas, "sm_80", rejectedSource(l)); err == nil {
			t.Errorf("ptxas accepts what Parse refuses: %s %s", l, out)
		}
	}
}

var plainInstruction = regexp.MustCompile(`^[a-z][a-z0-9._:]* [^{}]*;$`)

// refusals returns the messages of ptxas for each line of a module, and its whole output.
func refusals(t *testing.T, ptxas, arch, src string) (byLine map[int]string, out string) {
	t.Helper()
	out, _ = assemble(t, ptxas, arch, src)
	byLine = map[int]string{}
	for _, m := range refusal.FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		byLine[n] = m[2]
	}
	return byLine, out
}

var refusal = regexp.MustCompile(`line (\d+); error\s*: (.*)`)
