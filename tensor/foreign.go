package tensor

import "github.com/flambeau-go/flambeau/device"

// withoutWaits and withoutUses switch off the ordering between different streams. With withoutWaits
// an op does not wait for writes and reads of other streams. With withoutUses memory may be reused
// while another stream still uses it. Only tests set them, to show that tests of streams detect a
// missing order.
var withoutWaits, withoutUses bool

// usedBy notes that stream s, which is not the storage's own stream, uses the memory. The caller
// holds st.mu.
func (st *storage) usedBy(s device.Stream) {
	if !withoutUses {
		st.buf.Use(s)
	}
}
