package tensor

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestImpossibleArguments passes sizes that overflow, ranks beyond the limit and other impossible
// arguments. Each must lead to a typed error, not to a crash.
func TestImpossibleArguments(t *testing.T) {
	z := Zeros
	long := func(d ...int) *Tensor { return Typed(dtype.I64).Zeros(d...) }
	for name, c := range map[string]struct {
		f    func()
		kind error
	}{
		"rank 9":                       {func() { z(1, 1, 1, 1, 1, 1, 1, 1, 1) }, ErrShape},
		"negative size":                {func() { z(2, -1) }, ErrShape},
		"huge":                         {func() { z(1<<62, 4) }, ErrShape},
		"huge by broadcasting":         {func() { z(1).Expand(1<<40, 1).Add(z(1).Expand(1, 1<<40)) }, ErrShape},
		"expand beyond int":            {func() { z(1).Expand(1<<40, 1<<40) }, ErrShape},
		"sum of 2⁶¹ elements":          {func() { z(1).Expand(1<<31, 1<<30).Sum() }, device.ErrOutOfMemory},
		"argmax of 2⁵⁰ elements":       {func() { z(1).Expand(1<<25, 1<<25).Argmax() }, device.ErrOutOfMemory},
		"zeros of 0 rows that wrap":    {func() { z(0, math.MaxInt, math.MaxInt) }, ErrShape},
		"empty of 0 columns that wrap": {func() { Root().Empty(math.MaxInt, math.MaxInt, 0) }, ErrShape},
		"memory of 0 rows that wraps":  {func() { FromMemory(dtype.U8, nil, nil, 0, math.MaxInt, math.MaxInt) }, ErrShape},
		"bytes of 2⁶⁰ elements":        {func() { z(1).Expand(1<<30, 1<<30).Bytes() }, device.ErrOutOfMemory},
		"bytes that wrap":              {func() { z(1).Expand(1<<31, 1<<31).Bytes() }, device.ErrOutOfMemory},
		"bytes of 2⁴² elements":        {func() { z(1).Expand(1<<21, 1<<21).Bytes() }, device.ErrOutOfMemory},
		"floats of 2⁶¹ elements":       {func() { z(1).Expand(1<<31, 1<<30).Floats() }, device.ErrOutOfMemory},
		"floats of 2⁴² bytes":          {func() { Typed(dtype.U8).Zeros(1).Expand(1<<21, 1<<21).Floats() }, device.ErrOutOfMemory},
		"data of 2⁶⁰ elements":         {func() { Data[float32](z(1).Expand(1<<30, 1<<30)) }, device.ErrOutOfMemory},
		"reshape that wraps":           {func() { z(0).Reshape(1<<62, 4) }, ErrShape},
		"reshape -1 that wraps":        {func() { z(4).Reshape(-1, 1<<62, 4) }, ErrShape},
		"narrow that wraps":            {func() { z(4).Narrow(0, 1, math.MaxInt) }, ErrIndex},
		"narrow from behind":           {func() { z(4).Narrow(0, math.MaxInt, 1) }, ErrIndex},
		"unsqueeze of rank 8":          {func() { z(1, 1, 1, 1, 1, 1, 1, 1).Unsqueeze(0) }, ErrShape},
		"embedding of rank 8":          {func() { z(3, 2).Embedding(long(1, 1, 1, 1, 1, 1, 1, 1)) }, ErrShape},
		"arange without end":           {func() { Typed(dtype.F32).ArangeStep(0, 1e300, 1) }, ErrShape},
		"too many random integers":     {func() { Root().RandInt(math.MinInt, math.MaxInt, 2) }, ErrValue},
		"ragged empty slice":           {func() { From([][]int{{}, {1}}) }, ErrValue},
		"ragged nested slice":          {func() { From([][][]int{{{1}, {2}}, {{3}, {}}}) }, ErrValue},
		"no operands":                  {func() { addOp.Apply(nil) }, ErrValue},
		"one operand of two":           {func() { addOp.Apply([]*Tensor{z(1)}) }, ErrValue},
		"three operands for two":       {func() { addOp.Apply([]*Tensor{z(1), z(1), z(1)}) }, ErrValue},
		"to no device":                 {func() { z(1).To(nil) }, ErrDevice},
		"moved to no device":           {func() { z(1).MoveTo(nil) }, ErrDevice},
		"on no device":                 {func() { Root().On(nil).Zeros(1) }, ErrDevice},
		"argmax of nothing":            {func() { z(0).Argmax() }, ErrShape},
		"item of nothing":              {func() { z(0).Item() }, ErrShape},
	} {
		var e *Error
		if err := Try(c.f); !errors.As(err, &e) || !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNoElementsOfHugeShape makes tensors with a size of 0. The other sizes may then have any value
// as long as the strides fit an int, as in PyTorch.
func TestNoElementsOfHugeShape(t *testing.T) {
	x := Zeros(0, math.MaxInt)
	if x.Shape().At(1) != math.MaxInt || x.Strides().At(0) != math.MaxInt || len(x.Bytes()) != 0 || len(x.Floats()) != 0 {
		t.Errorf("shape %v, strides %v", x.Shape(), x.Strides())
	}
}

// TestNoElements runs products, activations, losses and reductions on tensors without elements,
// forward and backward.
func TestNoElements(t *testing.T) {
	x := Zeros(0, 3).RequiresGrad()
	w := Ones(3, 2).RequiresGrad()
	loss := x.MatMul(w).Tanh().LogSoftmax(-1).CrossEntropy(Typed(dtype.I64).Zeros(0), CrossEntropyOptions{}).Sum()
	if loss.Backward(); loss.Item() != 0 || w.Grad().Sum().Item() != 0 || x.Grad().Shape() != x.Shape() {
		t.Errorf("loss %v, gradients %v and %v", loss, w.Grad(), x.Grad())
	}
	if v := Zeros(0).Mean().Item(); v == v {
		t.Errorf("the mean of nothing is %v", v)
	}
	if y := Zeros(2, 0).MatMul(Zeros(0, 3)); y.Sum().Item() != 0 || y.Size() != 6 {
		t.Errorf("a sum over no products: %v", y)
	}
	if y := Zeros(0, 3).Argmax(1); y.Size() != 0 {
		t.Errorf("argmax of no rows: %v", y)
	}
}

func TestBytesAreTruth(t *testing.T) {
	if n := FromBytes(dtype.Bool, []byte{7, 0, 1}, 3).Sum().Item(); n != 2 {
		t.Errorf("%v true", n)
	}
}

// TestOverwrittenResults differentiates through Fill and Copy. The old value of the tensor must
// receive no gradient, and the operand of Copy must receive one.
func TestOverwrittenResults(t *testing.T) {
	x := Ones(3).RequiresGrad()
	Do(func(s *Scope) {
		y := x.In(s).MulScalar(3)
		y.Fill(0)
		y.Add(x).Sum().Backward()
	})
	if g := x.Grad().Sum().Item(); g != 3 {
		t.Errorf("the gradient adds up to %v: the overwritten value has none", g)
	}
	x.ZeroGrad()
	Do(func(s *Scope) {
		y := x.In(s).MulScalar(5)
		y.Copy(x.In(s).MulScalar(2))
		y.Sum().Backward()
	})
	if g := x.Grad().Sum().Item(); g != 6 {
		t.Errorf("the gradient adds up to %v, want that of 2x", g)
	}
	w := Ones(2)
	Do(func(s *Scope) { w.In(s).RequiresGrad().Square().Sum().Backward() })
	if !w.NeedsGrad() || w.Grad() == nil {
		t.Error("a handle made by In stands for its leaf")
	}
}

// TestIndexPosition checks the error for a bad index. It must name the position in the index that
// the caller gave, even if the op expands the index. The error's operands must be the caller's
// index and table, even if a GPU reports the error later.
func TestIndexPosition(t *testing.T) {
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{root.Device(), gpus[0]} {
		m := root.On(dev)
		table := m.Ones(4, 3)
		for want, f := range map[string]func() *Tensor{
			"embedding: index 7 at position 1 | [4, 3] float32 ones [2, 2] int64 from":       func() *Tensor { return table.Embedding(m.From([][]int64{{1, 7}, {0, 9}})) },
			"index_select: index -1 at position 2 | [3, 4] float32 transpose [3] int64 from": func() *Tensor { return table.T().IndexSelect(1, m.From([]int64{0, 3, -1})) },
			"gather: index 4 at position 3 | [4, 3] float32 ones [2, 3] int64 from":          func() *Tensor { return table.Gather(0, m.From([][]int64{{0, 1, 2}, {4, 0, 0}})) },
			"scatter_add: index 4 at position 3 | [4, 3] float32 clone [2, 2] int64 from": func() *Tensor {
				return table.ScatterAdd(0, m.From([][]int64{{0, 1}, {3, 4}}), m.Ones(2, 2))
			},
			"index_add: index 3 at position 1 | [4, 3] float32 clone [4, 2] int64 expand": func() *Tensor {
				return table.IndexAdd(1, m.From([]int64{0, 3}), m.Ones(4, 2), 1)
			},
			"index_select: index 9 at position 0 | [4, 3] float32 ones [3] int64 expand": func() *Tensor {
				return table.IndexSelect(0, m.From([]int64{9}).Expand(3))
			},
		} {
			err := Try(func() { f().Sum().Item() })
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, ErrIndex) || len(e.Operands) != 2 {
				t.Fatalf("%s on %s: %v", want, dev.Name(), err)
			}
			said, _, _ := strings.Cut(e.Msg, " is out of range")
			got := e.Op + ": " + said + " |"
			for _, o := range e.Operands {
				from, _, _ := strings.Cut(strings.TrimPrefix(o.Origin, "result of "), " at ")
				if got += fmt.Sprintf(" %v %v %s", o.Shape, o.Type, from); o.Device != dev.Name() {
					t.Errorf("%s: the device of an operand is %s", want, o.Device)
				}
			}
			if got != want {
				t.Errorf("on %s: %s\nwant %s", dev.Name(), got, want)
			}
		}
	}
}

// TestLimitsThatRoundToZero clamps with limits that round to 0 in the tensor's type. Elements that
// are -0 must stay unchanged, as they do for a limit of 0.
func TestLimitsThatRoundToZero(t *testing.T) {
	for _, lo := range []float64{0, 1e-60, math.Copysign(0, -1), -1e-60} {
		x := From([]float32{float32(math.Copysign(0, -1)), 0})
		for what, y := range map[string]*Tensor{"from below": x.Clamp(lo, 1), "from above": x.Clamp(-1, lo), "in place": x.Clone().ClampInPlace(lo, 1)} {
			if v := Data[float32](y); !math.Signbit(float64(v[0])) || math.Signbit(float64(v[1])) {
				t.Errorf("%v %s: %v", lo, what, v)
			}
		}
	}
}
