// Functions that are approximate in hardware, and those that the compiler's library builds from ordinary arithmetic.
#include "foreign.h"

KERNEL approx(const float *pa, const float *pb, u64 *out, int n) {
	ROW;
	float a = pa[i], b = pb[i];
	OUT(__expf(a));
	OUT(exp2f(a));
	OUT(__logf(b));
	OUT(__log2f(b));
	OUT(__sinf(a));
	OUT(__cosf(a));
	OUT(rsqrtf(b));
	OUT(__fdividef(a, b));
	OUT(__powf(b, a));
	OUT(expf(a));
	OUT(logf(b));
	OUT(log1pf(b));
	OUT(expm1f(a));
	OUT(sinf(a));
	OUT(cosf(a));
	OUT(tanf(a));
	OUT(tanhf(a));
	OUT(powf(b, a));
	OUT(cbrtf(a));
	OUT(erff(a));
	OUT(atan2f(a, b));
	OUT(hypotf(a, b));
	OUT(lgammaf(b));
	OUT(rcbrtf(b));
}

KERNEL precise(const double *pa, const double *pb, u64 *out, int n) {
	ROW;
	double a = pa[i], b = pb[i];
	OUT(exp(a));
	OUT(log(b));
	OUT(sin(a));
	OUT(cos(a));
	OUT(tanh(a));
	OUT(pow(b, a));
	OUT(cbrt(a));
	OUT(erf(a));
	OUT(rsqrt(b));
	OUT(atan2(a, b));
	OUT(lgamma(b));
	OUT(fmod(a, b));
}

KERNEL big(const float *pa, u64 *out, int n) { // argument reduction by a table of 2/pi
	ROW;
	OUT(sinf(pa[i]));
	OUT(cosf(pa[i]));
	OUT(sin((double)pa[i] * 1e30));
}
