// Command kernel defines an op, x·|x|, with a gradient. On a GPU the op runs a kernel that this
// file defines in Go. If there is no GPU, an emulated GPU runs the kernel.
package main

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// signedSquare is the kernel. Each thread computes one element.
var signedSquare = must(build())

func build() (*cuda.Kernel, error) {
	b := ptx.New("signed_square")
	b.MaxThreads(128)
	y, x, n := b.Pointer("y", ptx.F32), b.Pointer("x", ptx.F32), b.Param("n", ptx.U32)
	i := b.GlobalID()
	b.ReturnIf(i.Ge(n))
	v := x.At(i).Load()
	y.At(i).Store(v.Mul(v.Abs()))
	text, err := b.Build()
	if err != nil {
		return nil, err
	}
	return cuda.NewKernel(text, cuda.KernelConfig{Block: [3]int{128}})
}

// SignedSquare is the op. On other devices, and for other types than float32, it is a composition
// of existing ops.
type SignedSquare struct{}

func (SignedSquare) Name() string { return "signed_square" }

func (SignedSquare) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	x := in[0]
	c.Save(x)
	if _, onGPU := x.Device().(*cuda.Device); !onGPU || x.Type() != dtype.F32 {
		return x.Mul(x.Abs())
	}
	x = x.Contiguous()
	y := x.EmptyLike()
	tensor.Raw("signed_square", []*tensor.Tensor{y}, []*tensor.Tensor{x}, func(s device.Stream, outs, ins []device.View) error {
		n := ins[0].Size()
		return s.Device().(*cuda.Device).Launch(s, signedSquare, [3]int{(n + 127) / 128}, outs[0], ins[0], n)
	})
	return y
}

// VJP computes the gradient with ops, so that the gradient is differentiable too.
func (SignedSquare) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{g.Mul(c.Saved(0).Abs()).MulScalar(2)}
}

func main() {
	log.SetFlags(0)
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	if _, onGPU := dev.(*cuda.Device); !onGPU {
		dev = must(cuda.Emulate("emulate"))[0]
		fmt.Println("the kernel runs on", dev.Info().Name)
	}
	x := tensor.Root().On(dev).From([]float32{-3, -1, 0, 2}).RequiresGrad()
	y := tensor.Apply(SignedSquare{}, x)
	y.Sum().Backward()
	fmt.Println(y.Detach().CPU())
	fmt.Println(x.Grad().CPU())

	// The gradient, and the gradient of the gradient, are compared with finite differences.
	err := autograd.Check(func(in []*tensor.Tensor) *tensor.Tensor {
		return tensor.Apply(SignedSquare{}, in[0])
	}, []*tensor.Tensor{tensor.From([]float64{-3, -1, 0.5, 2})}, autograd.CheckOptions{SecondOrder: true})
	fmt.Println("the gradient is right:", err == nil)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
