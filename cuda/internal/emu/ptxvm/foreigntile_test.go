package ptxvm

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// small returns n multiples of 1/4 between -2 and 2. In all formats used here, their products and
// sums are exact.
func small(n int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 3))
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.IntN(17)-8) / 4
	}
	return v
}

// encode returns the bits of the numbers as values of the given type, and the size of one value in
// bytes.
func encode(v []float64, kind string) (bits []uint64, size int) {
	for _, x := range v {
		switch b := u32(float32(x)); kind {
		case "f16":
			bits, size = append(bits, binary32.convert(binary16, b, "rn")), 2
		case "bf16":
			bits, size = append(bits, binary32.convert(bfloat16, b, "rn")), 2
		case "f32":
			bits, size = append(bits, b), 4
		case "f64":
			bits, size = append(bits, math.Float64bits(x)), 8
		case "s8", "u8":
			bits, size = append(bits, uint64(uint8(int8(x)))), 1
		case "s32":
			bits, size = append(bits, uint64(uint32(int32(x)))), 4
		}
	}
	return bits, size
}

func decodeBits(v []uint64, kind string) (out []float64) {
	for _, b := range v {
		switch kind {
		case "f16", "bf16":
			f := map[string]ieee{"f16": binary16, "bf16": bfloat16}[kind]
			out = append(out, float64(f32(f.convert(binary32, b, "rn"))))
		case "f32":
			out = append(out, float64(f32(b)))
		case "f64":
			out = append(out, f64(b))
		case "s32":
			out = append(out, float64(int32(b)))
		}
	}
	return out
}

// multiplyPlain returns the product of a (M×K) and b (K×N).
func multiplyPlain(a, b []float64, M, N, K int) []float64 {
	c := make([]float64, M*N)
	for i := range M {
		for j := range N {
			for k := range K {
				c[i*N+j] += a[i*K+k] * b[k*N+j]
			}
		}
	}
	return c
}

func transposed(v []float64, rows, cols int) []float64 {
	t := make([]float64, len(v))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = v[i*cols+j]
		}
	}
	return t
}

func (d *device) numbers(v []float64, kind, label string) uint64 {
	bits, size := encode(v, kind)
	return d.words(bits, size, label)
}

func (d *device) wantNumbers(what string, addr uint64, kind string, want []float64, tolerance float64) {
	d.t.Helper()
	_, size := encode([]float64{0}, kind)
	if err := d.mem.CheckInitialised(addr, uint64(size*len(want))); err != nil {
		d.t.Fatalf("%s: %v", what, err)
	}
	for i, g := range decodeBits(d.read(addr, len(want), size), kind) {
		if !(math.Abs(g-want[i]) <= tolerance*math.Max(1, math.Abs(want[i]))) {
			d.t.Fatalf("%s: element %d is %g, want %g", what, i, g, want[i])
		}
	}
}

func TestForeignTiles(t *testing.T) {
	for _, sm := range []string{"sm_80", "sm_90"} {
		m := "tiles." + sm
		d := newDevice(t)
		scaled := func(v []float64, s float64) []float64 {
			v = slices.Clone(v)
			for i := range v {
				v[i] *= s
			}
			return v
		}
		for _, c := range []struct {
			entry, in, acc string
			colA, colB     bool
		}{{"wmma_f16", "f16", "f32", false, false}, {"wmma_f16_col", "f16", "f32", false, true}, {"wmma_f16_shared", "f16", "f32", true, false}, {"wmma_s8", "s8", "s32", false, true},
			{"wmma_bf16", "bf16", "f32", false, false}, {"wmma_tf32", "f32", "f32", false, false}, {"wmma_f64", "f64", "f64", false, false}} {
			a, b, add := small(256, 1), small(256, 2), small(256, 3)
			if c.in == "s8" {
				a, b, add = scaled(a, 60), scaled(b, 60), scaled(add, 400)
			}
			want := multiplyPlain(a, b, 16, 16, 16)
			for i := range want {
				want[i] = 2 * (want[i] + add[i])
			}
			if c.colA {
				a = transposed(a, 16, 16)
			}
			if c.colB {
				b = transposed(b, 16, 16)
			}
			out := d.alloc(8*256, "d")
			if c.entry == "wmma_f16_shared" {
				want = transposed(want, 16, 16) // the kernel stores the product in column order
			}
			d.start(m, c.entry, line(1, 32), d.numbers(a, c.in, "a"), d.numbers(b, c.in, "b"), d.numbers(add, c.acc, "c"), out)
			d.wantNumbers(sm+" "+c.entry, out, c.acc, want, 0)
		}

		p := random32(32*16, 8)
		for i := range p {
			p[i] &= 0xffff
		}
		out := d.results(32, 12)
		d.start(m, "ldmatrices", line(1, 32), d.words(p, 2, "p"), out, 32)
		// plain returns the two neighbouring elements that lane l holds of an 8×8 matrix, whose
		// first element is at row r and column c.
		plain := func(r, c, l int) uint64 { return p[(r+l/4)*16+c+l%4*2] | p[(r+l/4)*16+c+l%4*2+1]<<16 }
		trans := func(r, c, l int) uint64 { return p[(r+l%4*2)*16+c+l/4] | p[(r+l%4*2+1)*16+c+l/4]<<16 }
		d.expect(sm+" ldmatrix", out, 32, func(l, j int) (uint64, bool) {
			v := []uint64{plain(0, 0, l), trans(0, 0, l), plain(0, 0, l), plain(8, 0, l), plain(0, 0, l), plain(8, 0, l), plain(0, 8, l), plain(8, 8, l),
				trans(0, 0, l), trans(8, 0, l), trans(0, 8, l), trans(8, 8, l)}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})

		const n = 64
		q := random32(n, 21)
		out = d.results(n, 6)
		d.start(m, "copies", line(1, n), d.words(q, 4, "q"), out, n)
		d.expect(sm+" copies", out, n, func(i, j int) (uint64, bool) {
			part := func(v uint64, bytes int) uint64 { return v & (1<<(8*max(0, min(4, bytes))) - 1) }
			v := []uint64{q[i], part(q[i], i%5), q[i], part(q[i], 2*(i/2%5)-4*(i%2)), q[i], q[i]}
			if i/4%2 == 1 {
				v[5] = 0
			}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})

		const threads = 128
		out = d.results(threads, 6)
		d.start(m, "mbarriers", line(1, threads), d.words(q, 4, "q"), out, threads)
		d.expect(sm+" mbarriers", out, threads, func(i, j int) (uint64, bool) {
			v := make([]uint64, 6)
			if v[4], v[5] = 1, 1; i >= 32 {
				for r := range 3 {
					v[r] = (q[(i+r)&31] + uint64(r)) & 0xffffffff
				}
				v[3] = q[i&31]
			}
			if j < len(v) {
				return v[j], true
			}
			return 0, false
		})

		a, b := small(256, 5), small(128, 6) // b has 8 columns of 16 elements
		r := rand.New(rand.NewPCG(7, 7))
		var ka, kb []uint64
		for range 512 {
			ka, kb = append(ka, uint64(r.IntN(256))), append(kb, uint64(r.IntN(256)))
		}
		da, db := small(32, 8), small(32, 9)
		o32, o16, os32, o64 := d.alloc(512, "f32"), d.alloc(512, "f16"), d.alloc(512, "s32"), d.alloc(512, "f64")
		d.start(m, "mmas", line(1, 32), d.numbers(a, "f16", "a"), d.numbers(b, "f16", "b"), d.words(ka, 1, "ka"), d.words(kb[:256], 1, "kb"), d.numbers(da, "f64", "da"), d.numbers(db, "f64", "db"), o32, o16, os32, o64)
		want := multiplyPlain(a, transposed(b, 8, 16), 16, 8, 16)
		d.wantNumbers(sm+" mma f16", o32, "f32", want, 0)
		d.wantNumbers(sm+" mma in half", o16, "f32", want, 0)
		d.wantNumbers(sm+" mma f64", o64, "f64", multiplyPlain(da, transposed(db, 8, 4), 8, 8, 4), 0)
		ints := make([]float64, 128)
		for i := range 16 {
			for j := range 8 {
				// the sum of each element starts with a number from 1 to 4, which depends on its
				// index in the fragment
				s := float64(i/8*2 + j%2 + 1)
				for k := range 32 {
					s += float64(int8(ka[i*32+k])) * float64(kb[j*32+k])
				}
				for k := range 16 {
					s += float64(ka[i*32+k]) * float64(int8(kb[j*32+k]))
				}
				ints[i*8+j] = s
			}
		}
		d.wantNumbers(sm+" mma of bytes", os32, "s32", ints, 0)
	}
}

// TestForeignTriton runs kernels that Triton compiled. They use mma, ldmatrix and cp.async as
// Triton's authors understand the ISA.
func TestForeignTriton(t *testing.T) {
	raw, err := os.ReadFile("testdata/foreign/triton.json")
	if err != nil {
		t.Fatal(err)
	}
	var launches map[string]struct {
		Entry           string
		Threads, Shared uint32
	}
	if err := json.Unmarshal(raw, &launches); err != nil {
		t.Fatal(err)
	}
	for _, sm := range []string{"sm_80", "sm_90"} {
		d := newDevice(t)
		run := func(name string, x, y uint32, params ...any) {
			t.Helper()
			l := launches["triton_"+name+"."+sm]
			// the last two parameters are scratch memory, which these kernels do not use
			d.start("triton_"+name+"."+sm, l.Entry, shape{grid: [3]uint32{x, y, 1}, block: [3]uint32{l.Threads, 1, 1}, dyn: l.Shared}, append(params, uint64(0), uint64(0))...)
		}
		a, b := small(1000, 1), small(1000, 2)
		sum := make([]float64, 1000)
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
		out := d.alloc(4000, "sums")
		run("add", 4, 1, d.numbers(a, "f32", "a"), d.numbers(b, "f32", "b"), out, 1000)
		d.wantNumbers(sm+" add", out, "f32", sum, 0)

		rows, columns := 3, 300
		v := small(rows*columns, 3)
		soft, norm := make([]float64, len(v)), make([]float64, len(v))
		weight, bias := small(columns, 4), small(columns, 5)
		for r := range rows {
			row := v[r*columns : (r+1)*columns]
			var total, mean, square float64
			for _, x := range row {
				total += math.Exp(x)
			}
			for i, x := range row {
				soft[r*columns+i] = math.Exp(x) / total
			}
			row = v[r*208 : (r+1)*208]
			for _, x := range row {
				mean += x / 208
			}
			for _, x := range row {
				square += (x - mean) * (x - mean) / 208
			}
			for i, x := range row {
				norm[r*208+i] = (x-mean)/math.Sqrt(square+1e-5)*weight[i] + bias[i]
			}
		}
		out = d.alloc(4*len(v), "softmax")
		run("softmax", uint32(rows), 1, d.numbers(v, "f32", "v"), out, columns)
		d.wantNumbers(sm+" softmax", out, "f32", soft, 1e-6)
		out = d.alloc(2*rows*208, "layer norm")
		run("layernorm", uint32(rows), 1, d.numbers(v[:rows*208], "f16", "v"), d.numbers(weight, "f32", "w"), d.numbers(bias, "f32", "b"), out, 208, float32(1e-5))
		d.wantNumbers(sm+" layer norm", out, "f16", norm[:rows*208], 2e-3)

		M, N, K := 70, 80, 48
		for _, c := range []struct {
			kind, in, acc string
			m, n          uint32
			scale         float64
		}{{"fp16", "f16", "f32", 32, 32, 1}, {"bf16", "bf16", "f32", 32, 64, 1}, {"tf32", "f32", "f32", 32, 32, 1}, {"fp32", "f32", "f32", 16, 32, 1}, {"int8", "s8", "s32", 32, 32, 60}} {
			a, b := small(M*K, 6), small(K*N, 7)
			for i := range a {
				a[i] *= c.scale
			}
			for i := range b {
				b[i] *= c.scale
			}
			out := d.alloc(4*M*N, "product")
			run("matmul_"+c.kind, (uint32(M)+c.m-1)/c.m, (uint32(N)+c.n-1)/c.n, d.numbers(a, c.in, "a"), d.numbers(b, c.in, "b"), out, M, N, K)
			d.wantNumbers(sm+" matmul "+c.kind, out, c.acc, multiplyPlain(a, b, M, N, K), 0)
		}

		const n, D = 50, 32
		q, k, w := small(n*D, 8), small(n*D, 9), small(n*D, 10)
		att := make([]float64, n*D)
		s := multiplyPlain(q, transposed(k, n, D), n, n, D)
		for i := range n {
			total := 0.0
			for j := range i + 1 {
				total += math.Exp(s[i*n+j] * 0.125)
			}
			for j := range i + 1 {
				for e := range D {
					att[i*D+e] += math.Exp(s[i*n+j]*0.125) / total * w[j*D+e]
				}
			}
		}
		out = d.alloc(2*n*D, "attention")
		run("attention", 2, 1, d.numbers(q, "f16", "q"), d.numbers(k, "f16", "k"), d.numbers(w, "f16", "v"), out, n, float32(0.125))
		d.wantNumbers(sm+" attention", out, "f16", att, 3e-3)

		const length, bins, count = 256, 16, 3
		x := random32(count*length, 12)
		sums, sorted, largest, where, histogram := d.alloc(4*len(x), "sums"), d.alloc(4*len(x), "sorted"), d.alloc(4*count, "largest"), d.alloc(4*count, "where"), d.words(make([]uint64, bins+2), 4, "histogram")
		run("sequence", count, 1, d.words(x, 4, "x"), sums, sorted, largest, where, histogram, length)
		var wantSums, wantSorted, wantLargest, wantWhere []uint64
		wantHistogram := make([]uint64, bins+2)
		for r := range count {
			row := x[r*length : (r+1)*length]
			total, best := uint32(0), 0
			var order []int32
			for i, y := range row {
				total += uint32(y)
				wantSums = append(wantSums, uint64(total))
				order = append(order, int32(y))
				if int32(y) > int32(row[best]) {
					best = i
				}
				wantHistogram[y&(bins-1)]++
			}
			slices.Sort(order)
			for _, y := range order {
				wantSorted = append(wantSorted, uint64(uint32(y)))
			}
			wantLargest, wantWhere = append(wantLargest, row[best]), append(wantWhere, uint64(best))
			wantHistogram[bins] = max(wantHistogram[bins], row[best])
		}
		wantHistogram[bins+1] = 7
		for _, c := range []struct {
			what string
			at   uint64
			want []uint64
		}{{"cumsum", sums, wantSums}, {"sort", sorted, wantSorted}, {"max", largest, wantLargest}, {"argmax", where, wantWhere}, {"atomics", histogram, wantHistogram}} {
			if got := d.read(c.at, len(c.want), 4); !slices.Equal(got, c.want) {
				t.Errorf("%s %s: %x, want %x", sm, c.what, got, c.want)
			}
		}

		v = small(80*96, 13)
		out = d.alloc(2*len(v), "transposed")
		run("transpose", 3, 2, d.numbers(v, "f16", "v"), out, 80, 96)
		d.wantNumbers(sm+" transpose", out, "f16", transposed(v, 80, 96), 0)
	}
}
