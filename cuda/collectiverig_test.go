//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl/nccltest"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// ncclRig holds emulated GPUs and the strict NCCL, a test library that checks its callers.
type ncclRig struct {
	testing.TB
	drv     *emu.Driver
	lib     *nccltest.Strict
	devs    []*Device
	streams []device.Stream

	lost int // number of communicators that were never destroyed because of a planted failure

	mu sync.Mutex
	// collectives that not all of their ranks have called yet, by communicator and sequence number
	pending map[[2]int32]*gathering
	done    []*gathering
}

// gathering collects the calls of the ranks until all ranks of the collective have called.
type gathering struct {
	m   *emu.Meeting
	ops []nccltest.Op
}

var _ nccltest.Machine = (*ncclRig)(nil)

// newNCCL creates a rig of world GPUs. FLAMBEAU_NCCL_STRICT is the path of the strict library,
// which ".ci/run nccl" builds.
func newNCCL(t testing.TB, world int, spec string) *ncclRig {
	t.Helper()
	path := os.Getenv("FLAMBEAU_NCCL_STRICT")
	if path == "" {
		t.Skip("FLAMBEAU_NCCL_STRICT is not set")
	}
	devs, err := Emulate(fmt.Sprintf("emulate:%d,mem=16MiB%s", world, spec))
	must(t, err)
	r := &ncclRig{TB: t, devs: devs, drv: devs[0].p.api.(*emu.Driver), pending: map[[2]int32]*gathering{}}
	r.lib, err = nccltest.Load(path, r)
	must(t, err)
	devs[0].p.collectives = func() (*nccl.Library, error) { return r.lib.Library, nil }
	for i, d := range devs {
		s := d.DefaultStream()
		if i%2 == 1 {
			s, err = d.NewStream(0)
			must(t, err)
		}
		r.streams = append(r.streams, s)
	}
	live := r.lib.Live()
	t.Cleanup(func() {
		if n := r.lib.Live() - live; n != r.lost && !t.Failed() {
			t.Errorf("%d communicators and ops were not given back, want %d", n, r.lost)
		}
	})
	return r
}

func (r *ncclRig) connect() device.Communicator {
	r.Helper()
	list := make([]device.Device, len(r.devs))
	for i, d := range r.devs {
		list[i] = d
	}
	c, err := r.devs[0].Connect(list)
	must(r, err)
	return c
}

func (r *ncclRig) CurrentDevice() int        { return r.drv.CurrentDevice() }
func (r *ncclRig) StreamDevice(s uint64) int { return r.drv.StreamDevice(cu.Stream(s)) }
func (r *ncclRig) MemoryDevice(at, bytes uint64) int {
	return r.drv.MemoryDevice(cu.DevicePtr(at), bytes)
}

// Issue queues the calls of a group. Each collective starts when all of its ranks have called it.
// All sends and receives of a group start together.
func (r *ncclRig) Issue(ops []nccltest.Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	type part struct {
		g       *gathering
		parts   []int
		streams []cu.Stream
	}
	var parts []*part
	exchanges := map[int32][]nccltest.Op{}
	for _, o := range ops {
		if o.Kind == nccltest.Send || o.Kind == nccltest.Recv {
			exchanges[o.Clique] = append(exchanges[o.Clique], o)
			continue
		}
		key := [2]int32{o.Clique, o.Seq}
		g := r.pending[key]
		if g == nil {
			g = &gathering{ops: make([]nccltest.Op, o.World)}
			g.m = emu.NewMeeting("nccl", int(o.World), o.Count*sizes[o.Type], func(m *emu.Shared) error { return r.effect(m, g.ops) })
			r.pending[key] = g
		}
		g.ops[o.Rank] = o
		i := slices.IndexFunc(parts, func(p *part) bool { return p.g == g })
		if i < 0 {
			i, parts = len(parts), append(parts, &part{g: g})
		}
		parts[i].parts, parts[i].streams = append(parts[i].parts, int(o.Rank)), append(parts[i].streams, cu.Stream(o.Stream))
	}
	for _, list := range exchanges {
		p := &part{g: &gathering{ops: list}}
		var ranks []int32
		bytes := uint64(0)
		for _, o := range list {
			bytes += o.Count * sizes[o.Type]
			if !slices.Contains(ranks, o.Rank) {
				p.parts, p.streams = append(p.parts, len(ranks)), append(p.streams, cu.Stream(o.Stream))
				ranks = append(ranks, o.Rank)
			}
		}
		p.g.m = emu.NewMeeting("nccl", len(ranks), bytes, func(m *emu.Shared) error { return exchange(m, list) })
		r.done = append(r.done, p.g)
		parts = append(parts, p)
	}
	for _, p := range parts {
		if err := r.drv.Meet(p.g.m, p.parts, p.streams); err != nil {
			r.Errorf("the machine refuses: %v", err)
			return err
		}
	}
	return nil
}

func (r *ncclRig) Cancel(clique int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range append(r.done, slices.Collect(func(yield func(*gathering) bool) {
		for key, g := range r.pending {
			if int(key[0]) == clique && !yield(g) {
				return
			}
		}
	})...) {
		r.drv.Cancel(g.m)
	}
}

var sizes = map[nccl.DataType]uint64{nccl.Int8: 1, nccl.Uint8: 1, nccl.Int32: 4, nccl.Int64: 8, nccl.Float16: 2, nccl.BFloat16: 2, nccl.Float32: 4, nccl.Float64: 8}

// effect executes a collective that all ranks have called. It reads all inputs before it writes any
// output.
func (r *ncclRig) effect(m *emu.Shared, ops []nccltest.Op) error {
	o := ops[0]
	n, world := o.Count*sizes[o.Type], len(ops)
	switch o.Kind {
	case nccltest.Broadcast:
		for _, to := range ops {
			if err := m.Copy(cu.DevicePtr(to.Recv), cu.DevicePtr(ops[o.Root].Send), n); err != nil {
				return err
			}
		}
		return nil
	case nccltest.AllGather:
		for _, to := range ops {
			for i, from := range ops {
				if err := m.Copy(cu.DevicePtr(to.Recv+uint64(i)*n), cu.DevicePtr(from.Send), n); err != nil {
					return err
				}
			}
		}
		return nil
	}
	parts := uint64(1)
	if o.Kind == nccltest.ReduceScatter {
		parts = uint64(world)
	}
	ins, scalars, outs := make([][]byte, world), make([]uint64, world), make([][]byte, world)
	for i, from := range ops {
		b, err := m.Read(cu.DevicePtr(from.Send), n*parts)
		if err != nil {
			return err
		}
		ins[i], scalars[i] = b, from.Scalar
	}
	for i := range ops {
		outs[i] = make([]byte, n)
		first := 0
		if parts > 1 {
			first = i * int(o.Count)
		}
		if !r.lib.Reduce(o.Type, o.Op, ins, scalars, outs[i], first, int(o.Count)) {
			return fmt.Errorf("no arithmetic of type %d", o.Type)
		}
	}
	for i, to := range ops {
		b, err := m.Write(cu.DevicePtr(to.Recv), n)
		if err != nil {
			return err
		}
		copy(b, outs[i])
	}
	return nil
}

// exchange executes the sends and receives of a group. Received data must not overlap memory from
// which a rank sends.
func exchange(m *emu.Shared, ops []nccltest.Op) error {
	for _, a := range ops {
		if a.Kind != nccltest.Send {
			continue
		}
		n := a.Count * sizes[a.Type]
		for _, b := range ops {
			if b.Kind != nccltest.Recv {
				continue
			}
			if a.Send < b.Recv+b.Count*sizes[b.Type] && b.Recv < a.Send+n {
				return fmt.Errorf("rank %d sends from %#x, where rank %d receives at %#x", a.Rank, a.Send, b.Rank, b.Recv)
			}
			if b.Rank == a.Root && b.Root == a.Rank {
				if err := m.Copy(cu.DevicePtr(b.Recv), cu.DevicePtr(a.Send), n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bytesAs encodes the values as elements of type t.
func bytesAs(t dtype.Type, values []float64) []byte {
	var b []byte
	for _, x := range values {
		var bits uint64
		switch t {
		case dtype.F64:
			bits = math.Float64bits(x)
		case dtype.F32:
			bits = uint64(math.Float32bits(float32(x)))
		case dtype.F16:
			bits = uint64(dtype.ToFloat16(float32(x)))
		case dtype.BF16:
			bits = uint64(dtype.ToBFloat16(float32(x)))
		default:
			bits = uint64(int64(x))
		}
		b = append(b, binary.LittleEndian.AppendUint64(nil, bits)[:t.Size()]...)
	}
	return b
}

func numbersOf(t dtype.Type, b []byte) []float64 {
	v := make([]float64, len(b)/t.Size())
	for i := range v {
		var e [8]byte
		copy(e[:], b[i*t.Size():][:t.Size()])
		bits := binary.LittleEndian.Uint64(e[:])
		switch t {
		case dtype.F64:
			v[i] = math.Float64frombits(bits)
		case dtype.F32:
			v[i] = float64(math.Float32frombits(uint32(bits)))
		case dtype.F16:
			v[i] = float64(dtype.Float16(bits).Float32())
		case dtype.BF16:
			v[i] = float64(dtype.BFloat16(bits).Float32())
		case dtype.U8, dtype.Bool:
			v[i] = float64(uint8(bits))
		default:
			shift := 64 - 8*t.Size()
			v[i] = float64(int64(bits<<shift) >> shift)
		}
	}
	return v
}

// vector returns a view of n elements on a rank's device. The view begins some elements after the
// start of its buffer.
func (r *ncclRig) vector(rank int, t dtype.Type, n int) device.View {
	r.Helper()
	const before = 3
	b, err := r.devs[rank].Alloc((n+before)*t.Size(), r.streams[rank], device.Origin{Op: "test"})
	must(r, err)
	l := shape.Dense(shape.Of(n))
	l.Offset = before
	return device.View{Buf: b, Type: t, Layout: l}
}

func (r *ncclRig) put(rank int, v device.View, values []float64) {
	r.Helper()
	must(r, r.devs[rank].Upload(r.streams[rank], v.Buf, v.Offset*v.Type.Size(), bytesAs(v.Type, values)))
}

func (r *ncclRig) get(rank int, v device.View) []float64 {
	r.Helper()
	b := make([]byte, v.Size()*v.Type.Size())
	must(r, r.devs[rank].Download(r.streams[rank], b, v.Buf, v.Offset*v.Type.Size()))
	return numbersOf(v.Type, b)
}
