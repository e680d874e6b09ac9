package torchfile

import (
	"errors"
	"fmt"
	"iter"
	"math/big"
	"strconv"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Dict is a dict that keeps the order of its keys. A key is a string, int64, float64, bool, nil
// or a [Tuple] of such keys. The zero value is empty and ready to use.
type Dict struct {
	keys, values []any
	index        map[any]int // index of each key; nil if there are fewer than 16 keys
	ordered      bool        // whether the dict is a collections.OrderedDict
}

// Tuple and Set are Python's containers. Device is a torch.device such as "cuda:0".
type (
	Tuple  []any
	Set    []any
	Device string
)

// tupleKey is a text that stands for a tuple in the index of a Dict, because a tuple cannot be the
// key of a Go map.
type tupleKey string

const maxTupleKey = 4096 // greatest length of a tupleKey in bytes

// comparableKey returns what stands for the key k in the index of a Dict: a value that can be the
// key of a Go map.
func comparableKey(k any) (any, error) {
	switch k := k.(type) {
	case string, int64, float64, bool, nil:
		return k, nil
	case Tuple:
		var s []byte
		for _, v := range k {
			text, _ := v.(string)
			switch v.(type) {
			case string:
			case int64, float64, bool, nil:
				text = fmt.Sprint(v)
			default:
				return nil, errors.New("a key of a dict is a tuple of other things than strings and numbers")
			}
			if len(s)+len(text) > maxTupleKey {
				return nil, fmt.Errorf("a key of a dict is a tuple of more than %d bytes", maxTupleKey)
			}
			s = append(strconv.AppendQuote(fmt.Appendf(s, "%T ", v), text), ',')
		}
		return tupleKey(s), nil
	}
	return nil, fmt.Errorf("a key of a dict is %s", describe(k))
}

// Len returns the number of keys. A nil Dict has no keys.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.keys)
}

// All iterates over keys and values in order.
func (d *Dict) All() iter.Seq2[any, any] {
	return func(yield func(k, v any) bool) {
		for i := range d.Len() {
			if !yield(d.keys[i], d.values[i]) {
				return
			}
		}
	}
}

func (d *Dict) find(c any) int {
	if d == nil {
		return -1
	}
	if d.index != nil {
		if i, ok := d.index[c]; ok {
			return i
		}
		return -1
	}
	// none of these keys is a tuple, because dicts with tuples have an index
	for i, k := range d.keys {
		if k == c {
			return i
		}
	}
	return -1
}

func isTuple(key any) bool { _, ok := key.(Tuple); return ok }

// Get returns the value of a key, and whether the key exists.
func (d *Dict) Get(key any) (value any, ok bool) {
	if n, ok := key.(int); ok {
		key = int64(n)
	}
	c, err := comparableKey(key)
	if err != nil {
		return nil, false
	}
	i := d.find(c)
	if i < 0 {
		return nil, false
	}
	return d.values[i], true
}

// Set sets the value of a key. A new key is appended. An existing key keeps its position. Set
// returns an error if the type of the key is not allowed.
func (d *Dict) Set(key, value any) error {
	if n, ok := key.(int); ok {
		key = int64(n)
	}
	return d.set(key, value)
}

func (d *Dict) set(key, value any) error {
	c, err := comparableKey(key)
	if err != nil {
		return err
	}
	if i := d.find(c); i >= 0 {
		d.values[i] = value
		return nil
	}
	d.keys, d.values = append(d.keys, key), append(d.values, value)
	switch {
	case d.index != nil:
		d.index[c] = len(d.keys) - 1
	case len(d.keys) == 16 || isTuple(key):
		d.index = map[any]int{}
		for i, k := range d.keys {
			c, _ := comparableKey(k)
			d.index[c] = i
		}
	}
	return nil
}

const (
	maxDepth = 1000 // greatest nesting depth of containers, as in Python
	// A tree may have at most maxNodes nodes, plus perNode nodes for each byte of the pickle. A
	// shared node counts once for each use, and a string counts one node for each 64 bytes.
	maxNodes = 1 << 20
	perNode  = 4 // see maxNodes
)

// A converter makes a tree of Go values from the unpickler's values. Values that are shared in the
// file are shared in the tree.
type converter struct {
	*loaded
	file    *file
	options options
	// made has the converted value for each value of the unpickler that may be shared. The keys are
	// pointers.
	made   map[any]any
	shared map[any]bool
	// number of nodes of each value that may be shared, by the unpickler's value
	nodes   map[any]int64
	tensors map[*tensorRef]*tensor.Tensor
	bases   map[baseKey]*tensor.Tensor
}

type baseKey struct {
	st *storageRef
	t  dtype.Type
}

// tree converts the root value.
func (c *converter) tree(root any) any {
	c.nodes, c.shared, c.bases = map[any]int64{}, map[any]bool{}, map[baseKey]*tensor.Tensor{}
	// The whole tree is checked before the first byte of a tensor is read.
	c.count(root, 0)
	v := c.convert(root)
	for _, b := range c.bases {
		b.Free() // the views keep the memory alive
	}
	return v
}

// count returns the number of nodes in the tree v. It fails if the tree is too deep or too large,
// or contains itself. A shared node counts once for each use, because code that traverses the tree,
// such as Save, visits it each time.
func (c *converter) count(v any, depth int) int64 {
	var items, keys []any
	switch v := v.(type) {
	case string:
		return 1 + int64(len(v)/64)
	case []byte:
		return 1 + int64(len(v)/64)
	case *list:
		items = v.items
	case *tuple:
		items = v.items
	case *set:
		items = v.items
	case *Dict:
		items, keys = v.values, v.keys
	case *global:
		c.file.fail(c.entry, -1, "the file contains %s.%s itself, which is no value", v.module, v.name)
	case *storageRef:
		c.file.fail(c.entry, v.place, "the file contains the storage %q without a tensor; save the tensor", v.key)
	default:
		return 1
	}
	if n, ok := c.nodes[v]; ok {
		if n < 0 {
			c.file.fail(c.entry, -1, "a container contains itself")
		}
		c.shared[v] = true
		return n
	}
	if depth == maxDepth {
		c.file.fail(c.entry, -1, "containers in containers, more than %d deep", maxDepth)
	}
	c.nodes[v] = -1
	n, most := int64(1), maxNodes+perNode*c.bytes
	for i, x := range items {
		if i < len(keys) {
			if text, ok := keys[i].(string); ok {
				n += int64(len(text) / 64)
			}
		}
		if n += c.count(x, depth+1); n > most {
			c.file.fail(c.entry, -1, "what is repeated in it makes a tree of more than %d values", most)
		}
	}
	c.nodes[v] = n
	return n
}

func (c *converter) list(items []any) []any {
	out := make([]any, len(items))
	for i, v := range items {
		out[i] = c.convert(v)
	}
	return out
}

func (c *converter) convert(v any) any {
	switch v := v.(type) {
	case dtype.Type:
		if !c.options.exact {
			return "torch." + v.String()
		}
		return v
	case Device:
		if !c.options.exact {
			return string(v)
		}
		return v
	case *tensorRef:
		return c.tensor(v)
	case *list, *tuple, *set, *Dict:
		if m, ok := c.made[v]; ok {
			return m
		}
		m := c.container(v)
		if c.shared[v] {
			c.made[v] = m
		}
		return m
	case nil, bool, int64, *big.Int, float64, string, []byte:
		return v
	}
	c.file.fail(c.entry, -1, "%s is no value", describe(v))
	return nil
}

func (c *converter) container(v any) any {
	switch v := v.(type) {
	case *tuple:
		if c.options.exact {
			return Tuple(c.list(v.items))
		}
		return c.list(v.items)
	case *set:
		if c.options.exact {
			return Set(c.list(v.items))
		}
		return c.list(v.items)
	case *list:
		return c.list(v.items)
	}
	d := v.(*Dict)
	strings, ints := 0, 0
	for _, k := range d.keys {
		switch k.(type) {
		case string:
			strings++
		case int64:
			ints++
		}
	}
	switch {
	case c.options.exact:
	case strings == len(d.keys):
		m := make(map[string]any, strings)
		for k, x := range d.All() {
			m[k.(string)] = c.convert(x)
		}
		return m
	case ints == len(d.keys):
		m := make(map[int64]any, ints)
		for k, x := range d.All() {
			m[k.(int64)] = c.convert(x)
		}
		return m
	}
	out := &Dict{keys: d.keys, values: make([]any, len(d.keys)), index: d.index, ordered: d.ordered}
	for i, x := range d.values {
		out.values[i] = c.convert(x)
	}
	return out
}

// tensor returns the view that r describes, as a tensor.
func (c *converter) tensor(r *tensorRef) *tensor.Tensor {
	if x := c.tensors[r]; x != nil {
		return x
	}
	key := baseKey{r.st, r.t}
	base := c.bases[key]
	if base == nil {
		for other := range c.bases {
			if other.st == r.st {
				c.file.fail(c.entry, r.st.place, "storage %q is shared by tensors of %v and %v, which is not supported", r.st.key, r.t, other.t)
			}
		}
		base = c.base(r)
		c.bases[key] = base
	}
	x := base.AsStrided(r.layout.Shape.Slice(), r.layout.Strides.Slice(), r.layout.Offset)
	c.tensors[r] = x
	return x
}

// base returns a whole storage as a tensor with one dimension.
func (c *converter) base(r *tensorRef) *tensor.Tensor {
	at, ok := c.place(r.st.key)
	if !ok {
		c.file.fail(c.entry, r.st.place, "storage %q is not in the file", r.st.key)
	}
	if at.size != r.st.bytes {
		c.file.fail(at.entry, -1, "the storage has %d bytes, the tensors on it say %d", at.size, r.st.bytes)
	}
	n := int(at.size) / r.t.Size()
	if m := c.file.mem; m != nil {
		mem := m.Bytes()[at.from : at.from+int64(n*r.t.Size())]
		if c.options.checked {
			c.file.check(at, 0, 0)
		}
		return tensor.FromMemory(r.t, mem, func() { m.Drop(mem) }, n)
	}
	x := tensor.Typed(r.t).Empty(n)
	c.file.readTensor(at, x)
	return x
}
