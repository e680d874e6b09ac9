"""Golden file for linear algebra. Writes tensor/optest/testdata/linalg.safetensors.gz.

A library chooses the signs of eigenvectors and of the columns of Q, U and V. It also chooses the basis for equal values. The
recorded numbers do not depend on the choice: absolute values, products that give the matrix back, and gradients of these.
"""

import torch

from golden import File, Operand
from ops import FOLDER, SEED, expand, transpose

L = torch.linalg
NAN, INF = float("nan"), float("inf")


def main():
    f = File(__file__, SEED + 30)
    r = f.randn

    def far(*shape):
        """Matrices far from singular, whose singular values differ much from each other."""
        m, n = shape[-2:]
        d = torch.zeros(m, n)
        for i in range(min(m, n)):
            d[i, i] = 4.0 * (i + 2)
        return r(*shape) + d

    def positive(*shape):
        a = far(*shape)
        return a + a.mT

    def spread(op, fn, m, n, make=far, extreme=(), batches=True, grad=True, tag="", **args):
        tag = f" {m}x{n}" + tag
        o = lambda *a: Operand(*a, grad=grad)
        f.case(op, "ordinary" + tag, fn, [o(make(m, n))], **args)
        f.case(op, "transposed" + tag, fn, [o(make(n, m), transpose(0, 1))], **args)
        if batches:
            f.case(op, "batch" + tag, fn, [o(make(2, m, n))], **args)
            f.case(op, "expanded" + tag, fn, [o(make(1, m, n), expand(2, m, n))], **args)
            f.case(op, "empty batch" + tag, fn, [o(make(0, m, n))], **args)
        f.case(op, "empty" + tag, fn, [o(torch.zeros(0, 0))], **args)
        for name, x in extreme:
            f.case(op, f"extreme {name}" + tag, fn, [o(torch.tensor(x))], **args)

    singular = [[1.0, 2.0], [2.0, 4.0]]
    wide = [[1e18, 0.0], [0.0, 1e-18]]
    nan = [[[1.0, NAN], [2.0, 3.0]], [[2.0, 1.0], [1.0, 3.0]]]
    tiny = [[1e-15, 2e-15], [-3e-15, 1e-15]]
    huge = [[1e15, 2e15], [-3e15, 1e15]]
    ties = [[2.0, 2.0], [2.0, -2.0]]

    squares = [("wide", wide), ("nan", nan), ("tiny", tiny), ("huge", huge), ("ties", ties)]
    for n in (1, 2, 4):
        spread("inverse", L.inv, n, n, extreme=squares)
        spread("det", L.det, n, n, extreme=squares + [("rank 2", [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]])])
        for part in (0, 1):
            spread("slogdet", lambda x: L.slogdet(x)[part], n, n, extreme=squares, grad=part == 1, tag=f" part={part}", part=part)
        # No gradients here: without create_graph, torch's gradient of a determinant is 0 if a pivot
        # of the matrix is exactly 0.
        for name, x in (("singular", singular), ("minus zero", [[0.0, 1.0], [-0.0, 2.0]]), ("zero", [[0.0, 0.0], [0.0, 0.0]])):
            f.case("det", f"extreme {name} {n}", L.det, [Operand(torch.tensor(x), grad=False)])
        f.case("slogdet", f"extreme singular {n}", lambda x: L.slogdet(x)[1], [Operand(torch.tensor(singular), grad=False)], part=1)
        for upper in (False, True):
            spread("cholesky", lambda x: L.cholesky(x, upper=upper), n, n, make=positive, tag=f" upper={upper}", upper=upper,
                   extreme=[("wide", wide), ("tiny", [[2e-15, 1e-15], [1e-15, 3e-15]]), ("huge", [[2e15, 1e15], [1e15, 3e15]]), ("other triangle", [[4.0, NAN], [1.0, 3.0]] if not upper else [[4.0, 1.0], [NAN, 3.0]])])
        ends = [("wide", wide), ("tiny", [[2e-15, 1e-15], [1e-15, 3e-15]]), ("huge", [[2e15, 1e15], [1e15, 3e15]]), ("other triangle", [[4.0, NAN], [1.0, 3.0]])]
        spread("eigh", lambda x: L.eigh(x)[0], n, n, make=positive, tag=" part=0", part=0, extreme=ends + [("equal", [[1.0, 0.0], [0.0, 1.0]])])
        spread("eigh", lambda x: L.eigh(x)[1].abs(), n, n, make=positive, tag=" part=1", part=1, extreme=ends)

        def rebuilt(x):
            l, v = L.eigh(x)
            return (v * l.square().unsqueeze(-2)) @ v.mT

        spread("eigh", rebuilt, n, n, make=positive, tag=" part=2", part=2, extreme=ends[1:3])
        for p in (-2, -1, 0, 1, 3):
            # For the power 0, torch returns an identity that requires no gradient.
            spread("matrix_power", lambda x: L.matrix_power(x / 4, p), n, n, grad=p != 0, tag=f" power={p}", power=p, extreme=[("nan", nan)] if p > 0 else [("ties", ties)])
        spread("matrix_exp", lambda x: L.matrix_exp(x), n, n, make=lambda *s: r(*s), extreme=[("nan", nan), ("tiny", tiny), ("ties", ties), ("large", [[20.0, 1.0], [-1.0, -30.0]]), ("zero", [[0.0, 0.0], [0.0, 0.0]]), ("nilpotent", [[0.0, 1e10], [0.0, 0.0]])] if n == 2 else ())
    f.case("matrix_power", "int64", lambda x: L.matrix_power(x, 3), [f.randint(-3, 4, (2, 2))], power=3)

    for m, n in ((3, 3), (4, 2), (2, 4)):
        for complete in (False, True):
            for part in (0, 1, 2):
                fn = lambda x: (lambda q, r: (q.abs(), r.abs(), q @ r)[part])(*L.qr(x, "complete" if complete else "reduced"))
                spread("qr", fn, m, n, grad=not complete or m <= n, tag=f" complete={complete} part={part}", part=part, complete=complete,
                       extreme=[("wide", wide), ("huge", huge)] + ([("tiny", tiny)] if part > 0 else []) + ([("singular", [[1.0, 2.0], [0.0, 0.0]])] if part == 2 else []) if m == n else ())
        for full in (False, True):
            for part in (0, 1, 2, 3):
                if full and m != n and part != 1:
                    continue  # the vectors that complete U or V to a square matrix are not unique
                fn = lambda x: (lambda u, s, v: (u * s.unsqueeze(-2)) @ v if part == 3 else (u.abs(), s, v.abs())[part])(*L.svd(x, full_matrices=full))
                if full and part == 3:
                    continue
                spread("svd", fn, m, n, tag=f" full={full} part={part}", part=part, full=full,
                       extreme=[("tiny", [[1e-15, 2e-15], [-3e-15, 1e-15]]), ("huge", huge)] + ([("wide", wide), ("equal", ties), ("singular", singular)] if part == 1 else []) if m == n else ())
        spread("pinv", L.pinv, m, n, extreme=[("singular", singular), ("tiny", tiny), ("huge", huge), ("zero", [[0.0, 0.0], [0.0, 0.0]])] if m == n else ())
        spread("matrix_rank", L.matrix_rank, m, n, grad=False, extreme=[("singular", singular), ("tiny", tiny), ("huge", huge), ("zero", [[0.0, 0.0], [0.0, 0.0]]), ("wide", wide)] if m == n else ())

    across = lambda *s: Operand(r(*s[:-2], s[-1], s[-2]), transpose(len(s) - 2, len(s) - 1))
    for name, a, b in (("ordinary", far(3, 3), r(3, 2)), ("ordinary vector", far(3, 3), r(3)), ("transposed", Operand(far(3, 3), transpose(0, 1)), across(3, 2)), ("broadcast", far(2, 1, 2, 2), r(3, 2, 2)),
                       ("broadcast one matrix", far(2, 2), r(2, 3, 2, 1)), ("broadcast vectors", far(2, 2, 2), r(2, 2)), ("broadcast vector", far(3, 2, 2), r(2)), ("expanded", Operand(far(1, 2, 2), expand(2, 2, 2)), Operand(r(2, 1), expand(2, 3))),
                       ("empty", torch.zeros(0, 0), r(0, 2)), ("empty columns", far(2, 2), r(2, 0)), ("empty batch", far(0, 2, 2), r(2, 3)), ("extreme wide", torch.tensor(wide), r(2, 2)), ("extreme nan", torch.tensor(nan), r(2, 2)),
                       ("extreme tiny", torch.tensor(tiny), r(2, 1)), ("extreme huge", torch.tensor(huge), r(2, 1)), ("extreme nan on the right", far(2, 2), torch.tensor([[NAN, 1.0], [2.0, 3.0]]))):
        f.case("solve", name, L.solve, [a, b])
    for upper in (False, True):
        for right in (False, True):
            for unit in (False, True):
                args = {"upper": upper, "right": right, "unit": unit}
                tag = "".join(f" {k}={v}" for k, v in args.items())
                fn = lambda a, b: L.solve_triangular(a, b, upper=upper, left=not right, unitriangular=unit)
                sides = lambda *s: r(*s[:-2], s[-1], s[-2]) if right else r(*s)
                for name, a, b in (("ordinary", far(3, 3), sides(3, 2)), ("transposed", Operand(far(3, 3), transpose(0, 1)), across(2, 3) if right else across(3, 2)), ("broadcast", far(2, 1, 2, 2), sides(3, 2, 2)),
                                   ("expanded", Operand(far(1, 2, 2), expand(2, 2, 2)), sides(2, 3)), ("empty", torch.zeros(0, 0), sides(0, 2)),
                                   ("extreme", torch.tensor([[1e15, -2e15], [3e15, 1e15]]), sides(2, 2)), ("extreme tiny", torch.tensor(tiny), sides(2, 2))):
                    f.case("solve_triangular", name + tag, fn, [a, b], **args)
    for name, a, b in (("ordinary", far(4, 2), r(4, 3)), ("ordinary vector", far(4, 2), r(4)), ("ordinary wide", far(2, 4), r(2, 3)), ("transposed", Operand(far(2, 4), transpose(0, 1)), across(4, 3)), ("batch", far(2, 4, 2), r(2, 4, 1)),
                       ("expanded", Operand(far(1, 4, 2), expand(2, 4, 2)), r(2, 4, 1)), ("empty", far(0, 4, 2), r(0, 4, 1)), ("extreme tiny", torch.tensor(tiny), r(2, 1)), ("extreme huge", torch.tensor(huge), r(2, 1))):
        f.case("lstsq", name, lambda a, b: L.lstsq(a, b).solution, [a, b])

    special = torch.tensor([[NAN, INF, -INF], [0.0, -0.0, 1e-40], [3e38, -3e38, 1e-38]])
    for name, x, y in (("ordinary", r(2, 3), r(3, 2)), ("ordinary ranks", r(2), r(2, 3)), ("ordinary three", r(2, 1, 2), r(1, 3, 2)), ("transposed", Operand(r(3, 2), transpose(0, 1)), across(2, 2)), ("expanded", Operand(r(1, 3), expand(2, 3)), r(2, 1)),
                       ("broadcast scalar", r(), r(2, 2)), ("empty", r(0, 2), r(2, 2)), ("extreme", special, r(1, 2)), ("int64", f.randint(-9, 9, (2, 2)), f.randint(-9, 9, (2, 2)))):
        f.case("kron", name, torch.kron, [x, y])
    for name, x in (("ordinary", r(3, 3)), ("ordinary wide", r(2, 4)), ("transposed", Operand(r(3, 2), transpose(0, 1))), ("expanded", Operand(r(1, 3), expand(3, 3))), ("empty", r(0, 2)), ("extreme", special), ("extreme 2", special[1:, 1:]), ("int64", f.randint(-9, 9, (3, 3)))):
        f.case("trace", name, torch.trace, [x])
    for name, x, y, dim in (("ordinary", r(2, 3), r(2, 3), -1), ("ordinary first", r(3, 2), r(3, 2), 0), ("transposed", Operand(r(3, 2), transpose(0, 1)), r(2, 3), 1), ("broadcast", r(2, 1, 3), r(1, 4, 3), -1), ("expanded", Operand(r(1, 3), expand(2, 3)), r(2, 3), 1),
                            ("empty", r(0, 3), r(1, 3), -1), ("extreme", special / 16, special.flip(0) / 16, 1), ("int64", f.randint(-9, 9, (2, 3)), f.randint(-9, 9, (2, 3)), -1)):
        f.case("cross", name, lambda x, y: L.cross(x, y, dim=dim), [x, y], dim=dim)
    for name, x, y, xd, yd in (("ordinary", r(2, 3, 2), r(3, 2, 4), [1, 2], [0, 1]), ("ordinary one", r(2, 3), r(4, 3), [1], [1]), ("transposed", Operand(r(3, 2), transpose(0, 1)), across(2, 3), [1], [-1]), ("broadcast", r(2, 1), r(3, 2), [1], [0]),
                               ("expanded", Operand(r(1, 3), expand(2, 3)), r(3), [-1], [0]), ("empty", r(0, 3), r(3, 2), [1], [0]), ("empty sum", r(2, 0), r(0, 2), [1], [0]), ("none", r(2), r(3), [], []), ("extreme", special / 16, r(3, 2), [1], [0])):
        f.case("tensordot", name, lambda x, y: torch.tensordot(x, y, (xd, yd)), [x, y], xd=xd, yd=yd)
    for name, x, y in (("ordinary", r(2, 3), r(4, 3)), ("ordinary vector", r(3), r(3)), ("transposed", Operand(r(3, 2), transpose(0, 1)), r(3)), ("expanded", Operand(r(1, 3), expand(2, 3)), r(3)), ("broadcast scalar", r(), r(2)),
                       ("empty", r(0, 3), r(2, 3)), ("extreme", special / 16, r(3)), ("int64", f.randint(-9, 9, (2, 3)), f.randint(-9, 9, (3,)))):
        f.case("inner", name, torch.inner, [x, y])
    for name, x, y, dim in (("ordinary", r(2, 3), r(2, 3), -1), ("ordinary first", r(3, 2), r(3, 2), 0), ("transposed", Operand(r(3, 2), transpose(0, 1)), r(2, 3), 1), ("broadcast", r(3, 1, 4), r(2, 4), 0), ("expanded", Operand(r(1, 3), expand(2, 3)), r(3), -1),
                            ("empty", r(0, 3), r(1, 3), -1), ("empty sum", r(2, 0), r(2, 0), -1), ("extreme", special / 16, r(3, 3), 1)):
        f.case("vecdot", name, lambda x, y: L.vecdot(x, y, dim=dim), [x, y], dim=dim)
    for name, xs in (("ordinary", [r(2, 3), r(3, 4)]), ("ordinary four", [r(2, 3), r(3, 4), r(4, 1), r(1, 2)]), ("vectors", [r(3), r(3, 2), r(2)]), ("transposed", [Operand(r(3, 2), transpose(0, 1)), across(3, 2), r(2, 2)]),
                     ("expanded", [Operand(r(1, 3), expand(2, 3)), r(3, 2)]), ("empty", [r(0, 2), r(2, 3), r(3, 2)]), ("empty sum", [r(2, 0), r(0, 2)]), ("extreme", [special / 16, r(3, 2)])):
        f.case("multi_dot", name, lambda *xs: L.multi_dot(xs), xs)
    for p in (1, -1, 2, -2, INF, -INF):
        tag = f" p={p}"
        for name, x in (("ordinary", far(3, 2)), ("transposed", Operand(far(2, 3), transpose(0, 1))), ("batch", far(2, 2, 3)), ("expanded", Operand(far(1, 2, 2), expand(2, 2, 2))), ("empty batch", far(0, 2, 2)),
                        ("extreme ties", torch.tensor([[1.0, -1.0], [-1.0, 1.0]]) if abs(p) != 2 else torch.eye(2)), ("extreme huge", torch.tensor(huge)), ("extreme tiny", torch.tensor(tiny))):
            f.case("matrix_norm", name + tag, lambda x: L.matrix_norm(x, p), [x], p=str(p))
        if p > 0:
            for shape in ((3, 0), (0, 3), (2, 3, 0)):
                f.case("matrix_norm", f"empty {shape}" + tag, lambda x: L.matrix_norm(x, p), [r(*shape)], p=str(p))
        if abs(p) != 2:
            f.case("matrix_norm", "extreme" + tag, lambda x: L.matrix_norm(x, p), [special[:2]], p=str(p))
    for m, n in ((3, 3), (2, 4)):
        spread("svdvals", L.svdvals, m, n, extreme=[("tiny", tiny), ("huge", huge), ("equal", ties), ("infinite", [[1.0, INF], [2.0, 3.0]])] if m == n else ())
    spread("eigvalsh", L.eigvalsh, 3, 3, make=positive, extreme=[("wide", wide), ("other triangle", [[4.0, NAN], [1.0, 3.0]]), ("equal", [[1.0, 0.0], [0.0, 1.0]])])
    for upper in (False, True):
        tag = f" upper={upper}"
        for name, b, l in (("ordinary", r(3, 2), far(3, 3)), ("transposed", across(3, 2), Operand(far(3, 3), transpose(0, 1))), ("broadcast", r(3, 2, 1), far(2, 2)), ("expanded", Operand(r(2, 1), expand(2, 3)), Operand(far(1, 2, 2), expand(2, 2, 2))),
                           ("empty", r(0, 2), torch.zeros(0, 0)), ("extreme huge", r(2, 1), torch.tensor([[1e10, -2e9], [3e9, 1e10]]))):
            # l is cut to its triangle, because torch's gradient is not 0 in the other one, although
            # the op does not read that.
            f.case("cholesky_solve", name + tag, lambda b, l: torch.cholesky_solve(b, l.triu() if upper else l.tril(), upper=upper), [b, l], upper=upper)
    for p in (1, -1, 2, -2, INF, -INF):
        for dims, keep in (([0, 1], False), ([2, 0], True), ([-1, -3], False)):
            tag = f" p={p} dim={dims} keepdim={keep}"
            fn = lambda x: L.matrix_norm(x, p, dims, keep)
            more = {"p": str(p), "dim": dims, "keepdim": keep}
            f.case("matrix_norm", "ordinary" + tag, fn, [r(3, 2, 4)], **more)
            f.case("matrix_norm", "transposed" + tag, fn, [Operand(r(4, 2, 3), transpose(0, 2))], **more)
    for rtol, atol in ((0.3, 0.0), (0.0, 5.0), (0.01, 3.0), (0.0, 1e6)):
        tag, more = f" rtol={rtol} atol={atol}", {"tolerances": [rtol, atol]}
        for name, x in (("ordinary", far(3, 3)), ("wide", far(2, 3)), ("transposed", Operand(far(2, 3), transpose(0, 1))), ("batch", far(2, 3, 2)), ("empty", far(0, 2, 2))):
            f.case("pinv", name + tag, lambda x: L.pinv(x, rtol=rtol, atol=atol), [x], **more)
            f.case("matrix_rank", name + tag, lambda x: L.matrix_rank(x, rtol=rtol, atol=atol), [x], **more)
    f.write(FOLDER + "linalg.safetensors.gz")


if __name__ == "__main__":
    main()
