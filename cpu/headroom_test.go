package cpu

import (
	"math"
	"runtime"
	"testing"
)

// TestHeadroomObeysSettings sets GOGC or a memory limit. Either must prevent the headroom.
func TestHeadroomObeysSettings(t *testing.T) {
	none := func(string) string { return "" }
	if got, want := allowsHeadroom(none, math.MaxInt64), math.MaxInt == math.MaxInt64 && runtime.GOARCH != "wasm"; got != want {
		t.Errorf("default settings: %v, want %v", got, want)
	}
	for _, v := range []string{"100", "off", "50"} {
		if allowsHeadroom(func(name string) string { return map[string]string{"GOGC": v}[name] }, math.MaxInt64) {
			t.Errorf("GOGC=%s is ignored", v)
		}
	}
	if allowsHeadroom(none, 64<<20) {
		t.Error("a memory limit is ignored")
	}
}
