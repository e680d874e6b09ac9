package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stories are the layers of the packages from the top, each with its purpose. TestFloors compares
// them with the table of layers in internal/arch.
var stories = []struct {
	color, packages, words string
}{
	{"#e4ecf7", "cmd examples bench", "programs"},
	{"#e4ecf7", "train", "the loop around a step"},
	{"#e4ecf7", "checkpoint", "the state of a training in files"},
	{"#e4ecf7", "dist", "ranks, collectives, DDP, ZeRO"},
	{"#e3f2e6", "optim amp models", "steps, loss scaling, whole networks"},
	{"#e3f2e6", "nn", "layers as plain structs"},
	{"#e3f2e6", "autograd profile data safetensors torchfile npy", "libraries that use tensors"},
	{"#fff4d6", "tensor", "tensors, scopes, ops, gradients"},
	{"#fde6dc", "cpu cuda", "the drivers"},
	{"#fde6dc", "internal/pool", "the allocator of the drivers"},
	{"#f3e4f5", "device ptx", "the door to drivers; text of kernels"},
	{"#eef1f4", "shape expr", "layouts; formulas of an element"},
	{"#eef1f4", "dtype", "element types"},
}

// floors draws a diagram of the layers of packages. A package may import only packages of lower
// layers.
func floors() string {
	d := draw(900, 44*len(stories)+66)
	for i, s := range stories {
		y := 10 + 44*i
		d.box(10, y, 880, 38, s.color, "#7b8794")
		x := 24
		for _, p := range strings.Fields(s.packages) {
			d.code(x, y+24, p)
			x += 9*len(p) + 22
		}
		d.text(590, y+24, "normal", s.words)
	}
	y := 10 + 44*len(stories)
	d.text(24, y+22, "normal", "A package imports only packages on lower floors, as far as the table allows.")
	d.text(24, y+42, "normal", "cpu and cuda do not import tensor. Only programs import cuda. vet imports nothing of the project.")
	return d.done()
}

// The diagram of the layers shows each package of the table once, above all packages that it may
// import.
func TestFloors(t *testing.T) {
	table := floorsOfTable(t)
	at := map[string]int{}
	for i, s := range stories {
		for _, p := range strings.Fields(s.packages) {
			if _, twice := at[p]; twice || table[p] == nil {
				t.Errorf("%s is in the picture twice, or not in the table of internal/arch/floors.go", p)
			}
			at[p] = i
		}
	}
	for p, on := range table {
		if strings.Contains(p, "/") && at[p] == 0 || p == "vet" || p == "." {
			// The package p belongs to another row or has no layer. The root package "." has no
			// layer, because it has a comment but no code.
			continue
		}
		if _, there := at[p]; !there {
			t.Errorf("%s is not in the picture of the floors", p)
		}
		for _, q := range on {
			if i, there := at[q]; there && i <= at[p] {
				t.Errorf("%s stands on %s, which the picture does not have below it", p, q)
			}
		}
	}
}

// floorsOfTable returns the packages in the table of layers, and the imports of each. A row for all
// packages below a folder has the folder's name.
func floorsOfTable(t *testing.T) map[string][]string {
	f, err := parser.ParseFile(token.NewFileSet(), "../internal/arch/floors.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || v.Names[0].Name != "floors" {
			return !ok
		}
		for _, row := range v.Values[0].(*ast.CompositeLit).Elts {
			list := []string{}
			ast.Inspect(row, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok {
					s, err := strconv.Unquote(l.Value)
					if err != nil {
						t.Fatal(err)
					}
					list = append(list, strings.TrimSuffix(s, "/..."))
				}
				return true
			})
			table[list[0]] = slices.Clip(list[1:])
		}
		return false
	})
	if len(table) < 30 {
		t.Fatalf("the table has %d packages", len(table))
	}
	return table
}

// step draws a box for one step of a path. The box shows the step's code, and a description below
// the code.
func (d *drawing) step(x, y, w int, fill, code string, words ...string) {
	d.box(x, y, w, 28+18*len(words), fill, "#7b8794")
	d.code(x+10, y+20, code)
	for i, s := range words {
		d.text(x+10, y+38+18*i, "normal", s)
	}
}

func (d *drawing) line(x1, y1, x2, y2 int) {
	turn := math.Atan2(float64(y2-y1), float64(x2-x1))
	// headStart returns a coordinate of the point at which the arrow's head begins.
	headStart := func(v int, part float64) int { return v - int(math.Round(6*part)) }
	fmt.Fprintf(d, "<path d=\"M%d %dL%d %d\" stroke=\"#2f6db5\" stroke-width=\"2\"/>\n", x1, y1, headStart(x2, math.Cos(turn)), headStart(y2, math.Sin(turn)))
	fmt.Fprintf(d, "<path d=\"M0 0l-8 -5v10z\" fill=\"#2f6db5\" transform=\"translate(%d %d) rotate(%.0f)\"/>\n", x2, y2, turn*180/math.Pi)
}

// matmulPath draws the path of x.MatMul(y) down to the multiplication.
func matmulPath() string {
	const tensor, door, cpu, cuda = "#fff4d6", "#f3e4f5", "#fde6dc", "#fde6dc"
	d := draw(900, 560)
	d.text(20, 30, "bold", "tensor")
	d.step(20, 42, 200, tensor, "x.MatMul(y)", "compares shapes, types", "and devices")
	d.line(220, 74, 245, 74)
	d.step(245, 42, 200, tensor, "Apply", "finds the scope,", "records a node")
	d.line(445, 74, 470, 74)
	d.step(470, 42, 200, tensor, "matmulFunc.Forward", "makes the result,", "saves operands")
	d.line(670, 74, 695, 74)
	d.step(695, 42, 185, tensor, "multiplyAdd", "fills a primitive,", "asks Supports")
	d.line(788, 106, 788, 142)
	d.step(580, 142, 300, tensor, "launch", "orders memory between streams,", "asks whether a graph records")
	d.line(580, 174, 520, 174)
	d.text(220, 130, "bold", "device")
	d.step(220, 142, 300, door, "device.Run", "checks operands and memory,", "tells the tracer")
	d.line(300, 206, 170, 250)
	d.line(440, 206, 620, 250)
	d.text(20, 242, "bold", "cpu")
	d.step(20, 254, 300, cpu, "Device.Run", "a switch on the primitive's type")
	d.line(170, 300, 170, 330)
	d.step(20, 330, 300, cpu, "Device.matMul", "bias, 16-bit floats, activation")
	d.line(170, 376, 170, 406)
	d.step(20, 406, 300, cpu, "gemm.F32", "panels in the caches; workers", "share them; done on return")
	d.text(420, 242, "bold", "cuda")
	d.step(420, 254, 460, cuda, "Device.Run", "plans the launches; scratch memory is the pool's")
	d.line(650, 300, 650, 330)
	d.step(420, 330, 460, cuda, "kernels.MatMulSplit", "chooses a form by a model of the GPU; gives the PTX")
	d.line(650, 376, 650, 406)
	d.step(420, 406, 460, cuda, "Device.queue", "loads a kernel that is new, and queues it:")
	d.line(500, 452, 500, 490)
	d.line(650, 452, 650, 490)
	d.line(800, 452, 800, 490)
	d.step(420, 490, 145, cuda, "cu.API", "the driver")
	d.step(577, 490, 146, cuda, "emu", "the emulator")
	d.step(735, 490, 145, cuda, "lane", "a recording")
	return d.done()
}

// backwardPath draws the path of gradients through a small graph.
func backwardPath() string {
	const leaf, node, vjp = "#e4ecf7", "#fff4d6", "#fde6dc"
	d := draw(900, 430)
	d.text(20, 28, "bold", "forward: y = x.MatMul(w).Add(b).Relu().Sum()")
	d.step(20, 44, 120, leaf, "x", "of the batch")
	d.step(20, 108, 120, leaf, "w", "a leaf")
	d.step(20, 172, 120, leaf, "b", "a leaf")
	for i, op := range []string{"matmul", "add", "relu", "sum"} {
		x := 210 + 175*i
		d.step(x, 76, 130, node, op, fmt.Sprintf("node %d", i+1))
		if i < 3 {
			d.line(x+130, 99, x+175, 99)
		}
	}
	d.line(140, 70, 210, 88)
	d.line(140, 128, 210, 110)
	d.line(140, 190, 390, 124)
	d.text(20, 268, "bold", "Backward: the highest number first")
	d.step(735, 284, 130, vjp, "VJP", "of node 4: g is 1")
	d.step(560, 284, 130, vjp, "VJP", "of node 3")
	d.step(385, 284, 130, vjp, "VJP", "of node 2")
	d.step(210, 284, 130, vjp, "VJP", "of node 1")
	for i := range 3 {
		d.line(735-175*i, 307, 690-175*i, 307)
	}
	d.line(800, 122, 800, 284)
	d.step(20, 284, 130, leaf, "w.Grad()", "in w's scope")
	d.line(210, 307, 150, 307)
	d.step(20, 356, 130, leaf, "b.Grad()", "in b's scope")
	d.line(450, 330, 152, 376)
	d.text(470, 376, "normal", "Each VJP runs in a scope of its own, which then ends.")
	d.text(470, 396, "normal", "x needs no gradient, so none is computed.")
	return d.done()
}

// kernelPath draws the readers of a kernel's PTX text. All checks read the text that a GPU runs.
func kernelPath() string {
	const program, text, reader = "#fff4d6", "#f3e4f5", "#fde6dc"
	d := draw(900, 300)
	d.step(20, 118, 230, program, "cuda/internal/kernels", "a Go program of a family,", "run once a specification")
	d.line(250, 150, 300, 150)
	d.step(300, 118, 200, text, "ptx.Builder", "checks, improves and", "prints the PTX text")
	d.line(500, 140, 560, 60)
	d.line(500, 150, 560, 150)
	d.line(500, 160, 560, 240)
	d.step(560, 20, 320, reader, "Device.load", "the driver compiles it for the GPU;", "the code is cached on disk")
	d.step(560, 118, 320, reader, "ptxvm.Parse", "the emulator runs it, and finds races,", "bad accesses, divided barriers")
	d.step(560, 216, 320, reader, "ptxas", "NVIDIA's assembler, in CI: no spills,", "machine code within its floors")
	d.text(20, 260, "normal", "One text has three readers. The GPU gets")
	d.text(20, 280, "normal", "the same text that the tests have run.")
	return d.done()
}
