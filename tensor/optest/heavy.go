package optest

import "testing"

func (w *walk) heavy(t *testing.T) {}
