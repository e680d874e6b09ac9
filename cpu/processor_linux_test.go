package cpu

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLeaveWakersProcessor simulates workers that often wake up on the processor of their waker. A
// worker must move to another processor. Afterwards its thread must be allowed to use the same
// processors as before.
func TestLeaveWakersProcessor(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := shared.Load()
	defer shared.Store(old)
	var all, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	// sandboxes such as gVisor do not report which processor runs a thread
	for cpu := range len(all) * 64 {
		var one unix.CPUSet
		one.Set(cpu)
		if all.IsSet(cpu) && (unix.SchedSetaffinity(0, &one) != nil || runningProcessor() != int32(cpu)) {
			t.Skipf("the system does not run a thread on the processor that it asks for, %d", cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		shared.Store(oftenShared)
		var w waker
		w.before()
		here := runningProcessor()
		w.leave()
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != all {
			t.Fatalf("the thread may use the processors %v, before %v, error %v", after, all, err)
		}
		// the system may also move the thread, so one attempt may fail
		if now := runningProcessor(); here == w.processor.Load() && (now != here || all.Count() == 1) {
			return
		}
	}
	t.Errorf("the worker stays on its waker's processor, with %d processors", all.Count())
}

// TestSharedProcessorIsCounted lets a worker wake up repeatedly on its waker's processor. The
// variable shared must count these times, up to maxShared. When the worker then wakes up on
// other processors, shared must fall to 0.
func TestSharedProcessorIsCounted(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := shared.Load()
	defer shared.Store(old)
	var one, all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &all)
	one.Set(int(runningProcessor())) // the thread cannot move to another processor
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	shared.Store(0)
	var w waker
	w.before()
	for i := range int32(2 * maxShared) {
		if got, want := shared.Load(), min(i, maxShared); got != want {
			t.Fatalf("after %d times: %d, want %d", i, got, want)
		}
		w.leave()
	}
	w.processor.Add(1)
	for range 2 * maxShared {
		w.leave()
	}
	if n := shared.Load(); n != 0 {
		t.Errorf("%d after wakes on other processors, want 0", n)
	}
}
