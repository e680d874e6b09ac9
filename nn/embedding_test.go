package nn_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestEmbeddingTable(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		tensor.ManualSeed(5)
		l := nn.NewEmbedding(1000, 16, nn.PaddingIndex(-2), nn.In(s))
		if got := names(nn.Named(l)); got != "weight" || !l.Weight.NeedsGrad() {
			t.Error(got)
		}
		w := l.Weight.Floats()
		if slices.ContainsFunc(w[998*16:999*16], func(v float64) bool { return v != 0 }) {
			t.Error("the padding is zeros")
		}
		if m, d := moments(w[:998*16]); math.Abs(m) > 0.03 || math.Abs(d-1) > 0.03 {
			t.Errorf("mean %v, deviation %v", m, d)
		}
		l.Forward(s.From([]int32{998, 3})).Sum().Backward()
		if g := l.Weight.Grad().Sum(1).Floats(); g[998] != 0 || g[3] != 16 {
			t.Errorf("gradients %v and %v", g[998], g[3])
		}
		f := nn.EmbeddingFromPretrained(s.From([][]float32{{1, 2}, {3, 4}}).RequiresGrad())
		if f.Weight.NeedsGrad() || !slices.Equal(f.Forward(s.From([]int64{1})).Floats(), []float64{3, 4}) {
			t.Error("a pretrained table is frozen")
		}
		b := nn.EmbeddingBagFromPretrained(f.Weight, nn.BagMax)
		if y := b.Forward(s.From([][]int64{{0, 1}})); !slices.Equal(y.Floats(), []float64{3, 4}) || y.NeedsGrad() {
			t.Error(y)
		}
		// A lookup with MaxNorm changes the table itself, but only the rows that it looks up.
		l = nn.NewEmbedding(3, 2, nn.In(s), nn.Typed(dtype.F16))
		s.Do(func(c *tensor.Scope) { l.Weight.In(c).Fill(3) }, tensor.NoGrad())
		l.MaxNorm, l.NormType = 1, 0
		l.Forward(s.From([]int64{1, 1})).Sum().Backward()
		if w := l.Weight.Floats(); w[0] != 3 || math.Abs(w[2]-math.Sqrt2/2) > 1e-3 || l.Weight.Grad().Floats()[2] != 2 {
			t.Errorf("%v", l.Weight)
		}
		mustPanic(t, "padding index 3", func() { nn.NewEmbedding(3, 2, nn.PaddingIndex(3)) })
		mustPanic(t, "0 rows", func() { nn.NewEmbeddingBag(0, 2, nn.BagSum) })
	})
}

func moments(w []float64) (mean, deviation float64) {
	for _, v := range w {
		mean += v / float64(len(w))
	}
	for _, v := range w {
		deviation += (v - mean) * (v - mean) / float64(len(w))
	}
	return mean, math.Sqrt(deviation)
}

func TestBagMistakes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		sum, most := nn.NewEmbeddingBag(3, 2, nn.BagSum, nn.In(s)), nn.NewEmbeddingBag(3, 2, nn.BagMax, nn.In(s))
		ended := &nn.EmbeddingBag{Table: sum.Table, IncludeLastOffset: true}
		scaled := &nn.EmbeddingBag{Table: most.Table, Mode: nn.BagMax}
		scaled.ScaleGradByFreq = true
		v, m := s.From([]int64{0, 1}), s.From([][]int64{{0}, {1}})
		for says, f := range map[string]func(){
			"a vector needs the offsets":    func() { sum.Forward(v) },
			"its rows are the bags":         func() { sum.Bags(m, v, nil) },
			"an operand is nil":             func() { sum.Forward(nil) },
			"a matrix, or a vector":         func() { sum.Forward(v.Sum()) },
			"the offsets are a vector":      func() { sum.Bags(v, m, nil) },
			"with one entry at least":       func() { ended.Bags(v, s.Typed(dtype.I64).Zeros(0), nil) },
			"the offsets are integers":      func() { sum.Bags(v, s.Ones(1), nil) },
			"mode sum alone, this is max":   func() { most.Bags(m, nil, s.Ones(2, 1)) },
			"have the shape of the numbers": func() { sum.Bags(m, nil, s.Ones(2)) },
			"does not scale gradients":      func() { scaled.Forward(m) },
			"there is no mode BagMode(9)":   func() { (&nn.EmbeddingBag{Table: sum.Table, Mode: 9}).Forward(m) },
			"index -1":                      func() { sum.Bags(v, s.From([]int64{1}), nil).Floats() },
			"index 3":                       func() { sum.Bags(s.From([]int64{3}), s.From([]int64{0}), nil).Floats() },
			"must be a matrix":              func() { nn.EmbeddingFromPretrained(s.Ones(3)) },
		} {
			if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", says, err)
			}
		}
		// NaN counts as the greatest value, at any position in its bag.
		w := nn.EmbeddingBagFromPretrained(s.From([][]float32{{1}, {float32(math.NaN())}, {2}}), nn.BagMax)
		if y := w.Forward(s.From([][]int64{{0, 1, 2}, {1, 2, 0}, {0, 2, 2}})).Floats(); fmt.Sprint(y) != "[NaN NaN 2]" {
			t.Error(y)
		}
	})
}

func TestContainers(t *testing.T) {
	type net struct {
		nn.Base
		Blocks nn.ModuleList[*nn.Linear]
		Heads  *nn.ModuleMap[nn.Module]
		Sparse nn.ModuleMap[nn.Linear] `nn:"extra"`
	}
	tensor.Do(func(s *tensor.Scope) {
		l := func() *nn.Linear { return nn.NewLinear(1, 1, nn.NoBias(), nn.In(s)) }
		m := &net{Blocks: nn.NewModuleList(l(), l()), Heads: nn.NewModuleMap[nn.Module]().Set("z", l()).Set("a", nn.NewDropout(0.5))}
		m.Sparse.Set("own", *l())
		if got := names(nn.Named(m)); got != "blocks.0.weight blocks.1.weight heads.z.weight extra.own.weight" {
			t.Error(got)
		}
		if nn.Eval(m); m.Training() || m.Heads.At("a").(*nn.Dropout).Training() {
			t.Error("Eval reaches what is in a map")
		}
		m.Heads.Set("z", nn.Identity{})
		order := ""
		for name, l := range m.Heads.All() {
			order += fmt.Sprintf("%s:%T ", name, l)
		}
		if order != "z:nn.Identity a:*nn.Dropout " || m.Heads.Len() != 2 {
			t.Error(order)
		}
		for range m.Heads.All() {
			break
		}
		if _, ok := m.Heads.Get("q"); ok || m.Heads.Delete("q") || !m.Heads.Delete("z") || m.Heads.Len() != 1 {
			t.Error("deleting")
		}
		mustPanic(t, `no layer or parameter has the name "q"; there are a`, func() { m.Heads.At("q") })
		mustPanic(t, `"a.b" cannot be the name`, func() { m.Heads.Set("a.b", l()) })
		mustPanic(t, `"" cannot be the name`, func() { m.Heads.Set("", l()) })
		m.Heads.Set("none", nil)
		mustPanic(t, "heads.none: the layer is nil", func() { nn.Parameters(m) })
		if n := len(nn.Parameters(&m.Blocks)); n != 2 {
			t.Error("a list is a model", n)
		}
		if y := nn.NewSequential(nn.NewLambda((*tensor.Tensor).Neg), nn.NewUnflatten(-1, 2, -1)).Forward(s.Ones(3, 4)); y.Shape().String() != "[3, 2, 2]" || y.Sum().Item() != -12 {
			t.Error(y)
		}
	})
}

func TestPaddingLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		line, plane, space := s.Rand(2, 1, 5), s.Rand(2, 1, 5, 4), s.Rand(2, 1, 5, 4, 3)
		for i, c := range []struct {
			l       nn.Module
			x, want *tensor.Tensor
		}{
			{nn.NewZeroPad1d(1, 2), line, line.Pad(0, 1, 2)},
			{nn.NewZeroPad2d(1), plane, plane.Pad(0, 1, 1, 1, 1)},
			{nn.NewZeroPad3d(1, 2, 0, 1, 2, -1), space, space.Pad(0, 1, 2, 0, 1, 2, -1)},
			{nn.NewConstantPad1d(7, -1, 2), line, line.Pad(7, -1, 2)},
			{nn.NewConstantPad2d(7, 1), plane.Select(0, 0), plane.Select(0, 0).Pad(7, 1, 1, 1, 1)},
			{nn.NewConstantPad3d(7, 1), space, space.Pad(7, 1, 1, 1, 1, 1, 1)},
			{nn.NewReflectionPad1d(2, 1), line, line.PadReflect(2, 1)},
			{nn.NewReflectionPad2d(2, 1, 1, 0), plane, plane.PadReflect(2, 1, 1, 0)},
			{nn.NewReflectionPad3d(1), space, space.PadReflect(1, 1, 1, 1, 1, 1)},
			{nn.NewReplicationPad1d(2, 1), line, line.PadReplicate(2, 1)},
			{nn.NewReplicationPad2d(2, 1, 1, 0), plane, plane.PadReplicate(2, 1, 1, 0)},
			{nn.NewReplicationPad3d(1), space, space.PadReplicate(1, 1, 1, 1, 1, 1)},
			{nn.NewCircularPad1d(2, 1), line, line.PadCircular(2, 1)},
			{nn.NewCircularPad2d(2, 1, 1, 0), plane, plane.PadCircular(2, 1, 1, 0)},
			{nn.NewCircularPad3d(1), space, space.PadCircular(1, 1, 1, 1, 1, 1)},
		} {
			if y := c.l.Forward(c.x); y.Shape() != c.want.Shape() || !slices.Equal(y.Floats(), c.want.Floats()) {
				t.Errorf("%d: %T", i, c.l)
			}
		}
		mustPanic(t, "3 sizes of padding for 2 dimensions", func() { nn.NewCircularPad2d(1, 2, 3) })
		if err := tensor.Try(func() { nn.NewReflectionPad2d(1).Forward(line.Select(0, 0)) }); !errors.Is(err, tensor.ErrShape) {
			t.Error(err)
		}
	})
}

// In training each element of RReLU has its own slope. Backward uses the same slopes as the forward
// pass.
func TestRReLU(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Full(-1, 4000).RequiresGrad()
		y := nn.NewRReLU(0.2, 0.6).Forward(x)
		y.Sum().Backward()
		v := y.Floats()
		if lo, hi := -slices.Max(v), -slices.Min(v); lo < 0.2 || lo > 0.21 || hi > 0.6 || hi < 0.59 {
			t.Errorf("slopes in [%v, %v]", lo, hi)
		}
		for i, g := range x.Grad().Floats() {
			if g != -v[i] {
				t.Fatalf("gradient %v, slope %v", g, -v[i])
			}
		}
		if y := nn.NewRReLU(0.2, 0.6).Forward(s.Ones(3)); !slices.Equal(y.Floats(), []float64{1, 1, 1}) {
			t.Error(y)
		}
		for _, l := range []*nn.RReLU{nn.NewRReLU(0.6, 0.2), nn.Eval(nn.NewRReLU(0.6, 0.2))} {
			if err := tensor.Try(func() { l.Forward(x) }); !errors.Is(err, tensor.ErrValue) {
				t.Errorf("a lower slope above the upper one: %v", err)
			}
		}
	})
}

// A layer that only calls an op computes the same as that op.
func TestPassingLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, z, image := s.Rand(3, 4), s.Rand(3, 4), s.Rand(2, 4, 4, 6)
		fold, pool := tensor.FoldOptions{Kernel: []int{2}, Stride: []int{2}}, tensor.AvgPoolOptions{Kernel: []int{2}}
		p := nn.NewPairwiseDistance(2, 1e-6)
		p.KeepDim = true
		for name, pair := range map[string][2]*tensor.Tensor{
			"cosine":    {nn.NewCosineSimilarity(1, 1e-8).Forward(x, z), x.CosineSimilarity(z, 1, 1e-8)},
			"distance":  {p.Forward(x, z), x.PairwiseDistance(z, 2, 1e-6).Unsqueeze(1)},
			"unfold":    {nn.NewUnfold(2, nn.Stride(2)).Forward(image), image.Unfold2d(fold)},
			"fold back": {nn.NewSequential(nn.NewUnfold(2, nn.Stride(2)), nn.NewFold(4, 6, 2, nn.Stride(2))).Forward(image), image},
			"lp1":       {nn.NewLPPool1d(3, 2).Forward(image.Select(0, 0)), image.Select(0, 0).LPPool1d(3, pool)},
			"lp2":       {nn.NewLPPool2d(3, []int{2, 2}).Forward(image), image.LPPool2d(3, pool)},
			"lp3":       {nn.NewLPPool3d(3, 2).Forward(image), image.LPPool3d(3, pool)},
			"flatten":   {nn.NewFlatten(0, 2).Forward(image), image.Reshape(32, 6)},
			"flat end":  {nn.NewFlatten(-2, -1).Forward(image), image.Reshape(2, 4, 24)},
			"shuffle":   {nn.NewChannelShuffle(2).Forward(image), image.ChannelShuffle(2)},
		} {
			if pair[0].Shape() != pair[1].Shape() || !slices.Equal(pair[0].Floats(), pair[1].Floats()) {
				t.Errorf("%s: %v, want %v", name, pair[0], pair[1])
			}
		}
	})
}
