package tensor

import "github.com/flambeau-go/flambeau/device"

// withoutWaits and withoutUses leave out what keeps streams apart: that an op waits for other
// streams' writes and reads, and that memory is not reused before foreign streams are done. Only
// tests can set them, to see that a test of streams notices.
var withoutWaits, withoutUses bool

// foreign notes that a stream other than the storage's own uses the memory. st.mu is held.
func (st *storage) foreign(s device.Stream) {
	if !withoutUses {
		st.buf.Use(s)
	}
}
