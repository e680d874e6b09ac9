package torchfile

import (
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/shape"
)

// A storageRef is a storage in the file. Several tensors may share it.
type storageRef struct {
	key string
	// t is the element type, or Invalid if the storage is untyped. Each tensor then has its own
	// type.
	t     dtype.Type
	bytes int64
	place int64 // offset in the pickle, for errors
}

// A tensorRef is a view of a storage.
type tensorRef struct {
	st     *storageRef
	t      dtype.Type
	layout shape.Layout
}

// storageTypes maps names of storage classes to element types. The classes are in module torch, and
// in torch.cuda for storages of a GPU.
var storageTypes = map[string]dtype.Type{
	"FloatStorage": dtype.F32, "DoubleStorage": dtype.F64, "HalfStorage": dtype.F16, "BFloat16Storage": dtype.BF16,
	"LongStorage": dtype.I64, "IntStorage": dtype.I32, "ShortStorage": dtype.I16, "CharStorage": dtype.I8, "ByteStorage": dtype.U8,
	"BoolStorage": dtype.Bool,
}

var storageNames = func() map[dtype.Type]string {
	m := map[dtype.Type]string{}
	for name, t := range storageTypes {
		m[t] = name
	}
	return m
}()

// noType has the storage classes of tensors that this package cannot read, each with the kind of
// its tensors.
var noType = map[string]string{
	"ComplexFloatStorage": "complex", "ComplexDoubleStorage": "complex", "QUInt8Storage": "quantized", "QInt8Storage": "quantized", "QInt32Storage": "quantized",
	"QUInt4x2Storage": "quantized", "QUInt2x4Storage": "quantized",
}

// calls has the functions that a file may call, by name. They check their arguments. Before they
// allocate memory, they count it with the method charge.
var calls = map[string]func(u *unpickler, args []any) any{
	"collections.OrderedDict": func(u *unpickler, args []any) any {
		d := &Dict{ordered: true}
		u.charge(perDict)
		if len(args) > 0 { // the argument is a list of pairs
			for _, p := range u.items("collections.OrderedDict", args[0]) {
				pair := u.items("collections.OrderedDict", p)
				if len(pair) != 2 {
					u.fail("collections.OrderedDict of %d values in the place of a key and a value", len(pair))
				}
				u.setItems(d, pair)
			}
		}
		return d
	},
	"collections.defaultdict": func(u *unpickler, args []any) any { u.charge(perDict); return &Dict{} },
	"collections.Counter": func(u *unpickler, args []any) any {
		if len(args) == 1 {
			if d, ok := args[0].(*Dict); ok {
				return d
			}
		}
		u.fail("collections.Counter of something else than a dict")
		return nil
	},
	"torch.Size": func(u *unpickler, args []any) any {
		if len(args) != 1 {
			u.fail("torch.Size with %d arguments", len(args))
		}
		return u.tuple(u.items("torch.Size", args[0]))
	},
	"torch.device": func(u *unpickler, args []any) any {
		if len(args) > 0 {
			kind, ok := args[0].(string)
			if ok && len(args) == 1 {
				return Device(kind)
			}
			if n, isInt := args[len(args)-1].(int64); ok && isInt && len(args) == 2 {
				u.charge(len(kind) + 16)
				return Device(fmt.Sprintf("%s:%d", kind, n))
			}
		}
		u.fail("torch.device with wrong arguments")
		return nil
	},
	"builtins.set":       makeSet,
	"builtins.frozenset": makeSet,
	"builtins.bytearray": func(u *unpickler, args []any) any {
		if len(args) == 0 {
			return []byte(nil)
		}
		if b, ok := args[0].([]byte); ok && len(args) == 1 {
			return b
		}
		return latin1(u, args)
	},
	// Protocol 2 stores bytes as a call of this function.
	"_codecs.encode":                             latin1,
	"torch._utils._rebuild_tensor":               rebuildTensor(4),
	"torch._utils._rebuild_tensor_v2":            rebuildTensor(6),
	"torch._utils._rebuild_tensor_v3":            rebuildTensor(7),
	"torch._utils._rebuild_parameter":            rebuildParameter,
	"torch._utils._rebuild_parameter_with_state": rebuildParameter,
	"torch._tensor._rebuild_from_type_v2": func(u *unpickler, args []any) any {
		if len(args) == 4 {
			if g, ok := args[0].(*global); ok && g.module == "torch._tensor" {
				// A nested call could recurse without end.
				u.fail("torch._tensor._rebuild_from_type_v2 of itself")
			}
			// The arguments are the function, the class, the function's arguments, and attributes.
			return u.reduce(args[0], args[2])
		}
		u.fail("torch._tensor._rebuild_from_type_v2 with %d arguments", len(args))
		return nil
	},
}

// named has the names that a file may contain but not call.
var named = map[string]bool{
	"torch.Tensor": true, "torch.nn.parameter.Parameter": true, "torch.nn.parameter.Buffer": true, "torch.storage.UntypedStorage": true,
	"builtins.dict": true, "builtins.list": true, "builtins.int": true, "builtins.float": true,
}

// runners has the Python modules whose functions malicious files call to run commands.
var runners = map[string]bool{"builtins": true, "os": true, "posix": true, "nt": true, "subprocess": true, "sys": true, "runpy": true, "importlib": true, "socket": true, "shutil": true,
	"webbrowser": true, "pty": true, "timeit": true, "ctypes": true, "operator": true, "functools": true, "pickle": true, "_pickle": true, "code": true, "asyncio": true}

// replacements has objects that people often save together with weights, each with what they should
// save instead.
var replacements = map[string]string{
	"argparse.Namespace": "vars(args) instead of args", "types.SimpleNamespace": "vars(x) instead of x", "collections.deque": "list(d) instead of d",
	"pathlib.PosixPath": "str(path) instead of path", "pathlib.WindowsPath": "str(path) instead of path",
	"pathlib._local.PosixPath": "str(path) instead of path", "pathlib._local.WindowsPath": "str(path) instead of path",
	"datetime.datetime": "its isoformat()", "datetime.date": "its isoformat()", "datetime.timedelta": "its total_seconds()", "decimal.Decimal": "float(x) or str(x) instead of x",
	"uuid.UUID": "str(x) instead of x", "omegaconf.dictconfig.DictConfig": "OmegaConf.to_container(cfg) instead of cfg",
}

// trustAdvice is advice for a file that cannot be saved again.
const trustAdvice = "; a file that you trust can be loaded in Python by torch.load(path, weights_only=False) and saved again without it"

// global returns the object for a name in the file.
func (u *unpickler) global(module, name string) any {
	// name of the module builtins in Python 2, and in protocol 2 of Python 3
	if module == "__builtin__" {
		module = "builtins"
	}
	full := module + "." + name
	u.charge(64)
	if _, ok := storageTypes[name]; ok && (module == "torch" || module == "torch.cuda") {
		return &global{module: module, name: name}
	}
	if call := calls[full]; call != nil {
		return &global{module, name, call}
	}
	if named[full] {
		return &global{module: module, name: name}
	}
	if module == "torch" {
		if t, err := dtype.Parse(name); err == nil && t != dtype.U32 && t != dtype.U64 && t != dtype.Invalid && t.String() == name {
			return t
		}
	}
	if len(full) > 200 {
		full = strings.ToValidUTF8(full[:200], "") + "…"
	}
	full = zipfile.Printable(full)
	why := "is not a tensor, a number, a string or a container; nothing of the file was run"
	switch top, _, _ := strings.Cut(module, "."); {
	case runners[top] && full != "builtins.complex":
	case replacements[full] != "":
		why += ". Save " + replacements[full] + trustAdvice
	default:
		why += ". Save state dicts, lists, dicts, numbers and strings alone" + trustAdvice
	}
	switch {
	case (module == "torch" || module == "torch.cuda") && noType[name] != "":
		why = "holds " + noType[name] + " tensors, which are not supported"
	case module == "torch" && (strings.HasPrefix(name, "complex") || strings.HasPrefix(name, "q") || strings.HasPrefix(name, "float8") || strings.HasPrefix(name, "uint")):
		why = "is a type that is not supported"
	case full == "builtins.complex":
		why = "makes complex numbers, which are not supported"
	case module == "torch._utils" && strings.Contains(name, "sparse"):
		why = "makes sparse tensors, which are not supported: save x.to_dense()"
	case module == "torch._utils" && strings.HasPrefix(name, "_rebuild_q"):
		why = "makes quantized tensors, which are not supported: save x.dequantize()"
	case full == "torch._utils._rebuild_meta_tensor_no_storage":
		why = "makes a tensor of the device meta, which has no elements"
	case module == "torch._utils":
		why = "makes a kind of tensors that is not supported"
	case strings.HasPrefix(module, "numpy"):
		why = "is of NumPy: save torch.from_numpy(a) and a.item() instead of arrays and scalars of NumPy"
	case strings.HasPrefix(module, "torch.nn.modules"):
		why = "is a module: save model.state_dict() instead of the model"
	}
	u.fail("%s %s", full, why)
	return nil
}

// items returns the elements of a list or tuple.
func (u *unpickler) items(name string, v any) []any {
	switch v := v.(type) {
	case *list:
		return v.items
	case *tuple:
		return v.items
	}
	u.fail("%s of %s", name, describe(v))
	return nil
}

func makeSet(u *unpickler, args []any) any {
	if len(args) == 0 {
		u.charge(perContainer)
		return &set{}
	}
	items := u.items("a set", args[0])
	u.charge(perContainer + 16*len(items))
	return &set{append([]any(nil), items...)}
}

// latin1 implements Python's _codecs.encode(s, "latin1"), which returns bytes.
func latin1(u *unpickler, args []any) any {
	s, ok := "", false
	if len(args) == 2 {
		s, ok = args[0].(string)
		if code, _ := args[1].(string); code != "latin1" && code != "latin-1" {
			ok = false
		}
	}
	if !ok {
		u.fail("bytes from something else than a string in latin1")
	}
	u.charge(len(s))
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r > 255 {
			u.fail("bytes from a string with the character %q", r)
		}
		b = append(b, byte(r))
	}
	return b
}

func rebuildParameter(u *unpickler, args []any) any {
	if len(args) > 0 {
		if t, ok := args[0].(*tensorRef); ok {
			return t
		}
	}
	u.fail("a parameter that is no tensor")
	return nil
}

// rebuildTensor returns a function that makes a view from the arguments (storage, offset, size,
// stride, requires_grad, hooks, dtype or metadata). The function needs at least atLeast arguments.
func rebuildTensor(atLeast int) func(u *unpickler, args []any) any {
	return func(u *unpickler, args []any) any {
		u.charge(1024)
		if len(args) < atLeast || len(args) > 8 {
			u.fail("a tensor with %d arguments", len(args))
		}
		st, ok := args[0].(*storageRef)
		if !ok {
			u.fail("a tensor on %s instead of a storage", describe(args[0]))
		}
		t := st.t
		if atLeast == 7 {
			if t, ok = args[6].(dtype.Type); !ok {
				u.fail("a tensor without a type")
			}
		}
		if t == dtype.Invalid {
			u.fail("a tensor on a storage without a type")
		}
		if len(args) > atLeast && atLeast >= 6 {
			u.metadata(args[atLeast])
		}
		offset, ok := args[1].(int64)
		sizes := u.items("the size of a tensor", args[2])
		strides := u.items("the strides of a tensor", args[3])
		if !ok || offset < 0 {
			u.fail("a tensor with the offset %v", short(args[1]))
		}
		if len(sizes) != len(strides) {
			u.fail("a tensor with %d sizes and %d strides", len(sizes), len(strides))
		}
		if len(sizes) > shape.MaxRank {
			u.fail("a tensor with %d dimensions, at most %d are supported", len(sizes), shape.MaxRank)
		}
		l := shape.Layout{}
		last, empty := uint64(offset), false // offset of the view's last element
		view := int64(t.Size())              // size of a copy of the view in bytes
		// whole is the size in bytes of a copy of the view with each size of 0 replaced by 1. A
		// size of 0 would hide an overflow of the other sizes.
		whole := view
		for i := range sizes {
			n, ok1 := sizes[i].(int64)
			s, ok2 := strides[i].(int64)
			if !ok1 || !ok2 || n < 0 || s < 0 || n > math.MaxInt32*int64(1<<20) || s > math.MaxInt32*int64(1<<20) {
				u.fail("a tensor with size %v and stride %v", short(sizes[i]), short(strides[i]))
			}
			if n == 0 {
				empty = true
			} else if far := uint64(n-1) * uint64(s); n > 1 && s > 0 && (far/uint64(s) != uint64(n-1) || far > math.MaxInt64 || last+far > math.MaxInt64) {
				last = math.MaxUint64 / 2
			} else if n > 1 {
				last += far
			}
			if view > 0 && n > maxView(u.file.size)/view {
				u.fail("a tensor of size %d in dimension %d is far larger than the file", n, i)
			}
			view *= n
			if n > 0 && whole > math.MaxInt64/n {
				u.fail("a tensor of size %d in dimension %d, which is too many elements", n, i)
			}
			whole *= max(n, 1)
			l.Shape, l.Strides = l.Shape.Append(int(n)), l.Strides.Append(int(s))
		}
		elements := st.bytes / int64(t.Size())
		if empty {
			l = shape.Dense(l.Shape)
		} else if last >= uint64(elements) {
			u.fail("a tensor of shape %v, strides %v, offset %d does not lie in its storage of %d elements", l.Shape, l.Strides, offset, elements)
		} else {
			l.Offset = int(offset)
		}
		return &tensorRef{st, t, l}
	}
}

// metadata refuses a view whose values would have to be changed when it is read, such as a negated
// view.
func (u *unpickler) metadata(v any) {
	d, ok := v.(*Dict)
	if !ok {
		if v != nil {
			u.fail("a tensor with %s for its metadata", describe(v))
		}
		return
	}
	for k, x := range d.All() {
		switch {
		case x == false || x == nil:
		case k == "neg" || k == "conj":
			u.fail("a tensor whose elements are to be negated when they are read (x.is_neg()): save x.resolve_neg()")
		default:
			u.fail("a tensor with the property %.50q, which is not supported", fmt.Sprint(k))
		}
	}
}

// maxView returns the greatest number of bytes of a copy of a view. Strides of 0 repeat elements,
// so without a limit a small file could describe a huge view.
func maxView(file int64) int64 { return max(256<<20, 16*min(file, 1<<58)) }

// storages returns the function that resolves persistent ids, the references to storages. Such an
// id is ("storage", class, key, location, number of elements). In the older format it has a sixth
// element, for a view of another storage.
func storages(known map[string]*storageRef, limit int64) func(u *unpickler, id []any) any {
	return func(u *unpickler, id []any) any {
		kind := ""
		if len(id) > 0 {
			kind, _ = id[0].(string)
		}
		if kind == "module" {
			u.fail("a whole module was saved: save model.state_dict() instead of the model")
		}
		if kind != "storage" || len(id) < 5 || len(id) > 6 {
			u.fail("a persistent object that is no storage of a tensor")
		}
		class, ok1 := id[1].(*global)
		key, ok2 := id[2].(string)
		_, ok3 := id[3].(string)
		n, ok4 := id[4].(int64)
		if !ok1 || !ok2 || !ok3 || !ok4 || n < 0 || len(key) > 200 {
			u.fail("a storage that is wrongly described")
		}
		if len(id) == 6 && id[5] != nil {
			u.fail("storage %q is a view of another storage, as PyTorch before 0.4 wrote; load and save it with a newer one", key)
		}
		t, typed := storageTypes[class.name]
		size := int64(1)
		switch {
		case typed && strings.HasPrefix(class.module, "torch"):
			size = int64(t.Size())
		case class.module == "torch.storage" && class.name == "UntypedStorage":
			t = dtype.Invalid
		default:
			u.fail("storage %q is of class %s.%s", key, class.module, class.name)
		}
		if n > limit/size {
			u.fail("storage %q of %d elements of %d bytes is larger than the file", key, n, size)
		}
		st := &storageRef{key: key, t: t, bytes: n * size, place: u.op - u.base()}
		if old := known[key]; old != nil {
			if old.t != st.t || old.bytes != st.bytes {
				u.fail("storage %q is described in two ways: %d bytes of %v, %d of %v", key, old.bytes, old.t, st.bytes, st.t)
			}
			return old
		}
		known[key] = st
		return st
	}
}

// describe returns a description of a value for an error.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case *list:
		return "a list"
	case *tuple:
		return "a tuple"
	case *set:
		return "a set"
	case *Dict:
		return "a dict"
	case *global:
		return v.module + "." + v.name
	case *storageRef:
		return "a storage"
	case *tensorRef:
		return "a tensor"
	case []byte:
		return "bytes"
	case string:
		return "a string"
	case *big.Int:
		return "a large number"
	}
	return fmt.Sprintf("the value %v", v)
}

func short(v any) any {
	if n, ok := v.(int64); ok {
		return n
	}
	return describe(v)
}
