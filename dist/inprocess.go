package dist

import (
	"errors"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// connect returns the communicator for the ranks' devices. It uses NCCL if the library is found,
// else copies and kernels of this library.
func (w *world) connect(devices []device.Device) (device.Communicator, error) {
	if c, ok := devices[0].(device.Connector); ok && !w.composed && len(devices) > 1 {
		comm, err := c.Connect(devices)
		var none *device.UnavailableError
		if err == nil {
			return &preferred{comm, newInProcess(devices)}, nil
		}
		if !errors.As(err, &none) {
			return nil, err
		}
	}
	return newInProcess(devices), nil
}

// preferred is a communicator that uses a library such as NCCL. For a collective that the library
// does not support, it uses copies and kernels of this package.
type preferred struct {
	device.Communicator
	rest *inProcess
}

func (p *preferred) Collect(streams []device.Stream, c *device.Collective) error {
	for r := range c.Ins {
		if c.Gives(r) && c.Ins[r].Absent() || c.Gets(r) && c.Outs[r].Absent() {
			return p.rest.Collect(streams, c)
		}
	}
	err := p.Communicator.Collect(streams, c)
	if errors.Is(err, errors.ErrUnsupported) {
		return p.rest.Collect(streams, c)
	}
	return err
}

func (p *preferred) Close() error { return errors.Join(p.Communicator.Close(), p.rest.Close()) }

// inProcess moves data between devices of one process. If the host can access the devices' memory,
// a collective runs on the host. Otherwise data is copied from device to device. Each rank then
// combines one part of the elements, in the order of ranks, and the other ranks copy the result.
// For W ranks and operands of n bytes, each device thus receives 2·n·(W-1)/W bytes, as in a ring.
type inProcess struct {
	devices []device.Device
	// the CPU, which does the work of all ranks; nil if the ranks' memory is not host memory
	host device.Device
	room []device.Buffer
}

func newInProcess(devices []device.Device) *inProcess {
	c := &inProcess{devices: devices, room: make([]device.Buffer, len(devices))}
	if devices[0].Info().Host {
		c.host, _ = device.Open("cpu")
	}
	return c
}

// Name returns "in-process".
func (*inProcess) Name() string { return "in-process" }

// Abort does nothing, because no device can hang: work that Collect queues waits only for work that
// is already queued.
func (*inProcess) Abort() error { return nil }

// Close frees the staging memory.
func (c *inProcess) Close() error {
	for i, b := range c.room {
		if b != nil {
			b.Free()
			c.room[i] = nil
		}
	}
	return nil
}

// staged is the number of bytes that a GPU receives from each other rank in one round.
const staged = 4 << 20

// Collect queues a collective on the ranks' streams, as [device.Communicator] specifies.
func (c *inProcess) Collect(streams []device.Stream, op *device.Collective) error {
	if c.host != nil {
		return c.inMemory(streams, op)
	}
	t := &transfer{inProcess: c, streams: streams, op: op}
	if err := t.meet(); err != nil {
		return err
	}
	if op.Kind.Reduces() {
		if err := t.reduce(); err != nil {
			return err
		}
	} else if err := c.moves(op, t.copy, t.clear); err != nil {
		return err
	}
	// wait for all streams, because later work may change memory that other ranks still read
	return t.meet()
}

// move is a copy of a range of bytes from one rank's operand to another rank's operand.
type move struct {
	dstView, srcView            device.View
	dst, src                    int // ranks of the two operands
	dstOffset, srcOffset, bytes int // offsets in the two operands, and size, in bytes
}

// moves calls f for each copy of a collective that only moves data. If the rank that should send a
// part has no operand, moves calls clear for the part instead.
func (c *inProcess) moves(op *device.Collective, f func(m move) error, clear func(dst int, part device.View) error) error {
	world := len(op.Outs)
	for dst := range world {
		if !op.Gets(dst) || op.Outs[dst].Absent() {
			continue
		}
		for src := range world {
			if !op.Gives(src) {
				continue
			}
			to, from := op.Outs[dst], op.Ins[src]
			in, out := op.Kind.Parts(world)
			n := to.Size() / out * to.Type.Size()
			m := move{dstView: to, srcView: from, dst: dst, src: src, dstOffset: to.Offset * to.Type.Size(), srcOffset: from.Offset * from.Type.Size(), bytes: n}
			if out > 1 {
				m.dstOffset += src * n
			}
			if in > 1 {
				m.srcOffset += dst * n
			}
			if n > 0 && from.Absent() {
				if err := clear(dst, slice(to, (m.dstOffset-to.Offset*to.Type.Size())/to.Type.Size(), to.Size()/out)); err != nil {
					return err
				}
				continue
			}
			if n == 0 || to.Buf == from.Buf && m.dstOffset == m.srcOffset {
				continue
			}
			if err := f(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// inMemory runs a collective on operands in host memory, with all workers of the CPU. During a
// capture it runs on the recorded stream of the first rank.
func (c *inProcess) inMemory(streams []device.Stream, op *device.Collective) error {
	host, on := c.host, device.Stream(nil)
	if s, ok := streams[0].(device.RecordingStream); ok && s.Recording() {
		host, on = c.devices[0], s
	}
	b := host.(device.Borrower)
	if !op.Kind.Reduces() {
		return c.moves(op, func(m move) error {
			return host.CopyFrom(on, b.Borrow(m.dstView.Buf.Host(), nil), m.dstOffset, b.Borrow(m.srcView.Buf.Host(), nil), m.srcOffset, m.bytes)
		}, func(_ int, part device.View) error {
			part.Buf = b.Borrow(part.Buf.Host(), nil)
			return zero(host, on, part)
		})
	}
	var ins, outs []device.View
	var weights []float64
	world := len(op.Outs)
	for r := range world {
		v := op.Ins[r]
		if v.Absent() || op.Weights != nil && !(op.Weights[r] > 0) {
			continue
		}
		v.Buf = b.Borrow(v.Buf.Host(), nil)
		ins = append(ins, v)
		if op.Weights != nil {
			weights = append(weights, op.Weights[r])
		}
	}
	for r := range world {
		v := op.Outs[r]
		if !v.Absent() {
			v.Buf = b.Borrow(v.Buf.Host(), nil)
		}
		outs = append(outs, v)
	}
	if op.Kind == device.KindReduceScatter {
		for r, out := range outs {
			if out.Absent() {
				continue
			}
			parts := make([]device.View, len(ins))
			for i, v := range ins {
				parts[i] = slice(v, r*out.Size(), out.Size())
			}
			if err := combine(host, on, op.Combine, weights, []device.View{slice(out, 0, out.Size())}, parts); err != nil {
				return err
			}
		}
		return nil
	}
	var flat []device.View
	for _, v := range outs {
		if !v.Absent() {
			flat = append(flat, slice(v, 0, v.Size()))
		}
	}
	for i, v := range ins {
		ins[i] = slice(v, 0, v.Size())
	}
	return combine(host, on, op.Combine, weights, flat, ins)
}

func zero(d device.Device, s device.Stream, v device.View) error {
	p := expr.MustLower([]*expr.Expr{expr.C(0)}, []dtype.Type{v.Type}, nil, -1)
	return device.Run(d, s, &device.Map{Program: p, Outs: []device.View{v}})
}

// slice returns n neighbouring elements of a contiguous view, from index start on, as a view of
// rank 1.
func slice(v device.View, start, n int) device.View {
	l := shape.Dense(shape.Of(n))
	l.Offset = v.Offset + start
	return device.View{Buf: v.Buf, Type: v.Type, Layout: l}
}

// errNoGiver is the error of a weighted reduction in which all weights are 0.
var errNoGiver = errors.New("no rank gives anything: all weights are 0")

// combination is the key of the program that combines elements of several ranks.
type combination struct {
	how      device.Combine
	weighted bool
	typ      dtype.Type
	ins      int
	outs     int
}

var programs sync.Map // maps combination to *expr.Program

// program returns the program that combines elements in the order of ranks. 16-bit floats are
// combined in float32.
func (c combination) program() *expr.Program {
	if p, ok := programs.Load(c); ok {
		return p.(*expr.Program)
	}
	term := func(i int) *expr.Expr {
		if c.weighted {
			return expr.X(i).Mul(expr.Param(i))
		}
		return expr.X(i)
	}
	e := term(0)
	for i := 1; i < c.ins; i++ {
		x := term(i)
		switch c.how {
		case device.CombineMax:
			e = e.Max(x)
		case device.CombineMin:
			e = e.Min(x)
		case device.CombineProduct:
			e = e.Mul(x)
		default:
			e = e.Add(x)
		}
	}
	if c.how == device.CombineMean && !c.weighted {
		e = e.Div(expr.C(float64(c.ins)))
	}
	results, outs, ins := make([]*expr.Expr, c.outs), make([]dtype.Type, c.outs), make([]dtype.Type, c.ins)
	for i := range results {
		results[i], outs[i] = e, c.typ
	}
	for i := range ins {
		ins[i] = c.typ
	}
	p := expr.MustLower(results, outs, ins, -1)
	programs.Store(c, p)
	return p
}

// summing returns the program that sums n operands from left to right and rounds once.
func summing(t dtype.Type, n int) *expr.Program {
	return combination{how: Sum, typ: t, ins: n, outs: 1}.program()
}

func copying(t dtype.Type) *expr.Program { return summing(t, 1) }

// combine combines corresponding elements of the views ins, which are on one device, and stores the
// result in each view of outs.
func combine(d device.Device, s device.Stream, how device.Combine, weights []float64, outs, ins []device.View) error {
	if len(outs) == 0 || outs[0].Size() == 0 {
		return nil
	}
	if len(ins) == 0 {
		return errNoGiver
	}
	c := combination{how, weights != nil, outs[0].Type, len(ins), len(outs)}
	m := &device.Map{Program: c.program(), Outs: outs, Ins: ins}
	if weights != nil {
		total := 1.0
		if how == device.CombineMean {
			total = 0
			for _, w := range weights {
				total += w
			}
		}
		m.Params = make([]uint64, len(weights))
		for i, w := range weights {
			m.Params[i] = expr.Encode(m.Program.Params[i], w/total)
		}
	}
	return device.Run(d, s, m)
}
