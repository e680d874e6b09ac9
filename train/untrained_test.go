package train_test

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// scaledNet has a parameter that requires no gradient, as if RequiresGrad had been forgotten.
type scaledNet struct {
	In, Out *nn.Linear
	Gain    *tensor.Tensor `nn:"gain"`
}

func (m *scaledNet) Forward(x *tensor.Tensor) *tensor.Tensor {
	return m.Out.Forward(m.In.Forward(x.Flatten(1, -1)).Relu().Mul(m.Gain))
}

// The log lists parameters that are not trained, because the program may have forgotten them.
func TestUntrainedIsTold(t *testing.T) {
	cpu := devices(t)[0]
	run := func(give func(m *scaledNet) []*tensor.Tensor) string {
		c, log := setup(t, cpu), &strings.Builder{}
		m := &scaledNet{In: nn.NewLinear(6, 4), Out: nn.NewLinear(4, 4), Gain: tensor.Ones(4).SetRequiresGrad(false)}
		c.Model, c.Epochs, c.Steps, c.Log, c.Schedule, c.Valid = m, 0, 1, log, nil, nil
		c.Optimizer = optim.NewSGD(give(m), optim.SGDConfig{LR: 0.1})
		if _, err := train.Fit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return log.String()
	}
	for want, give := range map[string]func(m *scaledNet) []*tensor.Tensor{
		"not trained, as no gradient is required: gain\n":                                                          func(m *scaledNet) []*tensor.Tensor { return nn.Parameters(m) },
		"not trained, as no gradient is required: gain; as the optimizer was not given them: in.weight, in.bias\n": func(m *scaledNet) []*tensor.Tensor { return nn.Parameters(m.Out) },
	} {
		if got := run(give); strings.Count(got, want) != 1 {
			t.Errorf("%q is not once in\n%s", want, got)
		}
	}
	if got := run(func(m *scaledNet) []*tensor.Tensor { m.Gain.RequiresGrad(); return nn.Parameters(m) }); strings.Contains(got, "not trained") {
		t.Error(got)
	}
}
