package kernels

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// inWholeCopies returns the specification of a kernel with form f, in which every copy moves 16
// bytes.
func inWholeCopies(f tensorForm) tensorSpec {
	return tensorSpec{typ: dtype.BF16, out: dtype.BF16, form: f, a: tensorLoad{true, 8, false, false}, b: tensorLoad{false, 8, false, false}, store: storePieces}
}

// publishedKernels lists product kernels of other projects that use mma.sync, with their published
// speeds.
func publishedKernels() []struct {
	name    string
	gpu     *GPU
	form    tensorForm
	m, n, k int
	seconds float64
	source  string
} {
	a100, h100, ada := GPUOf(80, "", 0), GPUOf(90, "", 0), GPUOf(89, "GeForce RTX 4090", 0)
	h100.Clock = 1.98e9 // the highest clock rate, because the source does not state one
	workstation := GPUOf(120, "RTX PRO 6000", 188)
	workstation.Clock = 1.02e9 // the profiler that made the measurement fixes this clock rate
	tflops := func(m, n, k int, rate float64) float64 { return 2 * float64(m) * float64(n) * float64(k) / rate / 1e12 }
	return []struct {
		name    string
		gpu     *GPU
		form    tensorForm
		m, n, k int
		seconds float64
		source  string
	}{
		{"CUTLASS s16816gemm 256×128×32, 3 stages, A100", a100, tensorForm{256, 128, 32, 4, 2, 3, 1}, 3456, 4096, 8192, tflops(3456, 4096, 8192, 235),
			"CUTLASS, media/docs/profiler.md, as quoted in NVIDIA/cutlass#956"},
		{"CUTLASS example 47, 128×128×32, 4 stages, H100", h100, tensorForm{128, 128, 32, 2, 2, 4, 2}, 3456, 4096, 4096, 0.239112e-3,
			"waynehacking8/blackwell-tensorcore-kernels, results/reference/streamk.txt"},
		{"CUTLASS example 47, 2048³, H100", h100, tensorForm{128, 128, 32, 2, 2, 4, 2}, 2048, 2048, 2048, 0.0347366e-3, "the same"},
		{"cuBLAS bfloat16 8192³, RTX 4090", ada, tensorForm{128, 128, 32, 2, 2, 3, 2}, 8192, 8192, 8192, tflops(8192, 8192, 8192, 160.17),
			"zzc0721/torch-performance-test-data#78; the tile is assumed"},
		{"CUTLASS s16816gemm 128×64×64, 3 stages, RTX PRO 6000", workstation, tensorForm{128, 64, 64, 2, 2, 3, 1}, 8192, 8192, 8192, 7920954 / 1.02e9,
			"waynehacking8/blackwell-tensorcore-kernels, results/ncu_sm120_cublastc_8192.txt"},
	}
}

// TestProductModelPublished checks that the cost model predicts the times of published kernels
// within 10 %.
func TestProductModelPublished(t *testing.T) {
	for _, p := range publishedKernels() {
		got, bound := p.gpu.cost(inWholeCopies(p.form), 1, p.m, p.n, p.k, undivided(p.k))
		t.Logf("%-55s %7.1f µs, published %7.1f, bound by %s", p.name, got*1e6, p.seconds*1e6, bound)
		if r := got / p.seconds; r < 0.9 || r > 1.1 {
			t.Errorf("%s: the model says %.3f of what is published", p.name, r)
		}
	}
}

// TestGPUOf checks the rates of devices. A capability that is not listed must get the rates of the
// next lower one in the list. The bandwidth must be proportional to the number of multiprocessors.
// All cards except GeForce must add in float32 at the full rate.
func TestGPUOf(t *testing.T) {
	for _, c := range []struct {
		sm, cores, wantCores int
		name                 string
		tensor, bandwidth    float64
	}{
		{80, 0, 108, "", 1024, 2.039e12},
		{86, 28, 28, "NVIDIA GeForce RTX 3060", 256, 0.936e12 * 28 / 82},
		{89, 142, 142, "NVIDIA L40S", 512, 1.008e12 * 142 / 128},
		{103, 0, 148, "", 0.62 * 2048, 8e12},
		{121, 0, 170, "", 256, 1.792e12},
	} {
		g := GPUOf(c.sm, c.name, c.cores)
		if g.SM != c.sm || g.Cores != c.wantCores || g.Tensor != c.tensor || math.Abs(g.Bandwidth/c.bandwidth-1) > 1e-12 {
			t.Errorf("%d %q: %+v", c.sm, c.name, *g)
		}
	}
}

// modelled is a matrix product in the training step of a network.
type modelled struct {
	network, name string
	// storage orders of a and b: N for row-major, T for column-major; lower-case n and t if the
	// whole batch shares one matrix
	orders         string
	batch, m, n, k int
	// whether a bias is added to the results, or the gradient of a bias is computed with them
	bias bool
	wide bool // whether the results are float32
}

// modelledProducts lists the products of GPT-2 124M on 8×1024 tokens, and of ResNet-50 on 64 images
// of 224×224.
func modelledProducts() []modelled {
	var list []modelled
	linear := func(network, name string, rows, in, out int, bias bool) {
		list = append(list, modelled{network, name, "NT", 1, rows, out, in, bias, false}, modelled{network, name + ", dX", "NN", 1, rows, in, out, false, false},
			modelled{network, name + ", dW", "TN", 1, out, in, rows, bias, false})
	}
	for _, l := range []struct {
		name    string
		in, out int
	}{{"qkv", 768, 2304}, {"projection", 768, 768}, {"up", 768, 3072}, {"down", 3072, 768}, {"head", 768, 50257}} {
		linear("GPT-2", l.name, 8192, l.in, l.out, l.name != "head")
	}
	list = append(list, modelled{"GPT-2", "scores", "NT", 96, 1024, 1024, 64, false, false}, modelled{"GPT-2", "weighted", "NN", 96, 1024, 64, 1024, false, false},
		modelled{"GPT-2", "scores, dK", "TN", 96, 1024, 64, 1024, false, false})
	for _, rows := range []int{8, 32, 64} { // one new token for each sequence of the batch
		list = append(list, modelled{"GPT-2", fmt.Sprintf("up, %d rows", rows), "NT", 1, rows, 3072, 768, true, false}, modelled{"GPT-2", fmt.Sprintf("head, %d rows", rows), "NT", 1, rows, 50257, 768, false, false})
	}
	list = append(list, modelled{"a layer of 8192", "16 rows", "NT", 1, 16, 8192, 8192, false, false}, modelled{"a layer of 8192", "64 rows", "NT", 1, 64, 8192, 8192, false, false})
	for _, l := range []struct {
		side, in, out, kernel int
	}{{112, 3, 64, 7}, {56, 64, 64, 1}, {56, 64, 64, 3}, {56, 64, 256, 1}, {56, 256, 64, 1}, {56, 256, 128, 1}, {28, 128, 128, 3}, {28, 128, 512, 1}, {28, 512, 128, 1}, {28, 256, 512, 1},
		{28, 512, 256, 1}, {14, 256, 256, 3}, {14, 256, 1024, 1}, {14, 1024, 256, 1}, {14, 512, 1024, 1}, {14, 1024, 512, 1}, {7, 512, 512, 3}, {7, 512, 2048, 1}, {7, 2048, 512, 1}, {7, 1024, 2048, 1}} {
		list = append(list, convolution(fmt.Sprintf("%d² %d→%d, %d²", l.side, l.in, l.out, l.kernel), l.side, l.in, l.out, l.kernel)...)
	}
	linear("ResNet-50", "classes", 64, 2048, 1000, true)
	return list
}

// convolution returns the products with which package tensor computes a convolution of 64 images
// (tensor/convproduct.go). The matrix of an image's columns (im2col) has a row for each element of
// a window. This matrix may take no more memory than the inputs and outputs, which limits how many
// images are multiplied together. If a window has many positions in an image, each image is a
// matrix of a batch. Two kinds of gradients are added up in float32: those of elements that lie in
// several windows, and those of the weight if there are several groups of images.
func convolution(name string, side, in, out, kernel int) []modelled {
	const images = 64
	places, k, input := side*side, in*kernel*kernel, in*side*side
	if kernel == 7 {
		input *= 4 // with a stride of 2, the input has four times as many elements as the output
	}
	atOnce := func(size int) int {
		ends := images * (input + out*places) * size
		return min(images, min(ends*3/4, 256<<20)/(k*places*size))
	}
	product := func(what, orders string, m, n, images int, k int, wide bool) modelled {
		p := modelled{"ResNet-50", name + what, strings.ToUpper(orders), 1, m, images * n, k, false, wide}
		if places >= 512 {
			p.orders, p.batch, p.n = orders, images, n
		}
		return p
	}
	data := atOnce(2)
	if kernel > 1 {
		data = atOnce(4)
	}
	return []modelled{product("", "nN", out, places, atOnce(2), k, false), product(", dX", "tN", k, places, data, out, kernel > 1),
		{"ResNet-50", name + ", dW", "NT", 1, out, k, atOnce(2) * places, false, atOnce(2) < images}}
}

// plan returns the planner's choice for the product on a device.
func (p modelled) plan(g *GPU) tensorPlan {
	operand := func(order byte, rows, columns int) Operand {
		o := fake(dtype.BF16, p.batch, rows, columns)
		if order == 'T' || order == 't' {
			o.Strides = shape.Of(rows*columns, 1, rows)
		}
		if order == 'n' || order == 't' {
			o.Strides = o.Strides.With(0, 0)
		}
		return o
	}
	out := operand('N', p.m, p.n)
	if p.wide {
		out.Type = dtype.F32
	}
	return g.choosePlan(out, operand(p.orders[0], p.m, p.k), operand(p.orders[1], p.k, p.n), true, !p.bias)
}

// bounds returns two lower bounds of the product's time. The first depends only on the device. It
// is the time of all multiplications at the rate of mma.sync, or the time of moving all operands
// once, whichever is longer. The second also counts unavoidable costs of the chosen form: idle
// multiprocessors at the end, and the slowest hardware unit in each step of k. It also counts one
// latency before the first multiplication, one after the last store, and the transfer of partial
// sums at the cache's rate.
func (p modelled) bounds(g *GPU, plan tensorPlan) (roof, own float64) {
	flops, moved := float64(p.batch*p.m*p.n)*float64(p.k), p.batch*(p.m*p.k+p.k*p.n+p.m*p.n)
	if p.wide {
		moved += p.batch * p.m * p.n
	}
	if p.orders[0] > 'Z' { // all products of the batch have the same matrix a
		moved -= (p.batch - 1) * p.m * p.k
	}
	bytes := 2 * float64(moved)
	roof = max(flops/(g.Tensor*g.Clock*float64(g.Cores)), bytes/g.Bandwidth)
	s := plan.tensorSpec
	turn, _ := g.stepClocks(s)
	parts := plan.division.parts(p.k)
	whole, rest := p.batch*plan.undivided, p.batch*(s.tiles(p.m, p.n)-plan.undivided)
	together := float64(min(ceilDiv(whole+rest*parts, g.Cores), g.resident(s)))
	pace := max(turn, latency/(float64(s.stages()-1)*together))
	turns := func(blocks, k int) float64 { return float64(ceilDiv(blocks, g.Cores) * ceilDiv(k, s.form.bk)) }
	ends := (2*latency + float64(s.form.bm*s.form.bn*s.out.Size())/64) / together
	own = ((turns(whole, p.k)+turns(rest*parts, min(p.k, plan.chunk)))*pace + ends) / g.Clock
	if parts > 1 {
		own += 2*float64(rest*parts*s.partBytes())/(g.CacheRate*g.Clock) + 3*latency/g.Clock
	}
	return roof, max(roof, own)
}

// limits returns the name of what limits the product's speed according to the model.
func (p modelled) limits(g *GPU, plan tensorPlan) string {
	_, bound := g.cost(plan.tensorSpec, p.batch, p.m, p.n, p.k, plan.division)
	switch parts := plan.division.parts(p.k); {
	case plan.undivided > 0 && parts > 1:
		bound += ", the last in parts"
	case parts > 1:
		bound += ", in parts"
	}
	if plan.share {
		bound += ", shared"
	}
	if plan.loop {
		bound += ", in a loop"
	}
	if plan.realignA || plan.realignB {
		bound += ", realigned"
	}
	return bound
}

const productPage = `# Products on tensor cores: what the model says

Nothing on this page was measured by us. It is the model by which products choose their forms
(%[1]scuda/internal/kernels/gemmcost.go%[1]s), and %[1]sTestProductModel%[1]s writes it. FLAMBEAU_TUNE=1 measures the
forms that the model rates best, and takes the fastest.

Each entry has two shares. The first is of the roof: the greater of the time of all multiplications
at the rate of mma.sync, and of the time to move all operands once. The second is of the form's own
bound, which adds what no kernel of that form avoids: idle multiprocessors in the last wave, the
slowest unit of a step, one latency before the first multiplication and one behind the last store,
and the sums of parts at the cache's full rate.

The brackets name what bounds the product in the model. "Ends of tiles" are the first copies and the
stores of each tile. "Joining" adds up the parts of a product that is divided along k: all of it, or
the tiles of the last wave. Such a product is one launch. "Shared" means that all blocks of a tile
join it, not only the last one. "Waves" are multiprocessors without work.

Of forms within 3 %% of the fastest, the one that joins for the shortest time is chosen. Joining needs
memory, and none of the published kernels below joins parts, so the model knows least about it.

Convolutions are the products that package tensor composes: the columns of as many images as it
makes at once. Their rows of memory lie along the places of an image, so they begin at multiples of
16 bytes. If the weights' rows do not, the weights are copied first ("realigned").

A kernel "in a loop" has as many blocks as the device holds. They take the tiles of all matrices of
a batch in turn. Each begins the copies of its next tile before it stores the last one's results,
and stores these while it multiplies the next tile.

A last block that joins alone reads the sums of all parts at 64 bytes a clock. So joining is shared
where the results need nothing but the sums, and the blocks of all parts run at once. Then a block
waits some 10 µs at most for the others, and leaves its share to them if they are late. What remains
are latencies, one behind the other: the sums arrive, are counted, the count is asked for, and the
sums are read.

## Published kernels

| kernel | model | published | ratio | source |
| --- | --- | --- | --- | --- |
`

// TestProductModel writes a table of the planner's choice for each product of two networks, and
// compares it with two bounds on the time. If a number changes, the test fails until the option
// -update writes a new page.
func TestProductModel(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, productPage, "`")
	for _, p := range publishedKernels() {
		got, _ := p.gpu.cost(inWholeCopies(p.form), 1, p.m, p.n, p.k, undivided(p.k))
		fmt.Fprintf(&b, "| %s | %.0f µs | %.0f µs | %.2f | %s |\n", p.name, got*1e6, p.seconds*1e6, got/p.seconds, p.source)
	}
	gpus := []*GPU{GPUOf(80, "", 0), GPUOf(89, "", 0), GPUOf(90, "", 0), GPUOf(120, "", 0)}
	names := []string{"A100", "RTX 4090", "H100", "RTX 5090"}
	fmt.Fprintf(&b, "\n## Networks\n\nGPT-2 124M takes 8×1024 tokens, ResNet-50 64 images.\n\n| product | m×n×k | %s |\n| --- | --- | --- | --- | --- | --- |\n", strings.Join(names, " | "))
	var total, roofs, owns [4]float64
	// low[j][i] is the number of products that, on GPU i, reach less than 0.9 of the speed that
	// bound j allows.
	var low [2][4]int
	least := [4]float64{1, 1, 1, 1}
	products := modelledProducts()
	for _, p := range products {
		fmt.Fprintf(&b, "| %s, %s | %d×%d×%d", p.network, p.name, p.m, p.n, p.k)
		if p.batch > 1 {
			fmt.Fprintf(&b, ", %d", p.batch)
		}
		for i, g := range gpus {
			plan := p.plan(g)
			roof, own := p.bounds(g, plan)
			fmt.Fprintf(&b, " | %.0f, %.0f %% %v (%s)", 100*roof/plan.seconds, 100*own/plan.seconds, plan.form, p.limits(g, plan))
			total[i], roofs[i], owns[i] = total[i]+plan.seconds, roofs[i]+roof, owns[i]+own
			for j, bound := range []float64{roof, own} {
				if bound < 0.9*plan.seconds {
					low[j][i]++
				}
			}
			least[i] = min(least[i], own/plan.seconds)
			if own > 1.001*plan.seconds {
				t.Errorf("%s on %s: %.3g s, below its own bound of %.3g s", p.name, names[i], plan.seconds, own)
			}
		}
		b.WriteString(" |\n")
	}
	row := func(name string, f func(i int) string) {
		fmt.Fprintf(&b, "| %s | ", name)
		for i := range gpus {
			b.WriteString(" | " + f(i))
		}
		b.WriteString(" |\n")
	}
	row("by time, one of each", func(i int) string {
		return fmt.Sprintf("%.0f, %.0f %%", 100*roofs[i]/total[i], 100*owns[i]/total[i])
	})
	row(fmt.Sprintf("below 90 %%, of %d", len(products)), func(i int) string { return fmt.Sprintf("%d, %d", low[0][i], low[1][i]) })
	row("least share of its own bound", func(i int) string { return fmt.Sprintf("%.1f %%", 100*least[i]) })
	path := filepath.Join("..", "..", "..", "bench", "results", "products.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("%s is not what the model says (run with -update to accept what became better)", path)
	}
}

// TestProductModelSlots compares the model's estimate of instructions with the machine code. They
// must agree within a quarter.
func TestProductModelSlots(t *testing.T) {
	ptxas, nvdisasm := tool(t, "ptxas", "FLAMBEAU_PTXAS"), tool(t, "nvdisasm", "FLAMBEAU_NVDISASM")
	if ptxas == "" || nvdisasm == "" {
		t.Log("ptxas or nvdisasm was not found: the machine code was NOT read")
		return
	}
	for _, f := range tensorForms {
		for _, s := range loadsOf(f)[:1] {
			s.store = storePieces
			k, err := s.kernel()
			if err != nil {
				t.Fatal(err)
			}
			for _, arch := range []string{"sm_80", "sm_89", "sm_90", "sm_120"} {
				c, err := compiled(t.TempDir(), ptxas, nvdisasm, k, arch)
				if err != nil {
					t.Fatal(err)
				}
				if r := float64(len(c.loop)) / s.slots(); r < 0.8 || r > 1.25 {
					t.Errorf("%s for %s: a turn of %d instructions, the model says %.0f", k.Name, arch, len(c.loop), s.slots())
				}
				c.shared += k.DynShared
				if s.shared()+1<<10 <= 100<<10 && c.blocks() < f.blocks && f.blocks*(s.shared()+1<<10) <= smShared {
					t.Errorf("%s for %s: %v, want %d", k.Name, arch, c, f.blocks)
				}
			}
		}
	}
}

// TestProductModelAlwaysChooses plans products of every shape and storage order. The model must
// choose a form for each, and no block may have an empty part of k.
func TestProductModelAlwaysChooses(t *testing.T) {
	sizes := []int{1, 2, 3, 16, 31, 33, 64, 65, 200, 1000}
	for _, g := range []*GPU{GPUOf(80, "", 0), GPUOf(89, "", 16)} {
		for _, m := range sizes {
			for _, n := range sizes {
				for _, k := range append(sizes, 0, 5001) {
					for _, orders := range []string{"NN", "NT", "TN", "TT"} {
						p := modelled{"", "", orders, 1, m, n, k, false, false}
						plan := p.plan(g)
						if parts := plan.division.parts(k); plan.form.bm == 0 || k > 0 && parts < 1 || parts > max(1, k/64) || !(plan.seconds > 0 && plan.seconds < 1) {
							t.Fatalf("%s %d×%d×%d: %v in %d parts, %v s", orders, m, n, k, plan.form, parts, plan.seconds)
						}
					}
				}
			}
		}
	}
}
