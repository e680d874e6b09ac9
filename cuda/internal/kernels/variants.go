package kernels

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// A Variant is one way to compute an operation. The first Variant of a list is the planner's
// choice. The others differ from it in choices that affect only speed, so that measurements on a
// GPU can find the fastest one. The results are the same, up to rounding.
type Variant struct {
	Name     string
	Launches []Launch
}

// productTune holds the choices that make a variant of a matrix product. The value 0 leaves a
// choice to the planner.
type productTune struct {
	blocks int // number of blocks that a multiprocessor should hold
	// group is the number of tiles along m that blocks compute before they continue with the next
	// column of tiles.
	group  int
	parts  int // number of parts in which a tile is loaded through registers
	stages int // number of tiles of each operand in shared memory, on tensor cores
}

func (t productTune) or(own, planned int) int {
	if own > 0 {
		return own
	}
	return planned
}

func (t productTune) String() string {
	return nonZero("b", t.blocks) + nonZero("g", t.group) + nonZero("p", t.parts) + nonZero("s", t.stages)
}

// nonZero returns a letter and a number for the name of a kernel. It returns "" for 0, which leaves
// the choice to the planner.
func nonZero(letter string, n int) string {
	if n == 0 {
		return ""
	}
	return letter + strconv.Itoa(n)
}

// staticShared is the number of bytes of shared memory that a kernel may have without asking for
// more at launch.
const staticShared = 48 << 10

// beyondStatic returns the number of bytes of dynamic shared memory of a kernel. The arguments
// are the sizes in bytes of its tiles and of its other data. If all data fit into static shared
// memory together, the result is 0. Otherwise it is the size of the tiles.
func beyondStatic(tiles, more int) int {
	if tiles+more > staticShared {
		return tiles
	}
	return 0
}

// sharedTiles declares the shared memory for tiles. It is dynamic memory if atLaunch is not 0.
func sharedTiles(b *ptx.Builder, t ptx.Type, bytes, atLaunch int) ptx.Ptr {
	if atLaunch > 0 {
		return b.DynamicShared("tiles", t)
	}
	return b.Shared("tiles", t, bytes/t.Size())
}

// MatMulVariants returns ways to compute [MatMulSplit]. They differ in the tiles, in the order of
// the blocks, and in how sums are divided.
func MatMulVariants(g *GPU, o ProductOperands, scratch Scratch) ([]Variant, error) {
	l, out, a, b := lister{}, o.Out, o.A, o.B
	l.add("chosen", func() ([]Launch, error) { return MatMulSplit(g, o, scratch) })
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	try := func(name string, f productForm) {
		l.add(name, func() ([]Launch, error) { return launchMatMul(f, o) })
		blocks := batch * f.tiles(m, n)
		// sums are divided so that each multiprocessor gets about 1, 2, 4 or 8 blocks
		for _, want := range []int{1, 2, 4, 8} {
			parts := min(want*g.Cores/blocks, k/64)
			if parts < 2 || !o.divisible(f, scratch) {
				continue
			}
			chunk := ceilDiv(ceilDiv(k, parts), 64) * 64
			l.add(fmt.Sprintf("%s k%d", name, chunk), func() ([]Launch, error) { return splitMatMul(f, o, division{chunk: chunk}, scratch) })
		}
	}
	if a.Type.IsHalf() {
		for i, f := range tensorForms {
			tunes := []productTune{{}, {stages: f.stages - 1}, {stages: f.stages + 1}}
			if i == 0 {
				tunes = []productTune{{}, {stages: 2}, {stages: 4}, {stages: 5}, {group: 4}, {group: 16}, {group: 1 << 16}, {blocks: 1}}
			}
			for _, tune := range tunes {
				s, _ := tensorSpecFor(out, a, b)
				s.form, s.tune = f, tune
				try(fmt.Sprintf("%v %v", f, tune), s)
				if s, d, ok := g.looped(s, batch, m, n, k); ok {
					l.add(fmt.Sprintf("%v %v loop", f, tune), func() ([]Launch, error) { return launchParts(s, o, d, 0, 0) })
				}
			}
		}
		return l.list, l.err
	}
	for _, v := range []struct {
		tile gemmTile
		tune productTune
	}{
		{largeTile, productTune{}}, {mediumTile, productTune{}}, {smallTile, productTune{}},
		{largeTile, productTune{group: 4}}, {largeTile, productTune{group: 16}}, {largeTile, productTune{group: 1 << 16}}, {largeTile, productTune{parts: 1}}, {largeTile, productTune{parts: 4}},
		{largeTile, productTune{blocks: 1}},
		{gemmTile{128, 128, 8, 2, 2, 1}, productTune{blocks: 2}}, {gemmTile{128, 128, 32, 2, 2, 1}, productTune{blocks: 2}},
		{gemmTile{128, 128, 16, 4, 2, 1}, productTune{blocks: 2}}, {gemmTile{128, 128, 16, 2, 4, 1}, productTune{blocks: 2}},
		{gemmTile{256, 128, 16, 4, 2, 1}, productTune{blocks: 1}}, {gemmTile{128, 256, 16, 2, 4, 1}, productTune{blocks: 1}}, {gemmTile{256, 128, 16, 2, 2, 1}, productTune{blocks: 1}},
		{gemmTile{128, 64, 16, 2, 2, 1}, productTune{blocks: 3}}, {gemmTile{64, 128, 16, 2, 2, 1}, productTune{blocks: 3}}, {gemmTile{128, 64, 32, 2, 2, 2}, productTune{blocks: 1}},
		{gemmTile{64, 64, 32, 2, 2, 2}, productTune{blocks: 3}}, {gemmTile{32, 64, 64, 2, 2, 8}, productTune{blocks: 1}},
	} {
		try(fmt.Sprintf("%d×%d×%d/%d%d%d %v", v.tile.bm, v.tile.bn, v.tile.bk, v.tile.mc, v.tile.nc, v.tile.slices, v.tune), gemmSpec{typ: a.Type, out: out.Type, tile: v.tile, tune: v.tune,
			a: chooseLoad(a, 1, 2), b: chooseLoad(b, 2, 1), vectorOut: vectorizable(out, 2, 1)})
	}
	return l.list, l.err
}

// mapTune holds the choices that make a variant of an elementwise kernel. The value 0 leaves a
// choice to the planner.
type mapTune struct {
	threads  int // number of threads of a block
	together int // number of vectors that a thread reads before it computes the first one
	blocks   int // number of blocks that a multiprocessor should hold
	grid     int // largest number of blocks
}

func (t mapTune) String() string {
	return nonZero("t", t.threads) + nonZero("v", t.together) + nonZero("b", t.blocks) + nonZero("g", t.grid)
}

// MapVariants returns ways to compute [Map].
func MapVariants(p *expr.Program, outs, ins []Operand, params []uint64) ([]Variant, error) {
	l := lister{}
	tunes := []mapTune{{}, {together: 1}, {together: 2}, {together: 4}}
	for _, threads := range []int{128, 512, 1024} {
		tunes = append(tunes, mapTune{threads: threads, together: 1}, mapTune{threads: threads, together: 2})
	}
	for _, grid := range []int{132 * 8, 132 * 16, 132 * 64, 1 << 30} {
		tunes = append(tunes, mapTune{together: 1, grid: grid}, mapTune{together: 2, grid: grid})
	}
	if p.Cost() > 20 {
		tunes = append(tunes, mapTune{blocks: 3}, mapTune{blocks: 4}, mapTune{blocks: 2, together: 2})
	}
	for i, t := range tunes {
		name := t.String()
		if i == 0 {
			name = "chosen"
		}
		l.add(name, func() ([]Launch, error) { return planMap(p, outs, ins, params, t) })
	}
	return l.list, l.err
}

// reduceTune holds the choices that make a variant of a reduction. The value 0 leaves a choice to
// the planner.
type reduceTune struct {
	// form is the reduceForm plus 1, because 0 leaves the form to the planner.
	form   reduceForm
	unroll int
	chunk  int
}

// ReduceVariants returns ways to compute [Reduce].
func ReduceVariants(r *device.Reduction, out Operand, ins []Operand, params []uint64, scratch Scratch) ([]Variant, error) {
	l := lister{}
	tunes := []reduceTune{{}, {unroll: 1}, {unroll: 2}, {unroll: 4}, {form: warpPerRow + 1}, {form: blockPerRow + 1}, {form: warpPerRow + 1, unroll: 1}, {form: blockPerRow + 1, unroll: 1}}
	for _, chunk := range []int{256, 1024, 4096, 1 << 14, 1 << 16, 1 << 18} {
		tunes = append(tunes, reduceTune{chunk: chunk})
	}
	for i, t := range tunes {
		name := nonZero("u", t.unroll) + nonZero("c", t.chunk)
		if t.form > 0 {
			name = (t.form - 1).String() + name
		}
		if i == 0 {
			name = "chosen"
		}
		if n := ins[0].Shape.Size() / max(1, out.Shape.Size()); t.chunk > 0 && (t.chunk > n || n/t.chunk > 1<<14) || t.form == warpPerRow+1 && n > 1<<14 {
			continue // this form is never the best
		}
		l.add(name, func() ([]Launch, error) { return planReduce(r, out, Operand{}, ins, params, scratch, t) })
	}
	return l.list, l.err
}

// SoftmaxVariants returns ways to compute [Softmax].
func SoftmaxVariants(out, x Operand, log bool) ([]Variant, error) {
	l := lister{}
	l.add("chosen", func() ([]Launch, error) { return Softmax(out, x, log) })
	columns := x.Shape.At(1)
	kept := cachedColumns(x.Type, columns)
	for _, group := range []int{32, rowThreads} {
		for _, cached := range []int{0, kept} {
			if group == 32 && (columns > 1<<13 || cached > 1024) {
				continue
			}
			for _, form := range []rowForm{{vector: 1}, rowVectors(out, x)} {
				s := softmaxSpec{typ: x.Type, log: log, unit: unitColumns(out, x), form: form, group: group, cached: cached}
				l.add(fmt.Sprintf("%d a row %v c%d", group, form, cached), func() ([]Launch, error) { return launchSoftmax(s, s.unit, rowThreads/group, out, x) })
			}
		}
	}
	return l.list, l.err
}

// lister collects variants, without duplicates.
type lister struct {
	list []Variant
	err  error
}

func (l *lister) add(name string, plan func() ([]Launch, error)) {
	launches, err := plan()
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("%s: %w", name, err)
	}
	for _, v := range l.list {
		same := slices.EqualFunc(v.Launches, launches, func(x, y Launch) bool { return x.Kernel == y.Kernel && x.Grid == y.Grid })
		// The planner's choice may be in the list twice. The difference between its two
		// measurements shows their noise.
		if same && (v.Name != "chosen" || len(launches) > 1) {
			return
		}
	}
	l.list = append(l.list, Variant{name, launches})
}
