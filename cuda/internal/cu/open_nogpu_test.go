//go:build nogpu

package cu

import (
	"errors"
	"testing"
)

func TestOpenWithoutGPU(t *testing.T) {
	api, err := Open()
	var u *Unavailable
	if api != nil || !errors.As(err, &u) || u.Reason != BuiltWithout {
		t.Errorf("got %v, %v", api, err)
	}
}
