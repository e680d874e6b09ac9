// Package tensorbytes is what the packages that write tensors to files have in common.
package tensorbytes

import (
	"io"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Type returns the type in which a tensor is written: to, if both are floating-point types, else
// its own.
func Type(x *tensor.Tensor, to dtype.Type) dtype.Type {
	if to.IsFloat() && x.Type().IsFloat() {
		return to
	}
	return x.Type()
}

// Write writes x's elements in row-major order, as they lie in memory, in Type(x, to). It takes
// little memory beside x's own. Misuse of tensors comes out as their error.
func Write(w io.Writer, x *tensor.Tensor, to dtype.Type) error {
	var err error
	terr := tensor.Try(func() { err = write(w, x, Type(x, to)) })
	if terr != nil {
		return terr
	}
	return err
}

func write(w io.Writer, x *tensor.Tensor, to dtype.Type) error {
	if x.Type() == to {
		_, err := x.WriteTo(w)
		return err
	}
	const piece = 1 << 20
	x = x.Detach()
	defer x.Free() // a handle would keep the memory
	for at, n := 0, x.Size(); at < n; at += piece {
		var err error
		tensor.Do(func(s *tensor.Scope) {
			_, err = x.In(s).Reshape(-1).Narrow(0, at, min(piece, n-at)).Cast(to).WriteTo(w)
		}, tensor.NoGrad())
		if err != nil {
			return err
		}
	}
	return nil
}
