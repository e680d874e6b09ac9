// Control flow: divergence, loops, switches, calls, recursion, function pointers, virtual methods,
// and local memory of threads.
#include "foreign.h"

KERNEL flow(const s32 *p, u64 *out, int n) {
	ROW;
	s32 x = p[i];
	// loops that end at different times, with continue, break and a nested loop
	u32 sum = 0;
	for (int k = 0; k < (x & 31); k++) {
		if (k % 3 == 1) continue;
		sum += k * x;
		for (int m = k; m > 0; m >>= 1) {
			sum ^= m << (k & 7);
			if (sum & 0x100) break;
		}
		if ((sum & 0xff) == 0x55) break;
	}
	OUT(sum);
	// the Collatz sequence, with a limited number of steps
	u32 y = x & 0xffff, steps = 0;
	while (y > 1 && steps < 100) { y = y & 1 ? 3 * y + 1 : y / 2; steps++; }
	OUT(steps);
	// a dense switch with fall-through
	u32 v = 1;
	switch (x & 15) {
	case 0: v = x + 7; break;
	case 1: v = x * 3;
	case 2: v ^= 0x1234; break;
	case 3: v = ~x; break;
	case 4: v = x >> 3; break;
	case 5: v = x % 17; break;
	case 6: v = x | 0xf0; break;
	case 7: v += 100;
	case 8: v += 1000; break;
	case 9: v = (u32)x / 9u; break;
	case 10: v = x * x; break;
	case 12: v = x - 12; break;
	case 13: for (int k = 0; k < 13; k++) v = v * 3 + k; break;
	default: v = 77;
	}
	OUT(v);
	if (x < 0) { OUT(x); OUT(1); return; }
	OUT((x & 3) == 3 && (x & 12) == 12 || x > 1000000);
	OUT(2);
}

__device__ __noinline__ u32 fib(u32 n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__device__ __noinline__ u32 odd(u32 n);
__device__ __noinline__ u32 even(u32 n) { return n == 0 ? 1 : odd(n - 1); }
__device__ __noinline__ u32 odd(u32 n) { return n == 0 ? 0 : even(n - 1); }

struct Mixed { u8 a; double b; s16 c; float d[3]; };
__device__ __noinline__ Mixed build(u8 a, double b, s16 c, float d) { return {a, b, c, {d, d + 1, d * 2}}; }
__device__ __noinline__ double total(Mixed m) { return m.a + m.b * m.c + m.d[0] + m.d[1] - m.d[2]; }

__device__ __noinline__ u32 early(u32 x, u32 *where) {
	*where = x + 1;
	if (x & 1) return 5;
	for (u32 k = 0; k < x % 8; k++) if (k == 4) return k + x;
	return x * 2;
}

__device__ __noinline__ void hanoi(int n, int from, int to, int via, u32 *h) {
	if (n == 0) return;
	hanoi(n - 1, from, via, to, h);
	*h = *h * 31 + n * 7 + from * 3 + to;
	hanoi(n - 1, via, to, from, h);
}

__device__ __noinline__ u32 sumtree(int depth, u32 seed) { // each call has a local array
	u32 local[6];
	for (int k = 0; k < 6; k++) local[k] = seed * (k + 1);
	if (depth > 0) for (int k = 0; k < 2; k++) local[(seed + k) % 6] += sumtree(depth - 1, seed + k + 1);
	u32 s = 0;
	for (int k = 0; k < 6; k++) s = s * 5 + local[k];
	return s;
}

KERNEL calls(const s32 *p, u64 *out, int n) {
	ROW;
	s32 x = p[i];
	OUT(fib(x & 7));
	OUT(even(x & 15));
	OUT(total(build((u8)x, x * 0.5, (s16)(x >> 4), (float)(x & 0xff))));
	u32 h = 1;
	hanoi(x & 3, 0, 1, 2, &h);
	OUT(h);
	u32 where = 0, e = 0;
	if (x & 2) e = early(x, &where); else if (x & 4) e = early(x + 1, &where) + 1;
	OUT(where);
	OUT(e);
	OUT(sumtree(x & 1 ? 3 : 1, x & 63));
}

typedef u32 (*Fn)(u32, u32);
__device__ __noinline__ u32 fadd(u32 a, u32 b) { return a + b; }
__device__ __noinline__ u32 fmul(u32 a, u32 b) { return a * b; }
__device__ __noinline__ u32 fmix(u32 a, u32 b) { if (a & 1) return a ^ b; return fadd(a, fmul(b, 3)); }
__device__ Fn table[3] = {fadd, fmul, fmix};

struct Shape { __device__ virtual u32 area(u32 k) const = 0; u32 w; };
struct Square : Shape { __device__ u32 area(u32 k) const override { return w * w + k; } };
struct Disc : Shape { __device__ u32 area(u32 k) const override { return 3 * w * w - k; } };

KERNEL pointers(const s32 *p, u64 *out, int n) {
	ROW;
	u32 x = p[i];
	OUT(table[x % 3](x, x >> 5));
	Square s; Disc d;
	s.w = x & 15; d.w = x & 7;
	const Shape *q = x & 8 ? (const Shape *)&s : &d;
	OUT(q->area(x));
}

KERNEL locals(const s32 *p, u64 *out, int n) {
	ROW;
	u32 x = p[i];
	u32 a[17];
	u8 b[40];
	double d[5];
	for (int k = 0; k < 17; k++) a[k] = x * (k + 1);
	for (int k = 0; k < 40; k++) b[k] = (u8)(x >> (k & 7)) + k;
	for (int k = 0; k < 5; k++) d[k] = x + k * 0.25;
	for (int k = 0; k < 17; k++) { u32 m = (x >> (k & 15)) % 17; u32 t = a[k]; a[k] = a[m]; a[m] = t; }
	u32 s = 0;
	for (int k = 0; k < 17; k++) s = s * 31 + a[k];
	OUT(s);
	OUT(b[x % 40] | b[(x >> 3) % 40] << 8);
	OUT(*(u32 *)&a[(x & 3) + 1] ^ ((u16 *)a)[x % 34]);
	u32 *where = x & 1 ? &a[x % 17] : (u32 *)(b + 4 * (x % 10)); // points into one of the two arrays, at an address that differs between threads
	OUT(*where);
	OUT(d[x % 5]);
}
