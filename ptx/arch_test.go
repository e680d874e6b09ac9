package ptx_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/ptx"
)

var archs = []ptx.Arch{ptx.SM80, ptx.SM86, ptx.SM87, ptx.SM89, ptx.SM90, ptx.SM90a, ptx.SM100, ptx.SM100a,
	ptx.SM103, ptx.SM103a, ptx.SM120, ptx.SM120a, ptx.SM121, ptx.SM121a}

// square returns a kernel for a target. If special is true, it uses instructions that only exact
// targets have, such as sm_90a.
func square(t *testing.T, a ptx.Arch, special bool) *ptx.Kernel {
	t.Helper()
	b := ptx.New("square")
	b.Target(a)
	b.MaxThreads(128)
	x := b.Pointer("x", ptx.F32)
	if special {
		b.ShrinkRegisters(40)
	}
	p := x.At(b.GlobalID())
	p.Store(p.Load().Mul(p.Load()))
	k, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTargets(t *testing.T) {
	for _, a := range archs {
		k := square(t, a, a.Exact())
		want := fmt.Sprintf(".version %d.%d\n.target %v\n", k.Version/10, k.Version%10, a)
		if !strings.HasPrefix(k.Text, want) || k.Target != a.SM() || k.Exact != a.Exact() {
			t.Errorf("%v: target %d, exact %v, text %q", a, k.Target, k.Exact, k.Text[:40])
		}
		if !a.Runs(a.SM()) || a.Runs(a.SM()-1) || a.Runs(a.SM()+1) == a.Exact() {
			t.Errorf("%v runs on the wrong devices", a)
		}
	}
}

// TestTargetLacks calls instructions that the target lacks. Each call must be refused.
func TestTargetLacks(t *testing.T) {
	for want, do := range map[string]func(b *ptx.Builder){
		"setmaxnreg.inc.sync.aligned.u32 is only for targets like sm_90a: the kernel is for sm_80": func(b *ptx.Builder) { b.GrowRegisters(64) },
		"is only for targets like sm_90a: the kernel is for sm_120":                                func(b *ptx.Builder) { b.Target(ptx.SM120); b.GrowRegisters(64) },
		"griddepcontrol.wait needs sm_90: the kernel is for sm_89":                                 func(b *ptx.Builder) { b.Target(ptx.SM89); b.GridDependencyWait() },
		"Target(sm_90): the kernel is for sm_80":                                                   func(b *ptx.Builder) { b.Target(ptx.SM80); b.Target(ptx.SM90) },
		"Target(sm_90) comes before parameters":                                                    func(b *ptx.Builder) { b.Param("n", ptx.U32); b.Target(ptx.SM90) },
		"Target(sm_75): no such target":                                                            func(b *ptx.Builder) { b.Target(75) },
		"20 registers: a multiple of 8":                                                            func(b *ptx.Builder) { b.Target(ptx.SM90a); b.GrowRegisters(20) },
	} {
		b := ptx.New("refused")
		do(b)
		b.Pointer("x", ptx.F32).Store(ptx.Float(1))
		_, err := b.Build()
		var e *ptx.Error
		if !errors.As(err, &e) || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Msg, want) || !strings.HasSuffix(e.Problems[0].File, "arch_test.go") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestAssembleTargets assembles a kernel for each target. The assembler must accept the kernel's
// PTX version and, except for sm_80, refuse the version before it. So package ptx uses each
// target's lowest version.
func TestAssembleTargets(t *testing.T) {
	ptxas := assembler(t)
	if ptxas == "" {
		t.Log("ptxas was not found: the targets were NOT assembled; set FLAMBEAU_PTXAS to its path")
		return
	}
	version := regexp.MustCompile(`(?m)^\.version .*$`)
	dir := t.TempDir()
	assemble := func(a ptx.Arch, text string) (string, error) {
		path := filepath.Join(dir, "k.ptx")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(ptxas, "-arch", a.String(), "-o", os.DevNull, path).CombinedOutput()
		return string(out), err
	}
	for _, a := range archs {
		k := square(t, a, a.Exact())
		if out, err := assemble(a, k.Text); err != nil {
			t.Errorf("%v: %v\n%s", a, err, out)
		}
		if a == ptx.SM80 {
			continue // its version is 7.0, and package ptx writes no earlier one into a module
		}
		before := k.Version - 1
		if before == 79 {
			before = 78 // there is no 7.9
		}
		old := version.ReplaceAllString(k.Text, fmt.Sprintf(".version %d.%d", before/10, before%10))
		if out, err := assemble(a, old); err == nil {
			t.Errorf("%v: also assembles as version %d: %s", a, before, out)
		}
	}
}
