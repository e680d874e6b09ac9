package dist

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

// zeroParams returns parameters of many kinds: with odd sizes, with fewer elements than ranks,
// transposed, empty, frozen, and of several types.
func zeroParams(g *Group) (list []*tensor.Tensor) {
	m := tensor.Root().On(g.Device())
	add := func(typ dtype.Type, dims ...int) *tensor.Tensor {
		n := 1
		for _, d := range dims {
			n *= d
		}
		v := make([]float64, n)
		for i := range v {
			v[i] = math.Sin(float64(i+13*len(list))) + 0.1
		}
		p := m.Typed(typ).From(v).Cast(typ).Reshape(dims...)
		list = append(list, p)
		return p
	}
	add(dtype.F32, 37, 11)
	add(dtype.F32, 1)
	add(dtype.BF16, 257)
	add(dtype.F32, 9, 8)
	list[3] = list[3].T()
	add(dtype.F32, 0, 4)
	add(dtype.F64, 5, 30)
	add(dtype.F32, 700)
	add(dtype.F32)
	add(dtype.BF16, 7)
	add(dtype.F32, 3)
	for i, p := range list {
		list[i] = p.Detach().RequiresGrad()
	}
	frozen := add(dtype.F32, 130).Detach().SetRequiresGrad(false)
	return append(list[:len(list)-1], frozen)
}

// zeroGrads sets the parameters' gradients for a step. They are equal on all ranks. In some steps,
// one parameter has no gradient.
func zeroGrads(list []*tensor.Tensor, step int) {
	for k, p := range list {
		if p.IsFrozen() || k == 3 && step%3 == 1 {
			continue
		}
		v := make([]float64, p.Size())
		for i := range v {
			v[i] = math.Cos(float64(i*(k+1)+7*step)) * 0.5
		}
		p.SetGrad(tensor.Root().On(p.Device()).Typed(dtype.F64).From(v).Reshape(p.Shape().Slice()...).Cast(p.Type()))
	}
}

// sameBits fails the test if two lists of tensors differ in any bit.
func sameBits(t *testing.T, what string, got, want []*tensor.Tensor) {
	t.Helper()
	for i := range want {
		a, b := got[i].Detach().Floats(), want[i].Detach().Floats()
		for k := range b {
			if math.Float64bits(a[k]) != math.Float64bits(b[k]) {
				t.Errorf("%s: element %d of parameter %d is %v, want %v", what, k, i, a[k], b[k])
				return
			}
		}
	}
}

// sameTree fails the test if two states differ.
func sameTree(t *testing.T, path string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case *tensor.Tensor:
		x, ok := got.(*tensor.Tensor)
		if !ok || x.Shape() != w.Shape() || x.Type() != w.Type() {
			t.Errorf("%s is %v, want %v", path, got, w)
			return
		}
		sameBits(t, path, []*tensor.Tensor{x}, []*tensor.Tensor{w})
	case map[string]any:
		m, _ := got.(map[string]any)
		if len(m) != len(w) {
			t.Errorf("%s has %d entries, want %d", path, len(m), len(w))
			return
		}
		for k := range w {
			sameTree(t, path+"/"+k, m[k], w[k])
		}
	case map[int64]any:
		m, _ := got.(map[int64]any)
		if len(m) != len(w) {
			t.Errorf("%s has %d entries, want %d", path, len(m), len(w))
			return
		}
		for k := range w {
			sameTree(t, fmt.Sprint(path, "/", k), m[k], w[k])
		}
	case []any:
		m, _ := got.([]any)
		if len(m) != len(w) {
			t.Errorf("%s has %d entries, want %d", path, len(m), len(w))
			return
		}
		for k := range w {
			sameTree(t, fmt.Sprint(path, "/", k), m[k], w[k])
		}
	default:
		if got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

type makeOptimizer = func(list []*tensor.Tensor) optim.Optimizer

func halves[C any](list []*tensor.Tensor, a, b C) []optim.With[C] {
	return []optim.With[C]{{Params: list[:4], Config: a}, {Params: list[4:], Config: b}}
}

// zeroMakers are functions that make optimizers. SGD and AdamW get two groups of parameters with
// different options.
var zeroMakers = map[string]makeOptimizer{
	"SGD": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewSGDGroups(halves(l, optim.SGDConfig{LR: 0.1, Momentum: 0.9, Dampening: 0.5}, optim.SGDConfig{LR: 0.01, WeightDecay: 0.1})...)
	},
	"AdamW": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdamWGroups(halves(l, optim.AdamConfig{LR: 0.1, WeightDecay: 0.1}, optim.AdamConfig{LR: 0.02, AMSGrad: true})...)
	},
	"RMSprop": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewRMSprop(l, optim.RMSpropConfig{LR: 0.01, Momentum: 0.5, Centered: true})
	},
	"Adagrad": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdagrad(l, optim.AdagradConfig{LR: 0.1, InitialAccumulator: 0.3})
	},
	"Adadelta": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdadelta(l, optim.AdadeltaConfig{LR: 0.1})
	},
	"Adamax": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdamax(l, optim.AdamaxConfig{LR: 0.1})
	},
	"ASGD": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewASGD(l, optim.ASGDConfig{LR: 0.1, T0: 5})
	},
	"NAdam": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewNAdam(l, optim.NAdamConfig{LR: 0.1})
	},
	"RAdam": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewRAdam(l, optim.RAdamConfig{LR: 0.1})
	},
	"Rprop": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewRprop(l, optim.RpropConfig{LR: 0.1})
	},
	"Lion": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewLion(l, optim.LionConfig{LR: 0.01})
	},
	"SparseAdam": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewSparseAdam(l, optim.SparseAdamConfig{LR: 0.1})
	},
	"Adafactor": func(l []*tensor.Tensor) optim.Optimizer {
		return optim.NewAdafactor(l, optim.AdafactorConfig{LR: 0.1})
	},
}

// TestZeROEquals compares ZeRO with the wrapped optimizer alone: parameters and state must have the
// same bits. The training changes the learning rate by a schedule, and one parameter is unfrozen
// after some steps.
func TestZeROEquals(t *testing.T) {
	forEach(t, []int{1, 2, 3, 4}, func(t *testing.T, l DeviceList) {
		gpu := !l.devices[0].Info().Host
		for name, make := range zeroMakers {
			steps := 20
			if gpu {
				if name != "SGD" && name != "AdamW" && name != "NAdam" && name != "Adafactor" {
					continue
				}
				steps = 6
			}
			run(t, l, func(g *Group) {
				plain, shared := zeroParams(g), zeroParams(g)
				a, b := make(plain), NewZeRO(g, make(shared))
				if name != "SGD" {
					b.room = 1000 // so few bytes that several rounds are needed
				}
				sa, sb := sched.NewStep(a, 3, 0.5), sched.NewStep(b, 3, 0.5)
				for step := range steps {
					if step == 3 {
						plain[len(plain)-1].RequiresGrad()
						shared[len(plain)-1].RequiresGrad()
					}
					zeroGrads(plain, step)
					zeroGrads(shared, step)
					a.Step()
					b.Step()
					sa.Step()
					sb.Step()
					a.ZeroGrad()
					b.ZeroGrad()
				}
				sameBits(t, fmt.Sprintf("%s, %v", name, g), shared, plain)
				sameTree(t, fmt.Sprintf("%s, %v", name, g), b.StateDict(), a.StateDict())
				if a.Steps() != b.Steps() || a.LR() != b.LR() {
					t.Errorf("%s: %d steps with rate %v, want %d with %v", name, b.Steps(), b.LR(), a.Steps(), a.LR())
				}
			})
		}
	})
}

// TestZeROMuon tests Muon, which trains only matrices. Each rank must get whole matrices.
func TestZeROMuon(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			lists := [2][]*tensor.Tensor{}
			for i := range lists {
				for k, dims := range [][]int{{5, 7}, {16, 3}, {2, 2}, {8, 8}, {3, 3}} {
					s := tensor.Root().On(g.Device())
					lists[i] = append(lists[i], s.Linspace(-1, 1+float64(k), dims[0]*dims[1]).Reshape(dims...).Detach().RequiresGrad())
				}
			}
			config := optim.MuonConfig{LR: 0.1, WeightDecay: 0.1}
			a, b := optim.NewMuon(lists[0], config), NewZeRO(g, optim.NewMuon(lists[1], config))
			for step := range 4 {
				zeroGrads(lists[0], step)
				zeroGrads(lists[1], step)
				a.Step()
				b.Step()
			}
			sameBits(t, g.String(), lists[1], lists[0])
			sameTree(t, g.String(), b.StateDict(), a.StateDict())
		})
	})
}

// TestZeROMemory measures each rank's memory in use. Each rank must hold only its share of the
// state. The parameters are below 1 MiB each, because a GPU's pool does not split larger blocks to
// the exact size.
func TestZeROMemory(t *testing.T) {
	forEach(t, []int{2, 4}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			held := func(make func(list []*tensor.Tensor) optim.Optimizer) int64 {
				s := g.New()
				defer s.Close()
				var list []*tensor.Tensor
				for _, n := range []int{250_001, 33, 250_000, 229_999, 240_000, 200_000} {
					p := s.Full(0.5, n).RequiresGrad()
					p.SetGrad(s.Full(0.25, n))
					list = append(list, p)
				}
				opt := make(list)
				before := g.Device().Stats().Allocated
				opt.Step()
				if err := g.Device().DefaultStream().Synchronize(); err != nil {
					t.Error(err)
				}
				return int64(g.Device().Stats().Allocated) - int64(before)
			}
			adam := func(list []*tensor.Tensor) optim.Optimizer { return optim.NewAdam(list, optim.AdamConfig{LR: 0.1}) }
			all := held(adam)
			part := held(func(list []*tensor.Tensor) optim.Optimizer { return NewZeRO(g, adam(list)) })
			if most := float64(all) / float64(g.World()) * 1.02; all < 8<<20 || float64(part) > most || float64(part) < 0.9*most {
				t.Errorf("%v: a share of the state takes %d bytes, all of it %d", g, part, all)
			}
		})
	})
}

// hosted moves the state in a tree to host memory.
func hosted(tree map[string]any) {
	for _, st := range tree["state"].(map[int64]any) {
		for name, x := range st.(map[string]any) {
			st.(map[string]any)[name] = x.(*tensor.Tensor).CPU()
		}
	}
}

// TestZeROResumes saves a state and continues the training from it with 4, 2, 1 and 3 ranks, and
// without ZeRO.
func TestZeROResumes(t *testing.T) {
	for _, name := range []string{"AdamW", "ASGD", "Adafactor"} {
		var values [][]float64
		var tree map[string]any
		at := 0
		leg := func(kind string, world, steps int, opt func(g *Group, list []*tensor.Tensor) optim.Optimizer) {
			run(t, lists(t, world)[fmt.Sprintf("%s×%d", kind, world)], func(g *Group) {
				list := zeroParams(g)
				for i, v := range values {
					list[i].Detach().Copy(tensor.Root().On(g.Device()).Typed(dtype.F64).From(v).Reshape(list[i].Shape().Slice()...))
				}
				o := opt(g, list)
				if tree != nil {
					if err := o.LoadStateDict(tree); err != nil {
						t.Error(err)
					}
				}
				for step := range steps {
					zeroGrads(list, at+step)
					o.Step()
					o.ZeroGrad()
				}
				z, ok := o.(*ZeRO)
				if ok {
					z.Consolidate(world - 1)
				}
				g.Barrier()
				if g.Rank() != world-1 {
					if err := tensor.Try(func() { z.StateDict() }); err == nil {
						t.Errorf("rank %d, for which nothing was gathered, has a state", g.Rank())
					}
					return
				}
				tree, values = o.StateDict(), nil
				if !ok { // make a new emulated driver for each number of ranks
					hosted(tree)
				}
				for _, p := range list {
					values = append(values, p.Detach().Floats())
				}
			})
			at += steps
		}
		shared := func(g *Group, l []*tensor.Tensor) optim.Optimizer { return NewZeRO(g, zeroMakers[name](l)) }
		alone := func(_ *Group, l []*tensor.Tensor) optim.Optimizer { return zeroMakers[name](l) }
		for _, kind := range []string{"cpu", "cuda"} {
			values, tree, at = nil, nil, 0
			leg(kind, 4, 2, shared)
			leg(kind, 2, 1, shared)
			leg(kind, 1, 1, shared)
			leg(kind, 3, 2, shared)
			leg(kind, 1, 1, alone)
			leg(kind, 3, 1, shared)
			got, state := values, tree
			values, tree, at = nil, nil, 0
			leg(kind, 1, 4, alone)
			leg(kind, 1, 4, alone)
			sameTree(t, name+" on "+kind, state, tree)
			for i := range values {
				for k, v := range values[i] {
					if math.Float64bits(v) != math.Float64bits(got[i][k]) {
						t.Fatalf("%s on %s: element %d of parameter %d is %v, want %v", name, kind, k, i, got[i][k], v)
					}
				}
			}
		}
	}
}

// TestZeROTakesState wraps an optimizer that has already made steps. ZeRO must divide its state.
func TestZeROTakesState(t *testing.T) {
	run(t, Devices("cpu", "cpu"), func(g *Group) {
		plain, shared := zeroParams(g), zeroParams(g)
		a, b := zeroMakers["AdamW"](plain), zeroMakers["AdamW"](shared)
		for step := range 4 {
			zeroGrads(plain, step)
			zeroGrads(shared, step)
			a.Step()
			if step == 2 {
				b = NewZeRO(g, b)
			}
			b.Step()
		}
		sameBits(t, g.String(), shared, plain)
		sameTree(t, g.String(), b.StateDict(), a.StateDict())
	})
}

// TestZeROScaler puts an infinity into the gradient of a parameter that only one rank changes. All
// ranks must skip the step. Gradients must be clipped equally on all ranks.
func TestZeROScaler(t *testing.T) {
	forEach(t, []int{2, 3}, func(t *testing.T, l DeviceList) {
		run(t, l, func(g *Group) {
			plain, shared := scaled(g), scaled(g)
			a, b := zeroMakers["NAdam"](plain), NewZeRO(g, zeroMakers["NAdam"](shared))
			train := func(opt optim.Optimizer, list []*tensor.Tensor, scaler *amp.GradScaler, step int) {
				scaler.Scale(tensor.Root().On(g.Device()).Typed(dtype.F32).Zeros())
				zeroGrads(list, step)
				// put an infinity first into the first rank's part, later into the last rank's part
				if step == 1 || step == 3 {
					k := (step - 1) / 2 * (len(list) - 1)
					grad := list[k].Grad().Detach()
					grad.View(-1).Narrow(0, (step-1)/2*(grad.Size()-1), 1).Fill(math.Inf(1))
				}
				scaler.Unscale(opt)
				optim.ClipGradNorm(opt.Params(), 1e-6)
				scaler.Step(opt)
				scaler.Update()
				opt.ZeroGrad()
			}
			sa, sb := amp.NewGradScaler(amp.InitScale(8)), amp.NewGradScaler(amp.InitScale(8))
			for step := range 6 {
				train(a, plain, sa, step)
				train(b, shared, sb, step)
			}
			sameBits(t, g.String(), shared, plain)
			sameTree(t, g.String(), b.StateDict(), a.StateDict())
			if sb.Value() != 2 || b.Steps() != 4 {
				t.Errorf("%v: the scale is %v after %d steps, want 2 after 4", g, sb.Value(), b.Steps())
			}
		})
	})
}

// scaled returns parameters whose gradients a scaler unscales.
func scaled(g *Group) (list []*tensor.Tensor) {
	for _, n := range []int{400, 9, 300} {
		list = append(list, tensor.Root().On(g.Device()).Linspace(-1, 1, n).Detach().RequiresGrad())
	}
	return list
}
