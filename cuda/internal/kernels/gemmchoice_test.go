package kernels

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// choices plans o and returns the choices that the planner offers to its Chooser. The Chooser
// leaves each choice to the model.
func choices(t *testing.T, g *GPU, o ProductOperands, scratch Scratch) (list []*Choice) {
	t.Helper()
	o.Choose = func(c *Choice) (Form, bool) {
		list = append(list, c)
		return Form{}, false
	}
	if _, err := MatMulSplit(g, o, scratch); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestChosenForms computes products with every form that a Chooser may choose. The results must be
// right. A trial must not change the results.
func TestChosenForms(t *testing.T) {
	const f32, bf16 = dtype.F32, dtype.BF16
	for _, c := range []struct {
		name    string
		a, b    dtype.Type
		d       [4]int // sizes of batch, m, n and k
		strided bool   // rows begin at misaligned addresses
		more    func(m *machine, o *ProductOperands)
		forms   int
	}{
		{"float32", f32, f32, [4]int{1, 40, 68, 260}, false, func(m *machine, o *ProductOperands) {
			o.Act, o.Pre = geluOf(f32), m.tensor(f32, dense(1, 40, 68), 0)
		}, 4},
		{"float32, sums", f32, f32, [4]int{1, 66, 68, 260}, true, func(m *machine, o *ProductOperands) { o.Sums = m.tensor(f32, dense(66), 0) }, 6},
		{"float64", dtype.F64, dtype.F64, [4]int{1, 20, 24, 300}, false, nil, 2},
		{"int32", dtype.I32, dtype.I32, [4]int{1, 40, 40, 300}, false, nil, 3},
		{"bfloat16", bf16, bf16, [4]int{1, 40, 72, 260}, false, func(m *machine, o *ProductOperands) {
			o.Bias, o.Sums = m.random(m.tensor(f32, dense(72), 0)), m.tensor(f32, dense(40), 0)
			o.Act, o.Pre = geluOf(bf16), m.tensor(bf16, dense(1, 40, 72), 0)
		}, 5},
		{"bfloat16, any rows", bf16, bf16, [4]int{2, 34, 65, 257}, true, nil, 3},
		{"float32 beside bfloat16", f32, bf16, [4]int{1, 70, 72, 128}, false, nil, 2},
		{"tf32", f32, f32, [4]int{1, 40, 72, 260}, false, func(_ *machine, o *ProductOperands) { o.TF32 = true }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			batch, rows, columns, k := c.d[0], c.d[1], c.d[2], c.d[3]
			matrix := func(typ dtype.Type, r, n int) Operand {
				l := dense(batch, r, n)
				if c.strided {
					l.Strides = shape.Of(r*(n+1), n+1, 1)
				}
				return m.tensor(typ, l, 0)
			}
			o := ProductOperands{Out: matrix(c.b, rows, columns), A: m.random(matrix(c.a, rows, k)), B: m.random(matrix(c.b, k, columns)), Counters: m.counters}
			if c.more != nil {
				c.more(m, &o)
			}
			list := choices(t, a100, o, m.scratch)
			if len(list) != 1 {
				t.Fatalf("%d choices", len(list))
			}
			choice := list[0]
			forms := choice.Forms()
			if len(forms) < c.forms || len(forms) > mostForms || forms[0] != choice.Planned() {
				t.Fatalf("%d forms, want %d to %d: %v", len(forms), c.forms, mostForms, forms)
			}
			nan := func(int) uint64 { return expr.Encode(c.b, math.NaN()) }
			var want []uint64
			for _, f := range forms {
				m.fill(o.Out, nan)
				trial, err := choice.Trial(f, m.scratch)
				if err != nil {
					t.Fatal(err)
				}
				if want == nil {
					m.run(trial, nil)
					if got := m.read(o.Out); got[0] != nan(0) || got[len(got)-1] != nan(0) {
						t.Fatalf("%v: a trial stores its results in their place", f)
					}
				}
				var taken Product
				o.Choose = func(c *Choice) (Form, bool) {
					taken = c.Product()
					return f, true
				}
				launches, err := MatMulSplit(a100, o, m.scratch)
				if err != nil || taken != choice.Product() {
					t.Fatalf("%v, %v", taken, err)
				}
				same := func(x, y Launch) bool { return x.Kernel == y.Kernel && x.Grid == y.Grid }
				if !slices.EqualFunc(trial, launches, same) {
					t.Fatalf("%v: its trial has other kernels", f)
				}
				m.run(launches, nil)
				got := m.read(o.Out)
				if want == nil {
					want = got
				}
				for i := range got {
					x, y := expr.Decode(c.b, got[i]), expr.Decode(c.b, want[i])
					if tolerance := math.Abs(y)/64 + 0.1; !(math.Abs(x-y) <= tolerance) {
						t.Fatalf("%v: element %d is %v, with %v it is %v", f, i, x, forms[0], y)
					}
				}
			}
		})
	}
}

// TestChoicesTake checks the forms worth measuring for every shape and storage order. Each must
// survive being written to a file and read back. A form that does not fit the product must be
// refused.
func TestChoicesTake(t *testing.T) {
	sizes, seen := []int{2, 16, 33, 200, 1000}, map[string]Product{}
	for _, g := range []*GPU{a100, GPUOf(89, "", 16)} {
		for i := range len(sizes) * len(sizes) * len(sizes) {
			rows, columns, k := sizes[i%5], sizes[i/5%5], 5*sizes[i/25]
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.I64} {
				o := ProductOperands{Out: fake(typ, 1, rows, columns), A: fake(typ, 1, rows, k), B: fake(typ, 1, k, columns), Counters: fakeCounters}
				if i%2 == 0 {
					o.A.Strides = shape.Of(rows*k, 1, rows)
				}
				c := choices(t, g, o, fakeScratch)[0]
				p := c.Product()
				if q, ok := seen[p.String()]; ok && q != p {
					t.Fatalf("two products are called %v", p)
				}
				seen[p.String()] = p
				for _, f := range c.Forms() {
					text, err := json.Marshal(f)
					var read Form
					if err == nil {
						err = json.Unmarshal(text, &read)
					}
					if err != nil || read != f || !c.Takes(read) {
						t.Fatalf("%v: %s is not taken, %v", p, text, err)
					}
					for _, wrong := range []func(f *Form){
						func(f *Form) { f.Tile[0]++ }, func(f *Form) { f.Stages += 9 }, func(f *Form) { f.Chunk = 100 }, func(f *Form) { f.Chunk = -64 },
						func(f *Form) { f.Whole = -1 }, func(f *Form) { f.Share = f.Share || f.Chunk == 0 }, func(f *Form) { f.Whole, f.Chunk = 1<<40, 64 }, func(f *Form) { f.Chunk = 64 * k }, func(f *Form) { f.CopyA = f.CopyA != !p.canA }, func(f *Form) { f.CopyB = f.CopyB != !p.canB },
					} {
						f := f
						if wrong(&f); f != read && c.Takes(f) {
							t.Fatalf("%v: %+v is taken", p, f)
						}
					}
				}
			}
		}
	}
}

// TestChoiceOfManyParts offers forms whose partial sums would need more memory than a planner ever
// requests. They must be refused.
func TestChoiceOfManyParts(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
		o := ProductOperands{Out: fake(typ, 1, 4096, 4096), A: fake(typ, 1, 4096, 4096), B: fake(typ, 1, 4096, 4096), Counters: fakeCounters}
		c, taken := choices(t, a100, o, fakeScratch)[0], 0
		for _, f := range c.Forms() {
			f.Whole = 0
			for f.Chunk = 64; f.Chunk < 4096; f.Chunk += 64 {
				total := 0
				if _, err := c.Trial(f, func(bytes int) (uint64, error) { total += bytes; return 1 << 20, nil }); err != nil {
					continue
				}
				if taken++; total > 1<<30 {
					t.Fatalf("%v, %v: %d bytes", c.Product(), f, total)
				}
			}
		}
		if typ == dtype.BF16 && taken == 0 {
			t.Errorf("%v: no division is taken", c.Product())
		}
	}
}

// TestChoiceOfNoForm lets a Chooser return the form of another product. The model's plan must be
// used.
func TestChoiceOfNoForm(t *testing.T) {
	o := ProductOperands{Out: fake(dtype.BF16, 1, 64, 64), A: fake(dtype.BF16, 1, 64, 64), B: fake(dtype.BF16, 1, 64, 64), Counters: fakeCounters}
	want, err := MatMulSplit(a100, o, fakeScratch)
	if err != nil {
		t.Fatal(err)
	}
	o.Choose = func(*Choice) (Form, bool) { return Form{Tile: [3]int{64, 64, 999}}, true }
	got, err := MatMulSplit(a100, o, fakeScratch)
	if err != nil || got[0].Kernel != want[0].Kernel {
		t.Errorf("%v, %v", got, err)
	}
	c := choices(t, a100, o, fakeScratch)[0]
	if _, err := c.Trial(Form{}, fakeScratch); err == nil {
		t.Error("a trial of no form")
	}
	// With a k of 0 the Chooser must not be called.
	o.A, o.B = fake(dtype.BF16, 1, 64, 0), fake(dtype.BF16, 1, 0, 64)
	if list := choices(t, a100, o, fakeScratch); len(list) > 0 {
		t.Errorf("%v", list[0].Product())
	}
}
