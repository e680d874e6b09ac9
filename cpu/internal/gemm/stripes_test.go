package gemm

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// withProcs calls f with the given number of processors.
func withProcs(n int, f func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	f()
}

// TestStripes computes the same products with tasks that are stripes and with tasks that are tiles.
// The bits must be equal. With very many processors, no task is a stripe.
func TestStripes(t *testing.T) {
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			shapes := [][3]int{{340, 70, 900}, {191, 300, 31}, {530, 290, 401}}
			if variant != asm.Variants()[0] {
				shapes = append(shapes, [3]int{400, 2100, 2100}, [3]int{4200, 40, 2049})
			}
			testStripes(t, F32, active32().height, shapes)
			testStripes(t, F64, active64().height, shapes[:3])
			if kern := activeBF16(); kern != nil {
				withoutTiles = true
				defer func() { withoutTiles = false }()
				testStripes(t, roundedResult, kern.height, [][3]int{{340, 700, 6000}, {700, 2100, 100}})
				testStripes(t, summed, kern.height, [][3]int{{340, 700, 4100}, {191, 300, 90}})
			}
		})
	}
}

// roundedResult multiplies as the function summed does, and rounds the sums to bfloat16. If
// accumulate is true, each sum begins with a bias.
func roundedResult(par Parallel, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	var bias []float32
	for j := 0; accumulate && j < n; j++ {
		bias = append(bias, float32(j%5))
	}
	out := make([]uint16, m*n)
	BF16Rounded(par, m, n, k, encoded(a), ars, acs, encoded(b), brs, bcs, bias, out, n, 1)
	for i := range m {
		for j := range n {
			c[i*crs+j*ccs] = decode(out[i*n+j])
		}
	}
}

// summed converts factors to bfloat16 and multiplies them. It computes the sums in float32.
func summed(par Parallel, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	BF16(par, m, n, k, encoded(a), ars, acs, encoded(b), brs, bcs, c, crs, ccs, accumulate)
}

// encoded returns the elements of x as bfloat16.
func encoded(x []float32) []uint16 {
	y := make([]uint16, len(x))
	for i, v := range x {
		y[i] = encode(v)
	}
	return y
}

func testStripes[T float](t *testing.T, f gemmFunc[T], height int, shapes [][3]int) {
	defer func(s bool, bytes int) { streams, streamBytes = s, bytes }(streams, streamBytes)
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range shapes {
		m, n, k := s[0], s[1], s[2]
		a, b := newMatrix[T](r, m, k, r.IntN(4)), newMatrix[T](r, k, n, r.IntN(4))
		if m*n*k > 1<<28 {
			a, b = newMatrix[T](r, m, k, 0), newMatrix[T](r, k, n, r.IntN(2))
		}
		start := newMatrix[T](r, m, n, r.IntN(3))
		accumulate := r.IntN(2) == 0
		run := func(par Parallel) []T {
			c := slices.Clone(start.data)
			f(par, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, c, start.rs, start.cs, accumulate)
			return c
		}
		var want []T
		withProcs(256, func() {
			if enoughForStripes(ceil(m, height), 256) {
				t.Fatalf("%v: stripes, want tiles", s)
			}
			want = run(goroutines)
		})
		for _, streams = range []bool{false, true} {
			streamBytes = 0
			for procs := 1; procs <= 3; procs++ {
				withProcs(procs, func() {
					if procs == 1 && !enoughForStripes(ceil(m, height), procs) {
						t.Fatalf("%v: tiles, want stripes", s)
					}
					got := run(goroutines)
					for i, v := range got {
						if v != want[i] {
							t.Fatalf("%v, A by %d and %d, B by %d and %d, accumulate %v, streams %v, %d processors: element %d is %v, want %v", s, a.rs, a.cs, b.rs, b.cs, accumulate, streams, procs, i, v, want[i])
						}
					}
				})
			}
		}
	}
}

// TestDivide checks that stripes cover all tiles once, and that the workers' shares are about equal
// if each takes a stripe whenever it has nothing to do.
func TestDivide(t *testing.T) {
	const panelsB, tileB = 29, 8
	for procs := 1; procs <= 8; procs++ {
		for panels := leastStripe * perWorker * procs; panels < 400; panels += 7 {
			j := job[float32, float32]{panelsA: panels, panelsB: panelsB, tileB: tileB, workers: procs}
			j.divide()
			at := stripe{}
			done := make([]int, procs) // number of tiles of each worker
			for _, s := range j.list {
				if s.a0 != at.a0 || s.b0 != at.b0 || s.a1 <= s.a0 || s.a1 > s.a0+tilePanelsA || s.b1 <= s.b0 {
					t.Fatalf("%d panels, %d workers: stripe %v follows %v", panels, procs, s, at)
				}
				if at = s; s.b1 == panelsB {
					at.a0, at.b0 = s.a1, 0
				} else {
					at.b0 = s.b1
				}
			}
			if at.a0 != panels || at.b0 != 0 {
				t.Fatalf("%d panels, %d workers: the last stripe is %v", panels, procs, at)
			}
			for front, back := 0, len(j.list)-1; front <= back; {
				w := 0
				for i, d := range done {
					if d < done[w] {
						w = i
					}
				}
				s := j.list[front]
				if w == 0 {
					front++
				} else {
					s = j.list[back]
					back--
				}
				done[w] += (s.a1 - s.a0) * (s.b1 - s.b0)
			}
			most := 2 * panelsB
			if procs == 2 {
				most = 2 * tileB
			}
			if slices.Max(done)-slices.Min(done) > most {
				t.Errorf("%d panels, %d workers: numbers of tiles %v", panels, procs, done)
			}
		}
	}
}

// TestHeldMemory checks that a product's large buffers go back to the system when its job is
// garbage, and that a larger product replaces them.
func TestHeldMemory(t *testing.T) {
	h := func() *held {
		j := new(job[float32, float32])
		buf := j.large(&j.heldB, nil, 1000)
		if j.heldB != nil {
			t.Fatal("a small buffer outside of Go's heap")
		}
		for _, mib := range []int{3, 2, 9} {
			n := mib << 20 / 4
			if buf = j.large(&j.heldB, buf, n); len(buf) != n {
				t.Fatalf("%d elements, want %d", len(buf), n)
			}
			buf[0], buf[n-1] = 1, 2
		}
		if used, _ := j.heldB.memory.Used(); used != 10<<20 {
			t.Fatalf("%d bytes are in use, want 10 MiB", used)
		}
		runtime.KeepAlive(j)
		return j.heldB
	}()
	for range 100 {
		runtime.GC()
		if used, _ := h.memory.Used(); used == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the memory of a dropped job is not free")
}

// TestProcsChange changes the number of processors within a product, as the runtime does when the
// limit of a control group changes. All groups of the product must use the same kind of task,
// because they share packed panels of A.
func TestProcsChange(t *testing.T) {
	const m, n, k = 400, groupLimit + 60, 64
	r := rand.New(rand.NewPCG(1, 1))
	a, b := newMatrix[float32](r, m, k, 0), newMatrix[float32](r, k, n, 0)
	other := newMatrix[float32](r, m, k, 0)
	product := func(par Parallel, a matrix[float32]) []float32 {
		c := make([]float32, m*n)
		F32(par, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, c, n, 1, false)
		return c
	}
	want := product(Serial, a)
	for _, procs := range [][2]int{{256, 1}, {1, 256}} {
		for change := 1; change <= 4; change++ {
			withProcs(256, func() { product(Serial, other) }) // leaves panels of another A
			var got []float32
			withProcs(procs[0], func() {
				calls := 0
				got = product(func(n int, f func(int)) {
					if calls++; calls == change {
						runtime.GOMAXPROCS(procs[1])
					}
					Serial(n, f)
				}, a)
			})
			if !slices.Equal(got, want) {
				t.Errorf("%d processors, from call %d on %d: another product", procs[0], change, procs[1])
			}
		}
	}
}
