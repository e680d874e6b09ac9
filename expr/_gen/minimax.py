#!/usr/bin/env python3
"""Computes the polynomial coefficients of expr/coefficients.go. Needs mpmath only.

    python3 minimax.py > ../coefficients.go && gofmt -w ../coefficients.go

Each polynomial is a weighted least-squares fit on points with Chebyshev density, which lies within a small factor of the
minimax polynomial. Coefficients are rounded to the working precision from the lowest upwards, and the rest is fitted
again after each rounding, so that later ones make up for earlier roundings.
"""
import sys
from mpmath import mp, mpf, matrix, lu_solve, pi, cos, exp, log, sqrt, tanh, erf, erfc, atanh, log1p, frexp, nint, ldexp
import mpmath as m

mp.prec = 400


def rnd(x, prec):
    """x rounded to prec bits."""
    if x == 0:
        return mpf(0)
    _, e = frexp(x)
    return ldexp(nint(ldexp(x, prec - e)), e - prec)


def hexf(x):
    """x as an exact Go hexadecimal float."""
    if x == 0:
        return "0"
    s = "-" if x < 0 else ""
    x = abs(x)
    f, e = frexp(x)
    n = int(ldexp(f, 53))
    assert ldexp(mpf(n), e - 53) == x
    n <<= 1  # 1.52 bits as 13 hexadecimal digits below the point: n has 54 bits, the first is the unit two
    frac = "%013x" % (int(ldexp(2 * f - 1, 52)))
    return "%s0x1.%sp%+d" % (s, frac.rstrip("0") or "0", e - 1)


def fit(f, w, a, b, n, prec):
    """n coefficients of p with w(x)·(p(x)-f(x)) small on [a, b], each rounded to prec bits; and the largest w·|p-f|."""
    a, b = mpf(a), mpf(b)
    k = 6 * n + 30
    xs = [(a + b) / 2 + (b - a) / 2 * cos(pi * (2 * i + 1) / (2 * k)) for i in range(k)]
    fs = [f(x) for x in xs]
    ws = [w(x) for x in xs]
    pw = [[ws[i] * xs[i] ** j for j in range(n)] for i in range(k)]
    rest = [ws[i] * fs[i] for i in range(k)]
    out = []
    for j in range(n):
        d = n - j
        A = matrix(d, d)
        r = matrix(d, 1)
        for u in range(d):
            for v in range(u, d):
                A[u, v] = A[v, u] = m.fsum(pw[i][j + u] * pw[i][j + v] for i in range(k))
            r[u] = m.fsum(pw[i][j + u] * rest[i] for i in range(k))
        c = rnd(lu_solve(A, r)[0], prec)
        out.append(c)
        for i in range(k):
            rest[i] -= pw[i][j] * c
    return out, max(abs(v) for v in rest)


table = []


def emit(name, doc, coef, err, ulp):
    table.append((name, doc, coef))
    sys.stderr.write("%-12s %2d coefficients, largest error %s ulp\n" % (name, len(coef), m.nstr(err / ulp, 3)))


U = {24: mpf(2) ** -24, 53: mpf(2) ** -53}


def small(f, x, taylor):
    """f(x), or the limit where the quotient that defines it is 0/0."""
    return taylor if abs(x) < mpf(2) ** -100 else f(x)


def exp_tail(r):  # (eʳ-1-r)/r²
    return small(lambda r: (exp(r) - 1 - r) / r**2, r, mpf(1) / 2)


for prec, n in ((24, 5), (53, 10)):
    lim = log(2) / 2 * mpf("1.0001")
    c, e = fit(exp_tail, lambda r: r**2 / exp(r), -lim, lim, n, prec)
    emit("expCoef%d" % (32 if prec == 24 else 64), "(eʳ-1-r)/r² for |r| ≤ ln2/2", c, e, U[prec])

c, e = fit(lambda f: small(lambda f: (log1p(f) - f) / f**2, f, mpf(-1) / 2), lambda f: small(lambda f: f**2 / log1p(f), f, mpf(0)),
           sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, 9, 24)
emit("logCoef32", "(log(1+f)-f)/f² for √½-1 ≤ f ≤ √2-1", c, e, U[24])


def atanh_tail(z):  # (2·atanh(s)-2s)/s³, z = s²
    return small(lambda z: (2 * atanh(sqrt(z)) / sqrt(z) - 2) / z, z, mpf(2) / 3)


zmax = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1)) ** 2
c, e = fit(atanh_tail, lambda z: z / 2, 0, zmax, 7, 53)
emit("logCoef64", "(2·atanh(s)-2s)/s³ in z = s², |s| ≤ (√2-1)/(√2+1)", c, e, U[53])

for prec, n in ((24, 5), (53, 11)):
    lim = mpf("0.5501") ** 2
    c, e = fit(lambda z: small(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, z, mpf(-1) / 3),
               lambda z: small(lambda z: z * sqrt(z) / tanh(sqrt(z)), z, mpf(0)), 0, lim, n, prec)
    emit("tanhCoef%d" % (32 if prec == 24 else 64), "(tanh(x)/x-1)/x² in z = x², |x| ≤ 0.55", c, e, U[prec])

for name, top, n, n64 in (("oneCoef", 1, 4, 6), ("thirdCoef", mpf("0.3340"), 4, 8)):
    for prec, k in ((24, n), (53, n64)):
        c, e = fit(lambda x: 1 / (1 + x), lambda x: 1 + x, 0, top, k, prec)
        if top == 1:  # exact at 1, as it is evaluated
            s = c[-1]
            for v in c[-2:0:-1]:
                s = rnd(s + v, prec)
            c[0] = rnd(mpf(1) / 2 - s, prec)
            if s + c[0] < mpf(1) / 2:
                c[0] += mpf(2) ** -prec
            e = max(abs((1 + x) * sum(v * x**j for j, v in enumerate(c)) - 1) for x in (mpf(i) / 100 for i in range(101)))
        emit("%s%d" % (name, 32 if prec == 24 else 64), "1/(1+x), 0 ≤ x ≤ %s" % ("1" if top == 1 else "1/3"), c, e, U[prec])

c, e = fit(lambda a: log(erfc(a / sqrt(mpf(2))) / 2) / log(mpf(2)), lambda a: sqrt(erfc(a / sqrt(mpf(2)))), mpf(0), mpf(10), 12, 24)
emit("tailLog32", "log2 Φ(-x), 0 ≤ x ≤ 10, weighted by √Φ", c, e, U[24])

for prec, n, n2, far in ((24, 7, 8, "4"), (53, 13, 19, "6")):
    w = 32 if prec == 24 else 64
    lim = mpf("0.9001") ** 2
    c, e = fit(lambda z: small(lambda z: erf(sqrt(z)) / sqrt(z) - 1, z, 2 / sqrt(pi) - 1), lambda z: small(lambda z: sqrt(z) / erf(sqrt(z)), z, mpf(1)), 0, lim, n, prec)
    emit("erfCoef%d" % w, "erf(x)/x-1 in z = x², |x| ≤ 0.9", c, e, U[prec])
    mid = mpf(1)
    c, e = fit(lambda t: log(erfc(t + mid)), lambda t: erfc(t + mid), mpf("0.8999") - mid, mpf(far) - mid, n2, prec)
    emit("erfcLog%d" % w, "log(erfc(x)) in t = x-%s, 0.9 ≤ x ≤ %s" % (m.nstr(mid, 1), far), c, e, U[prec])


for prec, n in ((24, 6), (53, 12)):
    lim = mpf("0.5001")
    c, e = fit(lambda r: small(lambda r: (2**r - 1) / r, r, log(2)), lambda r: abs(r) / 2**r, -lim, lim, n, prec)
    emit("exp2Coef%d" % (32 if prec == 24 else 64), "(2ʳ-1)/r for |r| ≤ ½", c, e, U[prec])

for prec, n in ((24, 4), (53, 9)):
    # log2(m) = s·(2/ln2 + z·(2/(3·ln2) + z·p(z))): the parts before p are held as sums of two
    # numbers
    c, e = fit(lambda z: small(lambda z: 2 / log(2) * (atanh(sqrt(z)) / sqrt(z) - 1 - z / 3) / z**2, z, mpf(2) / 5 / log(2)),
               lambda z: z**2 / 2, 0, zmax, n, prec)
    emit("powCoef%d" % (32 if prec == 24 else 64), "(2/ln2)·(atanh(s)/s-1-z/3)/z² in z = s², |s| ≤ (√2-1)/(√2+1)", c, e, U[prec] / 2 ** (8 if prec == 24 else 11))

for prec, n in ((24, 3), (53, 6)):
    w = 32 if prec == 24 else 64
    lim = (pi / 4 * mpf("1.001")) ** 2
    c, e = fit(lambda z: small(lambda z: (m.sin(sqrt(z)) / sqrt(z) - 1) / z, z, mpf(-1) / 6),
               lambda z: small(lambda z: z * sqrt(z) / m.sin(sqrt(z)), z, mpf(0)), 0, lim, n, prec)
    emit("sinCoef%d" % w, "(sin(x)/x-1)/x² in z = x², |x| ≤ π/4", c, e, U[prec])
    c, e = fit(lambda z: small(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, z, mpf(1) / 24),
               lambda z: z**2 / cos(sqrt(z)), 0, lim, n, prec)
    emit("cosCoef%d" % w, "(cos(x)-1+x²/2)/x⁴ in z = x², |x| ≤ π/4", c, e, U[prec])



def odd(name, f, first, lim, n32, n64, doc):
    """Fits (f(x)/x-1)/x² in z = x² for |x| ≤ lim; first is its value at 0."""
    for prec, n in ((24, n32), (53, n64)):
        c, e = fit(lambda z: small(lambda z: (f(sqrt(z)) / sqrt(z) - 1) / z, z, first),
                   lambda z: small(lambda z: z * sqrt(z) / f(sqrt(z)), z, mpf(0)), 0, lim**2, n, prec)
        emit("%sCoef%d" % (name, 32 if prec == 24 else 64), "(%s(x)/x-1)/x² in z = x², |x| ≤ %s" % (name, doc), c, e, U[prec])


odd("tan", m.tan, mpf(1) / 3, pi / 4 * mpf("1.001"), 7, 15, "π/4")
odd("atan", m.atan, mpf(-1) / 3, mpf(1), 9, 21, "1")
odd("asin", m.asin, mpf(1) / 6, mpf("0.5701"), 6, 14, "0.57")
odd("sinh", m.sinh, mpf(1) / 6, mpf(1), 4, 8, "1")
odd("asinh", m.asinh, mpf(-1) / 6, mpf(1), 9, 21, "1")
odd("atanh", atanh, mpf(1) / 3, mpf("0.5"), 6, 14, "½")

for prec, n, far in ((24, 10, "10.1"), (53, 26, "27.3")):
    g = lambda t: (lambda x: (1 + 2 * x) * exp(x * x) * erfc(x))(2 * (1 + t) / (1 - t))
    at = lambda x: (mpf(x) - 2) / (mpf(x) + 2)
    c, e = fit(g, lambda t: 1 / g(t), at("0.4999"), at(far), n, prec)
    emit("erfcCoef%d" % (32 if prec == 24 else 64), "(1+2x)·exp(x²)·erfc(x) in t = (x-2)/(x+2), ½ ≤ x ≤ %s" % far, c, e, U[prec])


def inverse(w):  # erfinv(x)/x, w = -log(1-x²)
    x = sqrt(-m.expm1(-w))
    return small(lambda w: m.erfinv(x) / x, w, sqrt(pi) / 2)


mp.prec = 250
for prec, parts in ((24, ((11, None, 5, "0"), (10, sqrt(mpf(5)), 4.1, "3"))),
                    (53, ((24, None, 6.25, "0"), (20, 2.5, 4, "3.25"), (19, 4, 6.1, "5")))):
    for i, (n, lo, hi, mid) in enumerate(parts):
        c0 = mpf(mid)
        if lo is None:
            f, a0, doc = (lambda t: inverse(t + c0)), mpf(0), "w = -log(1-x²) ≤ %s" % hi
        else:
            f, a0, doc = (lambda t: inverse((t + c0) ** 2)), mpf(lo), "√w-%s, √w ≤ %s" % (mid, hi)
        c, e = fit(lambda t: f(t) - 1, lambda t: 1 / f(t), a0 - c0, mpf(hi) - c0, n, prec)
        emit("erfinvCoef%d%s" % (32 if prec == 24 else 64, "ABC"[i]), "erfinv(x)/x-1 in t = %s" % doc, c, e, U[prec])
mp.prec = 400


def split(name, doc, value, parts=2):
    """value as an unevaluated sum of parts numbers of each precision."""
    for prec in (24, 53):
        rest = mpf(value)
        out = []
        for _ in range(parts):
            c = rnd(rest, prec)
            out.append(c)
            rest -= c
        pairs.append(("%s%d" % (name, 32 if prec == 24 else 64), doc, out))


pairs = []
split("ln2x", "ln 2", log(2))
split("log2ex", "1/ln 2", 1 / log(2))
split("twoLog2ex", "2/ln 2", 2 / log(2))
split("twoThirdsLog2ex", "2/(3·ln 2)", 2 / log(2) / 3)
split("log10ex", "1/ln 10", 1 / log(10))
split("log10of2x", "log10(2)", log(2) / log(10))
split("halfPix", "π/2", pi / 2, 3)
twoOverPi = int(m.floor(2 / pi * mpf(2) ** (23 + 32 * 6)))
mp.prec = 1400
twoOverPiLong = int(m.floor(2 / pi * mpf(2) ** (40 + 64 * 18)))

print("// Code generated by _gen/minimax.py; DO NOT EDIT.\n\npackage expr\n")
print("// Polynomial coefficients, lowest power first, exact in the type that their name tells.\nvar (")
for name, doc, coef in table:
    print("\t// %s is %s." % (name, doc))
    print("\t%s = []float64{" % name)
    for i in range(0, len(coef), 5):
        print("\t\t%s," % ", ".join(hexf(c) for c in coef[i : i + 5]))
    print("\t}")
print(")\n\n// Constants as sums of numbers of the type that their name tells, each the rest's nearest.\nvar (")
for name, doc, out in pairs:
    print("\t// %s is %s." % (name, doc))
    print("\t%s = []float64{%s}" % (name, ", ".join(hexf(c) for c in out)))
print(")")

print("// twoOverPi32 is 2/π·2²³ as a fixed-point number of seven words, the highest first.")
print("var twoOverPi32 = []uint64{%s}" % ", ".join("0x%08x" % (twoOverPi >> 32 * (6 - i) & 0xffffffff) for i in range(7)))

print("// twoOverPi64 is 2/π·2⁴⁰ as a fixed-point number of nineteen words.")
print("var twoOverPi64 = []uint64{")
for i in range(19):
    print("\t0x%016x," % (twoOverPiLong >> 64 * (18 - i) & (1 << 64) - 1))
print("}")
