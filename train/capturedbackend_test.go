package train

import (
	"strings"
	"testing"
)

// Steps of several devices are captured by themselves only if the graph adds up gradients in the
// order of eager steps. NCCL has an order of its own.
func TestOtherOrder(t *testing.T) {
	if why := otherOrder("in-process"); why != "" {
		t.Error(why)
	}
	// no machine of the tests has NCCL with devices
	if why := otherOrder("nccl"); !strings.HasPrefix(why, "nccl adds up gradients in another order") {
		t.Error(why)
	}
}
