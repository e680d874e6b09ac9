package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestLatePageable runs programs that rely on a copy of pageable memory being complete when the
// call returns. With PageableLate the driver must detect this.
func TestLatePageable(t *testing.T) {
	r := newRig(t, Config{Pageable: PageableLate})
	x, s := r.alloc(256), r.stream()
	host := make([]uint32, 64)
	fill(host, 1)
	r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, s))
	r.ok(r.StreamSynchronize(s))
	fill(host, 2) // the copy has run by now
	r.ok(r.MemcpyDtoHAsync(ptr(host), x, 256, s))
	if !all(host, 0xffffffff) {
		t.Errorf("a destination that is still to be written holds %v", host[:4])
	}
	r.ok(r.StreamSynchronize(s))
	if !all(host, 1) {
		t.Errorf("the copies brought %v", host[:4])
	}
	if c := r.Stats(); c.Pageable != 2 || c.PageableHtoD != 1 {
		t.Errorf("counted %d copies of pageable memory, %d from it", c.Pageable, c.PageableHtoD)
	}
	r.ok(r.MemcpyHtoDAsync(x, ptr(host), 256, s))
	host[63]++
	err := r.StreamSynchronize(s)
	var access *AccessError
	if !errors.Is(err, cu.ErrIllegalAddress) || !errors.As(err, &access) || access.Kind != KindCopyHtoD || !strings.Contains(access.Why, "has changed since the call") {
		t.Errorf("a source that changed before the copy: %v", err)
	}
}

// TestUsualPageable checks that FLAMBEAU_PAGEABLE affects only drivers whose Config has no setting.
func TestUsualPageable(t *testing.T) {
	t.Setenv("FLAMBEAU_PAGEABLE", "late")
	for set, want := range map[Pageable]Pageable{0: PageableLate, PageableNow: PageableNow, PageableLate: PageableLate} {
		if got := newRig(t, Config{Pageable: set}).Config().Pageable; got != want {
			t.Errorf("set to %d it is %d, want %d", set, got, want)
		}
	}
	if _, err := New(Config{Pageable: 9}); err == nil {
		t.Error("a setting that means nothing was taken")
	}
}

// TestPlantedSpill checks that the function Config.Spill adds local memory to a kernel.
func TestPlantedSpill(t *testing.T) {
	r := newRig(t, Config{Spill: func(kernel string) int {
		if kernel == "race" {
			return 24
		}
		return 0
	}})
	m := must(r.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
	for name, want := range map[string]int{"race": 24, "stop": 0} {
		if n := must(r.FuncAttribute(must(r.ModuleGetFunction(m, name))(t), cu.FuncLocalBytes))(t); n != want {
			t.Errorf("%s has %d bytes of local memory, want %d", name, n, want)
		}
	}
}
