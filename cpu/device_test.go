package cpu

import (
	"testing"

	"github.com/flambeau-go/flambeau/device/devicetest"
)

func TestConformance(t *testing.T) { devicetest.Run(t, Get()) }
