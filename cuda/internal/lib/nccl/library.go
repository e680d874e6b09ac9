package nccl

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

const libraryName = "libnccl.so.2"

// Library is a loaded NCCL. Its methods call the C functions of similar names.
type Library struct {
	l       *cu.Library
	version Version
	fn      [functions]uintptr
}

// A function is the index of a C function in Library.fn.
type function int

const (
	getVersion function = iota
	getUniqueID
	getErrorString
	getLastError
	commInitRankConfig
	commGetAsyncError
	commCount
	commUserRank
	commFinalize
	commDestroy
	commAbort
	groupStart
	groupEnd
	redOpCreatePreMulSum
	redOpDestroy
	allReduce
	broadcast
	allGather
	reduceScatter
	send
	recv
	functions
)

var names = [functions]string{
	getVersion: "ncclGetVersion", getUniqueID: "ncclGetUniqueId", getErrorString: "ncclGetErrorString", getLastError: "ncclGetLastError",
	commInitRankConfig: "ncclCommInitRankConfig", commGetAsyncError: "ncclCommGetAsyncError", commCount: "ncclCommCount",
	commUserRank: "ncclCommUserRank", commFinalize: "ncclCommFinalize", commDestroy: "ncclCommDestroy", commAbort: "ncclCommAbort",
	groupStart: "ncclGroupStart", groupEnd: "ncclGroupEnd", redOpCreatePreMulSum: "ncclRedOpCreatePreMulSum", redOpDestroy: "ncclRedOpDestroy",
	allReduce: "ncclAllReduce", broadcast: "ncclBroadcast", allGather: "ncclAllGather", reduceScatter: "ncclReduceScatter",
	send: "ncclSend", recv: "ncclRecv",
}

var opened struct {
	sync.Mutex
	l *Library
}

// Open loads the library from the first path that works, or from where the system's loader finds
// it. Once it has succeeded, every call returns the same library. The error is an *[Unavailable].
func Open(paths ...string) (*Library, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.l != nil {
		return opened.l, nil
	}
	var tried []string
	for _, path := range append(paths[:len(paths):len(paths)], libraryName) {
		l, answers := cu.OpenLibrary(path)
		tried = append(tried, answers...)
		if l == nil {
			continue
		}
		lib, err := Bind(l)
		if err == nil {
			opened.l = lib
		}
		return lib, err
	}
	return nil, &Unavailable{Tried: tried}
}

// Bind resolves the functions of a loaded library, and reads its version. The error is an
// *[Unavailable].
func Bind(l *cu.Library) (*Library, error) {
	lib := &Library{l: l}
	u := &Unavailable{Path: l.Path}
	for i, name := range names {
		if lib.fn[i] = l.Function(name); lib.fn[i] == 0 {
			u.Missing = append(u.Missing, name)
		}
	}
	if lib.fn[getVersion] != 0 {
		s := newScratch()
		if Result(cu.Call(lib.fn[getVersion], s.at(0))) == Success {
			lib.version = Version(int32(s.n[0]))
		}
		s.free()
	}
	if u.Version = lib.version; u.Version < Minimum || u.Missing != nil {
		return nil, u
	}
	return lib, nil
}

// Version returns the library's version.
func (l *Library) Version() Version { return l.version }

// Path returns the path of the library's file.
func (l *Library) Path() string { return l.l.Path }

// scratch is memory to which C functions write. It lies on the heap, which does not move.
type scratch struct {
	n  [2]uint64
	id UniqueID
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch() *scratch {
	s := scratches.Get().(*scratch)
	s.n = [2]uint64{}
	return s
}

func (s *scratch) free()            { scratches.Put(s) }
func (s *scratch) at(i int) uintptr { return uintptr(unsafe.Pointer(&s.n[i])) }

// text returns a C string of the library as a Go string. The library must not change it during the
// call.
func text(p uintptr) string {
	if p == 0 {
		return ""
	}
	const most = 4096
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p))
	n := 0
	for n < most && *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}

// answer converts the result of a call to an error. It returns nil if the call succeeded or is
// still in progress.
func (l *Library) answer(f function, r Result, c Comm) error {
	if r == Success || r == InProgress {
		return nil
	}
	return &Error{Call: names[f], Result: r, Text: text(cu.CallWord(l.fn[getErrorString], uintptr(uint32(r)))),
		Detail: text(cu.CallWord(l.fn[getLastError], uintptr(c)))}
}

func (l *Library) call(f function, c Comm, args ...uintptr) error {
	return l.answer(f, Result(cu.Call(l.fn[f], args...)), c)
}
