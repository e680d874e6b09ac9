package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"golang.org/x/sys/cpu"
)

// eachInt8 runs f once for each int8 kernel of this machine, while products use that kernel.
func eachInt8(t *testing.T, f func(t *testing.T)) {
	for _, variant := range asm.Variants() {
		for _, tiles := range []bool{false, true} {
			name := variant
			if variant == "avx512" {
				switch {
				case tiles && !hasInt8Tiles():
					t.Log("the processor or the system has no AMX with int8: it was NOT tested")
					continue
				case tiles:
					name = "AMX"
				case cpu.X86.HasAVX512VNNI:
					name = "VNNI"
				default:
					t.Log("the processor has no VPDPBUSD: it was NOT tested")
				}
			} else if tiles {
				continue
			}
			t.Run(name, func(t *testing.T) {
				defer asm.Use(variant)()
				withoutTiles = !tiles
				defer func() { withoutTiles = false }()
				f(t)
			})
		}
	}
}

type int8Matrix struct {
	data   []int8
	rs, cs int
}

func newInt8Matrix(r *rand.Rand, rows, cols, layout int, draw func() int8) int8Matrix {
	m := int8Matrix{}
	m.rs, m.cs = layouts[layout].strides(rows, cols)
	if rows > 0 && cols > 0 {
		m.data = make([]int8, (rows-1)*m.rs+(cols-1)*m.cs+1)
	}
	for i := range m.data {
		m.data[i] = draw()
	}
	return m
}

// checkInt8 compares a product with the result of three plain loops.
func checkInt8(t *testing.T, r *rand.Rand, m, n, k int, layout [3]int, draw func() int8) {
	t.Helper()
	a, b := newInt8Matrix(r, m, k, layout[0], draw), newInt8Matrix(r, k, n, layout[1], draw)
	crs, ccs := layouts[layout[2]].strides(m, n)
	size := 0
	if m > 0 && n > 0 {
		size = (m-1)*crs + (n-1)*ccs + 1
	}
	want := make([]int32, size)
	for i := range want {
		want[i] = canary
	}
	for i := range m {
		for j := range n {
			s := int32(0)
			for p := range k {
				s += int32(a.data[i*a.rs+p*a.cs]) * int32(b.data[p*b.rs+j*b.cs])
			}
			want[i*crs+j*ccs] = s
		}
	}
	for _, par := range []Parallel{Serial, goroutines} {
		c := make([]int32, size)
		for i := range c {
			c[i] = canary
		}
		Int8(par, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, c, crs, ccs)
		for i := range c {
			if c[i] != want[i] {
				t.Fatalf("m %d, n %d, k %d, A by %s, B by %s, C by %s: element %d is %d, want %d", m, n, k,
					layouts[layout[0]].name, layouts[layout[1]].name, layouts[layout[2]].name, i, c[i], want[i])
			}
		}
	}
}

func TestInt8(t *testing.T) {
	eachInt8(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 8))
		any8 := func() int8 { return int8(r.IntN(256) - 128) }
		try := func(m, n, k int, layout [3]int) {
			t.Helper()
			checkInt8(t, r, m, n, k, layout, any8)
		}
		for _, s := range [][3]int{{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {1, 1, 1}, {1, 40, 30}, {40, 1, 30}, {5, 7, 11}, {13, 31, 17},
			{15, 33, 65}, {29, 17, 400}, {28, 65, 64}, {61, 34, 130}, {64, 64, 64}} {
			for l := range 64 {
				try(s[0], s[1], s[2], [3]int{l % 4, l / 4 % 4, l / 16})
			}
		}
		for m := range 68 { // every height of a tile, and all lengths of the last step
			try(m, 37, 21+m%5, [3]int{m % 4, m / 4 % 4, 0})
		}
		for n := range 68 { // every width
			try(16, n, 21, [3]int{n % 2, n / 2 % 4, 0})
		}
		for k := range 140 {
			try(17, 35, k, [3]int{k % 2, k / 2 % 4, 0})
		}
		try(70, 150, 1100, [3]int{0, 1, 0}) // several blocks of k
		try(5, 7, 5000, [3]int{1, 0, 3})
		try(600, 300, 30, [3]int{0, 0, 0}) // several tasks
		try(530, 40, 1030, [3]int{2, 1, 2})
		for m := range 4 { // few rows, for which columns of B may be read in place
			for k := range 70 {
				try(m, 4+k%9, 60+k, [3]int{k % 4, 1, (k + m) % 4})
				try(4+k%9, m, 60+k, [3]int{0, k % 4, k % 4})
			}
		}
		try(2, 700, 1000, [3]int{0, 1, 0})
		for range 60 {
			try(1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(300), [3]int{r.IntN(4), r.IntN(4), r.IntN(4)})
		}
	})
}

// TestInt8Extremes multiplies the extreme values. Their products, and sums of two or four products,
// must not saturate. The longest sums must wrap, because they leave the range of int32.
func TestInt8Extremes(t *testing.T) {
	eachInt8(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for i, draw := range []func() int8{
			func() int8 { return -128 },
			func() int8 { return 127 },
			func() int8 { return []int8{-128, 127}[r.IntN(2)] },
			func() int8 { return []int8{-128, 127, -127, 0}[r.IntN(4)] },
		} {
			for _, s := range [][3]int{{1, 1, 4}, {2, 6, 1100}, {4, 32, 64}, {13, 33, 1500}, {5, 3, 1<<17 + 5}, {1, 2, 300_000}} {
				checkInt8(t, r, s[0], s[1], s[2], [3]int{i % 3, (i + 1) % 3, 0}, draw)
			}
		}
	})
	c := make([]int32, 1)
	Int8(Serial, 1, 1, 1<<17, []int8{-128}, 0, 0, []int8{-128}, 0, 0, c, 1, 1)
	if c[0] != math.MinInt32 { // 2¹⁷·2¹⁴ is the first sum that wraps
		t.Errorf("a sum of 2³¹ is %d, want it to wrap to %d", c[0], math.MinInt32)
	}
}

func TestInt8Allocations(t *testing.T) {
	if raceEnabled {
		t.Skip("with the race detector sync.Pool drops items at random, so that there is no steady state")
	}
	eachInt8(t, func(t *testing.T) {
		x, c := make([]int8, 200*200), make([]int32, 200*200)
		for _, s := range [][3]int{{200, 200, 200}, {1, 200, 200}, {200, 1, 100}, {4, 4, 4}} {
			if n := testing.AllocsPerRun(50, func() {
				Int8(Serial, s[0], s[1], s[2], x, s[2], 1, x, 1, s[2], c, s[1], 1)
			}); n >= 1 {
				t.Errorf("%v: %v allocations a product", s, n)
			}
		}
	})
}

func BenchmarkInt8(b *testing.B) {
	for _, name := range []string{"avx2", "VNNI", "AMX"} {
		variant := "avx512"
		if name == "avx2" {
			variant = name
		}
		restore := asm.Use(variant)
		withoutTiles = name != "AMX"
		for _, s := range [][3]int{{1, 1024, 1024}, {16, 1024, 1024}, {256, 256, 256}, {1024, 1024, 1024}} {
			x, y, c := make([]int8, s[0]*s[2]), make([]int8, s[1]*s[2]), make([]int32, s[0]*s[1])
			for _, turned := range []string{"", "/turned"} {
				brs, bcs := s[1], 1
				if turned != "" {
					brs, bcs = 1, s[2]
				}
				b.Run(fmt.Sprintf("%s/%dx%dx%d%s", name, s[0], s[1], s[2], turned), func(b *testing.B) {
					for b.Loop() {
						Int8(Serial, s[0], s[1], s[2], x, s[2], 1, y, brs, bcs, c, s[1], 1)
					}
					b.ReportMetric(2*float64(s[0]*s[1]*s[2])*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
				})
			}
		}
		restore()
		withoutTiles = false
	}
}
