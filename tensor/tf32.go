package tensor

import "github.com/flambeau-go/flambeau/dtype"

// AllowTF32 makes a scope in which products of float32, and convolutions that are such products,
// may take TF32. A GPU's tensor cores then multiply factors rounded to 10 bits of mantissa, with
// the exponent of float32, and add in float32. That is torch.backends.cuda.matmul.allow_tf32, and
// torch.set_float32_matmul_precision("high").
//
// It is a permission, off by default. A device that gains nothing by it computes in float32: the
// CPU does, and products with a vector are exact sums everywhere. Gradients go by the scope of the
// op whose gradient they are. Other types take no notice, and so do the 16-bit products under
// [Autocast].
func AllowTF32() Option { return func(m *modes) { m.tf32 = true } }

// NoTF32 switches [AllowTF32] off for a child scope.
func NoTF32() Option { return func(m *modes) { m.tf32 = false } }

// TF32 reports whether [AllowTF32] is on for s.
func (s *Scope) TF32() bool {
	s.asked()
	return s.modes.tf32
}

// takesTF32 reports whether a product of type t may be of tf32.
func (s *Scope) takesTF32(t dtype.Type) bool { return s.modes.tf32 && t == dtype.F32 }
