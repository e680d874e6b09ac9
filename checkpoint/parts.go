package checkpoint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Stateful is a part of a training that has a state and is not a model. Examples are optimizers,
// schedulers, loaders and scalers.
type Stateful interface {
	StateDict() map[string]any
	LoadStateDict(map[string]any) error
}

// Parts are the parts of a training, by name. A part is a [Stateful], a *tensor.Generator, or a
// model, which is anything that [nn.StateDict] accepts.
type Parts map[string]any

// Capture returns the states of the parts as one tree. Its tensors share memory with the parts.
// Therefore write the tree ([Write], [Store.Save]) before the training continues. The error is an
// *[Error] that names the part.
func Capture(parts Parts) (tree map[string]any, err error) {
	tree = make(map[string]any, len(parts))
	for name, part := range parts {
		if e := tensor.Try(func() { tree[name], err = state(part) }); e != nil {
			err = e
		}
		if err != nil {
			return nil, &Error{Part: name, Err: err}
		}
	}
	return tree, nil
}

func state(part any) (any, error) {
	switch p := part.(type) {
	case Stateful:
		return p.StateDict(), nil
	case *tensor.Generator:
		seed, offset := p.State()
		return map[string]any{"seed": int64(seed), "offset": int64(offset)}, nil
	}
	sd := map[string]any{}
	err := model(func() error {
		for k, t := range nn.StateDict(part) {
			sd[k] = t
		}
		return nil
	})
	return sd, err
}

// model runs f. If f panics with an error about the structure of a model, it returns that error.
func model(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *nn.Error:
			err = r
		default:
			panic(r)
		}
	}()
	return f()
}

// Restore copies the states in a tree to the parts. It ignores states whose names are not in parts.
// The tree may be freed afterwards ([Free]). The error is an *[Error] that names the part and wraps
// the part's own error. For a model, the part's error is an *[nn.StateError] with the names that do
// not match. Restore checks models first. If a later part fails, the state of the training is
// undefined.
func Restore(parts Parts, tree map[string]any) error {
	names := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		_, x := parts[a].(Stateful)
		_, y := parts[b].(Stateful)
		switch {
		case x == y && a < b:
			return -1
		case x == y || x:
			return 1
		}
		return -1
	})
	for _, name := range names {
		v, ok := tree[name].(map[string]any)
		if !ok {
			return &Error{Part: name, Msg: fmt.Sprintf("the checkpoint has no such part; it has %q", slices.Sorted(maps.Keys(tree)))}
		}
		var err error
		// A panic usually means lack of memory.
		if e := tensor.Try(func() { err = restore(parts[name], v) }); e != nil {
			err = e
		}
		if err != nil {
			return &Error{Part: name, Err: err}
		}
	}
	return nil
}

func restore(part any, v map[string]any) error {
	switch p := part.(type) {
	case Stateful:
		return p.LoadStateDict(v)
	case *tensor.Generator:
		seed, ok1 := v["seed"].(int64)
		offset, ok2 := v["offset"].(int64)
		if !ok1 || !ok2 {
			return &Error{Msg: "this is not the state of a generator"}
		}
		p.SetState(uint64(seed), uint64(offset))
		return nil
	}
	sd := make(map[string]*tensor.Tensor, len(v))
	for k, x := range v {
		t, ok := x.(*tensor.Tensor)
		if !ok {
			return &Error{Msg: fmt.Sprintf("%q is a %T and not a tensor", k, x)}
		}
		sd[k] = t
	}
	return model(func() error { return nn.LoadStateDict(part, sd) })
}

// Free frees the tensors of a tree that [Read] or [Load] returned.
func Free(tree map[string]any) { freeTree(tree) }

func freeTree(v any) {
	switch v := v.(type) {
	case *tensor.Tensor:
		v.Free()
	case []any:
		for _, x := range v {
			freeTree(x)
		}
	case map[string]any:
		for _, x := range v {
			freeTree(x)
		}
	case map[int64]any:
		for _, x := range v {
			freeTree(x)
		}
	}
}
