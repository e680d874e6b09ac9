package emu

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestGraphOfTwoDevices launches a graph with kernels of two devices and a copy between them. The
// nodes must run in the order of their dependencies, each on its device. The copy must occupy the
// link.
func TestGraphOfTwoDevices(t *testing.T) {
	const n, us = 64, time.Microsecond
	for seed := range uint64(seeds) {
		var seen []timelineOp
		r, other := newPair(t, Config{Memory: 4 << 20, Seed: seed, Workers: 1,
			Cost:     Cost{Copy: us, CopyBytes: 1e9, PeerBytes: 1e9},
			Timeline: func(o Op, start, end time.Duration) { seen = append(seen, timelineOp{o, start, end}) }})
		direct := seed%2 == 0
		x, s := r.alloc(4*n), r.stream()
		r.ok(r.MemsetD32Async(x, 5, n, s))
		var y cu.DevicePtr
		var there cu.Function
		r.withContext(other, func() {
			if direct {
				r.ok(r.CtxEnablePeerAccess(r.ctx))
			}
			y = r.alloc(4 * n)
			mod := must(r.ModuleLoadData([]byte(kernels), cu.JITOptions{}))(t)
			there = must(r.ModuleGetFunction(mod, "affine"))(t)
		})
		g := must(r.GraphCreate())(t)
		first := r.kernelNode(g, r.affineNode(x, n, 3, 1)) // x becomes 16
		copied := must(r.GraphAddCopyNode(g, []cu.GraphNode{first}, cu.GraphCopy{Src: x, Dst: y, N: 4 * n, Peer: true}, other))(t)
		over := r.affineNode(y, n, 2, 1) // y becomes 33
		over.Func = there
		last := must(r.GraphAddKernelNode(g, []cu.GraphNode{copied}, over))(t)
		e := must(r.GraphInstantiate(g))(t)
		seen = nil
		r.ok(r.GraphLaunch(e, s))
		r.ok(r.StreamSynchronize(s))
		r.withContext(other, func() {
			if v := r.read(0, y, n); !all(v, 33) {
				t.Fatalf("seed %d: %v", seed, v[0])
			}
		})
		took := us + 4*n*time.Nanosecond
		if !direct {
			took *= 2
		}
		kinds := map[Kind][]timelineOp{}
		for _, m := range seen {
			kinds[m.Kind] = append(kinds[m.Kind], m)
		}
		k, c := kinds[KindKernel], kinds[KindCopyPeer]
		if len(k) != 2 || k[0].Device != 0 || k[1].Device != 1 || len(c) != 1 || c[0].start != k[0].end || k[1].start != c[0].end {
			t.Fatalf("seed %d: kernels %v, copies %v", seed, k, c)
		}
		if m := c[0]; m.Device != 1 || m.From != 0 || m.To != 1 || m.Staged == direct || m.end-m.start != took {
			t.Errorf("seed %d: %v, want it to take %v", seed, m, took)
		}
		if c := r.Stats(); c.Peer != (Traffic{1, 4 * n}) || (c.PeerDirect.Count == 1) != direct || c.GraphLaunches != 1 {
			t.Errorf("seed %d: counted %+v", seed, c)
		}

		refused := func(what string, err error, want cu.Result) {
			t.Helper()
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		refused("a kernel of another device", r.GraphExecKernelNodeSetParams(e, last, r.affineNode(x, n, 1, 1)), cu.ErrInvalidValue)
		back := cu.GraphCopy{Src: y, Dst: x, N: 4 * n, Peer: true}
		refused("a copy the other way", r.GraphExecCopyNodeSetParams(e, copied, back, other), cu.ErrInvalidValue)
		_, err := r.GraphAddCopyNode(g, nil, cu.GraphCopy{Src: x, Dst: y, N: 16}, other)
		refused("a copy of two devices that is none of peers", err, cu.ErrInvalidValue)
		_, err = r.GraphAddCopyNode(g, nil, cu.GraphCopy{Src: x, Dst: 16, N: 16, Peer: true}, other)
		refused("to nowhere", err, cu.ErrInvalidValue)
		over.Params = binary.LittleEndian.AppendUint32(nil, 1)
		_, err = r.GraphAddKernelNode(g, nil, over)
		refused("too few parameters", err, cu.ErrInvalidValue)
		r.ok(r.GraphLaunch(e, s))
		r.ok(r.StreamSynchronize(s))
		r.ok(r.Reset(1)) // a reset of one device removes the graph of both devices
		refused("after Reset", r.GraphLaunch(e, s), cu.ErrInvalidHandle)
		refused("after Reset", r.GraphDestroy(g), cu.ErrInvalidHandle)
		r.ok(r.StreamSynchronize(s))
	}
}
