package ptxvm

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestHostileText parses text that is designed to take long, or to exhaust the stack. Parse must
// refuse it, or parse it in time proportional to its length. If the time grew with the square of
// the length, the test would not end.
func TestHostileText(t *testing.T) {
	const head = ".version 7.0\n.target sm_80\n.address_size 64\n"
	many := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	n := 100000
	if testing.Short() {
		n = 20000
	}
	entry := func(body string) string { return head + ".entry k {\n" + body + "ret;\n}\n" }
	for name, c := range map[string]struct{ src, want string }{
		"signs":     {entry(".reg .b32 r; mov.u32 r, " + strings.Repeat("-", 1<<21) + "1;"), ""},
		"registers": {entry(many(n, func(i int) string { return fmt.Sprintf(".reg .b32 q%dx;.reg .b32 r%dx<2>;\n", i, i) })), ""},
		"shared":    {entry(many(48<<10, func(i int) string { return fmt.Sprintf(".shared .b8 v%d;", i) })), ""},
		"entries": {head + many(n/10, func(i int) string { return fmt.Sprintf(".shared .b8 v%d;", i) }) +
			many(n/10, func(i int) string { return fmt.Sprintf(".entry k%d {ret;}", i) }), ""},
		"targets": {entry(".reg .b32 i; mov.u32 i, 0;\nT: .branchtargets L0" + many(1999, func(i int) string { return fmt.Sprintf(", L%d", i+1) }) + ";\n" +
			many(2000, func(i int) string { return fmt.Sprintf("L%d: brx.idx i, T;\n", i) })), "targets"},
		"blocks": {head + ".func f() {" + strings.Repeat("{}", n/10) + "ret;}\n" +
			many(n/10, func(i int) string { return fmt.Sprintf(".entry k%d {call f; ret;}", i) }), "blocks"},
	} {
		m, err := Parse(c.src)
		var p *ParseError
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.As(err, &p) || !strings.Contains(p.Msg, c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case name == "signs" && len(m.Entries()) != 1:
			t.Error("no entry")
		}
	}
	for _, c := range []struct{ a, b string }{{"r1", "r<2>"}, {"r<2>", "r1"}, {"r1, r0, r3", "r<1>"}, {"r<2>", "r<3>"}, {"r", "r"}} {
		if _, err := Parse(entry(".reg .b32 " + c.a + "; .reg .b32 " + c.b + ";")); err == nil || !strings.Contains(err.Error(), "declared twice") {
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		}
	}
	if _, err := Parse(entry(".reg .b32 r2, r5, r01; .reg .b32 r<2>; .reg .b32 rx<9>;")); err != nil {
		t.Error(err)
	}
}

// TestOddAssertion calls __assertfail with an argument of a size that no compiler passes. The
// argument must not be read beyond the end of local memory.
func TestOddAssertion(t *testing.T) {
	m := mustParse(t, `.version 7.0
.target sm_80
.address_size 64
.extern .func __assertfail(.param .b64 a);
.entry k
{
	.reg .pred %p; .reg .b32 %t; .param .b8 x[3];
	mov.u32 %t, %tid.x;
	setp.eq.u32 %p, %t, 31;
@%p	call __assertfail, (x);
	ret;
}
`)
	l := Launch{Entry: m.Entry("k"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}, Mem: NewMemory(0, 1<<20), SM: 80}
	var f *Fault
	if _, err := l.Run(); !errors.As(err, &f) || f.Kind != Trap || f.Thread[0] != 31 {
		t.Errorf("got %v", err)
	}
}

// TestFunctionOfTwoEntries calls one function from two entries. Decoding it for the first entry
// must not change it for the second.
func TestFunctionOfTwoEntries(t *testing.T) {
	entry := func(name string) string {
		return ".entry " + name + "(.param .u64 p)\n{\n.reg .b64 %a; .param .b64 x;\nld.param.u64 %a, [p];\nst.param.b64 [x], %a;\ncall f, (x);\nret;\n}\n"
	}
	m := mustParse(t, `.version 7.4
.target sm_80
.address_size 64
.func f(.param .b64 p)
{
	.reg .b64 %a, %q; .reg .b32 %v;
	ld.param.b64 %a, [p];
	createpolicy.fractional.L2::evict_last.b64 %q, 1.0;
	ld.global.L2::cache_hint.b32 %v, [%a], %q;
	add.u32 %v, %v, 1;
	st.global.L2::cache_hint.b32 [%a], %v, %q;
	ret;
}
`+entry("first")+entry("second"))
	d := newDevice(t)
	out := d.alloc(4, "out")
	if b, err := d.mem.Bytes(out, 4); err != nil {
		t.Fatal(err)
	} else {
		put(b, 4, 40)
	}
	d.mem.MarkInitialised(out, 4)
	for _, name := range m.Entries() {
		l := Launch{Entry: m.Entry(name), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: packParams(out), Mem: d.mem, SM: 80}
		if _, err := l.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := d.mem.Bytes(out, 4); loadLE(b, 4) != 42 {
		t.Errorf("%d, want 42", loadLE(b, 4))
	}
}

// TestMbarrierMisuse makes arrivals that an mbarrier does not expect, or that exceed its largest
// count. Both must be faults.
func TestMbarrierMisuse(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		// cp.async adds one arrival to the expected one, and arrives once: 1 + 1 - 1
		{"cp.async.mbarrier.arrive.shared.b64 [bar];\nmbarrier.arrive_drop.shared.b64 _, [bar], 2;", "expects 1 more"},
		{"mbarrier.arrive_drop.shared.b64 _, [bar], 1;\nmbarrier.arrive.shared.b64 _, [bar];", "expects 0 more"},
		{"mbarrier.init.shared.b64 [bar], 1048575;\ncp.async.mbarrier.arrive.shared.b64 [bar];", "more than 1048575 arrivals"},
		{"mbarrier.init.shared.b64 [bar], 0;", "1 to 1048575"},
	} {
		src := ".version 8.0\n.target sm_80\n.address_size 64\n.entry k\n{\n.shared .b64 bar;\nmbarrier.init.shared.b64 [bar], 1;\n" + c.body + "\nret;\n}\n"
		m := mustParse(t, src)
		l := Launch{Entry: m.Entry("k"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Mem: NewMemory(0, 1<<20), SM: 80}
		_, err := l.Run()
		var f *Fault
		if !errors.As(err, &f) || !strings.Contains(f.Msg, c.want) {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
	if _, err := Parse(".version 8.0\n.target sm_80\n.address_size 64\n.entry k\n{\n.local .b64 bar;\ncp.async.mbarrier.arrive.b64 [bar];\nret;\n}\n"); err == nil || !strings.Contains(err.Error(), "shared memory") {
		t.Error(err)
	}
}
