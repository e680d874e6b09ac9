package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// scanSpec describes a scan along the middle dimension of rank-3 operands.
//
// If many columns are neighbours in memory, one thread scans a whole column. Otherwise a warp or a
// block scans a column tile by tile. Within a tile, each thread first scans a few elements. Then
// each warp scans the totals of its threads by shuffles, and the block scans the totals of its
// warps. The total of the earlier tiles is carried from tile to tile. The order in which elements
// are combined depends only on the shape and the kind of the scan.
type scanSpec struct {
	kind      device.ScanKind
	typ       dtype.Type
	reverse   bool
	group     int // number of threads that share a column: 1, 32 or rowThreads
	vector    int // number of elements of one access
	perThread int // number of elements of each thread in one tile
	phase     scanPhase
}

// A scanPhase is one of three launches that scan columns in segments, if there are too few columns
// to occupy the device. In the first launch, blocks compute the totals of segments. In the second,
// a thread adds up the totals of each column. In the last, blocks scan the segments, each starting
// with the total of the segments before it.
type scanPhase uint8

const (
	scanWhole scanPhase = iota
	scanTotals
	scanPrefixes
	scanSegments
)

// A column of at least scanSplit tiles is scanned in segments. All columns together have at most
// scanBlocks segments. Tests lower scanSplit.
var scanSplit = 32

const scanBlocks = 512

func (s scanSpec) name() string {
	name := fmt.Sprintf("scan_%v_%v_%d_%d", s.kind, s.typ, s.group, s.perThread)
	if s.vector > 1 {
		name += "_vector"
	}
	if s.reverse {
		name += "_reverse"
	}
	return name + [...]string{"", "_totals", "_prefixes", "_segments"}[s.phase]
}

// Scan plans a scan along dimension 1 of operands of rank 3 with the same shape, as [device.Scan]
// defines it.
func Scan(kind device.ScanKind, out Operand, ins []Operand, reverse bool, scratch Scratch) ([]Launch, error) {
	const op = "scan"
	in := ins[0]
	if out.Shape.Size() == 0 {
		return nil, nil
	}
	n, inner := out.Shape.At(1), out.Shape.At(2)
	columns := out.Shape.At(0) * inner
	if n > 1<<31-1<<13 || columns > 1<<31-1<<9 {
		return nil, fail(op, "shape %v exceeds 2³¹", out.Shape)
	}
	s := scanSpec{kind: kind, typ: in.Type, reverse: reverse, vector: 1, perThread: 4}
	switch {
	case n <= 8 || inner >= 32 && (columns >= 1<<12 || n <= 64):
		s.group, s.perThread = 1, 1
	case n <= 1024:
		s.group = 32
	default:
		s.group = rowThreads
	}
	if kind == device.ScanLogSumExp {
		s.perThread = 1 // the code for a step of a recurrence is long
	}
	if s.perThread > 1 && inner == 1 && n%s.perThread == 0 {
		s.vector = s.perThread
		for _, o := range append([]Operand{out}, ins...) {
			size := vectorBytes(o.Type, s.perThread)
			if o.Strides.At(1) != 1 || o.start()%uint64(size) != 0 || o.Strides.At(0)*o.Type.Size()%size != 0 {
				s.vector = 1
			}
		}
	}
	operands := append([]Operand{out}, ins...)
	tile := s.group * s.perThread
	segments := min(scanBlocks/columns, ceilDiv(n, 4*tile))
	if s.group < rowThreads || n < scanSplit*tile || segments < 2 {
		l, err := s.launch(n, columns, inner, n, 1, operands, nil)
		return []Launch{l}, err
	}
	per := ceilDiv(ceilDiv(n, tile), segments) * tile
	segments = ceilDiv(n, per)
	var totals []uint64
	for range s.parts() {
		addr, err := scratch(8 * columns * segments)
		if err != nil {
			return nil, err
		}
		totals = append(totals, addr)
	}
	var list []Launch
	for _, s.phase = range []scanPhase{scanTotals, scanPrefixes, scanSegments} {
		l, err := s.launch(n, columns, inner, per, segments, operands, totals)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

// parts returns the number of values that are combined for an element of the scan: two for maxima,
// minima and linear recurrences.
func (s scanSpec) parts() int {
	if s.positions() || s.kind == device.ScanLinear {
		return 2
	}
	return 1
}

func (s scanSpec) launch(n, columns, inner, per, segments int, operands []Operand, totals []uint64) (Launch, error) {
	k, err := kernelOf(s)
	if err != nil {
		return Launch{}, err
	}
	p := make(packer, 0, 160)
	p.u32(uint32(n))
	p.u32(uint32(columns))
	p.u32(uint32(inner))
	p.u32(uint32(per))
	p.u32(uint32(segments))
	for _, o := range operands {
		p.u64(o.start())
		for d := range 3 {
			p.u64(uint64(o.Strides.At(d)))
		}
	}
	for _, addr := range totals {
		p.u64(addr)
	}
	switch s.phase {
	case scanPrefixes:
		return p.launch(k, ceilDiv(columns, rowThreads))
	case scanWhole:
		return p.launch(k, ceilDiv(columns, rowThreads/s.group))
	}
	return p.launch(k, columns*segments)
}
