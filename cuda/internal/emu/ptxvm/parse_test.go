package ptxvm

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseModule(t *testing.T) {
	m := mustParse(t, `// a comment
.version 7.8
.target sm_80 /* another,
over two lines */
.address_size 64
.const .align 4 .f32 table[4] = {0f3F800000, 2.0, -1.0, 0.5};
.global .align 8 .u32 counter = 41;
.global .b8 zeros[100];
.extern .shared .align 16 .b8 dyn[];
.shared .f32 common[8];
.visible .entry first(
	.param .u64 .ptr .global .align 16 p,
	.param .u32 n,
	.param .f64 x,
	.param .align 16 .b8 blob[24],
	.param .u8 flag
)
.maxntid 128, 2, 1
.minnctapersm 2
{ ret; }
.entry second { .reg .b32 %r<4>; mov.u32 %r1, common; mov.u32 %r2, dyn; exit; }
`)
	if got := m.Entries(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("entries %v", got)
	}
	if a, b := m.Version(); a != 7 || b != 8 || m.Target() != 80 {
		t.Errorf("version %d.%d target %d", a, b, m.Target())
	}
	e := m.Entry("first")
	want := []Param{{"p", U64, 8, 8, 0}, {"n", U32, 4, 4, 8}, {"x", F64, 8, 8, 16}, {"blob", B8, 24, 16, 32}, {"flag", U8, 1, 1, 56}}
	if !slices.Equal(e.Params, want) || e.ParamBytes != 57 || e.MaxThreads != [3]int{128, 2, 1} || e.MinCTAs != 2 {
		t.Errorf("entry %+v", e)
	}
	if s := m.Entry("second"); s.StaticShared != 32 || e.StaticShared != 0 || s.dynOffset != 32 {
		t.Errorf("static shared %d, %d, dynamic from %d", s.StaticShared, e.StaticShared, s.dynOffset)
	}
	if m.Entry("third") != nil {
		t.Error("an entry that does not exist")
	}
}

func TestModuleVariables(t *testing.T) {
	src := `.version 7.8
.target sm_80
.address_size 64
.const .f32 table[4] = {0f3F800000, 2.0, -1.0, 0.5};
.global .u32 counter = 41;
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %tid.x;
	mov.u64 %rd2, table;
	mad.wide.u32 %rd2, %r1, 4, %rd2;
	ld.const.f32 %f1, [%rd2];
	mad.wide.u32 %rd3, %r1, 4, %rd1;
	st.global.f32 [%rd3], %f1;
	atom.global.add.u32 %r2, [counter], 1;
	ret;
}
`
	d := newDevice(t)
	out := d.alloc(16, "out")
	m := mustParse(t, src)
	l := Launch{Entry: m.Entry("k"), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{4, 1, 1}, Params: packParams(out), Mem: d.mem, SM: 90}
	for range 2 {
		if _, err := l.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if got := d.readFloats(out, 4); !slices.Equal(got, []float32{1, 2, -1, .5}) {
		t.Errorf("table %v", got)
	}
	addr, size, err := m.Global(d.mem, "counter")
	if err != nil || size != 4 {
		t.Fatal(addr, size, err)
	}
	if b, _ := d.mem.Bytes(addr, 4); loadLE(b, 4) != 49 {
		t.Errorf("counter = %d, want 49", loadLE(b, 4))
	}
	before := d.mem.Mapped()
	m.Unload(d.mem)
	if d.mem.Mapped() != before-512 {
		t.Errorf("unload kept %d bytes", d.mem.Mapped())
	}
}

// rejected lists bodies that Parse and ptxas refuse, each with words of Parse's message.
var rejected = []struct{ body, want string }{
	{"mov.pred !%p2, %p1;", "negated"},
	{"setp.eq.u32 %p1, %r1, %r2, !%p3;", "takes 3 operands"},
	{"add.u32 %r1, %r2, p;", "variable"},

	{"frobnicate.u32 %r1, %r2;", "frobnicate.u32"},
	{"add.u32.wrong %r1, %r2, %r3;", ".wrong"},
	{"add.u32 %r1, %r2;", "takes 3 operands"},
	{"add.u32 %r1, %r2, %r99;", "%r99 is not declared"},
	{"add.u32 %rd1, %r2, %r3;", "%rd1 of type .b64 does not fit"},
	{"add.f32 %r1, %u1, %r3;", "%u1 of type .u32 does not fit an operand of type .f32"},
	{"add.u32 %r1, %f1, %r3;", "%f1 of type .f32"},
	{"add.u32 %r1, %r2, 0f3F800000;", "literal does not fit"},
	{"mov.f32 %f1, 1;", "literal does not fit"},
	{"bra NOWHERE;", "NOWHERE"},
	{"@%r1 bra L; L:", "not a predicate"},
	{"L: L:", "label L twice"},
	{"ld.global.u32 %r1, %rd1;", "brackets"},
	{"ld.global.u32 %r1, [%r2];", "cannot address"},
	{"ld.global.v4.u64 {%rd1,%rd2,%rd3,%rd4}, [%rd1];", "32 bytes is too wide"},
	{"st.param.u32 [p], %r1;", "read-only"},
	{"fma.f32 %f1, %f2, %f3, %f1;", ".rn"},
	{"cvt.f32.s32 %f1, %r1;", "needs .rn"},
	{"cvt.s32.f32 %r1, %f1;", ".rzi"},
	{"cvt.rn.f64.f32 %d1, %f1;", "does not round"},
	{"ex2.f32 %f1, %f2;", ".approx"},
	{"mul.u32 %r1, %r2, %r3;", ".lo, .hi or .wide"},
	{"setp.u32 %p1, %r2, %r3;", "comparison"},
	{"setp.ltu.u32 %p1, %r2, %r3;", "comparison"},
	{"shfl.bfly.b32 %r1, %r2, 1, 31;", "shfl.sync"},
	{"call foo;", "call"},
	{"wgmma.fence.sync.aligned;", "wgmma"},
	{"cp.async.bulk.commit_group;", "cp.async.bulk"},
	{".reg .b32 %r<3>;", "declared twice"},
	{".reg .pred %pp<3>", "expected"},
	{"add.u32 %r1, %r2, %r3", "expected"},
	{"mov.u64 %rd1, %clock;", "%clock"},
	{"mov.u32 %r1, %nosuch.x;", "%nosuch.x"},
	{"atom.global.add.f16 %h1, [%rd1], %h2;", ".noftz"},
	{"add.bf16x2 %r1, %r2, %r3;", "sm_90"},
	{"stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};", "sm_90"},
	{"elect.sync %r1|%p1, -1;", "sm_90"},
	{"tanh.approx.bf16x2 %r1, %r2;", "sm_90"},
	{"setmaxnreg.inc.sync.aligned.u32 64;", "sm_90"},
	{"mov.u32 %r1, \x01;", "unexpected character"},
	{"mma.sync.aligned..row.col.f32.f16.f16.f32 %r1, %r2, %r3, %r1;", "without a modifier"},
	{"add.u32. %r1, %r2, %r3;", "without a modifier"},
	{"/* no end", "comment"},
	{".shared .b8 big[50000];", "static shared"},
	{"{ {", "no end"},
}

func rejectedSource(body string) string {
	return ".version 7.0\n.target sm_80\n.address_size 64\n.entry k(.param .u64 p)\n{\n.reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .u32 %u<2>; .reg .b64 %rd<5>; .reg .f32 %f<4>; .reg .f64 %d<4>;\n" + body + "\n}\n"
}

// stricter lists bodies that Parse refuses but the newest ptxas accepts. They are always mistakes,
// or an older ptxas refuses them.
var stricter = []struct{ body, want string }{
	{"add.u16 %h1, %h2, 70000;", "literal does not fit"},
	{"ld.global.v2.u32 {%r1,%r1}, [%rd1];", "twice"},
	{".reg .b32 %tid;", "hides a special register"},
	{"// h·z", "beyond ASCII"},
}

func TestParseErrors(t *testing.T) {
	for _, c := range append(slices.Clone(rejected), stricter...) {
		_, err := Parse(rejectedSource(c.body))
		var p *ParseError
		if !errors.As(err, &p) || !strings.Contains(p.Msg, c.want) {
			t.Errorf("%s: got %v, want %q", c.body, err, c.want)
		} else if p.Line < 7 {
			t.Errorf("%s: line %d", c.body, p.Line)
		}
	}
	for _, src := range []string{"", ".version 7.0", ".version 5.0\n.target sm_80\n.address_size 64", ".version 7.0\n.target sm_80\n.address_size 32",
		".version 8.0\n.target sm_90\n.address_size 64\n.entry k { setmaxnreg.inc.sync.aligned.u32 64; ret; }",
		".version 7.0\n.target gfx90\n.address_size 64", ".version 7.0\n.target sm_80\n.address_size 64\n.func f(.reg .u32 a) { ret; }", ".version 7.0\n.target sm_80\n.address_size 64\n.entry k { ret; } .entry k { ret; }"} {
		var p *ParseError
		if _, err := Parse(src); !errors.As(err, &p) {
			t.Errorf("%q: got %v", src, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(vaddSrc)
	f.Add(softmaxSrc)
	f.Add(strings.ReplaceAll(mmaSrc, "TYPE", "bf16"))
	for _, b := range planted {
		f.Add(kernel(b.body))
	}
	for _, list := range [][]conform{integerCases, floatCases, convertCases, miscCases} {
		for i, c := range list {
			if i%5 == 0 {
				f.Add(header + ".entry k { .reg .pred %p, %q; .reg .b32 %a, %b, %c, %d; " + c.code + " ret; }")
			}
		}
	}
	if files, _ := filepath.Glob("testdata/*.ptx"); len(files) > 0 {
		for _, n := range files {
			if b, err := os.ReadFile(n); err == nil {
				f.Add(string(b))
			}
		}
	}
	for _, src := range calling {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		m, err := Parse(src)
		brief, briefErr := ParseDeclarations(src)
		for _, err := range []error{err, briefErr} {
			var p *ParseError
			if err != nil && !errors.As(err, &p) {
				t.Fatalf("error of type %T", err)
			}
		}
		if err != nil {
			return
		}
		if briefErr != nil {
			t.Fatalf("without its instructions it is refused: %v", briefErr)
		}
		sameDeclarations(t, "the text", m, brief)
		// text that Parse accepts must not crash the emulator when it runs, but faults are allowed
		for _, e := range m.entries {
			if len(m.globals) > 0 || e.Local > 4096 || e.nreg > 2000 {
				continue
			}
			l := Launch{Entry: e, Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{33, 1, 1}, Params: make([]byte, e.ParamBytes), Mem: NewMemory(0, 1<<20), SM: m.target, MaxSteps: 2000, Workers: 1}
			if _, err := l.Run(); err != nil {
				var ft *Fault
				if !errors.As(err, &ft) || ft.Error() == "" {
					t.Fatalf("error of type %T", err)
				}
			}
		}
	})
}
