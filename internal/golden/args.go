package golden

import (
	"encoding/json"
	"fmt"
)

// Args holds the arguments of an op that are not tensors, by PyTorch's names. The argument None is
// recorded as null and counts as absent.
//
// A method that returns an argument panics if the argument is absent or of another type, because
// then the test does not match its golden file.
type Args map[string]json.RawMessage

// Has reports whether the argument was given and is not None.
func (a Args) Has(name string) bool {
	v, ok := a[name]
	return ok && string(v) != "null"
}

// Float returns the argument as a number.
func (a Args) Float(name string) float64 { return arg[float64](a, name) }

// Int returns the argument as an integer.
func (a Args) Int(name string) int { return arg[int](a, name) }

// Bool returns the argument as a bool.
func (a Args) Bool(name string) bool { return arg[bool](a, name) }

// Text returns the argument as a string.
func (a Args) Text(name string) string { return arg[string](a, name) }

// Ints returns the argument as a list of integers.
func (a Args) Ints(name string) []int { return arg[[]int](a, name) }

// Floats returns the argument as a list of numbers.
func (a Args) Floats(name string) []float64 { return arg[[]float64](a, name) }

func arg[T any](a Args, name string) T {
	var v T
	if !a.Has(name) {
		panic(fmt.Sprintf("golden: there is no argument %s in %s", name, a))
	}
	if err := json.Unmarshal(a[name], &v); err != nil {
		panic(fmt.Sprintf("golden: argument %s: %v", name, err))
	}
	return v
}
