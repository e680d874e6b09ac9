package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// loadVector loads n consecutive elements of type t at p and widens them. It uses accesses of up to
// 16 bytes. The address p must be a multiple of 16 bytes, or of the total size of the elements if
// that is less.
func loadVector(_ *ptx.Builder, p ptx.Ptr, t dtype.Type, n int) []ptx.Value {
	return widenVector(t, loadStored(p, t, n), n)
}

// loadStored loads the elements as loadVector does, but does not widen them. It returns single
// elements, or words that contain several elements.
func loadStored(p ptx.Ptr, t dtype.Type, n int) (out []ptx.Value) {
	s := storage(t)
	switch size := t.Size(); {
	case n == 1:
		return []ptx.Value{p.As(s).Load()}
	case size >= 4:
		per := 16 / size
		for i := 0; i < n; i += per {
			out = append(out, p.As(s).At(num(i)).LoadVec(min(per, n))...)
		}
	case n*size == 2:
		return []ptx.Value{p.As(ptx.U16).Load().Cvt(ptx.U32)}
	default:
		return words(p, n*size)
	}
	return out
}

// widenVector widens n elements that loadStored has loaded.
func widenVector(t dtype.Type, stored []ptx.Value, n int) []ptx.Value {
	out := make([]ptx.Value, 0, n)
	for _, v := range stored {
		switch size := t.Size(); {
		case n == 1 || size >= 4:
			out = append(out, widen(t, v))
		case size == 2:
			lo, hi := v.Split(storage(t))
			out = append(out, widen(t, lo), widen(t, hi))
		default:
			for k := range min(4, n) {
				out = append(out, widenByte(t, v.Bitcast(ptx.U32), k))
			}
		}
	}
	return out
}

// widenByte widens byte k of a word.
func widenByte(t dtype.Type, w ptx.Value, k int) ptx.Value {
	if t == dtype.I8 {
		return w.Bitcast(ptx.S32).ExtractBits(num(8*k), num(8))
	}
	return widen(t, w.ExtractBits(num(8*k), num(8)))
}

// words loads 4, 8 or 16 bytes in one access.
func words(p ptx.Ptr, bytes int) []ptx.Value {
	p = p.As(ptx.B32)
	if bytes == 4 {
		return []ptx.Value{p.Load()}
	}
	return p.LoadVec(bytes / 4)
}

// storeVector converts n consecutive elements to type t and stores them.
func storeVector(b *ptx.Builder, p ptx.Ptr, t dtype.Type, list []ptx.Value) {
	n := len(list)
	v := make([]ptx.Value, n)
	for i := range list {
		v[i] = narrow(b, t, list[i])
	}
	s := storage(t)
	if n == 1 {
		p.As(s).Store(v[0])
		return
	}
	switch size := t.Size(); size {
	case 4, 8:
		per := min(16/size, n)
		for i := 0; i < n; i += per {
			p.As(s).At(num(i)).StoreVec(v[i : i+per]...)
		}
	case 2:
		var w []ptx.Value
		for i := 0; i < n; i += 2 {
			w = append(w, b.Join(ptx.B32, v[i], v[i+1]))
		}
		storeWords(p, w)
	case 1:
		var w []ptx.Value
		for i := 0; i+1 < n; i += 2 {
			w = append(w, v[i].Bitcast(ptx.U32).Permute(v[i+1].Bitcast(ptx.U32), num(0x0040)))
		}
		if n == 2 {
			p.As(ptx.U16).Store(w[0].Cvt(ptx.U16))
			return
		}
		for i := range n / 4 {
			w[i] = w[2*i].Permute(w[2*i+1], num(0x5410))
		}
		storeWords(p, w[:n/4])
	}
}

func storeWords(p ptx.Ptr, w []ptx.Value) {
	if len(w) == 1 {
		p.As(ptx.B32).Store(w[0].Bitcast(ptx.B32))
		return
	}
	for i := range w {
		w[i] = w[i].Bitcast(ptx.B32)
	}
	p.As(ptx.B32).StoreVec(w...)
}

// vectorLength returns the number of elements that a thread handles together: as many as fill 16
// bytes in the widest type of the operands.
func vectorLength(list []Operand) int {
	size := 1
	for _, o := range list {
		size = max(size, o.Type.Size())
	}
	return min(16/size, 8)
}

// vectorBytes returns the alignment in bytes that a vector access to n elements of type t needs.
func vectorBytes(t dtype.Type, n int) int { return min(16, n*t.Size()) }
