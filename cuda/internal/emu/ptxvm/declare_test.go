package ptxvm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestParseDeclarations compares the declarations that ParseDeclarations and Parse return. They
// must be equal.
func TestParseDeclarations(t *testing.T) {
	paths, err := filepath.Glob("../../kernels/testdata/*.ptx")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	texts := map[string]string{"by hand": `.version 7.0
.target sm_80
.address_size 64
.visible .entry odd(.param .u64 p, .param .u32 n) .maxntid 64, 2
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.shared .align 16 .b8 one[48];
	{ .shared .f32 two[5]; .local .b8 three[24]; }
	mov.u32 %r1, 0; // a remark; with a semicolon
loop:
	add.u32 %r1, %r1, 1; /* another; { */
	setp.lt.u32 %p1, %r1, 9;
	@%p1 bra loop;
	@!%p1 bra end;
end: }
.visible .entry next() { ret; }
`}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(b)
	}
	for name, text := range texts {
		want, err := Parse(text)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := ParseDeclarations(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sameDeclarations(t, name, want, got)
	}
	for _, text := range []string{"", ".version 7.0", ".version 7.0 .target sm_80 .address_size 64 .entry x() { mov.u32 %r1, 0", ".version 7.0 .target sm_80 .address_size 64 .entry x() { a: "} {
		if _, err := ParseDeclarations(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func sameDeclarations(t *testing.T, name string, want, got *Module) {
	t.Helper()
	if a, b := fmt.Sprint(want.Entries(), want.Arch()), fmt.Sprint(got.Entries(), got.Arch()); a != b {
		t.Errorf("%s: %s, want %s", name, b, a)
		return
	}
	for _, e := range want.Entries() {
		a, b := want.Entry(e), got.Entry(e)
		say := func(e *Entry) string {
			return fmt.Sprint(e.Params, e.ParamBytes, e.MaxThreads, e.ReqThreads, e.MinCTAs, e.StaticShared, e.Local)
		}
		if say(a) != say(b) || b.code != nil {
			t.Errorf("%s: %s: %s and %d instructions, want %s and none", name, e, say(b), len(b.code), say(a))
		}
	}
}
