package optim_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// letters is a model that predicts the next letter of a text.
type letters struct {
	Embed *nn.Embedding
	Lstm  *nn.LSTM
	Head  *nn.Linear
}

// splitmix fills parameters with the numbers (k - 2²³)/2²⁶, where k is the upper 24 bits of an
// output of splitmix64 (G. Steele, D. Lea, C. Flood, 2014).
func splitmix(seed uint64, params []*tensor.Tensor) {
	tensor.Do(func(s *tensor.Scope) {
		for _, p := range params {
			v := make([]float32, p.Size())
			for i := range v {
				seed += 0x9E3779B97F4A7C15
				z := (seed ^ seed>>30) * 0xBF58476D1CE4E5B9
				z = (z ^ z>>27) * 0x94D049BB133111EB
				z ^= z >> 31
				v[i] = float32(int64(z>>40)-1<<23) / (1 << 26)
			}
			p.In(s).Copy(s.From(v, p.Shape().Slice()...))
		}
	}, tensor.NoGrad())
}

// The losses of a two-layer LSTM over 200 steps of Adam equal PyTorch's within 1e-5·max(1, loss) in
// float32, and 1e-12·max(1, loss) in float64.
func TestLSTMCurveEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/lstm_adam.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string) (v float64) {
		if err := json.Unmarshal([]byte(f.Meta[name]), &v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return v
	}
	read := func(name string) golden.Tensor {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	codes := read("codes").Int64s()
	classes, batch, length := int(number("letters")), int(number("batch")), int(number("length"))
	for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
		t.Run(fmt.Sprint(ty), func(t *testing.T) {
			embed, hidden := int(number("embed")), int(number("hidden"))
			m := &letters{
				Embed: nn.NewEmbedding(classes, embed, nn.Typed(ty)),
				Lstm:  nn.NewLSTM(embed, hidden, nn.RecurrentOptions{Layers: int(number("layers"))}, nn.Typed(ty)),
				Head:  nn.NewLinear(hidden, classes, nn.Typed(ty)),
			}
			var names, want []string
			for _, p := range nn.Named(m) {
				names = append(names, p.Name)
			}
			if err := json.Unmarshal([]byte(f.Meta["names"]), &want); err != nil || !slices.Equal(names, want) {
				t.Fatalf("parameters %v, PyTorch's are %v", names, want)
			}
			params := nn.Parameters(m)
			splitmix(uint64(number("seed")), params)
			opt := optim.NewAdam(params, optim.AdamConfig{LR: number("lr")})
			losses, tol := read("losses_f32").Float64s(), 1e-5
			if ty == dtype.F64 {
				losses, tol = read("losses_f64").Float64s(), 1e-12
			}
			worst := 0.0
			for step, want := range losses {
				x, y := make([]int64, length*batch), make([]int64, length*batch)
				for b := range batch {
					at := (37*step + 101*b) % (len(codes) - length - 1)
					for i := range length {
						x[i*batch+b], y[i*batch+b] = codes[at+i], codes[at+i+1]
					}
				}
				var got float64
				tensor.Do(func(s *tensor.Scope) {
					h, _, _ := m.Lstm.Forward(m.Embed.Forward(s.From(x, length, batch)), nil, nil)
					loss := nn.CrossEntropy(m.Head.Forward(h).Flatten(0, 1), s.From(y))
					loss.Backward()
					opt.Step()
					opt.ZeroGrad()
					got = loss.Item()
				})
				off := math.Abs(got-want) / math.Max(1, want)
				if worst = math.Max(worst, off); !(off <= tol) {
					t.Fatalf("step %d: loss %v, want %v", step, got, want)
				}
			}
			t.Logf("largest difference %.3g, last loss %.4f", worst, losses[len(losses)-1])
		})
	}
}
