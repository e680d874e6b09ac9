package ptxvm

import (
	"errors"
	"strings"
	"testing"
)

// calling lists modules with functions, lists of targets and other rare features. Each stores its
// results to out[tid].
var calling = map[string]string{
	"table": `
.visible .entry k(.param .u64 out)
{
	.reg .b32 %t, %v, %i; .reg .b64 %o; .reg .pred %p;
	ld.param.u64 %o, [out];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %o, %t, 4, %o;
	and.b32 %i, %t, 3;
	mov.u32 %v, 0;
	setp.lt.u32 %p, %t, 30;
LIST: .branchtargets A, B, C, B;
@%p brx.idx %i, LIST;
	add.u32 %v, %v, 1000;
	bra END;
A:	add.u32 %v, %v, 1;
	bra END;
B:	add.u32 %v, %v, 10;
C:	add.u32 %v, %v, 100;
END:	add.u32 %v, %v, %t;
	st.global.u32 [%o], %v;
}`,
	"recursion": `
.func (.param .b32 r) down(.param .b32 n);
.func (.param .b32 r) down(.param .b32 n)
{
	.reg .b32 %n, %m; .reg .pred %p; .local .b32 keep;
	ld.param.b32 %n, [n];
	st.param.b32 [r], 1;
	setp.eq.u32 %p, %n, 0;
@%p	ret;
	st.local.b32 [keep], %n;
	sub.u32 %m, %n, 1;
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a], %m;
	call (b), down, (a);
	ld.param.b32 %m, [b];
	}
	ld.local.b32 %n, [keep];
	mad.lo.u32 %m, %m, 2, %n;
	st.param.b32 [r], %m;
}
.visible .entry k(.param .u64 out)
{
	.reg .b32 %t, %v; .reg .b64 %o;
	.param .b32 a; .param .b32 b;
	ld.param.u64 %o, [out];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %o, %t, 4, %o;
	st.param.b32 [a], %t;
	call (b), down, (a);
	ld.param.b32 %v, [b];
	st.global.u32 [%o], %v;
}`,
	"leaving": `
.func quit(.param .b32 n)
{
	.reg .b32 %n; .reg .pred %p;
	ld.param.b32 %n, [n];
	setp.gt.u32 %p, %n, 20;
@%p	exit;
}
.visible .entry k(.param .u64 out)
{
	.reg .b32 %t, %v; .reg .b64 %o; .param .b32 a; .reg .pred %p;
	ld.param.u64 %o, [out];
	mov.u32 %t, %tid.x;
	mad.wide.u32 %o, %t, 4, %o;
	st.global.u32 [%o], 7;
	st.param.b32 [a], %t;
	call quit, (a);
	setp.lt.u32 %p, %t, 10;
@%p	bra OUT;
	add.u32 %t, %t, 1;
	bar.warp.sync 0xffffffff;
	st.global.u32 [%o], %t;
OUT:	ret;
}`,
}

func init() {
	for k, v := range calling {
		calling[k] = header + v
	}
}

func TestCalling(t *testing.T) {
	for name, want := range map[string]func(i uint32) uint32{
		"table": func(i uint32) uint32 {
			if i >= 30 {
				return i + 1000
			}
			return i + []uint32{1, 110, 100, 110}[i&3]
		},
		"recursion": func(i uint32) uint32 {
			v := uint32(1)
			for n := uint32(1); n <= i; n++ {
				v = v*2 + n
			}
			return v
		},
		"leaving": func(i uint32) uint32 {
			if i < 10 || i > 20 {
				return 7
			}
			return i + 1
		},
	} {
		d := newDevice(t)
		out := d.alloc(128, "out")
		d.mustLaunch(calling[name], 1, 32, 0, out)
		for i, v := range d.read(out, 32, 4) {
			if uint32(v) != want(uint32(i)) {
				t.Errorf("%s: thread %d has %d, want %d", name, i, v, want(uint32(i)))
			}
		}
	}
}

// TestCallingAssembles checks that the real assembler also accepts these modules.
func TestCallingAssembles(t *testing.T) {
	ptxas := assembler(t)
	if ptxas == "" {
		t.Log("ptxas was not found: nothing was compared; set FLAMBEAU_PTXAS to its path")
		return
	}
	for name, src := range calling {
		if out, err := assemble(t, ptxas, "sm_90", src); err != nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

func TestCallingFaults(t *testing.T) {
	const thread = ".reg .b32 %t; .reg .b64 %o, %f; .param .b32 a; .param .b32 b; .param .b64 c; mov.u32 %t, %tid.x;\n"
	for _, c := range []struct {
		name, module, body string
		kind               FaultKind
		want               string
	}{
		{"endless recursion", ".func deep(.param .b32 n)\n{\n.reg .b32 %n; .param .b32 a;\nld.param.b32 %n, [n];\nst.param.b32 [a], %n;\ncall deep, (a); // HERE\n}\n", "st.param.b32 [a], %t;\ncall deep, (a);", BadCall, "calls deep"},
		{"no function", ".func f()\n{\n}\n", "mov.u64 %f, 4096;\nP: .callprototype _ ();\ncall %f, (), P; // HERE", BadCall, "no function of the module"},
		{"other arguments", ".func f(.param .b32 n)\n{\n}\n", "mov.u64 %f, f;\nP: .callprototype _ ();\ncall %f, (), P; // HERE", BadCall, "f takes other arguments"},
		{"argument not given", ".func f(.param .b32 n)\n{\n.reg .b32 %n;\nld.param.b32 %n, [n]; // HERE\n}\n", "call f, (a);", UninitialisedMemory, "never been written"},
		{"register of a function", ".func f(.param .b32 n)\n{\n.reg .b32 %n, %m;\nadd.u32 %n, %m, 1; // HERE\n}\n", "st.param.b32 [a], %t;\ncall f, (a);", UninitialisedRegister, "%m is read"},
		{"outside the list", "", "L: .branchtargets A, A;\nadd.u32 %t, %t, 2;\nbrx.idx %t, L; // HERE\nA:", OutOfBounds, "index 2 of a list of 2"},
		{"assertion", ".global .b8 what[4] = {110, 62, 48, 0};\n.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 g, .param .b64 s);\n",
			"mov.u64 %f, what;\ncvta.global.u64 %f, %f;\nst.param.b64 [c], %f;\nst.param.b32 [a], 12;\ncall __assertfail, (c, c, a, c, c); // HERE", Trap, `assertion "n>0" failed at n>0:12, in n>0`},
	} {
		src := header + c.module + ".visible .entry k()\n{\n" + thread + c.body + "\nret;\n}\n"
		d := newDevice(t)
		_, err := d.launch(src, 1, 1, 0)
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) { wantFault(t, err, src, c.kind, 0, c.want) })
	}
}

func TestCallingParseErrors(t *testing.T) {
	for _, c := range []struct{ module, body, want string }{
		{".func f(.reg .u32 a) { }", "", "in registers are not supported"},
		{".func f() { } .func f() { }", "", "function f twice"},
		{".func f(); .func f(.param .b32 a) { }", "", "with other parameters"},
		{".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);", ".param .b32 r; .param .b64 f; call (r), vprintf, (f, f);", "function vprintf is declared and has no body here"},
		{".func f(.param .b32 n) { }", "call f;", "differ from what f takes"},
		{".func f(.param .b32 n) { }", ".reg .b32 %r; call f, (%r);", "have to be .param variables"},
		{"", "call g;", "g is not declared"},
		{"", ".reg .b64 %r; call %r;", "there is no function that could be called"},
		{"", ".reg .b32 %r; brx.idx %r, L;", "L is no list of .branchtargets"},
		{"", ".reg .b32 %r; L: .branchtargets A; brx.idx %r, L;", "label A is not defined"},
		{".global .u64 p = q;", "", "q is not declared"},
		{".shared .u32 s; .global .u64 p = s;", "", "is not known before a launch"},
		{".func f() { wgmma.fence.sync.aligned; }", "call f;", "wgmma.fence.sync.aligned"},
		{"", "tcgen05.alloc x;", "unknown or unsupported instruction tcgen05.alloc"},
	} {
		_, err := Parse(header + c.module + "\n.visible .entry k() {\n" + c.body + "\n}\n")
		var p *ParseError
		if !errors.As(err, &p) || !strings.Contains(p.Msg, c.want) || p.Line < 4 {
			t.Errorf("%s %s: got %v, want %q", c.module, c.body, err, c.want)
		}
	}
}
