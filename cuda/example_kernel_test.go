package cuda_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// signedSquare is x·|x|, a kernel of one's own: one thread an element.
var signedSquare = func() *cuda.Kernel {
	b := ptx.New("signed_square")
	b.MaxThreads(128)
	y, x, n := b.Pointer("y", ptx.F32), b.Pointer("x", ptx.F32), b.Param("n", ptx.U32)
	i := b.GlobalID()
	b.ReturnIf(i.Ge(n))
	v := x.At(i).Load()
	y.At(i).Store(v.Mul(v.Abs()))
	built, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	k, err := cuda.NewKernel(built, cuda.KernelConfig{Block: [3]int{128}})
	if err != nil {
		log.Fatal(err)
	}
	return k
}()

// SignedSquare is the op: Forward launches the kernel on the tensor's stream, VJP is written with ops.
type SignedSquare struct{}

func (SignedSquare) Name() string { return "signed_square" }

func (SignedSquare) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	x := in[0].Contiguous()
	c.Save(in[0])
	y := x.EmptyLike()
	tensor.Raw("signed_square", []*tensor.Tensor{y}, []*tensor.Tensor{x}, func(s device.Stream, outs, ins []device.View) error {
		n := ins[0].Size()
		return s.Device().(*cuda.Device).Launch(s, signedSquare, [3]int{(n + 127) / 128}, outs[0], ins[0], n)
	})
	return y
}

func (SignedSquare) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{g.Mul(c.Saved(0).Abs()).MulScalar(2)}
}

// A GPU kernel of one's own as a differentiable op, on an emulated GPU, which checks each of its accesses.
func Example_kernel() {
	gpu := emulate("64MiB")
	x := tensor.Root().On(gpu).From([]float32{-3, -1, 0, 2}).RequiresGrad()
	y := tensor.Apply(SignedSquare{}, x)
	fmt.Println(y.Detach())
	y.Sum().Backward()
	fmt.Println(x.Grad())
	same := x.Mul(x.Abs()).Sub(y).Abs().Sum().Item()
	fmt.Println("difference from the ops:", same)
	// Output:
	// tensor([-9., -1.,  0.,  4.], device='cuda:0')
	// tensor([6., 2., 0., 4.], device='cuda:0')
	// difference from the ops: 0
}
