// Package tensorbytes writes the elements of tensors. Packages that write tensor files use it.
package tensorbytes

import (
	"io"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Type returns the type in which [Write] writes a tensor. If both the tensor's type and the
// requested type are floating-point types, it is the requested type. Otherwise it is the tensor's
// own type.
func Type(x *tensor.Tensor, to dtype.Type) dtype.Type {
	if to.IsFloat() && x.Type().IsFloat() {
		return to
	}
	return x.Type()
}

// Write writes the elements of x in row-major order and in the machine's byte order. It converts
// them to Type(x, typ). It allocates little memory. If x cannot be used, Write returns the error of
// [tensor.Try].
func Write(w io.Writer, x *tensor.Tensor, typ dtype.Type) error {
	var err error
	terr := tensor.Try(func() { err = write(w, x, Type(x, typ)) })
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
	defer x.Free() // otherwise x would keep the tensor's memory alive
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
