package kernels

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

// loadsOf returns specifications with form f and every combination of operand loads that
// [GPU.choose] allows.
func loadsOf(f tensorForm) []tensorSpec {
	k8, o8 := tensorLoad{alongK: true, vector: 8}, tensorLoad{vector: 8}
	list := []tensorSpec{{a: k8, b: o8}, {a: k8, b: k8}, {a: o8, b: o8}, {a: o8, b: k8}, {a: tensorLoad{true, 8, true, false}, b: tensorLoad{true, 8, true, false}}}
	k1, o1, k2, o2 := tensorLoad{alongK: true, vector: 1}, tensorLoad{vector: 1}, tensorLoad{true, 2, true, false}, tensorLoad{false, 2, true, false}
	list = append(list, tensorSpec{a: tensorLoad{true, 4, true, false}, b: tensorLoad{false, 4, true, false}}, tensorSpec{a: o2, b: k2},
		tensorSpec{a: k2, b: o8, odd: true}, tensorSpec{a: o2, b: o8, odd: true}, tensorSpec{a: k2, b: tensorLoad{false, 8, true, false}, odd: true},
		tensorSpec{a: k1, b: o1}, tensorSpec{a: o1, b: k1}, tensorSpec{a: k1, b: o8}, tensorSpec{a: o8, b: o1})
	for i := range list {
		list[i].typ, list[i].out, list[i].form = dtype.BF16, dtype.BF16, f
	}
	return slices.DeleteFunc(list, func(s tensorSpec) bool { return !s.fits() })
}

func tf32LoadsOf(f tensorForm) []tensorSpec {
	var list []tensorSpec
	load := func(alongK bool, vector int, ragged bool) tensorLoad {
		return tensorLoad{alongK, vector, ragged, false}
	}
	for _, along := range [][2]bool{{true, false}, {true, true}, {false, false}, {false, true}} {
		for _, vector := range [][2]int{{4, 4}, {2, 2}, {1, 1}, {1, 4}, {4, 1}} {
			for _, ragged := range []bool{false, true} {
				if vector == [2]int{1, 1} && ragged {
					continue
				}
				s := tensorSpec{typ: dtype.F32, out: dtype.F32, form: f.forType(dtype.F32)}
				s.a, s.b = load(along[0], vector[0], ragged && vector[0] > 1), load(along[1], vector[1], ragged && vector[1] > 1)
				list = append(list, s)
			}
		}
	}
	return slices.DeleteFunc(list, func(s tensorSpec) bool { return !s.fits() })
}

// TestTensorAssemble assembles the tensor-core kernels for every architecture, with every way to
// load operands and to store results. They must not spill registers. The test takes minutes, so
// it runs only with FLAMBEAU_SOAK=1. TestAssemble always runs a part of it.
func TestTensorAssemble(t *testing.T) {
	ptxas := tool(t, "ptxas", "FLAMBEAU_PTXAS")
	if ptxas == "" || os.Getenv("FLAMBEAU_SOAK") == "" {
		t.Log("the forms of products were NOT all assembled: FLAMBEAU_SOAK=1 and ptxas do it")
		return
	}
	a := assembler{t: t, ptxas: ptxas, dir: t.TempDir()}
	gelu, back := geluOf(dtype.BF16), geluGradient(dtype.BF16)
	for _, f := range tensorForms {
		for _, s := range loadsOf(f) {
			for _, to := range []tensorStore{storeElements, storeShifted, storePieces} {
				for _, r := range [][2]dtype.Type{{dtype.BF16}, {dtype.F32}, {dtype.BF16, dtype.BF16}, {dtype.F32, dtype.F32}} {
					if s.store, s.out, s.bias = to, r[0], r[1]; to == storeElements && (s.a.vector == 4 || s.bias != dtype.Invalid) {
						continue
					}
					s.act, s.pre, s.sums = "", r[1] == dtype.BF16, sumsSpec{r[1] == dtype.F32 && !s.odd, r[0] == dtype.F32 && r[1] != dtype.F32 && !s.odd}
					if s.pre {
						s.act = gelu.Key()
					}
					k, err := s.kernel(gelu)
					if err != nil {
						t.Fatal(err)
					}
					a.add(k)
				}
				// This kernel applies the gradient of an activation. The gradient's second operand
				// is the activation's argument.
				s.out, s.bias, s.sums, s.actSpec = dtype.BF16, dtype.Invalid, sumsSpec{}, actSpec{act: back.Key(), with: dtype.BF16}
				k, err := s.kernel(back)
				if err != nil {
					t.Fatal(err)
				}
				a.add(k)
				// These kernels loop over tiles, with the activation and without.
				plain := s
				plain.out, plain.actSpec = dtype.F32, actSpec{}
				half := plain
				half.out = dtype.BF16
				for _, s := range []tensorSpec{s, plain, half} {
					if s.loop = true; !s.loops() {
						continue
					}
					k, err := s.kernel(back)
					if err != nil {
						t.Fatal(err)
					}
					a.add(k)
				}
			}
		}
		for _, s := range tf32LoadsOf(f) {
			for to, bias := range map[tensorStore]dtype.Type{storeElements: dtype.Invalid, storeShifted: dtype.F32, storePieces: dtype.F32} {
				s.store, s.bias = to, bias
				for _, s.loop = range []bool{false, true} {
					if s.loop && !s.loops() {
						continue
					}
					k, err := s.kernel()
					if err != nil {
						t.Fatal(err)
					}
					a.add(k)
				}
			}
		}
	}
	a.finish()
}

// assembler compiles kernels with ptxas for every architecture, two of them in parallel.
type assembler struct {
	t          *testing.T
	ptxas, dir string
	kernels    []*Kernel
}

func (a *assembler) launches(list []Launch, err error) {
	a.t.Helper()
	if err != nil || len(list) == 0 {
		a.t.Fatalf("%d launches, %v", len(list), err)
	}
	for _, l := range list {
		a.add(l.Kernel)
	}
}

func (a *assembler) add(k *Kernel) {
	if !slices.Contains(a.kernels, k) {
		a.kernels = append(a.kernels, k)
	}
}

// finish reports kernels that spill a register, or that ptxas refuses.
func (a *assembler) finish() {
	var wg sync.WaitGroup
	slots, count := make(chan bool, 2), 0
	for _, k := range a.kernels {
		file := filepath.Join(a.dir, k.Name+".ptx")
		if err := os.WriteFile(file, []byte(k.PTX), 0o644); err != nil {
			a.t.Fatal(err)
		}
		for _, arch := range []string{"sm_80", "sm_86", "sm_89", "sm_90", "sm_120"} {
			count++
			wg.Go(func() {
				slots <- true
				defer func() { <-slots }()
				text, err := exec.Command(a.ptxas, "-v", "-arch", arch, "-o", os.DevNull, file).CombinedOutput()
				if err != nil || spills.Match(text) {
					a.t.Errorf("%s for %s: %v %s", k.Name, arch, err, spills.Find(text))
				} else if testing.Verbose() {
					a.t.Logf("%s %s: %s", k.Name, arch, registers.Find(text))
				}
			})
		}
	}
	wg.Wait()
	a.t.Logf("%d assemblies", count)
}
