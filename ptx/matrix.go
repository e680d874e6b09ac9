package ptx

import "fmt"

// LoadMatrix loads n = 1, 2 or 4 tiles of 8×8 16-bit elements from shared memory into the register
// layout of [Builder.MMA] (`ldmatrix`). In lane i, p is the address of row i%8 of tile i/8. A row
// has 16 bytes and is aligned to 16 bytes. If transpose is true, each tile is transposed while it
// is loaded. All lanes must take part.
func (p Ptr) LoadMatrix(n int, transpose bool) []Value {
	b := p.b
	list := make([]Value, n)
	dst := make([]*register, n)
	for i := range list {
		list[i] = b.poison(B32)
	}
	if n != 1 && n != 2 && n != 4 || p.space != Shared {
		b.fail("ldmatrix loads 1, 2 or 4 tiles from shared memory, not %d from %v", n, p.space)
		return list
	}
	if !p.usable("ldmatrix") {
		return list
	}
	for i := range list {
		list[i] = b.result(B32)
		dst[i] = list[i].r
	}
	op := fmt.Sprintf("ldmatrix.sync.aligned.m8n8.x%d", n)
	if transpose {
		op += ".trans"
	}
	b.add(&node{op: op + ".shared.b16", form: formLoad, addr: p.address(), dst: dst, effect: effectful, text: "vector"})
	return list
}

// MMA multiplies on the tensor cores: it returns x·y + c for the warp, with float32 accumulators c
// in 4 registers. The argument factor is the type of the factors. If it is F16 or BF16, the shape
// is 16×8×16: x has 4 registers of two elements each, and y has 2 such registers. If it is F32, the
// factors are tf32, and the shape is 16×8×8: x has 4 registers and y has 2, with values that should
// come from [Value.TF32]. The sums are not rounded as IEEE 754 requires: compare results with an
// error bound. All lanes must take part.
func (b *Builder) MMA(factor Type, x, y, c []Value) []Value {
	out := make([]Value, 4)
	for i := range out {
		out[i] = b.poison(F32)
	}
	shape, name := "m16n8k16", factor.String()
	switch factor {
	case F16, BF16:
	case F32:
		shape, name = "m16n8k8", "tf32"
	default:
		b.fail("mma is not defined for %v", factor)
		return out
	}
	if len(x) != 4 || len(y) != 2 || len(c) != 4 {
		b.fail("mma takes fragments of 4, 2 and 4 registers, not %d, %d and %d", len(x), len(y), len(c))
		return out
	}
	all := append(append(append([]Value{}, x...), y...), c...)
	if !b.check("mma", all...) {
		return out
	}
	for i, v := range all {
		if i < 6 && (v.t.Bits() != 32) || i >= 6 && v.t != F32 {
			b.fail("mma: operand %d is %v", i+1, v.t)
			return out
		}
	}
	dst := make([]*register, 4)
	for i := range out {
		out[i] = b.result(F32)
		dst[i] = out[i].r
	}
	b.add(&node{op: fmt.Sprintf("mma.sync.aligned.%s.row.col.f32.%s.%s.f32", shape, name, name),
		form: formMatrix, dst: dst, args: registers(all), effect: effectful})
	return out
}
