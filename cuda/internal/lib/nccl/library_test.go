//go:build !nogpu && linux && (amd64 || arm64)

package nccl

import (
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// fake is a library whose functions are callbacks into this test.
type fake struct {
	lacks  string
	handle func(name string, a [8]uintptr) uintptr
}

var fakes struct {
	sync.Mutex
	now *fake
	// callbacks by the name of the C function; all tests share them, because a callback is never
	// freed
	addrs map[string]uintptr
}

func newFake(t *testing.T, handle func(name string, a [8]uintptr) uintptr) (*fake, *cu.Library) {
	fakes.Lock()
	f := &fake{handle: handle}
	fakes.now = f
	t.Cleanup(func() { fakes.now = nil; fakes.Unlock() })
	return f, cu.NewLibrary("libfake.so.2", func(name string) uintptr {
		if f.lacks == name {
			return 0
		}
		if fakes.addrs[name] == 0 {
			if fakes.addrs == nil {
				fakes.addrs = map[string]uintptr{}
			}
			fakes.addrs[name] = purego.NewCallback(func(a0, a1, a2, a3, a4, a5, a6, a7 uintptr) uintptr {
				return fakes.now.handle(name, [8]uintptr{a0, a1, a2, a3, a4, a5, a6, a7})
			})
		}
		return fakes.addrs[name]
	})
}

func put32(p uintptr, v int32) { *(*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) = v }

var words = []byte("it does not work\x00")

// TestArguments checks that each method passes its arguments in the order of nccl.h. A failure must
// be returned with the library's text.
func TestArguments(t *testing.T) {
	const (
		comm   = Comm(0x77)
		stream = cu.Stream(0x88)
	)
	var name string
	var args [8]uintptr
	var failure Result
	_, cl := newFake(t, func(n string, a [8]uintptr) uintptr {
		switch n {
		case "ncclGetVersion":
			put32(a[0], 23007)
			return 0
		case "ncclGetErrorString":
			if Result(int32(a[0])) != failure {
				t.Errorf("the words of result %d", a[0])
			}
			return uintptr(unsafe.Pointer(&words[0]))
		case "ncclGetLastError":
			return uintptr(unsafe.Pointer(&words[3]))
		case "ncclRedOpCreatePreMulSum":
			if p := a[1]; *(*uint64)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) != 0x0807060504030201 {
				t.Error("another scalar")
			}
			put32(a[0], 9)
		case "ncclCommGetAsyncError", "ncclCommCount", "ncclCommUserRank":
			put32(a[1], 3)
		}
		name, args = n, a
		// the upper half of a register that returns an enum is undefined
		return uintptr(uint32(failure)) | 0xdeadbeef<<32
	})
	l, err := Bind(cl)
	if err != nil || l.Version() != 23007 || l.Version().String() != "2.30.7" || l.Path() != "libfake.so.2" {
		t.Fatalf("%v, %v", l, err)
	}
	c, s, any := uintptr(comm), uintptr(stream), ^uintptr(0)
	for want, row := range map[string]struct {
		call func() error
		args []uintptr
	}{
		"ncclAllReduce":     {func() error { return l.AllReduce(1, 2, 3, Float32, Max, comm, stream) }, []uintptr{1, 2, 3, 7, 2, c, s}},
		"ncclBroadcast":     {func() error { return l.Broadcast(1, 2, 3, Int64, 5, comm, stream) }, []uintptr{1, 2, 3, 4, 5, c, s}},
		"ncclAllGather":     {func() error { return l.AllGather(1, 2, 3, Uint8, comm, stream) }, []uintptr{1, 2, 3, 1, c, s}},
		"ncclReduceScatter": {func() error { return l.ReduceScatter(1, 2, 3, BFloat16, Prod, comm, stream) }, []uintptr{1, 2, 3, 9, 1, c, s}},
		"ncclSend":          {func() error { return l.Send(1, 2, Int8, 4, comm, stream) }, []uintptr{1, 2, 0, 4, c, s}},
		"ncclRecv":          {func() error { return l.Recv(1, 2, Int32, 4, comm, stream) }, []uintptr{1, 2, 2, 4, c, s}},
		"ncclGroupStart":    {l.GroupStart, nil},
		"ncclGroupEnd":      {l.GroupEnd, nil},
		"ncclCommFinalize":  {func() error { return l.CommFinalize(comm) }, []uintptr{c}},
		"ncclCommDestroy":   {func() error { return l.CommDestroy(comm) }, []uintptr{c}},
		"ncclCommAbort":     {func() error { return l.CommAbort(comm) }, []uintptr{c}},
		"ncclRedOpDestroy":  {func() error { return l.RedOpDestroy(9, comm) }, []uintptr{9, c}},
		"ncclRedOpCreatePreMulSum": {func() error {
			op, err := l.PreMulSum([8]byte{1, 2, 3, 4, 5, 6, 7, 8}, Float16, comm)
			if op != 9 {
				t.Errorf("op %d", op)
			}
			return err
		}, []uintptr{any, any, 6, 1, c}},
		"ncclCommGetAsyncError": {func() error {
			r, err := l.State(comm)
			if r != ErrInternal {
				t.Errorf("state %v", r)
			}
			return err
		}, []uintptr{c, any}},
		"ncclCommCount":    {func() error { n, err := l.CommCount(comm); return wantThree(t, n, err) }, []uintptr{c, any}},
		"ncclCommUserRank": {func() error { n, err := l.CommUserRank(comm); return wantThree(t, n, err) }, []uintptr{c, any}},
		"ncclGetUniqueId":  {func() error { _, err := l.GetUniqueID(); return err }, []uintptr{any}},
	} {
		for _, failure = range []Result{Success, InProgress} {
			if err := row.call(); err != nil {
				t.Errorf("%s: %v", want, err)
			}
		}
		for i, a := range row.args {
			if name != want || a != any && args[i] != a {
				t.Errorf("%s was called for %s with %v, want %v", name, want, args, row.args)
			}
		}
		failure = ErrSystem
		var e *Error
		if err := row.call(); !errors.Is(err, ErrSystem) || !errors.As(err, &e) || err.Error() != want+": it does not work (NCCL error 2): does not work" {
			t.Errorf("%s: its failure came back as %v", want, err)
		}
	}
}

func wantThree(t *testing.T, n int, err error) error {
	if n != 3 {
		t.Errorf("%d", n)
	}
	return err
}

// TestUnavailable opens a library that is too old, one that lacks a function, and one that does not
// exist. Each error must say so.
func TestUnavailable(t *testing.T) {
	version := int32(21704)
	f, l := newFake(t, func(_ string, a [8]uintptr) uintptr { put32(a[0], version); return 0 })
	var u *Unavailable
	if _, err := Bind(l); !errors.As(err, &u) || err.Error() != "libfake.so.2 is NCCL 2.17.4, 2.18.0 or newer is needed" {
		t.Errorf("%v", err)
	}
	version = 21805
	if _, err := Bind(l); err != nil {
		t.Error(err)
	}
	f.lacks = "ncclSend"
	whole := l
	l = cu.NewLibrary("libfake.so.2", func(name string) uintptr {
		if name == f.lacks {
			return 0
		}
		return whole.Function(name)
	})
	if _, err := Bind(l); !errors.As(err, &u) || err.Error() != "libfake.so.2 lacks ncclSend" || !slices.Equal(u.Missing, []string{"ncclSend"}) {
		t.Errorf("%v", err)
	}
	if s := Version(2708).String(); s != "2.7.8" {
		t.Error(s)
	}
	if s := Result(99).Error(); !strings.Contains(s, "99") {
		t.Error(s)
	}
	if s := (&Unavailable{Tried: []string{"/a: no", "b: no"}}).Error(); s != "NCCL (libnccl.so.2) was not found: tried /a: no; b: no" {
		t.Error(s)
	}
}

// TestReal loads NVIDIA's own library. It must have all functions, and create names of
// communicators without a GPU. FLAMBEAU_NCCL_LIBRARY is its path, which ".ci/run nccl" sets.
func TestReal(t *testing.T) {
	path := os.Getenv("FLAMBEAU_NCCL_LIBRARY")
	if path == "" {
		t.Skip("FLAMBEAU_NCCL_LIBRARY is not set")
	}
	t.Setenv("NCCL_SOCKET_IFNAME", "lo")
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("FLAMBEAU_NCCL_VERSION"); l.Version().String() != want {
		t.Errorf("%s is %v, want %s", path, l.Version(), want)
	}
	a, err := l.GetUniqueID()
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.GetUniqueID()
	if err != nil || *a == *b || *a == (UniqueID{}) {
		t.Errorf("two names are alike, or none (%v)", err)
	}
	if s := l.answer(groupEnd, ErrInvalidUsage, 0).Error(); !strings.Contains(s, "invalid usage") {
		t.Errorf("its words for an invalid use are %q", s)
	}
	runtime.LockOSThread() // a group belongs to a thread
	defer runtime.UnlockOSThread()
	// The library itself returns this error, because no group has begun.
	if err := l.GroupEnd(); !errors.Is(err, ErrInvalidUsage) {
		t.Errorf("the end of no group: %v", err)
	}
	if err := l.GroupStart(); err != nil {
		t.Error(err)
	}
	if err := l.GroupEnd(); err != nil {
		t.Error(err)
	}
}
