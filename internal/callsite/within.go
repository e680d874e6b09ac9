package callsite

import "strings"

// Within returns the part of a function's name after the library's module path, "tensor.(*Tensor).Backward"; false for other functions.
func Within(function string) (string, bool) {
	rest, in := strings.CutPrefix(function, Module)
	if !in || rest == "" || rest[0] != '/' && rest[0] != '.' {
		return "", false
	}
	return rest[1:], true
}
