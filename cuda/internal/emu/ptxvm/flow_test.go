package ptxvm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// node is a part of a random structured program on four registers. The program is printed as PTX,
// and also runs in Go, thread by thread.
type node interface {
	print(p *printer)
	exec(t *threadState) (next flow)
}

type flow int

const (
	goOn flow = iota
	breakLoop
	leave
)

type threadState struct{ r [4]uint32 }

type printer struct {
	b            strings.Builder
	label, loops int
	breakLabels  []string
}

func (p *printer) newLabel() string { p.label++; return fmt.Sprintf("L%d", p.label) }

type program []node

func (b program) print(p *printer) {
	for _, n := range b {
		n.print(p)
	}
}
func (b program) exec(t *threadState) flow {
	for _, n := range b {
		if f := n.exec(t); f != goOn {
			return f
		}
	}
	return goOn
}

type assign struct {
	op      string
	d, a, b int
	imm     uint32
	guarded bool
	cond    condition
}

func (n assign) print(p *printer) {
	guard := ""
	if n.guarded {
		n.cond.print(p, "%p1")
		guard = "@%p1 "
	}
	b := fmt.Sprintf("%%r%d", n.b)
	if n.b == 4 {
		b = fmt.Sprint(n.imm)
	}
	fmt.Fprintf(&p.b, "\t%s%s.b32 %%r%d, %%r%d, %s;\n", guard, map[string]string{"add": "add", "xor": "xor", "and": "and"}[n.op], n.d, n.a, b)
}
func (n assign) exec(t *threadState) flow {
	if n.guarded && !n.cond.eval(t) {
		return goOn
	}
	b := n.imm
	if n.b < 4 {
		b = t.r[n.b]
	}
	switch n.op {
	case "add":
		t.r[n.d] = t.r[n.a] + b
	case "xor":
		t.r[n.d] = t.r[n.a] ^ b
	case "and":
		t.r[n.d] = t.r[n.a] & b
	}
	return goOn
}

// condition is (r & mask) < bound.
type condition struct {
	r           int
	mask, bound uint32
}

func (c condition) print(p *printer, pred string) {
	fmt.Fprintf(&p.b, "\tand.b32 %%t1, %%r%d, %d;\n\tsetp.lt.u32 %s, %%t1, %d;\n", c.r, c.mask, pred, c.bound)
}
func (c condition) eval(t *threadState) bool { return t.r[c.r]&c.mask < c.bound }

type branchNode struct {
	cond    condition
	yes, no program
}

func (n branchNode) print(p *printer) {
	n.cond.print(p, "%p1")
	els, end := p.newLabel(), p.newLabel()
	fmt.Fprintf(&p.b, "\t@!%%p1 bra %s;\n", els)
	n.yes.print(p)
	if len(n.no) > 0 {
		fmt.Fprintf(&p.b, "\tbra %s;\n", end)
	}
	fmt.Fprintf(&p.b, "%s:\n", els)
	n.no.print(p)
	fmt.Fprintf(&p.b, "%s:\n", end)
}
func (n branchNode) exec(t *threadState) flow {
	if n.cond.eval(t) {
		return n.yes.exec(t)
	}
	return n.no.exec(t)
}

// loop runs its body (r & 3) times, where r is read before the loop.
type loop struct {
	r    int
	body program
}

func (n loop) print(p *printer) {
	p.loops++
	i := p.loops
	top, end := p.newLabel(), p.newLabel()
	fmt.Fprintf(&p.b, "\tand.b32 %%n%d, %%r%d, 3;\n\tmov.u32 %%i%d, 0;\n%s:\n\tsetp.ge.u32 %%p1, %%i%d, %%n%d;\n\t@%%p1 bra %s;\n", i, n.r, i, top, i, i, end)
	p.breakLabels = append(p.breakLabels, end)
	n.body.print(p)
	p.breakLabels = p.breakLabels[:len(p.breakLabels)-1]
	fmt.Fprintf(&p.b, "\tadd.u32 %%i%d, %%i%d, 1;\n\tbra %s;\n%s:\n", i, i, top, end)
}
func (n loop) exec(t *threadState) flow {
	for range t.r[n.r] & 3 {
		switch n.body.exec(t) {
		case breakLoop:
			return goOn
		case leave:
			return leave
		}
	}
	return goOn
}

type jump struct {
	cond condition
	ret  bool
}

func (n jump) print(p *printer) {
	n.cond.print(p, "%p1")
	switch {
	case !n.ret:
		fmt.Fprintf(&p.b, "\t@%%p1 bra %s;\n", p.breakLabels[len(p.breakLabels)-1])
	case p.label%2 == 0:
		p.b.WriteString("\t@%p1 ret;\n")
	default:
		l := p.newLabel()
		fmt.Fprintf(&p.b, "\t@!%%p1 bra %s;\n\texit;\n%s:\n", l, l)
	}
}
func (n jump) exec(t *threadState) flow {
	switch {
	case !n.cond.eval(t):
		return goOn
	case n.ret:
		return leave
	}
	return breakLoop
}

func randomBlock(r *rand.Rand, depth int, inLoop bool) program {
	var b program
	cond := func() condition {
		mask := []uint32{1, 3, 7, 31, 255}[r.IntN(5)]
		return condition{r.IntN(4), mask, uint32(r.IntN(int(mask) + 1))}
	}
	for range 1 + r.IntN(4) {
		switch k := r.IntN(10); {
		case k < 2 && depth > 0:
			n := branchNode{cond: cond(), yes: randomBlock(r, depth-1, inLoop)}
			if r.IntN(2) == 0 {
				n.no = randomBlock(r, depth-1, inLoop)
			}
			b = append(b, n)
		case k < 4 && depth > 0:
			b = append(b, loop{r.IntN(4), randomBlock(r, depth-1, true)})
		case k == 4 && inLoop:
			b = append(b, jump{cond: cond()})
		case k == 5 && r.IntN(4) == 0:
			c := cond()
			c.bound = min(c.bound, 1)
			b = append(b, jump{cond: c, ret: true})
		default:
			b = append(b, assign{op: []string{"add", "xor", "and"}[r.IntN(3)], d: r.IntN(4), a: r.IntN(4), b: r.IntN(5), imm: uint32(r.IntN(256)), guarded: r.IntN(3) == 0, cond: cond()})
		}
	}
	return b
}

// TestRandomControlFlow runs programs with random control flow. Each thread must compute what it
// would compute alone. All remaining threads must meet at the end, because the final barrier and
// shuffle would fault otherwise.
func TestRandomControlFlow(t *testing.T) {
	const threads = 80
	for seed := range uint64(400) {
		prog := randomBlock(rand.New(rand.NewPCG(seed, 77)), 4, false)
		p := &printer{}
		prog.print(p)
		body := strings.NewReplacer("add.b32", "add.u32").Replace(p.b.String())
		src := header + fmt.Sprintf(`.visible .entry random(.param .u64 pout)
{
	.reg .pred %%p<3>; .reg .b32 %%r<5>; .reg .b32 %%n<%d>; .reg .b32 %%i<%d>; .reg .b32 %%t<3>; .reg .b64 %%rd<3>;
	ld.param.u64 %%rd1, [pout];
	mov.u32 %%r0, %%tid.x; mul.lo.u32 %%r1, %%r0, 7; xor.b32 %%r2, %%r1, 85; add.u32 %%r3, %%r0, 200;
	mad.wide.u32 %%rd1, %%r0, 16, %%rd1;
%s	bar.sync 0;
	shfl.sync.idx.b32 %%t1, %%r0, %%laneid, 31, 0xffffffff;
	st.global.v4.b32 [%%rd1], {%%r0, %%r1, %%r2, %%r3};
}
`, p.loops+1, p.loops+1, body)
		d := newDevice(t)
		out := d.alloc(16*threads, "out")
		d.put(out, make([]byte, 16*threads))
		if _, err := d.launch(src, 1, threads, 0, out); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, src)
		}
		got, _ := d.mem.Bytes(out, 16*threads)
		for i := range uint32(threads) {
			st := threadState{[4]uint32{i, i * 7, i*7 ^ 85, i + 200}}
			if prog.exec(&st) == leave {
				st.r = [4]uint32{}
			}
			for k, want := range st.r {
				if v := binary.LittleEndian.Uint32(got[16*int(i)+4*k:]); v != want {
					t.Fatalf("seed %d: thread %d r%d = %d, want %d\n%s", seed, i, k, v, want, src)
				}
			}
		}
	}
}
