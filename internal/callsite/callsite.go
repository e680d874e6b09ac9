// Package callsite tells the frames of a stack that belong to a user of the library from the library's own.
package callsite

import "strings"

const module = "github.com/flambeau-go/flambeau"

// Outside reports whether a frame belongs to a user of the library. The library's own examples, commands and tests do.
func Outside(function, file string) bool {
	if strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "reflect.") {
		return false
	}
	rest, in := strings.CutPrefix(function, module)
	if !in || rest != "" && rest[0] != '/' && rest[0] != '.' {
		return true
	}
	return strings.HasPrefix(rest, "/examples/") || strings.HasPrefix(rest, "/cmd/") || strings.HasSuffix(file, "_test.go")
}

// Within returns the part of a function's name after the library's module path, "tensor.(*Tensor).Backward"; false for other functions.
func Within(function string) (string, bool) {
	rest, in := strings.CutPrefix(function, module)
	if !in || rest == "" || rest[0] != '/' && rest[0] != '.' {
		return "", false
	}
	return rest[1:], true
}
