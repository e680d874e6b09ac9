//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// trial describes a collective that a test runs, with its expected outputs.
type trial struct {
	kind          device.CollectiveKind
	combine       device.Combine
	t             dtype.Type
	n, root, peer int
	weights       []float64
	noIn, noOut   []int // ranks without an input, and ranks without an output
	inPlace       bool
}

func (c trial) String() string {
	s := fmt.Sprintf("%v of %d %v, root %d", c.kind, c.n, c.t, c.root)
	if c.kind.Reduces() {
		s = fmt.Sprintf("%v, %v, weights %v, no in %v, no out %v", s, c.combine, c.weights, c.noIn, c.noOut)
	}
	if c.inPlace {
		s += ", in place"
	}
	return s
}

// want returns the outputs that the ranks should get. It computes them from the inputs with plain
// loops.
func (c trial) want(ins [][]float64) [][]float64 {
	world, n := len(ins), c.n
	outs := make([][]float64, world)
	var all []float64
	if c.kind.Reduces() {
		all = make([]float64, len(ins[0]))
		weight := 0.0
		counted := 0
		for r, in := range ins {
			w := 1.0
			if c.weights != nil {
				w = c.weights[r]
			}
			if slices.Contains(c.noIn, r) || !(w > 0) {
				continue
			}
			for i, x := range in {
				switch {
				case c.combine <= device.CombineMean:
					all[i] += w * x
				case counted == 0:
					all[i] = x
				case c.combine == device.CombineMax:
					all[i] = max(all[i], x)
				case c.combine == device.CombineMin:
					all[i] = min(all[i], x)
				default:
					all[i] *= x
				}
			}
			weight += w
			counted++
		}
		if c.combine == device.CombineMean {
			for i := range all {
				all[i] /= weight
			}
		}
	}
	for r := range outs {
		switch c.kind {
		case device.KindAllReduce:
			outs[r] = all
		case device.KindReduceScatter:
			outs[r] = all[r*n:][:n]
		case device.KindBroadcast:
			outs[r] = ins[c.root]
		case device.KindAllGather:
			outs[r] = slices.Concat(ins...)
		case device.KindAllToAll:
			for p := range world {
				outs[r] = append(outs[r], ins[p][r*n:][:n]...)
			}
		case device.KindGather:
			outs[r] = slices.Concat(ins...)
		case device.KindScatter:
			outs[r] = ins[c.root][r*n:][:n]
		case device.KindSendRecv:
			outs[r] = ins[c.root]
		}
	}
	return outs
}

// run runs the trial on a communicator, with unrelated work on the streams before and after it, and
// compares the outputs.
func (r *ncclRig) run(com device.Communicator, c trial) {
	r.Helper()
	world := len(r.devs)
	k := &device.Collective{Kind: c.kind, Combine: c.combine, Root: c.root, Peer: c.peer, Weights: c.weights, Ins: make([]device.View, world), Outs: make([]device.View, world)}
	inParts, outParts := c.kind.Parts(world)
	ins := make([][]float64, world)
	for i := range world {
		ins[i] = make([]float64, inParts*c.n)
		for j := range ins[i] {
			ins[i][j] = float64((i*5+j*7+j/3)%4) - 1
			if c.t == dtype.Bool || c.t == dtype.U8 {
				ins[i][j] = math.Abs(ins[i][j])
			}
			if c.t == dtype.Bool {
				ins[i][j] = min(ins[i][j], 1)
			}
		}
		if k.Gives(i) && !slices.Contains(c.noIn, i) {
			k.Ins[i] = r.vector(i, c.t, inParts*c.n)
			r.put(i, k.Ins[i], ins[i])
		}
		if k.Gets(i) && !slices.Contains(c.noOut, i) {
			k.Outs[i] = r.vector(i, c.t, outParts*c.n)
			if c.inPlace && !k.Ins[i].Absent() {
				k.Outs[i].Buf.Free()
				k.Outs[i] = k.Ins[i]
			}
		}
	}
	if rank, arg, why := k.Check(); why != "" {
		r.Fatalf("%v: %s of rank %d: %s", c, arg, rank, why)
	}
	if err := com.Collect(r.streams, k); err != nil {
		r.Fatalf("%v: %v", c, err)
	}
	want := c.want(ins)
	tolerance := map[dtype.Type]float64{dtype.F16: 2e-3, dtype.BF16: 2e-2, dtype.F32: 1e-6, dtype.F64: 1e-14}[c.t]
	for i := range world {
		if in := k.Ins[i]; !in.Absent() && !(c.inPlace && !k.Outs[i].Absent()) {
			// work that is queued later must not affect the collective
			r.put(i, in, make([]float64, in.Size()))
		}
	}
	for i, out := range k.Outs {
		if out.Absent() {
			continue
		}
		got := r.get(i, out)
		for j, w := range want[i] {
			if math.Abs(got[j]-w) > tolerance*max(1, math.Abs(w)) || math.IsNaN(got[j]) {
				r.Fatalf("%v: element %d of rank %d is %v, want %v", c, j, i, got[j], w)
			}
		}
		out.Buf.Free()
	}
	for i, in := range k.Ins {
		if !in.Absent() && in.Buf != k.Outs[i].Buf {
			in.Buf.Free()
		}
	}
}

// eachNCCL runs f with several seeds and numbers of ranks.
func eachNCCL(t *testing.T, f func(t *testing.T, r *ncclRig, com device.Communicator)) {
	for world := 1; world <= 4; world++ {
		for seed := range 3 {
			t.Run(fmt.Sprintf("%d ranks, seed %d", world, seed), func(t *testing.T) {
				r := newNCCL(t, world, fmt.Sprintf(",seed=%d", seed))
				com := r.connect()
				f(t, r, com)
				if com.Name() != "nccl" {
					t.Error(com.Name())
				}
				for _, d := range r.devs {
					must(t, d.Synchronize())
				}
				must(t, com.Close())
				must(t, com.Close())
				for _, d := range r.devs {
					if n := d.Stats().Allocated; n != 0 {
						t.Errorf("%d bytes of %s are left", n, d.Name())
					}
				}
			})
		}
	}
}

// TestNCCLCopies checks every kind of collective that only moves elements. It uses all types, and
// each rank as source and destination.
func TestNCCLCopies(t *testing.T) {
	eachNCCL(t, func(t *testing.T, r *ncclRig, com device.Communicator) {
		world := len(r.devs)
		for _, typ := range dtype.Types() {
			for _, kind := range []device.CollectiveKind{device.KindBroadcast, device.KindAllGather, device.KindAllToAll, device.KindGather, device.KindScatter, device.KindSendRecv} {
				for root := range world {
					if root > 0 && (kind == device.KindAllGather || kind == device.KindAllToAll) {
						break
					}
					c := trial{kind: kind, t: typ, n: 1 + 36*root, root: root, peer: (root + 1) % world}
					if kind == device.KindSendRecv && world == 1 {
						continue
					}
					r.run(com, c)
					if kind == device.KindBroadcast || kind == device.KindAllToAll {
						c.inPlace = true
						r.run(com, c)
					}
				}
			}
		}
	})
}

// TestNCCLReductions checks all supported reductions and types, with ranks that have no input or no
// output, and with weights.
func TestNCCLReductions(t *testing.T) {
	eachNCCL(t, func(t *testing.T, r *ncclRig, com device.Communicator) {
		world := len(r.devs)
		for _, typ := range dtype.Types() {
			for combine := device.CombineSum; combine <= device.CombineProduct; combine++ {
				order := combine == device.CombineMax || combine == device.CombineMin
				if typ == dtype.I16 || typ.IsFloat() && order || typ == dtype.Bool && !order || combine == device.CombineMean && !typ.IsFloat() {
					continue
				}
				for _, kind := range []device.CollectiveKind{device.KindAllReduce, device.KindReduceScatter} {
					c := trial{kind: kind, combine: combine, t: typ, n: 29}
					r.run(com, c)
					if c.inPlace = kind == device.KindAllReduce; c.inPlace {
						r.run(com, c)
						c.inPlace = false
					}
					if world == 1 {
						continue
					}
					c.noIn, c.n = []int{world - 1}, 5
					r.run(com, c)
					c.noOut = []int{0}
					r.run(com, c)
					if c.noIn = nil; combine > device.CombineMean {
						continue
					}
					c.noOut, c.weights = nil, []float64{3, 1, 2, 1}[:world]
					r.run(com, c)
					c.weights = []float64{0, 1, 1, 1}[:world]
					r.run(com, c)
					c.weights, c.noIn = []float64{-1, 2, 3, 0}[:world], []int{0}
					r.run(com, c)
				}
			}
		}
	})
}

// TestNCCLUnsupported checks collectives that the library cannot do, or computes differently. They
// must return errors.ErrUnsupported without calling the library, and the communicator must still
// work.
func TestNCCLUnsupported(t *testing.T) {
	r := newNCCL(t, 2, "")
	com := r.connect()
	before := r.lib.Calls()
	all := func(c device.Combine, typ dtype.Type, weights ...float64) *device.Collective {
		k := &device.Collective{Kind: device.KindAllReduce, Combine: c, Weights: weights}
		for i := range 2 {
			v := r.vector(i, typ, 4)
			r.put(i, v, []float64{1, 1, 1, 1})
			k.Ins, k.Outs = append(k.Ins, v), append(k.Outs, v)
		}
		return k
	}
	for why, k := range map[string]*device.Collective{
		"NCCL has no type for int16":                                      all(device.CombineSum, dtype.I16),
		"NCCL has no sum of bool":                                         all(device.CombineSum, dtype.Bool),
		"the max of NCCL drops NaN":                                       all(device.CombineMax, dtype.F32),
		"the min of NCCL drops NaN":                                       all(device.CombineMin, dtype.BF16),
		"rank 1 (cuda:1): int32 has no number for its weight of 0.5":      all(device.CombineSum, dtype.I32, 1, 0.5),
		"rank 0 (cuda:0): uint8 has no number for its weight of 300":      all(device.CombineSum, dtype.U8, 300, 1),
		"rank 0 (cuda:0): float16 has no number for its weight of 100000": all(device.CombineSum, dtype.F16, 1e5, 1),
		"rank 1 (cuda:1): float32 has no number for its weight of 1e-100": all(device.CombineSum, dtype.F32, 1, 1e-100),
		"rank 1 (cuda:1): float64 has no number for its weight of +Inf":   all(device.CombineSum, dtype.F64, 1, math.Inf(1)),
		"all reduce: no rank gives anything that counts":                  all(device.CombineMean, dtype.F64, 0, math.NaN()),
	} {
		var e *CollectiveError
		if err := com.Collect(r.streams, k); !errors.Is(err, errors.ErrUnsupported) || !errors.As(err, &e) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	// The library is not called for views without elements.
	none := &device.Collective{Kind: device.KindAllGather, Ins: []device.View{r.vector(0, dtype.F32, 0), r.vector(1, dtype.F32, 0)}}
	none.Outs = none.Ins
	must(t, com.Collect(r.streams, none))
	var o *device.OperandError
	wrong := all(device.CombineSum, dtype.F32)
	wrong.Ins[0], wrong.Ins[1] = wrong.Ins[1], wrong.Ins[0]
	if err := com.Collect(r.streams, wrong); !errors.As(err, &o) || o.Arg != "in of rank 0" {
		t.Errorf("memory of another device: %v", err)
	}
	if err := com.Collect([]device.Stream{r.streams[1], r.streams[0]}, all(device.CombineSum, dtype.F32)); !errors.As(err, &o) || o.Arg != "stream" {
		t.Errorf("streams of other devices: %v", err)
	}
	if err := com.Collect(r.streams[:1], all(device.CombineSum, dtype.F32)); !errors.As(err, &o) || o.Arg != "streams" {
		t.Errorf("a stream too few: %v", err)
	}
	rec, err := r.devs[1].NewRecording()
	must(t, err)
	var re *device.RecordError
	if err := com.Collect([]device.Stream{r.streams[0], rec.Stream()}, all(device.CombineSum, dtype.F32)); !errors.As(err, &re) {
		t.Errorf("a stream that is recorded: %v", err)
	}
	rec.Abort()
	if n := r.lib.Calls() - before; n != 0 {
		t.Errorf("%d calls", n)
	}
	r.run(com, trial{kind: device.KindAllReduce, t: dtype.F32, n: 10})
	must(t, com.Close())
}

// TestNCCLConnect checks which devices can be connected, and the errors for devices that cannot.
func TestNCCLConnect(t *testing.T) {
	r := newNCCL(t, 2, "")
	d := r.devs[0]
	if _, err := d.Connect([]device.Device{d, r.devs[1], d}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "rank 2 (cuda:0): rank 0 has the same GPU") {
		t.Errorf("one GPU twice: %v", err)
	}
	var o *device.OperandError
	if _, err := d.Connect([]device.Device{d, emulated(t, "emulate")}); !errors.As(err, &o) || o.Arg != "device 1" {
		t.Errorf("a GPU of another driver: %v", err)
	}
	if _, err := d.Connect(nil); !errors.As(err, &o) {
		t.Errorf("nobody: %v", err)
	}
	var u *device.UnavailableError
	d.p.collectives = func() (*nccl.Library, error) { return nil, &nccl.Unavailable{Path: "/x/libnccl.so.2", Version: 21000} }
	if _, err := d.Connect([]device.Device{d}); !errors.As(err, &u) || !strings.Contains(err.Error(), "/x/libnccl.so.2 is NCCL 2.10.0, 2.18.0 or newer is needed; install") {
		t.Errorf("an old library: %v", err)
	}
	// Each function of NCCL that Connect calls fails once on the first rank, and once on the
	// second.
	d.p.collectives = func() (*nccl.Library, error) { return r.lib.Library, nil }
	for call, times := range map[string]int{"ncclGetUniqueId": 1, "ncclGroupStart": 1, "ncclCommInitRankConfig": 2, "ncclGroupEnd": 1, "ncclCommGetAsyncError": 2, "ncclCommCount": 2, "ncclCommUserRank": 2} {
		for after := range times {
			r.lib.Plant(call, after, nccl.ErrSystem)
			_, err := d.Connect([]device.Device{d, r.devs[1]})
			var e *CollectiveError
			if !errors.Is(err, nccl.ErrSystem) || !errors.As(err, &e) || e.Op != "connect" || !strings.Contains(err.Error(), call+": unhandled system error (NCCL error 2): planted in "+call) {
				t.Errorf("%s, number %d: %v", call, after, err)
			}
		}
	}
	r.lib.Fail(nccl.ErrRemote)
	if _, err := d.Connect([]device.Device{d, r.devs[1]}); !errors.Is(err, nccl.ErrRemote) || !strings.Contains(err.Error(), "rank 0 (cuda:0): ") {
		t.Errorf("a failure in the background: %v", err)
	}
	com := r.connect()
	d.p.sync = true // FLAMBEAU_CUDA_SYNC=1
	before := r.drv.Stats().Synchronisations
	v := r.vector(0, dtype.F32, 4)
	r.put(0, v, make([]float64, 4))
	k := &device.Collective{Kind: device.KindAllReduce, Ins: []device.View{v, {}}, Outs: []device.View{v, {}}}
	must(t, com.Collect(r.streams, k))
	if n := r.drv.Stats().Synchronisations - before; n != 2 {
		t.Errorf("%d waits of a collective of two GPUs that is waited for", n)
	}
	must(t, com.Close())
}

// TestNCCLFailures makes each call of the library fail. The failure must end the communicator and
// release its resources. Later calls must return the error of the failed call.
func TestNCCLFailures(t *testing.T) {
	r := newNCCL(t, 2, "")
	for call, c := range map[string]trial{
		"ncclGroupStart": {kind: device.KindAllReduce}, "ncclGroupEnd": {kind: device.KindAllReduce}, "ncclAllReduce": {kind: device.KindAllReduce},
		"ncclRedOpCreatePreMulSum": {kind: device.KindAllReduce, weights: []float64{1, 2}}, "ncclRedOpDestroy": {kind: device.KindAllReduce, weights: []float64{1, 2}},
		"ncclReduceScatter": {kind: device.KindReduceScatter}, "ncclBroadcast": {kind: device.KindBroadcast}, "ncclAllGather": {kind: device.KindAllGather},
		"ncclSend": {kind: device.KindAllToAll}, "ncclRecv": {kind: device.KindAllToAll}, "ncclCommGetAsyncError": {kind: device.KindAllGather},
		"": {kind: device.KindAllGather},
	} {
		for after := range 2 {
			if after > 0 && strings.HasPrefix(call, "ncclGroup") {
				continue
			}
			com := r.connect()
			k := &device.Collective{Kind: c.kind, Weights: c.weights}
			in, out := c.kind.Parts(2)
			for i := range 2 {
				k.Ins, k.Outs = append(k.Ins, r.vector(i, dtype.F32, 4*in)), append(k.Outs, r.vector(i, dtype.F32, 4*out))
				r.put(i, k.Ins[i], make([]float64, 4*in))
			}
			want := nccl.ErrInternal
			if call == "" {
				want = nccl.ErrRemote
				r.lib.Fail(want)
			} else {
				r.lib.Plant(call, after, want)
			}
			err := com.Collect(r.streams, k)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", call, err)
			}
			if again := com.Collect(r.streams, k); again != err {
				t.Errorf("%s: %v later", call, again)
			}
			must(t, com.Abort())
			must(t, com.Close())
			for _, d := range r.devs {
				must(t, d.Synchronize())
			}
		}
	}
	for call, times := range map[string]int{"ncclCommFinalize": 2, "ncclCommGetAsyncError": 2, "ncclCommDestroy": 2} {
		for after := range times {
			com := r.connect()
			r.lib.Plant(call, after, nccl.ErrSystem)
			if err := com.Close(); !errors.Is(err, nccl.ErrSystem) {
				t.Errorf("%s: %v", call, err)
			}
			_ = com.Abort()
			if call == "ncclCommDestroy" {
				r.lost++ // the library never destroys this communicator, but it destroys all others
			}
		}
	}
}

// TestNCCLAbort checks that calls of Collect and Close that hang end when another goroutine aborts
// the communicator. Work that is queued on the GPUs but never begins must end too.
func TestNCCLAbort(t *testing.T) {
	r := newNCCL(t, 2, "")
	k := &device.Collective{Kind: device.KindAllGather}
	for i := range 2 {
		k.Ins, k.Outs = append(k.Ins, r.vector(i, dtype.F32, 4)), append(k.Outs, r.vector(i, dtype.F32, 8))
		r.put(i, k.Ins[i], slices.Repeat([]float64{1}, 4))
		r.put(i, k.Outs[i], make([]float64, 8))
	}
	for name, call := range map[string]func(c device.Communicator) error{
		"collect": func(c device.Communicator) error { return c.Collect(r.streams, k) },
		"close":   func(c device.Communicator) error { return c.Close() },
	} {
		com := r.connect()
		r.lib.Hang()
		failed := make(chan error)
		go func() { failed <- call(com) }()
		select {
		case err := <-failed:
			t.Fatalf("%s does not hang: %v", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		must(t, com.Abort())
		if err := <-failed; !errors.Is(err, ErrAborted) {
			t.Errorf("%s: %v", name, err)
		}
		if err := com.Collect(r.streams, k); !errors.Is(err, ErrAborted) {
			t.Errorf("%s: afterwards %v", name, err)
		}
		must(t, com.Abort())
		must(t, com.Close())
	}
	// The collective is queued on the GPUs but has not begun. Abort must end it.
	com := r.connect()
	must(t, com.Collect(r.streams, k))
	must(t, com.Abort())
	for i, out := range k.Outs {
		if got := r.get(i, out); slices.Max(got) != 0 {
			t.Errorf("rank %d: %v after the abort", i, got)
		}
	}
}

type kernelTracer struct {
	device.Tracer
	mu   sync.Mutex
	list []device.KernelEvent
}

func (k *kernelTracer) Wants() device.TraceWants {
	return device.TraceWants{Times: true, KernelShapes: true}
}
func (k *kernelTracer) Copy(device.CopyEvent)     {}
func (k *kernelTracer) Sync(device.SyncEvent)     {}
func (k *kernelTracer) Memory(device.MemoryEvent) {}
func (k *kernelTracer) Kernel(e device.KernelEvent) {
	k.mu.Lock()
	k.list = append(k.list, e)
	k.mu.Unlock()
}

// TestNCCLTraced checks that a tracer gets an event for each rank that takes part in a collective,
// with the collective's time on the device. It must get no event for other ranks.
func TestNCCLTraced(t *testing.T) {
	r := newNCCL(t, 3, "")
	com := r.connect()
	k := &kernelTracer{}
	device.SetTracer(k)
	t.Cleanup(func() { device.SetTracer(nil) })
	r.run(com, trial{kind: device.KindSendRecv, t: dtype.F32, n: 10, root: 2, peer: 1})
	r.run(com, trial{kind: device.KindReduceScatter, t: dtype.F64, n: 4})
	device.SetTracer(nil)
	must(t, com.Close())
	var got []string
	for _, e := range k.list {
		start, end, err := e.Launches[0].Time.Resolve()
		if err != nil || end <= start || e.End < e.Start {
			t.Errorf("%s: from %v to %v, %v", e.Primitive, start, end, err)
		}
		got = append(got, fmt.Sprintf("%s: %s, %s, %d bytes, %v %v", e.Device.Name(), e.Primitive, e.Launches[0].Kernel, e.Work.Bytes, e.Type, e.Shapes))
	}
	want := []string{"cuda:1: send, nccl send, 40 bytes, float32 [[10]]", "cuda:2: send, nccl send, 40 bytes, float32 [[10]]"}
	for i := range 3 {
		want = append(want, fmt.Sprintf("cuda:%d: reduce scatter, nccl reduce scatter, 128 bytes, float64 [[4] [12]]", i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNCCLConcurrently checks that collectives started by several goroutines run one after the
// other.
func TestNCCLConcurrently(t *testing.T) {
	r := newNCCL(t, 3, ",seed=5")
	com := r.connect()
	var wg sync.WaitGroup
	ks := make([]*device.Collective, 6)
	for g := range ks {
		k := &device.Collective{Kind: device.KindAllReduce}
		for i := range 3 {
			v := r.vector(i, dtype.I64, 10)
			r.put(i, v, slices.Repeat([]float64{float64(g + i)}, 10))
			k.Ins, k.Outs = append(k.Ins, v), append(k.Outs, v)
		}
		ks[g] = k
	}
	for _, k := range ks {
		wg.Go(func() {
			if err := com.Collect(r.streams, k); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for g, k := range ks {
		for i, out := range k.Outs {
			if got := r.get(i, out); got[9] != float64(3*g+3) {
				t.Errorf("collective %d, rank %d: %v", g, i, got)
			}
		}
	}
	must(t, com.Close())
}
