package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// attentionFloat computes attention of float32 with multiply-adds. A group of 16 threads shares
// some queries. For these queries, each thread computes the scores of every 16th key, and every
// 16th group of four columns of the results. The threads exchange weights through shared memory,
// within a warp.
type attentionFloat struct {
	attentionShape
	rows int // number of queries of a thread; they are 8 rows of the tile apart
	keys int // number of keys in a tile
}

const floatThreads = 128

func (s attentionFloat) name() string {
	return fmt.Sprintf("attention_%v_%dx%d", s.attentionShape, 8*s.rows, s.keys)
}

func (s attentionFloat) kernel() (*Kernel, error)  { return kernelOf(s) }
func (s attentionFloat) tile() (queries, keys int) { return 8 * s.rows, s.keys }

// tensor returns 0, because the kernel uses no tensor cores.
func (s attentionFloat) tensor() int { return 0 }

// attentionFloatFor chooses the largest tile that fits 99 KiB of shared memory. If few is true, the
// tile has only [fewQueries] rows.
func attentionFloatFor(s attentionShape, few bool) attentionFloat {
	f := attentionFloat{s, 8, 64}
	switch wide := max(s.q.columns, s.v.columns); {
	case wide > 128:
		f.rows, f.keys = 4, 16
	case wide > 64:
		f.keys = 32
	}
	if few {
		f.rows = fewQueries / 8
	}
	return f
}

func (s attentionFloat) tiles() (q, k, v headTile) {
	// the columns are rounded up, so that each of 16 threads has whole groups of four
	values := max(64, ceilDiv(s.v.columns, 64)*64)
	return headTileOf(8*s.rows, s.q.columns, dtype.F32), headTileOf(s.keys, s.q.columns, dtype.F32), headTileOf(s.keys, values, dtype.F32)
}

// pitch returns the distance between neighbouring rows of weights in shared memory, in elements. It
// puts neighbouring rows into different banks.
func (s attentionFloat) pitch() int { return s.keys/32*32 + 16 }

func (s attentionFloat) shared() int {
	q, k, v := s.tiles()
	return q.bytes() + k.bytes() + v.bytes() + 8*s.rows*s.pitch()*4
}

func (s attentionFloat) dynamicShared() int { return beyondStatic(s.shared(), 0) }

func (s attentionFloat) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	a := declareAttention(b, s.attentionShape, 8*s.rows)
	tileQ, tileK, tileV := s.tiles()
	q := sharedTiles(b, ptx.U8, s.shared(), s.dynamicShared())
	k := q.AtByte(num(tileQ.bytes()))
	v := k.AtByte(num(tileK.bytes()))
	weights := v.AtByte(num(tileV.bytes())).As(ptx.F32)
	loadK, loadV := tileK.mover(b, a.k, floatThreads), tileV.mover(b, a.v, floatThreads)
	tileQ.mover(b, a.q, floatThreads).load(a.firstQuery, a.w.queries, q)
	loadK.load(a.begin, a.end, k)
	b.CommitGroup()

	x, y := b.ThreadID(0).And(num(15)), b.ThreadID(0).Shr(num(4))
	infinite := b.F32(float32(math.Inf(-1)))
	rows, weighed := make([]attentionRow, s.rows), make([]weighingRow, s.rows)
	acc := make([][]*ptx.Var, s.rows)
	for r := range rows {
		weighed[r] = a.w.row(a.firstQuery.Add(y).Add(num(8 * r)))
		rows[r] = attentionRow{weighed[r], b.Var(infinite), b.Var(b.F32(0))}
		for range tileV.width / 16 {
			acc[r] = append(acc[r], b.Var(b.F32(0)))
		}
	}
	mine := weights.At(y.Mul(num(s.pitch())))
	b.For(a.begin, a.end, num(s.keys), func(j ptx.Value, _ ptx.Loop) {
		b.Comment("the keys have arrived, and everyone is done with the values before them")
		b.WaitGroup(0)
		b.Barrier()
		loadV.load(j, a.end, v)
		b.CommitGroup()
		scores := floatScores(b, s.rows, s.keys/16, tileQ, q, tileK, k)
		b.Comment("the values have arrived, and everyone is done with the keys")
		b.WaitGroup(0)
		b.Barrier()
		loadK.load(j.Add(num(s.keys)), a.end, k)
		b.CommitGroup()
		var keeps func(r, n int) ptx.Value
		if s.w.drop {
			keeps = a.w.keptEach(weighed, x, j, s.keys)
		}
		for r, row := range rows {
			before := row.most.Get()
			most := before
			list := make([]ptx.Value, len(scores[r]))
			for n, v := range scores[r] {
				at := j.Add(x).Add(num(16 * n))
				list[n] = row.unseen(at, row.masked(at, v.Get().Mul(a.w.scale)))
				most = most.Max(list[n])
			}
			most = most.WarpReduceWidth(16, func(x, y ptx.Value) ptx.Value { return x.Max(y) })
			row.most.Set(most)
			base := most.Eq(infinite).Select(b.F32(0), most)
			less := call(b, "exp", before.Sub(base))
			sum := row.sum.Get().Mul(less)
			for n := range list {
				p := call(b, "exp", list[n].Sub(base))
				sum = sum.Add(p)
				if s.w.drop {
					p = keeps(r, n).Select(p, b.F32(0))
				}
				mine.At(num(8*r*s.pitch() + 16*n)).At(x).Store(p)
			}
			row.sum.Set(sum)
			for _, v := range acc[r] {
				v.Set(v.Get().Mul(less))
			}
		}
		b.WarpBarrier()
		addWeighted(b, acc, mine, s.pitch(), s.keys, tileV, v, x)
	})
	b.WaitGroup(0)
	for r, row := range rows {
		sum := row.sum.Get().WarpReduceWidth(16, func(x, y ptx.Value) ptx.Value { return x.Add(y) })
		there := row.i.Lt(a.w.queries)
		none := sum.Eq(num(0))
		if s.lse {
			b.If(there.And(x.Eq(num(0))), func() {
				lse := row.most.Get().Add(call(b, "log", sum))
				a.lse.At(row.i).Store(none.Select(b.F32(s.emptyLSE()), lse))
			})
		}
		inverse := sum.Rcp()
		if s.w.drop {
			inverse = inverse.Mul(a.w.rest)
		}
		inverse = none.Select(b.F32(0), inverse)
		line := a.out.line(row.i)
		storeFloats(b, a.out, line, there, acc[r], inverse, x)
	}
	return [3]int{floatThreads, 1, 1}
}

// floatPiece reads four float32 elements of row row+plus of the tile at p, from column 4c on.
func floatPiece(p ptx.Ptr, t headTile, row ptx.Value, plus int, c ptx.Value) []ptx.Value {
	return p.AtByte(t.offset(row, c)).AtByte(num(plus * t.rowBytes())).As(ptx.F32).LoadVec(4)
}

// floatScores multiplies rows of the tile at x by rows of the tile at y. It returns the dot
// products, indexed [row of x][row of y]. A thread computes the products of every 8th row of x
// and every 16th row of y. The tile at y may be wider than the tile at x.
func floatScores(b *ptx.Builder, rows, columns int, tileX headTile, x ptx.Ptr, tileY headTile, y ptx.Ptr) [][]*ptx.Var {
	column, row := b.ThreadID(0).And(num(15)), b.ThreadID(0).Shr(num(4))
	scores := make([][]*ptx.Var, rows)
	for r := range scores {
		for range columns {
			scores[r] = append(scores[r], b.Var(b.F32(0)))
		}
	}
	b.For(b.U32(0), b.U32(uint32(tileX.pieces())), num(2), func(c ptx.Value, _ ptx.Loop) {
		for e := range 2 {
			c := c.Or(num(e))
			fy := make([][]ptx.Value, columns)
			for n := range fy {
				fy[n] = floatPiece(y, tileY, column, 16*n, c)
			}
			for r := range scores {
				fx := floatPiece(x, tileX, row, 8*r, c)
				for n := range fy {
					sum := scores[r][n].Get()
					for i := range fx {
						sum = fx[i].FMA(fy[n][i], sum)
					}
					scores[r][n].Set(sum)
				}
			}
		}
	})
	return scores
}

// addWeighted adds the n rows of the tile at p, multiplied by weights, to each of a thread's rows
// of acc. The weights for row 0 of acc are at weightRow. The weights for each further row are
// 8·pitch elements later. A thread has every 16th group of four columns, from group number piece
// on.
func addWeighted(b *ptx.Builder, acc [][]*ptx.Var, weightRow ptx.Ptr, pitch, n int, t headTile, p ptx.Ptr, piece ptx.Value) {
	b.For(b.U32(0), b.U32(uint32(n)), num(4), func(offset ptx.Value, _ ptx.Loop) {
		var weights [][]ptx.Value
		for r := range acc {
			weights = append(weights, weightRow.At(num(8*r*pitch)).At(offset).LoadVec(4))
		}
		for i := range 4 {
			for c := range len(acc[0]) / 4 {
				f := floatPiece(p, t, offset.Add(num(i)), 0, piece.Add(num(16*c)))
				for r := range acc {
					for e := range f {
						w := acc[r][4*c+e]
						w.Set(weights[r][i].FMA(f[e], w.Get()))
					}
				}
			}
		}
	})
}

// storeFloats multiplies a thread's sums of one row by scale. The sums are in the order of
// addWeighted. If the row exists, storeFloats stores the products in the row at line.
func storeFloats(b *ptx.Builder, o headOperand, line ptx.Ptr, exists ptx.Value, sums []*ptx.Var, scale, first ptx.Value) {
	for c := range len(sums) / 4 {
		var list []ptx.Value
		for e := range 4 {
			list = append(list, sums[4*c+e].Get().Mul(scale))
		}
		offset := first.Shl(num(2)).Add(num(64 * c))
		for e := 0; e < 4; e += o.vector {
			b.If(exists.And(offset.Add(num(e)).Lt(num(o.columns))), func() {
				storeVector(b, o.element(line, offset.Add(num(e))), dtype.F32, list[e:e+o.vector])
			})
		}
	}
}
