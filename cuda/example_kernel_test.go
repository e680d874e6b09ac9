package cuda_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/tensor"
)

// signedSquare is a kernel written by the program. It computes x·|x|, with one thread for each
// element.
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

// SignedSquare is an op that uses this kernel. Forward launches the kernel on the tensor's stream.
// VJP is written with ops of package tensor.
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

// This makes a differentiable op of a GPU kernel that the program defines. It runs on an emulated
// GPU, which checks every memory access of the kernel.
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

// NewKernel refuses a launch shape that the kernel does not allow. Launch refuses arguments that do
// not match the kernel before anything is queued. A strided view needs a kernel that takes the
// strides as arguments.
func ExampleDevice_Launch() {
	b := ptx.New("copy_strided")
	b.MaxThreads(32)
	y, x, step := b.Pointer("y", ptx.F32), b.Pointer("x", ptx.F32), b.Param("step", ptx.U32)
	i := b.GlobalID()
	y.At(i).Store(x.At(i.Mul(step)).Load())
	built, err := b.Build()
	if err != nil {
		log.Fatal(err)
	}
	_, err = cuda.NewKernel(built, cuda.KernelConfig{Block: [3]int{64}})
	var shape *cuda.KernelError
	fmt.Println(errors.As(err, &shape), err)
	k, err := cuda.NewKernel(built, cuda.KernelConfig{Block: [3]int{3}})
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		column := s.From([][]float32{{1, 2}, {3, 4}, {5, 6}}).Select(1, 1)
		to := s.Empty(3)
		launch := func(arg func(v device.View) any) error {
			return tensor.Try(func() {
				tensor.Raw("copy", []*tensor.Tensor{to}, []*tensor.Tensor{column}, func(st device.Stream, outs, ins []device.View) error {
					return st.Device().(*cuda.Device).Launch(st, k, [3]int{1}, outs[0], arg(ins[0]), uint32(2))
				})
			})
		}
		var v *device.OperandError
		fmt.Println(errors.As(launch(func(v device.View) any { return v }), &v), v.Reason)
		fmt.Println(launch(func(v device.View) any { return cuda.Strided(v) }), to)
	}, tensor.On(emulate("64MiB")))
	// Output:
	// true cuda: kernel copy_strided: a block of [64 1 1] threads: at most [1024 1024 64] are possible, and the kernel declares [32 1 1]
	// true shape [3] with strides [2] is not contiguous; a kernel that is told strides takes it as Strided
	// <nil> tensor([2., 4., 6.], device='cuda:0')
}

// This runs a kernel that fails. An emulated GPU also finds faults that hardware does not detect,
// here a read of memory that nothing has written. The next wait returns the fault. After a sticky
// fault, the program cannot use the GPU any more.
func ExampleEmulate_fault() {
	x := tensor.Root().On(emulate("64MiB")).Empty(3)
	err := tensor.Try(func() { fmt.Println(x.Exp().Floats()) })
	var f *device.Fault
	if errors.As(err, &f) {
		fmt.Println(f.Device, f.Sticky, strings.Contains(f.Error(), "uninitialised memory"))
	}
	// Output: cuda:0 true true
}
