package kernels

import (
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// Contiguous operands are read and written in whole 32-byte sectors: what a request of a warp touches is what its bytes
// need.
func TestWholeSectors(t *testing.T) {
	f := dtype.F32
	sum := &device.Reduction{Kind: device.Sum, Map: identity(t, f)}
	tests := []struct {
		what string
		plan func(m *machine) ([]Launch, error)
	}{
		{"row sums", func(m *machine) ([]Launch, error) {
			return Reduce(sum, m.tensor(f, dense(8, 1), 0), []Operand{m.random(m.tensor(f, dense(8, 1024), 0))}, nil, m.scratch)
		}},
		{"column sums", func(m *machine) ([]Launch, error) {
			return Reduce(sum, m.tensor(f, dense(1, 64), 0), []Operand{m.random(m.tensor(f, dense(300, 64), 0))}, nil, m.scratch)
		}},
		{"softmax", func(m *machine) ([]Launch, error) {
			return Softmax(m.tensor(f, dense(8, 512), 0), m.random(m.tensor(f, dense(8, 512), 0)), false)
		}},
		{"softmax gradient", func(m *machine) ([]Launch, error) {
			x := dense(4, 2048)
			return SoftmaxGrad(m.tensor(f, x, 0), m.random(m.tensor(f, x, 0)), m.random(m.tensor(f, x, 0)), true)
		}},
		{"cross-entropy", func(m *machine) ([]Launch, error) {
			target := m.fill(m.tensor(dtype.I64, dense(8), 0), func(i int) uint64 { return uint64(i) })
			return CrossEntropy(m.tensor(f, dense(8), 0), m.tensor(f, dense(16), 0), m.random(m.tensor(f, dense(8, 512), 0)), target, -100, m.fault().Addr, 0)
		}},
		{"rows gathered", func(m *machine) ([]Launch, error) {
			index := m.indices(m.tensor(dtype.I64, strided([]int{6, 64}, []int{1, 0}), 0), 9, false)
			return Gather(m.tensor(f, dense(6, 64), 0), m.random(m.tensor(f, dense(9, 64), 0)), index, 0, m.fault().Addr, 0)
		}},
	}
	for _, test := range tests {
		m := newMachine(t)
		list, err := test.plan(m)
		if s := m.run(list, err); s.Sectors > s.IdealSectors || s.Sectors == 0 {
			t.Errorf("%s: %d sectors, %d would do", test.what, s.Sectors, s.IdealSectors)
		}
	}
}
