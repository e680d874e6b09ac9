package dist_test

import (
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// odd is a model with the kinds of fields that programs put into models.
type odd struct {
	nn.Base
	Heads  *nn.ModuleMap[*nn.Linear]
	Scales *nn.ParameterMap
	List   []nn.Module
	Tied   *nn.Linear // shares its weight with the first layer in List
	Act    func(x *tt) *tt
	Mask   *tt      `nn:"mask,transient"`
	Order  []string // names of the heads, in order
	sizes  map[string]int
	calls  *atomic.Int64
}

func newOdd() *odd {
	m := &odd{Heads: nn.NewModuleMap[*nn.Linear](), Scales: nn.NewParameterMap(), Act: (*tt).Tanh, Order: []string{"b", "a"},
		sizes: map[string]int{"a": 2}, calls: &atomic.Int64{}, Mask: tensor.From([]float64{1, 0, 1, 1}).Float()}
	m.Heads.Set("a", nn.NewLinear(4, 4)).Set("b", nn.NewLinear(4, 4))
	m.Scales.Set("a", tensor.Full(2, 4).RequiresGrad()).Set("b", tensor.Full(3, 1).RequiresGrad())
	first := nn.NewLinear(4, 4)
	m.List = []nn.Module{first, nn.NewWeightNorm(nn.NewLinear(4, 4), 0), nn.NewSpectralNorm(nn.NewLinear(4, 4))}
	m.Tied = nn.NewLinear(4, 4)
	m.Tied.Weight = first.Weight
	return m
}

func (m *odd) Forward(x *tt) (y *tt) {
	defer m.Enter(&x, &y)()
	m.calls.Add(int64(m.sizes["a"]))
	for _, l := range m.List {
		x = l.Forward(x)
	}
	x = m.Act(m.Tied.Forward(x)).Mul(m.Mask)
	for _, name := range m.Order {
		x = x.Add(m.Heads.At(name).Forward(x).Mul(m.Scales.At(name)))
	}
	return x
}

// TestDataParallelOddModel replicates a model with maps, lists, functions, shared parameters,
// parametrizations and unexported fields. The results must be correct, and the model's hooks must
// be called for each replica.
func TestDataParallelOddModel(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	m := nn.Cast(newOdd(), dtype.F64)
	one := nn.Clone(m)
	one.calls = &atomic.Int64{}
	var hooked atomic.Int64
	m.Tied.RegisterForwardHook(func(_, _ *tt) *tt { hooked.Add(1); return nil })
	dp := dist.DataParallel(m, devices)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(6, 4).Double()
		y, want := dp.Forward(x), one.Forward(x)
		checkNear(t, "result", y, want, 1e-9)
		y.Square().Sum().Backward()
		want.Square().Sum().Backward()
		sameGrads(t, "gradient", dp, one)
		for k, b := range nn.NamedBuffers(dp) {
			// Spectral norm updates its buffers by a power iteration that does not depend on the
			// batch, so the buffers must be equal.
			checkNear(t, b.Name, b.Tensor, nn.NamedBuffers(one)[k].Tensor, 1e-9)
		}
	})
	if n := m.calls.Load(); n != 6 || hooked.Load() != 3 {
		t.Errorf("%d calls and %d of hooks", n, hooked.Load())
	}
	if m.Tied.Weight != m.List[0].(*nn.Linear).Weight || !m.Tied.Weight.NeedsGrad() || m.Tied.Weight.Device() != devices[0] {
		t.Error("the model has changed")
	}
	if got, want := nn.StateDict(dp), nn.StateDict(one); !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
		t.Errorf("names are %v", slices.Sorted(maps.Keys(got)))
	}
	if err := nn.LoadStateDict(dp, nn.StateDict(one)); err != nil {
		t.Error(err)
	}
}

// hidden is a model that cannot be copied, because an unexported field holds a layer.
type hidden struct {
	nn.Base
	A    *nn.Linear
	last *nn.Linear `nn:"-"`
}

func (m *hidden) Forward(x *tt) *tt { return m.last.Forward(x) }

// loose is a model with a tensor that is neither a parameter nor a buffer.
type loose struct {
	nn.Base
	A     *nn.Linear
	Scale *tt
}

func (m *loose) Forward(x *tt) (y *tt) {
	defer m.Enter(&x, &y)()
	return m.A.Forward(x).Mul(m.Scale)
}

// TestDataParallelModelErrors uses models that cannot be replicated. The error must name the part
// of the model that prevents it.
func TestDataParallelModelErrors(t *testing.T) {
	devices := append([]device.Device{host(t)}, gpus(t, ":2,mem=64MiB")...)
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(6, 4)
		l := nn.NewLinear(4, 4)
		checkPanic(t, nil, func() { dist.DataParallel(&hidden{A: l, last: l}, devices).Forward(x) }, "nn: last", "not exported")
		err := checkPanic(t, tensor.ErrDevice, func() { dist.DataParallel(&loose{A: l, Scale: tensor.Ones(4)}, devices).Forward(x) },
			"the replica on cuda:0", "mul", "[4] float32 on cpu", "dataparallelmodel_test.go")
		if r, ok := err.(*dist.ReplicaError); !ok || r.Device != "cuda:0" || r.Backward {
			t.Errorf("%#v", err)
		}
		checkPanic(t, tensor.ErrDevice, func() { dist.DataParallel(nn.To(nn.NewLinear(4, 4), devices[1]), devices).Forward(x) },
			"weight of the model is on cuda:0, not on cpu")
		checkPanic(t, nil, func() { dist.DataParallel(nn.NewLazyLinear(3), devices).Forward(x) }, "nn:")
		checkPanic(t, nil, func() { dist.DataParallel[*nn.Linear](nil, devices).Forward(x) }, "nn:", "nil")
		checkPanic(t, tensor.ErrValue, func() { dist.DataParallel(&twoInputs{A: l, B: l}, devices).Forward(x) }, "no method Forward of one tensor; use Call")
	})
}

// TestDataParallelMemory runs steps with and without Backward, and steps that fail. Afterwards no
// memory may be in use.
func TestDataParallelMemory(t *testing.T) {
	devices := gpus(t, ":3,mem=64MiB")
	m := nn.To(convs(), devices[0])
	dp := dist.DataParallel(m, devices)
	step := func(back bool) {
		tensor.Do(func(s *tensor.Scope) {
			y := dp.Forward(s.Randn(6, 2, 4, 4))
			if n := allocated(devices); n[1] == 0 || n[2] == 0 {
				t.Errorf("%v bytes are in use", n)
			}
			if back {
				y.Square().Mean().Backward()
				if n := allocated(devices); n[1] != 0 || n[2] != 0 {
					t.Errorf("%v bytes are in use behind Backward", n)
				}
			}
		})
		nn.ZeroGrad(dp)
	}
	step(true)
	before := allocated(devices)
	for range 3 {
		step(true)
		step(false)
		tensor.Do(func(s *tensor.Scope) {
			checkPanic(t, tensor.ErrShape, func() { dp.Forward(s.Ones(6, 3, 4, 4)) }, "the replica on cuda:0")
			if n := allocated(devices); n[1] != 0 || n[2] != 0 {
				t.Errorf("%v bytes are in use behind an error", n)
			}
		})
	}
	if n := allocated(devices); !slices.Equal(n, before) {
		t.Errorf("%v bytes, there were %v", n, before)
	}
	// Run a step in the root scope: Backward must free the step's memory too.
	dp.Forward(tensor.Ones(6, 2, 4, 4)).Square().Mean().Backward()
	if n := allocated(devices); n[1] != 0 || n[2] != 0 {
		t.Errorf("%v bytes are in use behind a step of the root scope", n)
	}
	// Make a call without Backward: the garbage collector must free its memory.
	func() { dp.Forward(tensor.Ones(6, 2, 4, 4)) }()
	for range 100 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		for _, d := range devices {
			d.Empty() // Empty also frees the blocks that garbage collection has released
		}
		if n := allocated(devices); n[1] == 0 && n[2] == 0 {
			return
		}
	}
	t.Errorf("%v bytes are left to nobody", allocated(devices))
}
