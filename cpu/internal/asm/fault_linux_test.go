package asm

import (
	"reflect"
	"runtime/debug"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// beforeFault returns a block of n elements, followed by a page that the process may not access.
// Reading past the end of the block is a fault.
func beforeFault(t *testing.T, elem reflect.Type, n int) reflect.Value {
	page := unix.Getpagesize()
	bytes := n * int(elem.Size())
	size := (bytes + page - 1) / page * page
	m, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(m[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return reflect.SliceAt(elem, unsafe.Pointer(&m[size-bytes]), n)
}

// TestStaysInside runs every kernel and function on blocks that end where a page without access
// begins. There must be no fault.
func TestStaysInside(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	blocks := map[reflect.Type][4]map[int]reflect.Value{}
	lengths := []int{1, 3, 7, 9, 15, 17, 33, 63, 65, 100}
	block := func(elem reflect.Type, which, n int) reflect.Value {
		b, ok := blocks[elem]
		if !ok {
			for i := range b {
				b[i] = map[int]reflect.Value{}
				for _, n := range lengths {
					b[i][n] = beforeFault(t, elem, n)
				}
			}
			blocks[elem] = b
		}
		return b[which][n]
	}
	call := func(what string, n int, f reflect.Value) {
		var args []reflect.Value
		for j := range f.Type().NumIn() {
			args = append(args, block(f.Type().In(j).Elem(), j, n))
		}
		defer func() {
			if e := recover(); e != nil {
				t.Errorf("%s of %d: %v", what, n, e)
			}
		}()
		f.Call(args)
	}
	for _, v := range variants {
		if !v.usable {
			continue
		}
		for _, n := range lengths {
			for i := range reflect.TypeFor[kernels]().NumField() {
				call(v.name+": "+reflect.TypeFor[kernels]().Field(i).Name, n, callable(v.k, i))
			}
			for name, f := range v.functions {
				call(v.name+": "+name, n, reflect.ValueOf(f.run))
			}
		}
	}
}
