package optest

import "testing"

func TestCPU(t *testing.T) { Run(t, hostDevice(), Options{}) }
