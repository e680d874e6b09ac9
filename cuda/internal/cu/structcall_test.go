//go:build !nogpu && linux && amd64

package cu

import (
	"encoding/binary"
	"testing"

	"github.com/ebitengine/purego"
)

// TestCallStruct passes a struct by value. The struct must lie on the stack, and the other
// arguments must lie in their registers. A callback can check only nine words of the stack. The
// strict library, which ".ci/run nccl" builds with a C compiler, checks all sixteen.
func TestCallStruct(t *testing.T) {
	var got []uintptr
	fn := purego.NewCallback(func(a0, a1, a2, a3, a4, a5, s0, s1, s2, s3, s4, s5, s6, s7, s8 uintptr) uintptr {
		got = []uintptr{a0, a1, a2, a3, a4, a5, s0, s1, s2, s3, s4, s5, s6, s7, s8}
		growStack(100)
		return 7 | 0xdeadbeef<<32
	})
	var s [StructBytes]byte
	for i := range StructBytes / 8 {
		binary.LittleEndian.PutUint64(s[8*i:], uint64(100+i))
	}
	if r := CallStruct(fn, 2, &s, 1, 2, 3, 4, 5, 6); r != 7 {
		t.Errorf("the result is %#x", r)
	}
	for i, g := range got {
		want := uintptr(i + 1)
		if i >= 6 {
			want = uintptr(100 + i - 6)
		}
		if g != want {
			t.Errorf("word %d is %d, want %d", i, g, want)
		}
	}
}

// growStack makes the goroutine's stack grow, so that Go moves it.
func growStack(n int) int {
	var pad [256]byte
	if n == 0 {
		return int(pad[0])
	}
	return growStack(n-1) + int(pad[n%256])
}
