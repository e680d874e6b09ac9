package emu

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

func TestLaunchAttributes(t *testing.T) {
	one := cu.Dim3{X: 1, Y: 1, Z: 1}
	pair := cu.Dim3{X: 2, Y: 1, Z: 1}
	for _, c := range []struct {
		sm     int
		grid   cu.Dim3
		a      cu.LaunchAttributes
		result cu.Result
		words  string
	}{
		{90, one, cu.LaunchAttributes{}, 0, ""},
		{90, one, cu.LaunchAttributes{Overlap: true, Priority: -1, Cluster: one}, 0, ""},
		{80, one, cu.LaunchAttributes{Overlap: true}, 0, ""},
		{80, one, cu.LaunchAttributes{Cluster: one}, cu.ErrNotSupported, "compute capability 9.0, the device is sm_80"},
		{90, pair, cu.LaunchAttributes{Cluster: pair}, cu.ErrNotSupported, "not emulated"},
		{90, one, cu.LaunchAttributes{Cluster: pair}, cu.ErrInvalidClusterSize, "no multiple"},
		{90, cu.Dim3{X: 16, Y: 1, Z: 1}, cu.LaunchAttributes{Cluster: cu.Dim3{X: 16, Y: 1, Z: 1}}, cu.ErrInvalidClusterSize, "1 to 8 blocks"},
		{90, one, cu.LaunchAttributes{Cluster: cu.Dim3{X: 1}}, cu.ErrInvalidClusterSize, "1 to 8 blocks"},
		{90, cu.Dim3{}, cu.LaunchAttributes{Overlap: true}, cu.ErrInvalidValue, "grid"},
	} {
		r := newRig(t, Config{Devices: 1, Memory: 1 << 20, SM: c.sm})
		before := r.Stats().Launches
		err := r.LaunchKernelEx(cu.GraphKernel{Func: r.fn("narrow"), Grid: c.grid, Block: one}, c.a, 0)
		if c.result == 0 {
			r.ok(err)
			r.ok(r.CtxSynchronize())
			if n := r.Stats().Launches - before; n != 1 {
				t.Errorf("%+v: %d launches", c.a, n)
			}
			continue
		}
		var e *cu.Error
		if !errors.Is(err, c.result) || !errors.As(err, &e) || e.Call != "cuLaunchKernelEx" || !strings.Contains(err.Error(), c.words) {
			t.Errorf("sm_%d, grid %v, %+v: got %v, want %q", c.sm, c.grid, c.a, err, c.words)
		}
	}
}
