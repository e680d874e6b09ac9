package train

import (
	"strings"
	"testing"
)

// Steps on several devices are captured by default only if the graph adds up gradients in the same
// order as eager steps. NCCL has another order.
func TestOtherOrder(t *testing.T) {
	if why := otherOrder("in-process"); why != "" {
		t.Error(why)
	}
	// The machines of the tests have no NCCL, so the test passes only the name of the backend.
	if why := otherOrder("nccl"); !strings.HasPrefix(why, "nccl adds up gradients in another order") {
		t.Error(why)
	}
}
