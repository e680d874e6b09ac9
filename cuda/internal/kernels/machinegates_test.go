package kernels

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// codeGate gives bounds for a kernel's machine code.
type codeGate struct {
	name string
	plan func() ([]Launch, error)
	// least fraction of the main loop's instructions that must be multiply-adds
	share float64
	// flight is the least size in KiB of the pending loads from global memory that all threads of a
	// multiprocessor together must have.
	flight int
	// largest number of the main loop's instructions for each byte that it reads or writes; 0 means
	// no limit
	slots float64
}

// memorySlots is the number of instructions that a multiprocessor can issue while it moves 32
// bytes, one byte for each thread of a warp. All multiprocessors share the memory's bandwidth of
// 4.8 TB/s evenly. The GPU has 132 multiprocessors of four schedulers at 1.98 GHz.
const memorySlots = 4 * multiprocessors * 1.98e9 * 32 / 4.8e12

// turned returns a transposed operand for planning: the next-to-last dimension has stride 1.
func turned(t dtype.Type, rows, columns int) Operand {
	o := fake(t, 1, rows, columns)
	o.Strides = shape.Of(0, 1, rows)
	return o
}

func fakeScratch(int) (uint64, error) { return 1 << 30, nil }

// codeGates lists gates for large products, and for kernels of each family on large contiguous
// inputs.
func codeGates(t *testing.T) []codeGate {
	f, h := dtype.F32, dtype.BF16
	unary := func(typ dtype.Type, e *expr.Expr) func() ([]Launch, error) {
		p := program(t, []dtype.Type{typ}, []dtype.Type{typ}, e)
		return func() ([]Launch, error) {
			return Map(p, []Operand{fake(typ, 1<<26)}, []Operand{fake(typ, 1<<26)}, nil)
		}
	}
	binary := func(typ dtype.Type) func() ([]Launch, error) {
		p := program(t, []dtype.Type{typ}, []dtype.Type{typ, typ}, x0.Add(x1))
		return func() ([]Launch, error) {
			return Map(p, []Operand{fake(typ, 1<<26)}, []Operand{fake(typ, 1<<26), fake(typ, 1<<26)}, nil)
		}
	}
	reduce := func(typ dtype.Type, rows, columns, axis int) func() ([]Launch, error) {
		out := []int{rows, columns}
		out[axis] = 1
		return func() ([]Launch, error) {
			return Reduce(&device.Reduction{Kind: device.Sum, Map: identity(t, typ)}, fake(typ, out...), []Operand{fake(typ, rows, columns)}, nil, fakeScratch)
		}
	}
	softmax := func(typ dtype.Type, columns int, grad bool) func() ([]Launch, error) {
		x := fake(typ, 1<<14, columns)
		return func() ([]Launch, error) {
			if grad {
				return SoftmaxGrad(x, x, x, false)
			}
			return Softmax(x, x, false)
		}
	}
	loss := func(typ dtype.Type, columns int, grad bool) func() ([]Launch, error) {
		x, v, target := fake(typ, 1<<14, columns), fake(dtype.F32, 1<<14), fake(dtype.I64, 1<<14)
		return func() ([]Launch, error) {
			if grad {
				return CrossEntropyGrad(x, x, v, v, target, v, Operand{}, -1)
			}
			return CrossEntropy(v, v, v, x, target, -1, 1<<20, 0)
		}
	}
	norm := func(typ dtype.Type, columns int, grad bool) func() ([]Launch, error) {
		x, s, w := fake(typ, 1<<14, columns), fake(dtype.F32, 1<<14), fake(typ, columns)
		o := NormOperands{Out: x, Mean: s, Rstd: s, X: x, Weight: w}
		n := device.RowNorm{Period: 1, Inner: 1, Eps: 1e-5}
		return func() ([]Launch, error) {
			if grad {
				o.Grad = x
				return NormGrad(o, n, fakeScratch)
			}
			o.Bias = w
			return Norm(o, n)
		}
	}
	multi := func(p *expr.Program, finite bool) func() ([]Launch, error) {
		return func() ([]Launch, error) {
			found := Operand{}
			if finite {
				found = fake(f, 1)
			}
			return MultiMap(p, 1<<20, 1000, fake(dtype.I64, 1), found)
		}
	}
	product := func(c, a, b Operand) func() ([]Launch, error) {
		return func() ([]Launch, error) { return MatMul(a100, c, a, b) }
	}
	square := func(typ dtype.Type, n int) Operand { return fake(typ, 1, n, n) }
	const n = 4096
	// A tensor core of compute capability 9.0 needs four cycles for one of the mma instructions
	// counted here (2048 multiply-adds at 512 a cycle). So it is busy if a quarter of the issued
	// instructions are mma. A float64 multiply-add counts as two instructions.
	list := []codeGate{
		{name: "product float32 128×128, A·B", plan: product(square(f, n), square(f, n), square(f, n)), share: 0.89},
		{name: "product float32 128×128, A·Bᵀ", plan: product(square(f, n), square(f, n), turned(f, n, n)), share: 0.89},
		{name: "product float32 128×128, Aᵀ·B", plan: product(square(f, n), turned(f, n, n), square(f, n)), share: 0.89},
		{name: "product float32 128×128, Aᵀ·Bᵀ", plan: product(square(f, n), turned(f, n, n), turned(f, n, n)), share: 0.89},
		{name: "product float32 128×128, odd sizes", plan: product(square(f, 4097), square(f, 4097), square(f, 4097)), share: 0.88},
		{name: "product float32 64×64, A·B", plan: product(square(f, 512), square(f, 512), square(f, 512)), share: 0.85},
		{name: "product float32 64×64, A·Bᵀ", plan: product(square(f, 512), square(f, 512), turned(f, 512, 512)), share: 0.85},
		{name: "product float32 32×64, A·B", plan: product(square(f, 128), square(f, 128), square(f, 128)), share: 0.84},
		{name: "product float64 64×64, A·B", plan: product(square(dtype.F64, n), square(dtype.F64, n), square(dtype.F64, n)), share: 0.7},
		{name: "product bfloat16 on tensor cores, A·B", plan: product(square(h, n), square(h, n), square(h, n)), share: 0.45, flight: 60},
		{name: "product bfloat16 on tensor cores, A·Bᵀ", plan: product(square(h, n), square(h, n), turned(h, n, n)), share: 0.45, flight: 60},
		{name: "product bfloat16 on tensor cores, Aᵀ·B", plan: product(square(h, n), turned(h, n, n), square(h, n)), share: 0.45, flight: 60},
		{name: "product bfloat16 on tensor cores, 64×64", plan: product(square(h, 512), square(h, 512), square(h, 512)), share: 0.25, flight: 60},
		{name: "product bfloat16, rows of 4 k", plan: product(fake(h, 1, n, n), fake(h, 1, n, n+4), fake(h, 1, n+4, n)), share: 0.4, flight: 60},
		{name: "product bfloat16, odd k", plan: product(fake(h, 1, n, 768), fake(h, 1, n, 50257), fake(h, 1, 50257, 768)), share: 0.2, flight: 40},
	}
	attend := func(typ dtype.Type, columns int, causal bool) func() ([]Launch, error) {
		x := fake(typ, 8, 16, 2048, columns)
		o := AttentionOperands{Out: x, LSE: fake(f, 8, 16, 2048), Q: x, K: x, V: x}
		o.Scale, o.Causal = 0.125, causal
		return func() ([]Launch, error) { return Attention(a100, o, nil) }
	}
	list = append(list,
		codeGate{name: "attention bfloat16, 64 features", plan: attend(h, 64, false), share: 0.24, flight: 32},
		codeGate{name: "attention bfloat16, 64 features, causal", plan: attend(h, 64, true), share: 0.24, flight: 32},
		codeGate{name: "attention bfloat16, 128 features", plan: attend(h, 128, false), share: 0.24, flight: 32},
		codeGate{name: "attention bfloat16, 128 features, causal", plan: attend(h, 128, true), share: 0.24, flight: 32},
		codeGate{name: "attention bfloat16, 256 features", plan: attend(h, 256, false), share: 0.24, flight: 32},
		codeGate{name: "attention float32, 64 features", plan: attend(f, 64, false), share: 0.44, flight: 64},
		codeGate{name: "attention float32, 128 features", plan: attend(f, 128, false), share: 0.44, flight: 64},
	)
	dropout := func(typ dtype.Type) func() ([]Launch, error) {
		seed, offset := expr.Param(0, dtype.I64), expr.Param(1, dtype.I64)
		keep := expr.RandomKeeps(seed, offset, expr.Index(dtype.I64), expr.Param(2, dtype.U32))
		p := program(t, []dtype.Type{typ}, []dtype.Type{typ}, keep.Select(x0.Mul(expr.Param(3, f)), expr.C(0)))
		return func() ([]Launch, error) {
			return Map(p, []Operand{fake(typ, 1<<26)}, []Operand{fake(typ, 1<<26)}, make([]uint64, 4))
		}
	}
	for _, typ := range []dtype.Type{f, h} {
		list = append(list, codeGate{name: fmt.Sprintf("dropout, %v", typ), plan: dropout(typ), flight: 16, slots: memorySlots / 0.8})
		// At full memory bandwidth there are only 7 instructions for each byte (memorySlots).
		for _, name := range []string{"exp", "sigmoid", "silu", "tanh", "erf", "gelu", "gelu_tanh"} {
			e := x0.Mul(x0.Sigmoid())
			if name != "silu" {
				e = expr.Call(name, x0)
			}
			most := memorySlots / 0.8
			if name == "erf" {
				most = memorySlots / 0.75
			}
			list = append(list, codeGate{name: fmt.Sprintf("elementwise, %s, %v", name, typ), plan: unary(typ, e), flight: 16, slots: most})
		}
		list = append(list,
			codeGate{name: fmt.Sprintf("elementwise, one input, %v", typ), plan: unary(typ, x0.Mul(x0)), flight: 64},
			codeGate{name: fmt.Sprintf("elementwise, two inputs, %v", typ), plan: binary(typ), flight: 64},
			codeGate{name: fmt.Sprintf("sum of all, %v", typ), plan: reduce(typ, 1, 1<<26, 1), flight: 64},
			codeGate{name: fmt.Sprintf("sums of rows, a warp each, %v", typ), plan: reduce(typ, 1<<14, 1024, 1), flight: 64},
			codeGate{name: fmt.Sprintf("sums of columns, %v", typ), plan: reduce(typ, 1<<14, 4096, 0), flight: 64},
			codeGate{name: fmt.Sprintf("softmax, a warp a row, %v", typ), plan: softmax(typ, 1024, false), flight: 64},
			codeGate{name: fmt.Sprintf("softmax, a block a row, %v", typ), plan: softmax(typ, 8192, false), flight: 64},
			codeGate{name: fmt.Sprintf("softmax of 32768, %v", typ), plan: softmax(typ, 32768, false), flight: 40},
			codeGate{name: fmt.Sprintf("softmax gradient, a warp a row, %v", typ), plan: softmax(typ, 1024, true), flight: 48},
			codeGate{name: fmt.Sprintf("softmax gradient, a block a row, %v", typ), plan: softmax(typ, 8192, true), flight: 48},
			codeGate{name: fmt.Sprintf("softmax gradient of 32768, %v", typ), plan: softmax(typ, 32768, true), flight: 64},
			codeGate{name: fmt.Sprintf("cross-entropy of 1024, %v", typ), plan: loss(typ, 1024, false), flight: 32},
			codeGate{name: fmt.Sprintf("cross-entropy of 50264, %v", typ), plan: loss(typ, 50264, false), flight: 40},
			codeGate{name: fmt.Sprintf("cross-entropy gradient of 50264, %v", typ), plan: loss(typ, 50264, true), flight: 24},
			codeGate{name: fmt.Sprintf("layer norm of 768, %v", typ), plan: norm(typ, 768, false), flight: 64},
			codeGate{name: fmt.Sprintf("layer norm of 4096, %v", typ), plan: norm(typ, 4096, false), flight: 48},
			codeGate{name: fmt.Sprintf("layer norm gradient of 768, %v", typ), plan: norm(typ, 768, true), flight: 64},
			codeGate{name: fmt.Sprintf("AdamW, %v", typ), plan: multi(adamW(t, typ), false), flight: 48},
			codeGate{name: fmt.Sprintf("unscale, %v", typ), plan: multi(unscale(t, typ), true), flight: 64},
		)
	}
	return list
}

// TestMachineCode checks the machine code of large products, and of kernels on large contiguous
// inputs. The option -v prints the numbers, which bench/results/machinecode.md explains.
func TestMachineCode(t *testing.T) {
	ptxas, nvdisasm := tool(t, "ptxas", "FLAMBEAU_PTXAS"), tool(t, "nvdisasm", "FLAMBEAU_NVDISASM")
	if ptxas == "" || nvdisasm == "" {
		t.Log("ptxas or nvdisasm was not found: the machine code was NOT read; set FLAMBEAU_PTXAS and FLAMBEAU_NVDISASM")
		return
	}
	t.Logf("%-46s %4s %7s %6s %6s %6s %5s %5s %5s %6s %6s %6s", "", "regs", "threads", "shared", "blocks", "loop", "fma", "lds", "ldg", "share", "banks", "KiB/SM")
	for _, g := range codeGates(t) {
		t.Run(g.name, func(t *testing.T) {
			list, err := g.plan()
			if err != nil {
				t.Fatal(err)
			}
			c, err := compiled(t.TempDir(), ptxas, nvdisasm, list[0].Kernel, "sm_90")
			if err != nil {
				t.Fatal(err)
			}
			c.shared += list[0].Kernel.DynShared
			fma, n := c.count("FFMA", "DFMA", "HMMA"), float64(max(1, len(c.loop)))
			share, flight := float64(fma)/n, c.inFlight()*c.threads*c.blocks()>>10
			t.Logf("%-46s %4d %7d %6d %6d %6d %5d %5d %5d %5.1f%% %5.1f%% %6d", g.name, c.registers, c.threads, c.shared, c.blocks(), len(c.loop), fma,
				c.count("LDS", "LDSM"), c.count("LDG"), 100*share, 100*float64(fma)/(n+float64(c.bankConflicts())), flight)
			if g.slots > 0 {
				bytes := 0
				for _, i := range c.loop {
					bytes += i.loads()
				}
				slots := n / float64(2*max(1, bytes)) // the kernel writes as many bytes as it reads
				t.Logf("%.2f slots a byte: at most %.0f %% of the memory's speed", slots, 100*min(1, memorySlots/slots))
				if slots > g.slots {
					t.Errorf("%.2f issue slots a byte, want %.2f", slots, g.slots)
				}
			}
			if share < g.share {
				t.Errorf("%.3f of the issue slots multiply, want %v", share, g.share)
			}
			if flight < g.flight {
				t.Errorf("%d KiB are under way for a multiprocessor, want %d", flight, g.flight)
			}
			if c.hasPrefix("LDL") || c.hasPrefix("STL") {
				t.Error("local memory is used")
			}
			if dir := os.Getenv("FLAMBEAU_PRINT_SASS"); dir != "" {
				if err := os.WriteFile(filepath.Join(dir, list[0].Kernel.Name+".sass"), []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
