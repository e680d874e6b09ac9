package ptxvm

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// gemmSrc returns a kernel that multiplies n×n float32 matrices. It uses tiles of 32×32 elements in
// shared memory. Each thread computes 8 elements in a column of a tile.
func gemmSrc() string {
	var b strings.Builder
	b.WriteString(`.version 7.0
.target sm_80
.address_size 64
.visible .entry gemm(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
.maxntid 128
{
	.reg .pred %p<2>;
	.reg .b32 %r<24>;
	.reg .f32 %f<40>;
	.reg .b64 %rd<12>;
	.shared .align 16 .b8 sa[4096];
	.shared .align 16 .b8 sb[4096];
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pb];
	ld.param.u64 %rd3, [pc];
	ld.param.u32 %r1, [pn];
	mov.u32 %r2, %tid.x;
	and.b32 %r3, %r2, 31;       // column in tile
	shr.u32 %r4, %r2, 5;        // first row in tile
	mov.u32 %r5, %ctaid.x;
	mov.u32 %r6, %ctaid.y;
	shl.b32 %r5, %r5, 5;
	shl.b32 %r6, %r6, 5;
	mov.u32 %r7, sa;
	mov.u32 %r8, sb;
	shl.b32 %r9, %r4, 7;
	mad.lo.u32 %r9, %r3, 4, %r9; // byte offset (row, col)
	add.u32 %r10, %r7, %r9;
	add.u32 %r11, %r8, %r9;
	mad.lo.u32 %r12, %r3, 4, %r8; // sb column
	shl.b32 %r13, %r4, 7;
	add.u32 %r13, %r13, %r7;      // sa row
	mov.u32 %r14, 0;
	shl.b32 %r15, %r1, 4;         // 4 rows of n floats, in bytes
	add.u32 %r16, %r6, %r4;
	mad.lo.u32 %r17, %r16, %r1, %r3;
	mad.wide.u32 %rd4, %r17, 4, %rd1;
	mad.lo.u32 %r17, %r4, %r1, %r3;
	add.u32 %r17, %r17, %r5;
	mad.wide.u32 %rd5, %r17, 4, %rd2;
	cvt.u64.u32 %rd6, %r15;
	shl.b64 %rd7, %rd6, 3;        // 32 rows
`)
	for i := range 8 {
		fmt.Fprintf(&b, "	mov.f32 %%f%d, 0f00000000;\n", i)
	}
	b.WriteString("KLOOP:\n	mov.b64 %rd8, %rd4;\n	mov.b64 %rd9, %rd5;\n")
	for i := range 8 {
		fmt.Fprintf(&b, "	ld.global.f32 %%f10, [%%rd8];\n	st.shared.f32 [%%r10+%d], %%f10;\n	ld.global.f32 %%f11, [%%rd9];\n	st.shared.f32 [%%r11+%d], %%f11;\n	add.u64 %%rd8, %%rd8, %%rd6;\n	add.u64 %%rd9, %%rd9, %%rd6;\n", 512*i, 512*i)
	}
	b.WriteString("	bar.sync 0;\n")
	for k := range 32 {
		fmt.Fprintf(&b, "	ld.shared.f32 %%f20, [%%r12+%d];\n", 128*k)
		for i := range 8 {
			fmt.Fprintf(&b, "	ld.shared.f32 %%f21, [%%r13+%d];\n	fma.rn.f32 %%f%d, %%f21, %%f20, %%f%d;\n", 512*i+4*k, i, i)
		}
	}
	b.WriteString(`	bar.sync 0;
	add.u64 %rd4, %rd4, 128;
	add.u64 %rd5, %rd5, %rd7;
	add.u32 %r14, %r14, 32;
	setp.lt.u32 %p1, %r14, %r1;
	@%p1 bra KLOOP;
	mad.lo.u32 %r17, %r16, %r1, %r3;
	add.u32 %r17, %r17, %r5;
	mad.wide.u32 %rd8, %r17, 4, %rd3;
`)
	for i := range 8 {
		fmt.Fprintf(&b, "	st.global.f32 [%%rd8], %%f%d;\n	add.u64 %%rd8, %%rd8, %%rd6;\n", i)
	}
	b.WriteString("	ret;\n}\n")
	return b.String()
}

func gemm(t testing.TB, n int) (Stats, []float32, []float32, []float32) {
	d := newDevice(t)
	a, b := randoms(n*n, 5), randoms(n*n, 6)
	pa, pb, pc := d.floats(a, "a"), d.floats(b, "b"), d.alloc(4*n*n, "c")
	m := mustParse(t, gemmSrc())
	l := Launch{Entry: m.Entry("gemm"), Grid: [3]uint32{uint32(n / 32), uint32(n / 32), 1}, Block: [3]uint32{128, 1, 1}, Params: packParams(pa, pb, pc, n), Mem: d.mem, SM: 80, Workers: 1}
	st, err := l.Run()
	if err != nil {
		t.Fatal(err)
	}
	return st, a, b, d.readFloats(pc, n*n)
}

func TestTiledGemm(t *testing.T) {
	const n = 64
	st, a, b, c := gemm(t, n)
	for i := range n {
		for j := range n {
			var want float32
			for k := range n {
				want = float32(math.FMA(float64(a[i*n+k]), float64(b[k*n+j]), float64(want)))
			}
			if got := c[i*n+j]; math.Abs(float64(got-want)) > 1e-4 {
				t.Fatalf("c[%d,%d] = %v, want %v", i, j, got, want)
			}
		}
	}
	// the expected counts are for 4 blocks of 4 warps and 2 tiles
	const warps = 4 * 4
	if want := int64(warps * n * 8); st.FMA != want {
		t.Errorf("FMA = %d, want %d", st.FMA, want)
	}
	if want := int64(warps * n * 9); st.SharedLoads != want {
		t.Errorf("SharedLoads = %d, want %d", st.SharedLoads, want)
	}
	if st.BankConflicts != 0 {
		t.Errorf("BankConflicts = %d, want 0", st.BankConflicts)
	}
	if loads := int64(warps * 2 * 16); st.GlobalLoads != loads || st.GlobalStores != warps*8 || st.Sectors != 4*(loads+warps*8) || st.IdealSectors != st.Sectors {
		t.Errorf("global: %+v", st)
	}
}

func TestCounters(t *testing.T) {
	for _, c := range []struct {
		body                       string
		sectors, ideal, bytes      int64
		requests, conflicts, loads int64
	}{
		{"ld.global.u32 %r1, [%rd1];", 4, 4, 128, 0, 0, 0},
		{"mad.wide.u32 %rd2, %t, 64, %rd0; ld.global.u32 %r1, [%rd2];", 32, 4, 128, 0, 0, 0},
		{"ld.global.u32 %r1, [%rd0];", 1, 4, 128, 0, 0, 0},
		{"sub.u64 %rd2, %rd1, %rd0; sub.u64 %rd2, %rd0, %rd2; ld.global.u32 %r1, [%rd2+1024];", 5, 4, 128, 0, 0, 0},
		{"mad.wide.u32 %rd2, %t, 16, %rd0; ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%rd2];", 16, 16, 512, 0, 0, 0},
		{"setp.lt.u32 %p1, %t, 8; @%p1 ld.global.u8 %h1, [%rd1];", 1, 1, 8, 0, 0, 0},
		{"st.shared.u32 [%s], %t;", 0, 0, 0, 1, 0, 0},
		{"st.shared.u32 [%s], %t; ld.shared.u32 %r1, [%s];", 0, 0, 0, 2, 0, 1},
		{"mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 8, %r1; st.shared.u32 [%r1], %t;", 0, 0, 0, 1, 1, 0},
		{"mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 32, %r1; st.shared.u32 [%r1], %t;", 0, 0, 0, 1, 7, 0},
		{"mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 8, %r1; st.shared.v2.u32 [%r1], {%t, %t};", 0, 0, 0, 1, 0, 0},
		{"mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 16, %r1; st.shared.v4.u32 [%r1], {%t, %t, %t, %t};", 0, 0, 0, 1, 0, 0},
		{"mov.u32 %r1, sm; mad.lo.u32 %r1, %t, 32, %r1; st.shared.v4.u32 [%r1], {%t, %t, %t, %t};", 0, 0, 0, 1, 4, 0},
		{"st.shared.u32 [sm], 1; bar.sync 0; ld.shared.u32 %r1, [sm];", 0, 0, 0, 2, 0, 1},
	} {
		d := newDevice(t)
		p := d.alloc(4096, "buffer")
		d.put(p, make([]byte, 4096))
		st := d.mustLaunch(kernel(c.body), 1, 32, 0, p)
		got := [6]int64{st.Sectors, st.IdealSectors, st.GlobalBytes, st.SharedRequests, st.BankConflicts, st.SharedLoads}
		if want := [6]int64{c.sectors, c.ideal, c.bytes, c.requests, c.conflicts, c.loads}; got != want {
			t.Errorf("%s\n got %v, want %v (sectors, ideal, bytes, shared requests, conflicts, loads)", c.body, got, want)
		}
	}
}

func TestCountersByLine(t *testing.T) {
	d := newDevice(t)
	p := d.alloc(4096, "buffer")
	d.put(p, make([]byte, 4096))
	src := kernel(`setp.lt.u32 %p1, %t, 8;
@%p1 bra SKIP;
	ld.global.u32 %r1, [%rd1]; // HERE
SKIP:
	mov.u32 %r1, sm;
	mad.lo.u32 %r1, %t, 8, %r1;
	st.shared.u32 [%r1], %t; // THERE`)
	m := mustParse(t, src)
	l := Launch{Entry: m.entries[0], Grid: [3]uint32{3, 1, 1}, Block: [3]uint32{64, 1, 1}, Params: packParams(p), Mem: d.mem, SM: 90, Lines: map[int]*LineStats{}}
	st, err := l.Run()
	if err != nil {
		t.Fatal(err)
	}
	at := func(mark string) LineStats {
		for i, s := range strings.Split(src, "\n") {
			if strings.Contains(s, mark) {
				return *l.Lines[i+1]
			}
		}
		return LineStats{}
	}
	if got, want := at("// HERE"), (LineStats{Instructions: 6, Lanes: 3 * 56, Sectors: 3 * 7, IdealSectors: 3 * 7}); got != want {
		t.Errorf("load: %+v, want %+v", got, want)
	}
	if got, want := at("// THERE"), (LineStats{Instructions: 6, Lanes: 192, BankConflicts: 6}); got != want {
		t.Errorf("store: %+v, want %+v", got, want)
	}
	var sum int64
	for _, n := range l.Lines {
		sum += n.Instructions
	}
	if sum != st.Instructions {
		t.Errorf("lines sum to %d of %d instructions", sum, st.Instructions)
	}
}

// mmaSrc is a kernel in which one warp computes a 16×8 tile. cp.async copies the operands to shared
// memory, and ldmatrix reads them. bt is b transposed.
const mmaSrc = `.version 7.0
.target sm_80
.address_size 64
.visible .entry mma_tile(.param .u64 pa, .param .u64 pbt, .param .u64 pc, .param .u32 pk)
{
	.reg .pred %p<3>;
	.reg .b32 %r<48>;
	.reg .f32 %f<5>;
	.reg .b64 %rd<12>;
	.shared .align 16 .b8 sA[512];
	.shared .align 16 .b8 sB[256];
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pbt];
	ld.param.u64 %rd3, [pc];
	ld.param.u32 %r1, [pk];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, sA;
	mov.u32 %r4, sB;
	shr.u32 %r5, %r2, 1;
	and.b32 %r6, %r2, 1;
	mul.wide.u32 %rd5, %r5, %r1;
	shl.b64 %rd5, %rd5, 1;
	mul.wide.u32 %rd6, %r6, 16;
	add.u64 %rd5, %rd5, %rd6;
	add.u64 %rd7, %rd1, %rd5;
	add.u64 %rd8, %rd2, %rd5;
	shl.b32 %r7, %r2, 4;
	add.u32 %r8, %r3, %r7;
	add.u32 %r9, %r4, %r7;
	setp.lt.u32 %p1, %r2, 16;
	and.b32 %r10, %r2, 15;
	shr.u32 %r11, %r2, 4;
	mad.lo.u32 %r12, %r10, 32, %r3;
	mad.lo.u32 %r12, %r11, 16, %r12;
	and.b32 %r14, %r2, 7;
	shr.u32 %r15, %r2, 3;
	and.b32 %r15, %r15, 1;
	mad.lo.u32 %r16, %r14, 32, %r4;
	mad.lo.u32 %r16, %r15, 16, %r16;
	mov.f32 %f1, 0f00000000;
	mov.f32 %f2, %f1;
	mov.f32 %f3, %f1;
	mov.f32 %f4, %f1;
	mov.u32 %r20, 0;
KLOOP:
	cp.async.cg.shared.global [%r8], [%rd7], 16;
	@%p1 cp.async.cg.shared.global [%r9], [%rd8], 16;
	cp.async.commit_group;
	cp.async.wait_group 0;
	bar.sync 0;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r21,%r22,%r23,%r24}, [%r12];
	ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r25,%r26}, [%r16];
	mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%f1,%f2,%f3,%f4}, {%r21,%r22,%r23,%r24}, {%r25,%r26}, {%f1,%f2,%f3,%f4};
	bar.sync 0;
	add.u64 %rd7, %rd7, 32;
	add.u64 %rd8, %rd8, 32;
	add.u32 %r20, %r20, 16;
	setp.lt.u32 %p2, %r20, %r1;
	@%p2 bra KLOOP;
	shr.u32 %r30, %r2, 2;
	and.b32 %r31, %r2, 3;
	shl.b32 %r31, %r31, 1;
	mad.lo.u32 %r32, %r30, 8, %r31;
	mad.wide.u32 %rd10, %r32, 4, %rd3;
	st.global.v2.f32 [%rd10], {%f1,%f2};
	st.global.v2.f32 [%rd10+256], {%f3,%f4};
	ret;
}
`

func (d *device) halves(v []float32, to func(float32) uint64) uint64 {
	a := d.alloc(2*len(v), "halves")
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint16(b, uint16(to(f)))
	}
	d.put(a, b)
	return a
}

func TestMatrixMultiply(t *testing.T) {
	const k = 48
	for _, n := range []struct {
		name string
		to   func(float32) uint64
		from func(uint64) float32
	}{{"f16", toF16, f16}, {"bf16", toBF16, bf16}} {
		d := newDevice(t)
		a, bt := randoms(16*k, 7), randoms(8*k, 8)
		pa, pb, pc := d.halves(a, n.to), d.halves(bt, n.to), d.alloc(4*16*8, "c")
		st := d.mustLaunch(strings.ReplaceAll(mmaSrc, "TYPE", n.name), 1, 32, 0, pa, pb, pc, k)
		c := d.readFloats(pc, 128)
		for i := range 16 {
			for j := range 8 {
				var want, abs float64
				for q := range k {
					p := float64(n.from(n.to(a[i*k+q]))) * float64(n.from(n.to(bt[j*k+q])))
					want += p
					abs += math.Abs(p)
				}
				if got := float64(c[i*8+j]); math.Abs(got-want) > (k/8+2)*0x1p-23*abs {
					t.Fatalf("%s: c[%d,%d] = %v, want %v", n.name, i, j, got, want)
				}
			}
		}
		if st.MMA != 3 {
			t.Errorf("MMA = %d, want 3", st.MMA)
		}
	}
}

// TestMatrixMultiplyTF32 multiplies matrices with mma.sync.m16n8k8 and tf32. Each lane computes the
// indices of its fragments by the formulas of the ISA. The matrices hold distinct small integers,
// so the expected result is exact.
func TestMatrixMultiplyTF32(t *testing.T) {
	src := header + `.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc)
{
	.reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
	ld.param.u64 %rd1, [pa]; ld.param.u64 %rd2, [pb]; ld.param.u64 %rd3, [pc];
	mov.u32 %r1, %laneid; shr.u32 %r2, %r1, 2; and.b32 %r3, %r1, 3;
	mad.lo.u32 %r4, %r2, 8, %r3; mad.wide.u32 %rd4, %r4, 4, %rd1;
	ld.global.b32 %r5, [%rd4]; ld.global.b32 %r6, [%rd4+256]; ld.global.b32 %r7, [%rd4+16]; ld.global.b32 %r8, [%rd4+272];
	mad.lo.u32 %r4, %r3, 8, %r2; mad.wide.u32 %rd5, %r4, 4, %rd2;
	ld.global.b32 %r9, [%rd5]; ld.global.b32 %r10, [%rd5+128];
	mov.f32 %f0, 0f3F800000;
	mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, {%r5,%r6,%r7,%r8}, {%r9,%r10}, {%f0,%f0,%f0,%f0};
	shl.b32 %r3, %r3, 1; mad.lo.u32 %r4, %r2, 8, %r3; mad.wide.u32 %rd6, %r4, 4, %rd3;
	st.global.v2.f32 [%rd6], {%f1,%f2}; st.global.v2.f32 [%rd6+256], {%f3,%f4};
	ret;
}
`
	d := newDevice(t)
	a, b := make([]float32, 128), make([]float32, 64)
	for i := range a {
		a[i] = float32(i%37 - 11)
	}
	for i := range b {
		b[i] = float32(i%23 - 7)
	}
	pa, pb, pc := d.floats(a, "a"), d.floats(b, "b"), d.alloc(512, "c")
	d.mustLaunch(src, 1, 32, 0, pa, pb, pc)
	for i, got := range d.readFloats(pc, 128) {
		want := float32(1)
		for k := range 8 {
			want += a[i/8*8+k] * b[k*8+i%8]
		}
		if got != want {
			t.Fatalf("c[%d,%d] = %v, want %v", i/8, i%8, got, want)
		}
	}
}

// TestStoreMatrix stores a matrix with stmatrix and loads it with ldmatrix. The result must be the
// same matrix, with or without two transpositions.
func TestStoreMatrix(t *testing.T) {
	for _, mod := range []string{"", ".trans"} {
		d := newDevice(t)
		p := d.alloc(256, "buffer")
		d.put(p, make([]byte, 256))
		d.mustLaunch(kernel(fmt.Sprintf(`mov.u32 %%r0, sm;
	mad.lo.u32 %%r1, %%t, 16, %%r0;
	mad.lo.u32 %%r2, %%t, 3, 1; mad.lo.u32 %%r3, %%t, 65537, 7;
	stmatrix.sync.aligned.m8n8.x2%s.shared.b16 [%%r1], {%%r2, %%r3};
	bar.warp.sync -1;
	ldmatrix.sync.aligned.m8n8.x2%s.shared.b16 {%%r4, %%r5}, [%%r1];
	setp.ne.u32 %%p1, %%r2, %%r4;
	@%%p1 trap;
	setp.ne.u32 %%p1, %%r3, %%r5;
	@%%p1 trap;
	mul.lo.u32 %%r6, %%t, 2; and.b32 %%r6, %%r6, 6; shr.u32 %%r7, %%t, 2; mad.lo.u32 %%r6, %%r7, 8, %%r6; mad.lo.u32 %%r6, %%r6, 2, %%r0;
	ld.shared.b32 %%r7, [%%r6];
	setp.ne.u32 %%p1, %%r7, %%r2;`, mod, mod)+map[string]string{"": "\n@%p1 trap;", ".trans": ""}[mod]), 1, 32, 0, p)
	}
}

func BenchmarkGemm256(b *testing.B) {
	for b.Loop() {
		st, _, _, _ := gemm(b, 256)
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(st.Instructions), "ns/warp-instr")
	}
}
