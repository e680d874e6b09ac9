package kernels

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// machineCode is a kernel's machine code, as NVIDIA's assembler makes it and NVIDIA's disassembler
// prints it.
type machineCode struct {
	// threads of a block, registers of a thread, and bytes of shared memory of a block
	threads, registers, shared int
	text                       string
	code                       []instruction
	loops                      [][]instruction
	// the innermost loop with the most multiply-adds; if no loop has any, the loop that loads the
	// most bytes
	loop []instruction
}

// instruction is one line of machine code.
type instruction struct {
	op    string // opcode with its modifiers, such as "LDS.128"
	args  []string
	label string // label before the instruction
	to    string // target of a branch
}

var (
	codeLine  = regexp.MustCompile(`^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);`)
	codeLabel = regexp.MustCompile(`^(\.L_\w+):`)
	jumpTo    = regexp.MustCompile("`\\((\\.L_\\w+)\\)")
	registers = regexp.MustCompile(`Used ([0-9]+) registers`)
	sharedUse = regexp.MustCompile(`([0-9]+) bytes smem`)
	register  = regexp.MustCompile(`\bR(\d+)\b`)
)

// compiled assembles a kernel for an architecture and returns its machine code.
func compiled(dir, ptxas, nvdisasm string, k *Kernel, arch string) (*machineCode, error) {
	source, object := filepath.Join(dir, "kernel.ptx"), filepath.Join(dir, "kernel.cubin")
	if err := os.WriteFile(source, []byte(k.PTX), 0o644); err != nil {
		return nil, err
	}
	report, err := exec.Command(ptxas, "-v", "-arch", arch, "-o", object, source).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %v\n%s", k.Name, err, report)
	}
	if spills.Match(report) {
		return nil, fmt.Errorf("%s spills for %s", k.Name, arch)
	}
	text, err := exec.Command(nvdisasm, "-c", object).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: nvdisasm: %v", k.Name, err)
	}
	c := &machineCode{text: string(text), threads: int(k.Block[0] * k.Block[1] * k.Block[2])}
	number := func(re *regexp.Regexp) int {
		if m := re.FindSubmatch(report); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			return n
		}
		return 0
	}
	c.registers, c.shared = number(registers), number(sharedUse)
	label := ""
	for _, line := range strings.Split(string(text), "\n") {
		if m := codeLabel.FindStringSubmatch(line); m != nil {
			label = m[1]
		}
		m := codeLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		i := instruction{op: m[1], label: label}
		for _, a := range strings.Split(m[2], ",") {
			i.args = append(i.args, strings.TrimSpace(a))
		}
		if to := jumpTo.FindStringSubmatch(m[2]); to != nil {
			i.to = to[1]
		}
		label = ""
		c.code = append(c.code, i)
	}
	if len(c.code) == 0 || c.registers == 0 {
		return nil, fmt.Errorf("%s: no machine code was read", k.Name)
	}
	c.loop = c.mainLoop()
	return c, nil
}

func (i instruction) multiplies() bool {
	return strings.HasPrefix(i.op, "FFMA") || strings.HasPrefix(i.op, "DFMA") || strings.HasPrefix(i.op, "HMMA")
}

// mainLoop returns the loop in which the kernel spends most of its time.
func (c *machineCode) mainLoop() []instruction {
	var best []instruction
	most := 0
	for end, i := range c.code {
		if !strings.HasPrefix(i.op, "BRA") || i.to == "" {
			continue
		}
		for start := range end {
			if c.code[start].label != i.to {
				continue
			}
			c.loops = append(c.loops, c.code[start:end+1])
			score := 0
			for _, x := range c.code[start : end+1] {
				score += x.loads()
				if x.multiplies() {
					score += 1000
				}
			}
			if score > most {
				most, best = score, c.code[start:end+1]
			}
		}
	}
	return best
}

// count returns the number of instructions of the main loop whose opcodes have one of the prefixes.
func (c *machineCode) count(prefixes ...string) int {
	n := 0
	for _, i := range c.loop {
		for _, p := range prefixes {
			if strings.HasPrefix(i.op, p) {
				n++
			}
		}
	}
	return n
}

// hasPrefix reports whether the kernel has an instruction whose opcode has the prefix.
func (c *machineCode) hasPrefix(prefix string) bool {
	for _, i := range c.code {
		if strings.HasPrefix(i.op, prefix) {
			return true
		}
	}
	return false
}

// loads returns the number of bytes that the instruction reads from global memory.
func (i instruction) loads() int {
	if !strings.HasPrefix(i.op, "LDG.") {
		return 0
	}
	for _, m := range strings.Split(i.op, ".") {
		switch m {
		case "128":
			return 16
		case "64":
			return 8
		case "U16", "S16":
			return 2
		case "U8", "S8":
			return 1
		}
	}
	return 4
}

// bankConflicts counts the multiply-adds of the main loop whose three source registers all lie in
// the same register bank. There are two banks, and each conflict costs a cycle. Registers that the
// previous instruction kept (".reuse") are not read again. (Z. Jia and others: Dissecting the
// NVIDIA Volta GPU architecture via microbenchmarking, 2018, section 3.3.)
func (c *machineCode) bankConflicts() int {
	n := 0
	var kept [4]string
	for _, i := range c.loop {
		var now [4]string
		even, odd := map[int]bool{}, map[int]bool{}
		for k, a := range i.args {
			name := strings.TrimSuffix(a, ".reuse")
			if k < len(now) && name != a {
				now[k] = name
			}
			m := register.FindStringSubmatch(name)
			if k == 0 || k >= len(kept) || m == nil || kept[k] == name {
				continue
			}
			r, _ := strconv.Atoi(m[1])
			if r%2 == 0 {
				even[r] = true
			} else {
				odd[r] = true
			}
		}
		if i.multiplies() && (len(even) > 2 || len(odd) > 2) {
			n++
		}
		kept = now
	}
	return n
}

// inFlight returns the greatest number of bytes that a thread has requested from global memory and
// not yet waited for. It simulates the loops from top to bottom, or the whole code if no loop loads
// anything. An instruction that uses a register with a pending load waits for that load and for all
// earlier loads.
func (c *machineCode) inFlight() int {
	type load struct{ first, last, bytes int }
	most := 0
	walk := func(code []instruction) {
		var pending []load
		sum := 0
		for _, i := range code {
			done := 0
			for k, a := range i.args {
				for _, m := range register.FindAllStringSubmatch(a, -1) {
					r, _ := strconv.Atoi(m[1])
					width := 1
					if i.loads() == 0 && k > 0 && (strings.HasPrefix(i.op, "ST") && k == len(i.args)-1) {
						width = max(1, i.stores()/4)
					}
					for at, l := range pending {
						if r <= l.last && r+width > l.first {
							done = max(done, at+1)
						}
					}
				}
			}
			for _, l := range pending[:done] {
				sum -= l.bytes
			}
			pending = pending[done:]
			if n := i.loads(); n > 0 {
				if m := register.FindStringSubmatch(i.args[0]); m != nil {
					r, _ := strconv.Atoi(m[1])
					pending = append(pending, load{r, r + max(1, n/4) - 1, n})
					sum += n
				}
			}
			most = max(most, sum)
		}
	}
	looped := false
	for _, l := range c.loops {
		for _, i := range l {
			if i.loads() > 0 {
				looped = true
				walk(append(append([]instruction(nil), l...), l...))
				break
			}
		}
	}
	if !looped {
		walk(c.code)
	}
	// The variable copies is the number of bytes that one iteration of the loop copies
	// asynchronously. The variable left is the number of iterations whose copies may still be
	// pending after a wait.
	copies, left := 0, 0
	for _, i := range c.loop {
		if strings.HasPrefix(i.op, "LDGSTS") {
			copies += instruction{op: "LDG" + strings.TrimPrefix(i.op, "LDGSTS")}.loads()
		}
		if strings.HasPrefix(i.op, "DEPBAR") && len(i.args) > 1 {
			n, _ := strconv.ParseInt(strings.TrimPrefix(i.args[1], "0x"), 16, 32)
			left = int(n)
		}
	}
	return most + copies*(left+1)
}

func (i instruction) stores() int { return instruction{op: "LDG." + i.op}.loads() }

// These are limits of a multiprocessor of compute capability 9.0 (CUDA C++ Programming Guide, table
// of technical specifications).
const (
	smRegisters, smThreads, smBlocks, smShared = 65536, 2048, 32, 228 << 10
	// bytes of shared memory that the system reserves for each block
	blockReserve    = 1 << 10
	multiprocessors = 132 // number of multiprocessors of an H100 SXM or H200
)

// blocks returns the number of blocks of the kernel that fit on a multiprocessor.
func (c *machineCode) blocks() int {
	warps := ceilDiv(c.threads, 32)
	perWarp := ceilDiv(c.registers*32, 256) * 256
	return min(smBlocks, smThreads/32/warps, smRegisters/perWarp/warps, smShared/(c.shared+blockReserve))
}

func (c *machineCode) String() string {
	return fmt.Sprintf("%d registers, %d threads, %d B shared, %d blocks a multiprocessor", c.registers, c.threads, c.shared, c.blocks())
}
