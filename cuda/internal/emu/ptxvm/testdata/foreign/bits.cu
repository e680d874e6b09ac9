// Bit operations: C++ operators, intrinsics, and inline instructions for which the compiler might
// choose others.
#include "foreign.h"

#define D1(op, T, k, a) [&] { T r; asm(op " %0, %1;" : "=" k(r) : k(a)); return r; }()
#define D2(op, T, k, a, b) [&] { T r; asm(op " %0, %1, %2;" : "=" k(r) : k(a), "r"(b)); return r; }()
#define D3(op, T, k, a, b, c) [&] { T r; asm(op " %0, %1, %2, %3;" : "=" k(r) : k(a), "r"(b), "r"(c)); return r; }()
#define D4(op, T, k, a, b, c, d) [&] { T r; asm(op " %0, %1, %2, %3, %4;" : "=" k(r) : k(a), k(b), "r"(c), "r"(d)); return r; }()

KERNEL bits32(const u32 *pa, const u32 *pb, const u32 *pc, u64 *out, int n) {
	ROW;
	u32 a = pa[i], b = pb[i], c = pc[i];
	OUT(__brev(a));
	OUT(__popc(a));
	OUT(__clz(a));
	OUT(__ffs(a));
	OUT(__byte_perm(a, b, c));
	OUT(__funnelshift_l(a, b, c));
	OUT(__funnelshift_r(a, b, c));
	OUT(__funnelshift_lc(a, b, c));
	OUT(__funnelshift_rc(a, b, c));
	OUT(__umulhi(a, b));
	OUT(__mulhi((s32)a, (s32)b));
	OUT(__umul24(a, b));
	OUT(__mul24((s32)a, (s32)b));
	OUT(__usad(a, b, c));
	OUT(__sad((s32)a, (s32)b, c));
	OUT(__uhadd(a, b));
	OUT(__hadd((s32)a, (s32)b));
	OUT(__urhadd(a, b));
	OUT(__dp4a(a, b, c));
	OUT(__dp4a((s32)a, (s32)b, (s32)c));
	OUT(__dp2a_lo(a, b, c));
	OUT(__dp2a_hi((s32)a, (s32)b, (s32)c));
	OUT((u64)a * b);
	OUT((s64)(s32)a * (s32)b);
	OUT((u64)a * b + c);
	OUT((s64)(s32)a * (s32)b + (s32)c);
	OUT((a & b) ^ (a & c) ^ (b & c));
	OUT(a >> (c & 31) & 0xffu);
	OUT(D2("shl.b32", u32, "r", a, c & 63));
	OUT(D2("shr.u32", u32, "r", a, c & 63));
	OUT(D2("shr.s32", u32, "r", a, c & 63));
	OUT(D3("bfe.u32", u32, "r", a, b & 63, c & 63));
	OUT(D3("bfe.s32", u32, "r", a, b & 63, c & 63));
	OUT(D4("bfi.b32", u32, "r", a, b, c & 63, a & 63));
	OUT(D1("bfind.u32", u32, "r", a));
	OUT(D1("bfind.s32", u32, "r", a));
	OUT(D1("bfind.shiftamt.s32", u32, "r", a));
	OUT(D1("cnot.b32", u32, "r", a));
	OUT(D3("prmt.b32.f4e", u32, "r", a, b, c));
	OUT(D3("prmt.b32.b4e", u32, "r", a, b, c));
	OUT(D3("prmt.b32.rc8", u32, "r", a, b, c));
	OUT(D3("prmt.b32.ecl", u32, "r", a, b, c));
	OUT(D3("prmt.b32.ecr", u32, "r", a, b, c));
	OUT(D3("prmt.b32.rc16", u32, "r", a, b, c));
	OUT(D3("mad.hi.u32", u32, "r", a, b, c));
	OUT(D3("mad.hi.s32", u32, "r", a, b, c));
	OUT(D3("mad.hi.sat.s32", u32, "r", a, b, c));
	OUT(D3("mad24.lo.s32", u32, "r", a, b, c));
	OUT(D3("mad24.hi.u32", u32, "r", a, b, c));
	OUT(D2("add.sat.s32", u32, "r", a, b));
	OUT(D2("sub.sat.s32", u32, "r", a, b));
	u32 lo, hi, x2;
	asm("add.cc.u32 %0, %3, %4; addc.cc.u32 %1, %3, %5; addc.u32 %2, 0, 0;" : "=r"(lo), "=r"(hi), "=r"(x2) : "r"(a), "r"(b), "r"(c));
	OUT(lo);
	OUT(hi);
	OUT(x2);
	asm("sub.cc.u32 %0, %3, %4; subc.cc.u32 %1, %3, %5; subc.u32 %2, 0, 0;" : "=r"(lo), "=r"(hi), "=r"(x2) : "r"(a), "r"(b), "r"(c));
	OUT(lo);
	OUT(hi);
	OUT(x2);
	asm("mad.lo.cc.u32 %0, %3, %4, %5; madc.hi.cc.u32 %1, %3, %4, %5; addc.u32 %2, 0, 0;" : "=r"(lo), "=r"(hi), "=r"(x2) : "r"(a), "r"(b), "r"(c));
	OUT(lo);
	OUT(hi);
	OUT(x2);
}

KERNEL bits64(const u64 *pa, const u64 *pb, const u64 *pc, u64 *out, int n) {
	ROW;
	u64 a = pa[i], b = pb[i], c = pc[i];
	OUT(__brevll(a));
	OUT(__popcll(a));
	OUT(__clzll(a));
	OUT(__ffsll(a));
	OUT(__umul64hi(a, b));
	OUT(__mul64hi((s64)a, (s64)b));
	OUT((a & b) ^ (a & c) ^ (b & c));
	OUT((a << (c & 63)) | (b >> (63 - (c & 63))));
	u32 k = c & 127, m = b & 127;
	OUT(D2("shl.b64", u64, "l", a, k));
	OUT(D2("shr.u64", u64, "l", a, k));
	OUT(D2("shr.s64", u64, "l", a, k));
	OUT(D3("bfe.u64", u64, "l", a, m, k));
	OUT(D3("bfe.s64", u64, "l", a, m, k));
	OUT(D4("bfi.b64", u64, "l", a, b, m, k));
	unsigned __int128 p = (unsigned __int128)a * b + c;
	OUT((u64)p);
	OUT((u64)(p >> 64));
	__int128 q = (__int128)(s64)a - (s64)b;
	OUT((u64)(q >> 1));
	OUT((s64)a >> 3);
	OUT((u32)(a >> 32) + (u32)b);
	OUT(__double_as_longlong(__hiloint2double((int)(a >> 32), (int)b)) ^ (s64)c);
}

KERNEL bits16(const u16 *pa, const u16 *pb, const u16 *pc, u64 *out, int n) {
	ROW;
	u16 a = pa[i], b = pb[i], c = pc[i];
	u32 k = c & 31;
	OUT(D2("shl.b16", u16, "h", a, k));
	OUT(D2("shr.u16", u16, "h", a, k));
	OUT(D2("shr.s16", u16, "h", a, k));
	u32 w;
	asm("mul.wide.u16 %0, %1, %2;" : "=r"(w) : "h"(a), "h"(b));
	OUT(w);
	asm("mad.wide.s16 %0, %1, %2, %3;" : "=r"(w) : "h"(a), "h"(b), "r"((u32)c << 20));
	OUT(w);
	u16 h;
	asm("mul.hi.s16 %0, %1, %2;" : "=h"(h) : "h"(a), "h"(b));
	OUT(h);
	asm("mul.hi.u16 %0, %1, %2;" : "=h"(h) : "h"(a), "h"(b));
	OUT(h);
	asm("mad.lo.s16 %0, %1, %2, %3;" : "=h"(h) : "h"(a), "h"(b), "h"(c));
	OUT(h);
}
