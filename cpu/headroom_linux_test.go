package cpu

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestHeadroomTakesNoMemory checks that the device reserves the headroom, and that the system has
// given no pages for it, even if other objects were at the same addresses before. The test allows a
// few pages, because huge pages at the ends of the headroom may hold neighbouring objects too.
func TestHeadroomTakesNoMemory(t *testing.T) {
	Get()
	if !allowsHeadroom(os.Getenv, debug.SetMemoryLimit(-1)) {
		if headroom != nil {
			t.Error("the headroom was reserved, although a setting forbids it")
		}
		return
	}
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	if s.HeapAlloc < headroomBytes || s.NextGC < 2*headroomBytes {
		t.Errorf("the heap has %d bytes, and the next collection is at %d", s.HeapAlloc, s.NextGC)
	}
	if underRace {
		return
	}
	used := make([]byte, 4*headroomBytes)
	for i := range used {
		used[i] = 1
	}
	used = nil
	runtime.GC()
	reserveHeadroom()
	page := os.Getpagesize()
	skip := -int(uintptr(unsafe.Pointer(&headroom[0]))) & (page - 1)
	mem := headroom[skip:]
	mem = mem[:len(mem)/page*page]
	resident := make([]byte, len(mem)/page)
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&resident[0]))); e != 0 {
		t.Fatal(e)
	}
	pages := 0
	for _, r := range resident {
		pages += int(r & 1)
	}
	if most := 4 << 20 / page; pages > most {
		t.Errorf("%d pages of %d are in memory, want at most %d", pages, len(resident), most)
	}
}
