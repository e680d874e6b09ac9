package tensor

import "github.com/flambeau-go/flambeau/dtype"

// AllowTF32 makes a scope in which float32 products, and convolutions that are computed as such
// products, may use TF32. A GPU's tensor cores then multiply factors rounded to 10 bits of
// mantissa, with the exponent of float32, and add in float32. In torch this mode is
// torch.backends.cuda.matmul.allow_tf32, or torch.set_float32_matmul_precision("high").
//
// It is only a permission, and off by default. A device that gains nothing from TF32 computes in
// float32: the CPU does so, and all devices do for products with a vector. For a gradient, the
// scope of the forward op decides. The permission does not affect other types or 16-bit products
// under [Autocast].
func AllowTF32() Option { return func(m *modes) { m.tf32 = true } }

// NoTF32 switches the mode of [AllowTF32] off for a child scope.
func NoTF32() Option { return func(m *modes) { m.tf32 = false } }

// TF32 reports whether [AllowTF32] is on for s.
func (s *Scope) TF32() bool {
	s.markUsed()
	return s.modes.tf32
}

// takesTF32 reports whether a product of type t may be computed in TF32.
func (s *Scope) takesTF32(t dtype.Type) bool { return s.modes.tf32 && t == dtype.F32 }
