package ptx

import "fmt"

// Arch is a generation of devices, for which [Builder.Target] writes a kernel. Code for a
// generation runs on devices of that generation and of later ones. Code for an exact generation,
// whose name ends in "a", runs on that generation alone.
type Arch uint16

// exactArch is the bit that marks exact generations. The lower bits are the compute capability
// times ten.
const exactArch Arch = 1 << 15

// These are the generations for which kernels can be written.
const (
	SM80   Arch = 80
	SM86   Arch = 86
	SM87   Arch = 87
	SM89   Arch = 89
	SM90   Arch = 90
	SM90a       = SM90 | exactArch
	SM100  Arch = 100
	SM100a      = SM100 | exactArch
	SM103  Arch = 103
	SM103a      = SM103 | exactArch
	SM120  Arch = 120
	SM120a      = SM120 | exactArch
	SM121  Arch = 121
	SM121a      = SM121 | exactArch
)

// archVersions maps each target to the lowest PTX version that supports it, times ten. Source: the
// release notes of NVIDIA's PTX ISA manual.
var archVersions = map[Arch]int{
	SM80: 70, SM86: 71, SM87: 74, SM89: 78, SM90: 78, SM90a: 80,
	SM100: 86, SM100a: 86, SM103: 88, SM103a: 88, SM120: 87, SM120a: 87, SM121: 88, SM121a: 88,
}

// SM returns the compute capability times ten: 90 for SM90 and SM90a.
func (a Arch) SM() int { return int(a &^ exactArch) }

// Exact reports whether code for a runs on devices of that generation alone.
func (a Arch) Exact() bool { return a&exactArch != 0 }

// Runs reports whether a device can run code for the generation. The argument is the device's
// compute capability times ten.
func (a Arch) Runs(sm int) bool { return a.SM() == sm || !a.Exact() && a.SM() < sm }

// String returns the name of the target in PTX: "sm_90a".
func (a Arch) String() string {
	if a.Exact() {
		return fmt.Sprintf("sm_%da", a.SM())
	}
	return fmt.Sprintf("sm_%d", a.SM())
}

// Target says for which generation of devices the kernel is written. The kernel may use the
// instructions of that generation. The kernel's text has the generation's `.target`, and the lowest
// `.version` that supports it. If a call needs an instruction that the generation lacks, this is
// reported as a problem. Target must be called first, before parameters are declared. Without a
// call of Target, the kernel is for the lowest target that is not exact and has the kernel's
// instructions.
func (b *Builder) Target(a Arch) {
	version, ok := archVersions[a]
	switch {
	case !ok:
		b.fail("Target(%v): no such target is known", a)
	case b.chosen:
		b.fail("Target(%v): the kernel is for %v", a, b.arch)
	case len(b.entry.nodes)+len(b.root.nodes)+len(b.params) > 0:
		b.fail("Target(%v) comes before parameters and instructions", a)
	default:
		b.chosen, b.arch, b.version = true, a, version
	}
}

// newer lists the instructions that need more than PTX 7.0 on sm_80, by the prefix of their names.
// Source: the "PTX ISA Notes" and "Target ISA Notes" of each instruction in NVIDIA's PTX ISA
// manual.
var newer = []struct {
	prefix  string
	version int  // PTX version times ten
	arch    Arch // lowest target; if it is exact, any exact target of at least its capability
}{
	{"griddepcontrol.", 78, SM90},
	{"red.global.add.v", 81, SM90},
	{"setmaxnreg.", 80, SM90a},
}

// require raises the kernel's version and target to those that an instruction needs. If the target
// was set by Target and is too low, require reports a problem instead.
func (b *Builder) require(op string) {
	for _, row := range newer {
		if len(op) < len(row.prefix) || op[:len(row.prefix)] != row.prefix {
			continue
		}
		b.version = max(b.version, row.version)
		switch {
		case row.arch.Exact() && !b.arch.Exact():
			b.fail("%s is only for targets like %v: the kernel is for %v, see Target", op, row.arch, b.arch)
		case row.arch.SM() <= b.arch.SM():
		case b.chosen:
			b.fail("%s needs %v: the kernel is for %v", op, row.arch, b.arch)
		default:
			b.arch = row.arch
			b.version = max(b.version, archVersions[row.arch])
		}
	}
}

// GrowRegisters requests registers from the multiprocessor: afterwards each thread has n. The
// number must be a multiple of 8 from 24 to 256. The four warps of a warpgroup must call
// GrowRegisters together. The instruction needs PTX 8.0 and an exact target from [SM90a] on.
func (b *Builder) GrowRegisters(n int) { b.setRegisters("inc", n) }

// ShrinkRegisters gives registers back: afterwards each thread has n. The rules of
// [Builder.GrowRegisters] apply.
func (b *Builder) ShrinkRegisters(n int) { b.setRegisters("dec", n) }

func (b *Builder) setRegisters(action string, n int) {
	if n < 24 || n > 256 || n%8 != 0 {
		b.fail("setmaxnreg.%s: %d registers: a multiple of 8 from 24 to 256", action, n)
		return
	}
	b.effect("setmaxnreg."+action+".sync.aligned.u32", fmt.Sprint(n))
}
