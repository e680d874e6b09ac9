//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"testing"

	"github.com/ebitengine/purego"
)

// TestCallArguments checks that a C function receives every argument, in registers and on the
// stack. A Go callback accepts at most 15 arguments. The sixteenth is checked with the strict
// library, which the command ".ci/run cublaslt" builds with a C compiler.
func TestCallArguments(t *testing.T) {
	var got []uintptr
	fn := purego.NewCallback(func(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14 uintptr) uintptr {
		got = []uintptr{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14}
		return 5<<32 | 7
	})
	args := make([]uintptr, 15)
	for i := range args {
		args[i] = uintptr(1<<40 + i)
	}
	if r := CallWord(fn, args...); r != 5<<32|7 || Call(fn, args...) != 7 {
		t.Errorf("the result is %#x", r)
	}
	for i, a := range args {
		if got[i] != a {
			t.Errorf("argument %d is %#x, want %#x", i, got[i], a)
		}
	}
}
