package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func aligned(n int) []byte {
	b := make([]byte, n+8)
	// single bytes are always aligned, so FromMemory does not copy them
	x := tensor.FromMemory(dtype.U8, b[:1], nil, 1)
	defer x.Free()
	for i := range 8 {
		y := tensor.FromMemory(dtype.I64, b[i:i+8], nil, 1)
		y.Fill(-1)
		if b[i] == 255 {
			clear(b)
			return b[i : i+n]
		}
	}
	panic("nothing is aligned")
}

func TestFromMemorySharesAndReleases(t *testing.T) {
	mem := aligned(24)
	var released atomic.Int32
	x := tensor.FromMemory(dtype.F32, mem, func() { released.Add(1) }, 2, 3)
	v := x.Select(0, 1)
	v.Fill(1)
	if !bytes.Equal(mem, slices.Concat(make([]byte, 12), bytes.Repeat([]byte{0, 0, 128, 63}, 3))) {
		t.Errorf("%v", mem)
	}
	if x.Storage() != v.Storage() || x.Storage().Bytes() != 24 || v.StorageOffset() != 3 || x.Clone().Storage() == x.Storage() {
		t.Errorf("storages %v and %v", x.Storage(), v.Storage())
	}
	x.Free()
	if released.Load() != 0 {
		t.Error("released while a view lives")
	}
	v.Free()
	v.Free()
	if released.Load() != 1 {
		t.Errorf("released %d times", released.Load())
	}
	// Memory is copied if it is not aligned. It is also copied if it is for bools and has bytes
	// other than 0 and 1.
	for _, ty := range []dtype.Type{dtype.F64, dtype.Bool} {
		mem := aligned(16)
		mem[2] = 7
		x := tensor.FromMemory(ty, mem[1:9], func() { released.Add(1) }, 8/ty.Size())
		if x.Fill(0); mem[2] != 7 {
			t.Errorf("%v: %v", ty, mem)
		}
	}
	if released.Load() != 3 {
		t.Errorf("released %d times", released.Load())
	}
}

// TestFromMemoryIsCollected checks that the garbage collector releases memory of any size that
// nobody frees, even in scopes that were dropped.
//
//flambeau:ignore unclosedscope the test shows what happens to scopes that are dropped
func TestFromMemoryIsCollected(t *testing.T) {
	var released atomic.Int32
	tensor.FromMemory(dtype.U8, make([]byte, 100), func() { released.Add(1) }, 100)
	func() {
		s := tensor.Root().New()
		s.From(tensor.FromMemory(dtype.U8, make([]byte, 100), func() { released.Add(1) }, 100))
	}()
	for range 100 {
		if runtime.GC(); released.Load() == 2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d of 2 released", released.Load())
}

func TestFromMemoryMisuse(t *testing.T) {
	for want, f := range map[string]func(){
		"3 bytes for shape [2]":   func() { tensor.FromMemory(dtype.U8, make([]byte, 3), nil, 2) },
		"cannot be of type":       func() { tensor.FromMemory(dtype.U64, make([]byte, 8), nil, 1) },
		"negative":                func() { tensor.FromMemory(dtype.U8, nil, nil, -1) },
		"too many elements":       func() { tensor.FromMemory(dtype.U8, nil, nil, 1<<62, 4) },
		"9 dimensions, at most 8": func() { tensor.FromMemory(dtype.U8, []byte{1}, nil, 1, 1, 1, 1, 1, 1, 1, 1, 1) },
	} {
		var e *tensor.Error
		if err := tensor.Try(f); !errors.As(err, &e) || !strings.Contains(e.Msg, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.left {
		return f.left, fmt.Errorf("full")
	}
	f.left -= len(b)
	return len(b), nil
}

func TestWriteTo(t *testing.T) {
	big := tensor.Root().Arange(3<<20).Reshape(3, 1<<20)
	for _, x := range []*tensor.Tensor{tensor.From([]int16{1, 2, 3}), big, big.T(), big.Select(0, 1), tensor.Zeros(0, 3), tensor.From(7.0).Expand(3)} {
		var b bytes.Buffer
		n, err := x.WriteTo(&b)
		if err != nil || n != int64(b.Len()) || !bytes.Equal(b.Bytes(), x.Bytes()) {
			t.Errorf("%v: %d bytes, %v", x.Shape(), n, err)
		}
	}
	if n, err := big.WriteTo(&failing{9 << 20}); err == nil || n != 9<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// FromMemory makes a tensor that uses the program's own memory, without a copy.
func ExampleFromMemory() {
	mem := []byte{1, 2, 3, 4, 5, 6}
	x := tensor.FromMemory(dtype.U8, mem, nil, 2, 3)
	mem[0] = 9
	x.Select(0, 1).Fill(0)
	fmt.Println(x, mem)
	// Output:
	// tensor([[9, 2, 3],
	//         [0, 0, 0]], dtype=torch.uint8) [9 2 3 0 0 0]
}

// TestHostOpsAwaitHolds runs ops that the host computes while other work, such as a collective,
// still writes their operand. The ops must wait for that work.
func TestHostOpsAwaitHolds(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for name, f := range map[string]func(x *tt) *tt{
			"bincount": func(x *tt) *tt { return x.Bincount(nil, 0) },
			"unique_consecutive": func(x *tt) *tt {
				y, _, _ := x.UniqueConsecutive(tensor.UniqueOptions{})
				return y
			},
		} {
			x := s.From([]int64{1})
			var h *tensor.Hold
			h = x.Hold("test", true, nil, t, func() error {
				v, err := h.On(nil)
				if err == nil {
					v.Buf.Host()[0] = 2
					h.Done()
				}
				return err
			})
			y := f(x)
			if name == "bincount" {
				y = y.Argmax()
			}
			if v := y.Item(); v != 2 {
				t.Errorf("%s: %v, before the held work was done", name, v)
			}
		}
	})
}
