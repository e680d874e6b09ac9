// 16-bit floats of the strict libraries, rounded to nearest, ties to even.
#include <math.h>
#include <stdint.h>
#include <string.h>

static float from_bf16(uint16_t h) {
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}

static uint16_t to_bf16(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	if (f != f) return 0x7fff;
	return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static float from_f16(uint16_t h) {
	int e = h >> 10 & 31, m = h & 1023;
	float f = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);
	return h >> 15 ? -f : f;
}

static uint16_t to_f16(float f) {
	uint16_t sign = signbit(f) ? 0x8000 : 0;
	float a = fabsf(f);
	if (f != f) return 0x7fff;
	if (a >= 65520) return sign | 0x7c00;
	int e;
	frexpf(a, &e);
	if (e < -13) e = -13;
	float m = rintf(ldexpf(a, 11 - e)); // rintf rounds ties to even
	if (m >= 2048) m /= 2, e++;
	if (m < 1024) return sign | (uint16_t)m; // subnormal: e is -13 in this case
	return sign | (uint16_t)((e + 14) << 10) | ((uint16_t)m & 1023);
}
