package models_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A launched is a kernel of a step, with the op that launched it.
type launched struct {
	pass   string // part of the step: "forward", "backward" or "optimizer"
	layer  string // layer of the op, or of the op that a gradient belongs to, such as "h.1.attn"
	op     string // op, preceded by the ops that called it: "linear > matmul"
	kernel string
	event  device.KernelEvent // the primitive of the kernel
	first  bool               // whether the kernel is the first of its primitive
}

// A launchList is a tracer that records the kernels of the steps of one goroutine.
type launchList struct {
	names map[any]string // names of the layers
	mu    sync.Mutex
	pass  string
	spans []listedSpan
	nodes map[uint64]string // maps each node of the graph to the layer of its op
	last  string            // layer of the latest gradient
	list  []launched
}

type listedSpan struct {
	id    device.SpanID
	kind  device.SpanKind
	name  string
	layer string
}

func (l *launchList) Wants() device.TraceWants { return device.TraceWants{KernelShapes: true} }
func (l *launchList) Copy(device.CopyEvent)    {}
func (l *launchList) Sync(device.SyncEvent)    {}
func (l *launchList) Memory(device.MemoryEvent) {
}

func (l *launchList) Begin(s device.Span) device.SpanID {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := listedSpan{id: device.NewSpanID(), kind: s.Kind, name: s.Name}
	if k := len(l.spans) - 1; k >= 0 {
		n.layer = l.spans[k].layer
	}
	switch s.Kind {
	case device.SpanModule:
		n.layer = l.names[s.Owner]
	case device.SpanBackward:
		if layer, ok := l.nodes[s.Node]; ok {
			l.last = layer
		}
		n.layer = l.last
	}
	l.spans = append(l.spans, n)
	return n.id
}

func (l *launchList) End(id device.SpanID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := len(l.spans) - 1; k >= 0; k-- {
		if l.spans[k].id == id {
			l.spans = append(l.spans[:k], l.spans[k+1:]...)
			return
		}
	}
}

func (l *launchList) Recorded(node uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := len(l.spans) - 1; k >= 0 && l.pass == "forward" {
		l.nodes[node] = l.spans[k].layer
	}
}

func (l *launchList) Kernel(e device.KernelEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := launched{pass: l.pass, layer: l.last, event: e}
	if l.pass == "forward" {
		n.layer = ""
	}
	var ops []string
	for _, s := range l.spans {
		n.layer = s.layer
		// A span of tensor.launch has the same name as its op. List the name only once.
		if s.kind != device.SpanModule && (len(ops) == 0 || ops[len(ops)-1] != s.name) {
			ops = append(ops, s.name)
		}
	}
	n.op = strings.Join(ops, " > ")
	for i := range e.Launches {
		n.kernel, n.first = e.Launches[i].Kernel, i == 0
		l.list = append(l.list, n)
	}
}

func (l *launchList) enter(pass string) {
	l.mu.Lock()
	l.pass, l.last = pass, ""
	l.mu.Unlock()
}

// kernels returns the kernels of a layer and its inner layers. An empty layer means all layers.
func (l *launchList) kernels(layer, pass string) (list []launched) {
	for _, n := range l.list {
		if n.pass == pass && (layer == "" || n.layer == layer || strings.HasPrefix(n.layer, layer+".")) {
			list = append(list, n)
		}
	}
	return list
}

// table prints one kernel on each line. The line of a primitive's first kernel has the work of the
// whole primitive.
func table(list []launched) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "#\tlayer\top\tkernel\tgrid\ttype\tshapes\tMB\tMFLOP")
	for i, n := range list {
		work, k := "″\t″\t″\t″", 0
		for n.kernel != n.event.Launches[k].Kernel {
			k++
		}
		if n.first {
			work = fmt.Sprintf("%v\t%v\t%.1f\t%.0f", n.event.Type, n.event.Shapes, float64(n.event.Work.Bytes)/1e6, float64(n.event.Work.FLOPs)/1e6)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%v\t%s\n", i+1, n.layer, n.op, n.kernel, n.event.Launches[k].Grid, work)
	}
	w.Flush()
	return b.String()
}

// listLaunches lists the kernels of the second training step with AdamW. If captured is true, it
// lists the kernels of a captured step.
func listLaunches(t *testing.T, make func(in nn.Option) (any, lossStep), low dtype.Type, captured bool) *launchList {
	t.Helper()
	l := &launchList{nodes: map[uint64]string{}}
	dev := bare(t)
	home := tensor.Root()
	if !captured {
		home = home.New(tensor.On(dev))
		defer home.Close()
	}
	m, loss := make(nn.In(home))
	// A capture needs tensors in the root scope, so the model is made on the CPU and moved.
	nn.To(m, dev)
	l.names = nn.ModuleNames(m, "model")
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
	step := func(s *tensor.Scope) {
		l.enter("forward")
		y := loss(s)
		l.enter("backward")
		y.Backward()
		l.enter("optimizer")
		opt.Step()
		opt.ZeroGrad()
	}
	modes := []tensor.Option{tensor.On(dev), tensor.Autocast(low)}
	home.Do(step, modes...)
	if !device.SetTracer(l) {
		t.Fatal("there is a tracer")
	}
	defer device.SetTracer(nil)
	if !captured {
		home.Do(step, modes...)
		return l
	}
	g, err := tensor.Capture(dev, step, modes...)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	return l
}

// gptLayers returns GPT-2 124M with the given number of blocks, for 8×1024 tokens.
func gptLayers(layers int) func(in nn.Option) (any, lossStep) {
	return func(in nn.Option) (any, lossStep) {
		c := models.GPT2()
		c.Layers = layers
		return gptStep(in, c, 8, 1024)
	}
}
