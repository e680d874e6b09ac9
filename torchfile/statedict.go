package torchfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/tensor"
)

// wrappers are keys under which programs save a model's weights next to other values. StateDict
// tries them in the order of the list. They come from PyTorch's examples, Lightning, timm, DETR,
// fairseq and other libraries.
var wrappers = []string{"state_dict", "model_state_dict", "model", "module", "net", "weights", "params", "network"}

// StateDict returns the tensors by name from the tree that [Load] returned for a saved state dict.
// If the state dict is an entry of a dict, under a key such as "state_dict" or "model", StateDict
// uses that entry, up to two levels deep. If there are tensors, it leaves out all other values,
// such as counters, or None for an absent parameter. Names in nested dicts are joined with dots.
//
// The names are those in the file. A model under DataParallel has names that begin with "module.".
// The error is an *[Error].
func StateDict(tree any) (map[string]*tensor.Tensor, error) {
	var tried []string
	for range 3 {
		items, ok := stringItems(tree)
		if !ok {
			return nil, noState("no state dict: %s instead of a dict with names%s", kindOf(tree), under(tried))
		}
		inner, name := any(nil), ""
		for _, w := range wrappers {
			if v, ok := items[w]; ok {
				if _, isDict := stringItems(v); isDict && hasTensors(v) {
					inner, name = v, w
					break
				}
			}
		}
		if name == "" {
			break
		}
		// A model may itself have a part with the name of a wrapper. The dict then also has tensors
		// outside of this part.
		beside := false
		for k, v := range items {
			if _, isTensor := v.(*tensor.Tensor); isTensor && k != name {
				beside = true
			}
		}
		if beside {
			break
		}
		tree, tried = inner, append(tried, name)
	}
	out, text := map[string]*tensor.Tensor{}, 0
	if err := collect(out, &text, "", tree); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		items, _ := stringItems(tree)
		keys := make([]string, 0, len(items))
		for k := range items {
			keys = append(keys, fmt.Sprintf("%q", k))
		}
		slices.Sort(keys)
		if len(keys) > 10 {
			keys = append(keys[:10], "…")
		}
		return nil, noState("no state dict: there is no tensor in the dict with the keys %s%s", strings.Join(keys, ", "), under(tried))
	}
	return out, nil
}

func noState(format string, a ...any) error {
	return &Error{Offset: -1, Msg: fmt.Sprintf(format, a...)}
}

func under(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return fmt.Sprintf(" under %q", keys)
}

func stringItems(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case *Dict:
		m := make(map[string]any, v.Len())
		for k, x := range v.All() {
			s, ok := k.(string)
			if !ok {
				return nil, false
			}
			m[s] = x
		}
		return m, true
	}
	return nil, false
}

func hasTensors(v any) bool {
	if _, ok := v.(*tensor.Tensor); ok {
		return true
	}
	items, _ := stringItems(v)
	for _, x := range items {
		if hasTensors(x) {
			return true
		}
	}
	return false
}

// maxNames is the greatest total length of all names in bytes. A hostile file could nest long names
// in long names.
const maxNames = 64 << 20

func collect(out map[string]*tensor.Tensor, text *int, prefix string, v any) error {
	items, _ := stringItems(v)
	for k, x := range items {
		name := prefix + k
		if *text += len(name); *text > maxNames {
			return noState("no state dict: its names, joined by dots, have more than %d bytes", maxNames)
		}
		if t, ok := x.(*tensor.Tensor); ok {
			if out[name] != nil {
				return noState("the name %q appears twice when dicts are joined by dots", name)
			}
			out[name] = t
			continue
		}
		if err := collect(out, text, name+".", x); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case *tensor.Tensor:
		return "a tensor"
	case []any, Tuple:
		return "a list"
	case map[int64]any, map[string]any, *Dict:
		return "a dict with other keys"
	case nil:
		return "None"
	}
	return fmt.Sprintf("a value of Go type %T", v)
}
