package cpu

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// In some virtual machines, Linux runs a woken thread on the processor of the thread that woke it
// (the waker), to let other processors sleep. The woken thread then interrupts the waker, or waits
// until its time slice ends, which takes milliseconds. If this happens often, two measures prevent
// it. The waker yields its processor once, so that the worker begins. And the worker moves itself
// to another processor.

// shared grows when a worker wakes up on the processor of its waker, and falls when a worker wakes
// up elsewhere.
var shared atomic.Int32

const (
	oftenShared = 4
	maxShared   = 8
)

// waker holds the processor of the goroutine that woke workers last.
type waker struct{ processor atomic.Int32 }

// before is called before workers are woken.
func (w *waker) before() { w.processor.Store(runningProcessor()) }

// after is called after workers were woken, unless other programs need the processor.
func (w *waker) after() {
	if shared.Load() >= oftenShared {
		syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// leave is called by a worker when it wakes up. If necessary, and if the system permits it, leave
// moves the worker's thread away from the waker's processor.
func (w *waker) leave() {
	here, n := runningProcessor(), shared.Load()
	if here < 0 || here != w.processor.Load() {
		if n > 0 {
			shared.CompareAndSwap(n, n-1)
		}
		return
	}
	if n < maxShared {
		shared.CompareAndSwap(n, n+1)
	}
	if n < oftenShared {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others := all
	if others.Clear(int(here)); others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil {
		unix.SchedSetaffinity(0, &all)
	}
}

// runningProcessor returns the number of the processor that runs the calling thread, or -1.
func runningProcessor() int32 {
	var n uint32
	if _, _, err := syscall.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0); err != 0 {
		return -1
	}
	return int32(n)
}
