package ptxvm

import (
	"math"
	"math/rand/v2"
	"testing"
)

const vaddSrc = `.version 7.0
.target sm_80
.address_size 64
.visible .entry vadd(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
.maxntid 256, 1, 1
{
	.reg .pred %p<3>;
	.reg .b32 %r<12>;
	.reg .f32 %f<13>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [pa];
	ld.param.u64 %rd2, [pb];
	ld.param.u64 %rd3, [pc];
	ld.param.u32 %r1, [pn];
	cvta.to.global.u64 %rd1, %rd1;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.u32 %r5, %r2, %r3, %r4;
	mov.u32 %r6, %nctaid.x;
	mul.lo.u32 %r7, %r6, %r3;
	shr.u32 %r8, %r1, 2;
	mov.u32 %r9, %r5;
$VEC:
	setp.ge.u32 %p1, %r9, %r8;
	@%p1 bra $TAIL;
	mul.wide.u32 %rd4, %r9, 16;
	add.u64 %rd5, %rd1, %rd4;
	add.u64 %rd6, %rd2, %rd4;
	add.u64 %rd7, %rd3, %rd4;
	ld.global.nc.v4.f32 {%f1,%f2,%f3,%f4}, [%rd5];
	ld.global.nc.v4.f32 {%f5,%f6,%f7,%f8}, [%rd6];
	add.rn.f32 %f9, %f1, %f5;
	add.rn.f32 %f10, %f2, %f6;
	add.rn.f32 %f11, %f3, %f7;
	add.rn.f32 %f12, %f4, %f8;
	st.global.v4.f32 [%rd7], {%f9,%f10,%f11,%f12};
	add.u32 %r9, %r9, %r7;
	bra $VEC;
$TAIL:
	shl.b32 %r10, %r8, 2;
	add.u32 %r11, %r10, %r5;
	setp.ge.u32 %p2, %r11, %r1;
	@%p2 bra $END;
	mul.wide.u32 %rd4, %r11, 4;
	add.u64 %rd5, %rd1, %rd4;
	add.u64 %rd6, %rd2, %rd4;
	add.u64 %rd7, %rd3, %rd4;
	ld.global.f32 %f1, [%rd5];
	ld.global.f32 %f5, [%rd6];
	add.rn.f32 %f1, %f1, %f5;
	st.global.f32 [%rd7], %f1;
$END:
	ret;
}
`

func randoms(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

func TestVectorAdd(t *testing.T) {
	for _, n := range []int{1, 3, 4, 127, 1000, 4099} {
		d := newDevice(t)
		a, b := randoms(n, 1), randoms(n, 2)
		pa, pb, pc := d.floats(a, "a"), d.floats(b, "b"), d.alloc(4*n, "c")
		d.mustLaunch(vaddSrc, 3, 128, 0, pa, pb, pc, n)
		for i, v := range d.readFloats(pc, n) {
			if v != a[i]+b[i] {
				t.Fatalf("n=%d: c[%d] = %v, want %v", n, i, v, a[i]+b[i])
			}
		}
	}
}

// softmaxSrc computes the softmax of rows, with one warp for each row. It computes maximum and sum
// by butterfly shuffles. The lanes diverge at the end of a row if cols is not a multiple of 32.
const softmaxSrc = `.version 7.0
.target sm_80
.address_size 64
.visible .entry softmax(.param .u64 px, .param .u64 py, .param .u32 prows, .param .u32 pcols)
{
	.reg .pred %p<4>;
	.reg .b32 %r<12>;
	.reg .f32 %f<9>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [px];
	ld.param.u64 %rd2, [py];
	ld.param.u32 %r1, [prows];
	ld.param.u32 %r2, [pcols];
	mov.u32 %r3, %tid.x;
	shr.u32 %r4, %r3, 5;
	and.b32 %r5, %r3, 31;
	mov.u32 %r6, %ctaid.x;
	mad.lo.u32 %r7, %r6, 4, %r4;
	setp.ge.u32 %p1, %r7, %r1;
	@%p1 bra DONE;
	mul.wide.u32 %rd3, %r7, %r2;
	shl.b64 %rd3, %rd3, 2;
	add.u64 %rd4, %rd1, %rd3;
	add.u64 %rd5, %rd2, %rd3;
	mov.f32 %f1, 0fFF800000;
	mov.f32 %f2, 0f00000000;
	mov.u32 %r8, %r5;
MAXL:
	setp.ge.u32 %p2, %r8, %r2;
	@%p2 bra MAXE;
	mul.wide.u32 %rd6, %r8, 4;
	add.u64 %rd7, %rd4, %rd6;
	ld.global.nc.f32 %f3, [%rd7];
	max.f32 %f1, %f1, %f3;
	add.u32 %r8, %r8, 32;
	bra MAXL;
MAXE:
	mov.b32 %r9, %f1;
	mov.u32 %r11, 16;
MAXR:
	shfl.sync.bfly.b32 %r10|%p3, %r9, %r11, 31, 0xffffffff;
	mov.b32 %f4, %r10;
	max.f32 %f1, %f1, %f4;
	mov.b32 %r9, %f1;
	shr.u32 %r11, %r11, 1;
	setp.ne.u32 %p2, %r11, 0;
	@%p2 bra MAXR;
	mov.u32 %r8, %r5;
EXPL:
	setp.ge.u32 %p2, %r8, %r2;
	@%p2 bra EXPE;
	mul.wide.u32 %rd6, %r8, 4;
	add.u64 %rd7, %rd4, %rd6;
	add.u64 %rd8, %rd5, %rd6;
	ld.global.nc.f32 %f3, [%rd7];
	sub.rn.f32 %f6, %f3, %f1;
	mul.rn.f32 %f6, %f6, 0f3FB8AA3B;
	ex2.approx.ftz.f32 %f7, %f6;
	add.rn.f32 %f2, %f2, %f7;
	st.global.f32 [%rd8], %f7;
	add.u32 %r8, %r8, 32;
	bra EXPL;
EXPE:
	mov.b32 %r9, %f2;
	mov.u32 %r11, 16;
SUMR:
	shfl.sync.bfly.b32 %r10, %r9, %r11, 31, 0xffffffff;
	mov.b32 %f4, %r10;
	add.rn.f32 %f2, %f2, %f4;
	mov.b32 %r9, %f2;
	shr.u32 %r11, %r11, 1;
	setp.ne.u32 %p2, %r11, 0;
	@%p2 bra SUMR;
	rcp.approx.ftz.f32 %f8, %f2;
	mov.u32 %r8, %r5;
NRML:
	setp.ge.u32 %p2, %r8, %r2;
	@%p2 bra DONE;
	mul.wide.u32 %rd6, %r8, 4;
	add.u64 %rd8, %rd5, %rd6;
	ld.global.f32 %f3, [%rd8];
	mul.rn.f32 %f3, %f3, %f8;
	st.global.f32 [%rd8], %f3;
	add.u32 %r8, %r8, 32;
	bra NRML;
DONE:
	ret;
}
`

func TestSoftmax(t *testing.T) {
	for _, cols := range []int{1, 5, 32, 77, 200} {
		const rows = 7
		d := newDevice(t)
		x := randoms(rows*cols, 3)
		px, py := d.floats(x, "x"), d.alloc(4*rows*cols, "y")
		d.mustLaunch(softmaxSrc, 2, 128, 0, px, py, rows, cols)
		y := d.readFloats(py, rows*cols)
		for r := range rows {
			row := x[r*cols : (r+1)*cols]
			top, sum := math.Inf(-1), 0.0
			for _, v := range row {
				top = max(top, float64(v))
			}
			for _, v := range row {
				sum += math.Exp(float64(v) - top)
			}
			for c, v := range row {
				want := math.Exp(float64(v)-top) / sum
				if got := float64(y[r*cols+c]); math.Abs(got-want) > 2e-6*want+1e-9 {
					t.Fatalf("cols %d: y[%d,%d] = %v, want %v", cols, r, c, got, want)
				}
			}
		}
	}
}
