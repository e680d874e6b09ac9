package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/tensor"
)

// maxDepth is the greatest nesting depth of a tree.
const maxDepth = 64

// In JSON, the integers, strings, booleans and nil of a tree represent themselves. Any other value
// is an object with a single key, which gives the kind of the value.
const (
	kindFloat  = "f" // float64, as the shortest text that parses to the same number
	kindTensor = "t" // tensor, as its name
	kindList   = "l"
	kindMap    = "m"
	kindInts   = "n" // map with integer keys
)

// escape escapes a key for use in a path, as in RFC 6901.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

type encoder struct {
	tensors []copied
	names   map[*tensor.Tensor]string
}

func join(path, key string) string {
	if path == "" {
		return escape.Replace(key)
	}
	return path + "/" + escape.Replace(key)
}

// encode returns the JSON value of v, and copies tensors to the host. A tensor that occurs several
// times is stored once.
func (e *encoder) encode(path string, v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, &Error{Part: path, Msg: fmt.Sprintf("the tree is nested deeper than %d", maxDepth)}
	}
	switch v := v.(type) {
	case nil, bool, int64:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, &Error{Part: path, Msg: fmt.Sprintf("the string %.40q is not UTF-8", v)}
		}
		return v, nil
	case float64:
		return map[string]any{kindFloat: strconv.FormatFloat(v, 'g', -1, 64)}, nil
	case *tensor.Tensor:
		return e.tensor(path, v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = e.encode(join(path, strconv.Itoa(i)), v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return map[string]any{kindList: out}, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if k == "" && path == "" {
				return nil, &Error{Msg: "a key of the tree is empty"}
			}
			if !utf8.ValidString(k) {
				return nil, &Error{Part: path, Msg: fmt.Sprintf("the key %.40q is not UTF-8", k)}
			}
			var err error
			if out[k], err = e.encode(join(path, k), v[k], depth+1); err != nil {
				return nil, err
			}
		}
		return map[string]any{kindMap: out}, nil
	case map[int64]any:
		out := make(map[string]any, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			text := strconv.FormatInt(k, 10)
			var err error
			if out[text], err = e.encode(join(path, text), v[k], depth+1); err != nil {
				return nil, err
			}
		}
		return map[string]any{kindInts: out}, nil
	}
	return nil, &Error{Part: path, Msg: fmt.Sprintf("a %T has no place in a state; there are maps, lists, tensors, int64, float64, bool, string and nil", v)}
}

func (e *encoder) tensor(path string, t *tensor.Tensor) (any, error) {
	if t == nil {
		return nil, nil
	}
	name, ok := e.names[t]
	if !ok {
		name = path
		var b []byte
		if err := tensor.Try(func() { b = t.Bytes() }); err != nil {
			return nil, &Error{Part: path, Err: err}
		}
		e.names[t] = name
		e.tensors = append(e.tensors, copied{name, t.Type(), t.Shape(), b})
	}
	return map[string]any{kindTensor: name}, nil
}

// decode builds a tree from its JSON and its tensors.
func decode(text string, tensors map[string]*tensor.Tensor) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var raw any
	if err := d.Decode(&raw); err != nil {
		return nil, &Error{Msg: "its tree", Err: err}
	}
	v, err := node("", raw, tensors, 0)
	if err != nil {
		return nil, err
	}
	tree, ok := v.(map[string]any)
	if !ok {
		return nil, &Error{Msg: fmt.Sprintf("its tree is a %T", v)}
	}
	return tree, nil
}

// node decodes a value of a tree from its JSON value.
func node(path string, raw any, tensors map[string]*tensor.Tensor, depth int) (any, error) {
	bad := func(format string, a ...any) (any, error) {
		return nil, &Error{Part: path, Msg: "in its tree: " + fmt.Sprintf(format, a...)}
	}
	if depth > maxDepth {
		return bad("it is nested deeper than %d", maxDepth)
	}
	switch v := raw.(type) {
	case nil, bool, string:
		return v, nil
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return bad("%v", err)
		}
		return n, nil
	case map[string]any:
		if len(v) != 1 {
			return bad("an object of %d keys", len(v))
		}
		for kind, of := range v {
			return object(path, kind, of, tensors, depth)
		}
	}
	return bad("a bare %T", raw)
}

func object(path, kind string, of any, tensors map[string]*tensor.Tensor, depth int) (any, error) {
	bad := func(format string, a ...any) (any, error) {
		return nil, &Error{Part: path, Msg: "in its tree: " + fmt.Sprintf(format, a...)}
	}
	switch kind {
	case kindFloat:
		text, _ := of.(string)
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return bad("%v", err)
		}
		return f, nil
	case kindTensor:
		name, _ := of.(string)
		t := tensors[name]
		if t == nil {
			return bad("the tensor %q is not in the file", name)
		}
		return t, nil
	case kindList:
		list, ok := of.([]any)
		if !ok {
			return bad("a list that is a %T", of)
		}
		out := make([]any, len(list))
		for i := range list {
			var err error
			if out[i], err = node(join(path, strconv.Itoa(i)), list[i], tensors, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case kindMap, kindInts:
		m, ok := of.(map[string]any)
		if !ok {
			return bad("a map that is a %T", of)
		}
		names, ints := make(map[string]any, len(m)), map[int64]any{}
		for k, r := range m {
			v, err := node(join(path, k), r, tensors, depth+1)
			if err != nil {
				return nil, err
			}
			if kind == kindMap {
				names[k] = v
				continue
			}
			n, err := strconv.ParseInt(k, 10, 64)
			if err != nil {
				return bad("%v", err)
			}
			ints[n] = v
		}
		if kind == kindInts {
			return ints, nil
		}
		return names, nil
	}
	return bad("an object of the unknown kind %q", kind)
}
