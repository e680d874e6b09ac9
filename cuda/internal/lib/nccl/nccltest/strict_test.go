//go:build !nogpu && linux && (amd64 || arm64)

package nccltest

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
)

// idleMachine is a machine that runs no work. Memory from address 1000 to 1999 belongs to device 1.
type idleMachine struct{ current int }

func (d *idleMachine) CurrentDevice() int                { return d.current }
func (d *idleMachine) StreamDevice(s uint64) int         { return int(s / 1000) }
func (d *idleMachine) MemoryDevice(at, bytes uint64) int { return int(at / 1000) }
func (d *idleMachine) Issue([]Op) error                  { return nil }
func (d *idleMachine) Cancel(int)                        {}

// pair holds the communicators of two connected ranks.
type pair struct {
	*Strict
	*idleMachine
	c [2]nccl.Comm
}

func (p *pair) join() {
	id, err := p.GetUniqueID()
	p.ok(err)
	p.group(func(r int) error { return p.CommInitRank(&p.c[r], 2, id, r) })
}

func (p *pair) ok(err error) {
	if err != nil {
		panic(err)
	}
}

// group makes the calls of both ranks in one group, and waits for the library.
func (p *pair) group(call func(r int) error) {
	p.ok(p.GroupStart())
	for r := range 2 {
		p.current = r
		p.ok(call(r))
	}
	p.ok(p.GroupEnd())
	p.settle()
}

func (p *pair) settle() {
	for r := 0; r < 2; {
		state, err := p.State(p.c[r])
		p.ok(err)
		if state == nccl.Success {
			r++
		}
	}
}

func (p *pair) sum(r, n int, op nccl.RedOp) error {
	at := uint64(1000*r + 16)
	return p.AllReduce(at, at, n, nccl.Float32, op, p.c[r], cu.Stream(1000*r+1))
}

// misuses lists programs that the strict library must end. Each key is a part of the library's
// message.
var misuses = map[string]func(p *pair){
	"ncclGroupEnd: in no group":                                              func(p *pair) { _ = p.GroupEnd() },
	"ncclAllReduce: outside of a group":                                      func(p *pair) { p.current = 0; _ = p.sum(0, 1, nccl.Sum) },
	"ncclAllReduce: device 1 is current, rank 0 is on device 0":              func(p *pair) { p.ok(p.GroupStart()); p.current = 1; _ = p.sum(0, 1, nccl.Sum) },
	"ncclAllReduce: of nothing":                                              func(p *pair) { p.group(func(r int) error { return p.sum(r, 0, nccl.Sum) }) },
	"ncclAllReduce: call 0 of rank 1: kind 0 of 2 of type 7, op 0":           func(p *pair) { p.group(func(r int) error { return p.sum(r, 1+r, nccl.Sum) }) },
	"ncclAllReduce: call 0 of rank 1: kind 0 of 1 of type 7, op 3":           func(p *pair) { p.group(func(r int) error { return p.sum(r, 1, nccl.Max+nccl.RedOp(r)) }) },
	"ncclAllReduce: rank 0 has no op 77":                                     func(p *pair) { p.group(func(r int) error { return p.sum(r, 1, 77) }) },
	"ncclCommDestroy: rank 0 has not been finalised":                         func(p *pair) { _ = p.CommDestroy(p.c[0]) },
	"ncclCommAbort: 0x":                                                      func(p *pair) { p.ok(p.CommAbort(p.c[0])); _ = p.CommAbort(p.c[0]) },
	"ncclCommCount: 0x":                                                      func(p *pair) { p.ok(p.CommAbort(p.c[1])); _, _ = p.CommCount(p.c[1]) },
	"ncclCommInitRankConfig: an id that was not given out":                   func(p *pair) { _ = p.CommInitRank(&p.c[0], 1, new(nccl.UniqueID), 0) },
	"ncclGroupEnd: 0 calls answer a send of rank 0 and rank 1":               func(p *pair) { p.group(func(r int) error { return p.sendTo(r, 1) }) },
	"ncclGroupEnd: rank 0 sends or receives 3 of type 1, rank 1 4 of type 1": func(p *pair) { p.group(func(r int) error { return p.swap(r, 3+r) }) },
	"ncclSend: rank 1: its stream is not of device 1": func(p *pair) {
		p.ok(p.GroupStart())
		p.current = 1
		_ = p.Send(1016, 1, nccl.Uint8, 0, p.c[1], 1)
	},
	"ncclRecv: rank 1: 4 bytes at 0x10 are no memory of device 1": func(p *pair) {
		p.ok(p.GroupStart())
		p.current = 1
		_ = p.Recv(16, 4, nccl.Uint8, 0, p.c[1], 1001)
	},
	"ncclAllReduce: rank 0: its operands overlap": func(p *pair) {
		p.ok(p.GroupStart())
		p.current = 0
		_ = p.AllReduce(16, 20, 2, nccl.Float32, nccl.Sum, p.c[0], 1)
	},
	"ncclCommFinalize: an op of rank 0 was not destroyed": func(p *pair) {
		_, err := p.PreMulSum([8]byte{1}, nccl.Float32, p.c[0])
		p.ok(err)
		_ = p.CommFinalize(p.c[0])
	},
	"ncclCommCount: rank 0 is still in progress": func(p *pair) {
		p.Hang()
		p.ok(p.GroupStart())
		for p.current = range 2 {
			p.ok(p.sum(p.current, 1, nccl.Sum))
		}
		p.ok(p.GroupEnd())
		_, _ = p.CommCount(p.c[0])
	},
}

func (p *pair) sendTo(r, to int) error {
	if r == to {
		return nil
	}
	return p.Send(uint64(1000*r+16), 1, nccl.Uint8, to, p.c[r], cu.Stream(1000*r+1))
}

func (p *pair) swap(r, n int) error {
	p.ok(p.Send(uint64(1000*r+16), n, nccl.Uint8, 1-r, p.c[r], cu.Stream(1000*r+1)))
	return p.Recv(uint64(1000*r+64), n, nccl.Uint8, 1-r, p.c[r], cu.Stream(1000*r+1))
}

// TestStrictRefuses runs programs that do what NVIDIA's documentation forbids, each in a separate
// process. The strict library must end the process with a message that says what was wrong.
func TestStrictRefuses(t *testing.T) {
	path := os.Getenv("FLAMBEAU_NCCL_STRICT")
	if path == "" {
		t.Skip("FLAMBEAU_NCCL_STRICT is not set")
	}
	if name := os.Getenv("FLAMBEAU_NCCL_MISUSE"); name != "" {
		runtime.LockOSThread()
		d := new(idleMachine)
		s, err := Load(path, d)
		if err != nil {
			t.Fatal(err)
		}
		p := &pair{Strict: s, idleMachine: d}
		p.join()
		misuses[name](p)
		return // the strict library did not end the program
	}
	for name := range misuses {
		c := exec.Command(os.Args[0], "-test.run=^TestStrictRefuses$")
		c.Env = append(os.Environ(), "FLAMBEAU_NCCL_MISUSE="+name)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 86 || !strings.Contains(string(out), "strict nccl: "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
