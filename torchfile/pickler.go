package torchfile

import (
	"encoding/binary"
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/tensorbytes"
	"github.com/flambeau-go/flambeau/tensor"
)

func isScalar(v any) bool {
	switch v := v.(type) {
	case nil, bool, int, int64, *big.Int, float64, string, []byte, Device:
		return true
	case dtype.Type:
		return slices.Contains(dtype.Types(), v)
	}
	return false
}

// dictItems returns the keys of a dict, in the order in which they are written, and the values.
func dictItems(v any) (keys, values []any, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			keys, values = append(keys, k), append(values, v[k])
		}
		return keys, values, true
	case map[string]*tensor.Tensor:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			keys, values = append(keys, k), append(values, v[k])
		}
		return keys, values, true
	case map[int64]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			keys, values = append(keys, k), append(values, v[k])
		}
		return keys, values, true
	case *Dict:
		if v == nil {
			return nil, nil, true
		}
		return v.keys, v.values, true
	}
	return nil, nil, false
}

func (s *saver) op(b ...byte) { s.out = append(s.out, b...) }

func (s *saver) global(module, name string) {
	s.op('c')
	s.out = append(s.out, module+"\n"+name+"\n"...)
}

func (s *saver) str(v string) {
	s.op('X')
	s.out = binary.LittleEndian.AppendUint32(s.out, uint32(len(v)))
	s.out = append(s.out, v...)
}

func (s *saver) int(v int64) {
	switch {
	case v >= 0 && v < 1<<8:
		s.op('K', byte(v))
	case v >= 0 && v < 1<<16:
		s.op('M', byte(v), byte(v>>8))
	case v == int64(int32(v)):
		s.op('J')
		s.out = binary.LittleEndian.AppendUint32(s.out, uint32(v))
	default:
		s.op(0x8a, 8)
		s.out = binary.LittleEndian.AppendUint64(s.out, uint64(v))
	}
}

// bigInt writes a number in two's complement, little-endian, with room for the sign bit.
func (s *saver) bigInt(v *big.Int) {
	n := v.BitLen()/8 + 1
	w := v
	if v.Sign() < 0 {
		w = new(big.Int).Add(v, new(big.Int).Lsh(big.NewInt(1), uint(8*n)))
	}
	b := w.FillBytes(make([]byte, n))
	slices.Reverse(b)
	if n < 256 {
		s.op(0x8a, byte(n))
	} else {
		s.op(0x8b)
		s.out = binary.LittleEndian.AppendUint32(s.out, uint32(n))
	}
	s.op(b...)
}

func (s *saver) boolean(v bool) {
	if v {
		s.op(0x88)
	} else {
		s.op(0x89)
	}
}

// pickle writes the tree with pickle protocol 2.
func (s *saver) pickle(tree any) {
	s.op(0x80, 2)
	s.value(tree)
	s.op('.')
}

func (s *saver) items(items []any, end byte) {
	s.op('(')
	for _, v := range items {
		s.value(v)
	}
	s.op(end)
}

func (s *saver) value(v any) {
	switch v := v.(type) {
	case nil:
		s.op('N')
	case bool:
		s.boolean(v)
	case int:
		s.int(int64(v))
	case int64:
		s.int(v)
	case *big.Int:
		s.bigInt(v)
	case float64:
		s.op('G')
		s.out = binary.BigEndian.AppendUint64(s.out, math.Float64bits(v))
	case string:
		s.str(v)
	case []byte: // protocol 2 stores bytes as _codecs.encode(str, "latin1")
		s.global("_codecs", "encode")
		r := make([]rune, len(v))
		for i, b := range v {
			r[i] = rune(b)
		}
		s.str(string(r))
		s.str("latin1")
		s.op(0x86, 'R')
	case dtype.Type:
		s.global("torch", v.String())
	case Device:
		s.global("torch", "device")
		s.str(string(v))
		s.op(0x85, 'R')
	case *tensor.Tensor:
		s.tensorValue(v)
	case []any:
		s.op(']')
		s.items(v, 'e')
	case Tuple:
		s.items(v, 't')
	case Set:
		s.global("__builtin__", "set") // Python 3 reads this as builtins.set
		s.op(']')
		s.items(v, 'e')
		s.op(0x85, 'R')
	default:
		if _, _, ok := dictItems(v); ok {
			s.dict(v)
		} else if p, ok := plain(v); ok { // find has checked the type, so ok is true
			s.value(p)
		}
	}
}

func (s *saver) dict(v any) {
	keys, values, _ := dictItems(v)
	d, _ := v.(*Dict)
	ordered := d != nil && d.ordered || len(keys) > 0
	if d == nil || !d.ordered {
		for _, x := range values {
			if _, ok := x.(*tensor.Tensor); !ok {
				ordered = false
			}
		}
	}
	if ordered {
		s.global("collections", "OrderedDict")
		s.op(')', 'R')
	} else {
		s.op('}')
	}
	s.op('(')
	for i, k := range keys {
		s.value(k)
		s.value(values[i])
	}
	s.op('u')
}

// tensorValue writes the call torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
// requires_grad, hooks).
func (s *saver) tensorValue(x *tensor.Tensor) {
	e := s.index[x.Storage()]
	s.global("torch._utils", "_rebuild_tensor_v2")
	s.op('(')
	s.op('(')
	s.str("storage")
	s.global("torch", storageNames[tensorbytes.Type(x, s.cast)])
	s.str(big.NewInt(int64(e.key)).String())
	s.str("cpu")
	s.int(int64(e.hi - e.lo + 1))
	s.op('t', 'Q')
	offset := 0
	if x.Size() > 0 {
		offset = x.StorageOffset() - e.lo
	}
	s.int(int64(offset))
	for _, d := range [][]int{x.Shape().Slice(), x.Strides().Slice()} {
		s.op('(')
		for _, n := range d {
			s.int(int64(n))
		}
		s.op('t')
	}
	s.boolean(x.NeedsGrad() && x.IsLeaf())
	s.global("collections", "OrderedDict")
	s.op(')', 'R', 't', 'R')
}
