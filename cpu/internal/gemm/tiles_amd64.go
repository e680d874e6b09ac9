//go:build !noasm

package gemm

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// tileCall is one call of a kernel that uses the tiles of AMX. The kernel computes some panels of
// rows of C for one panel of columns. A panel of rows is 32 rows, and a panel of columns is up to
// 32 columns. Distances between rows are in bytes.
//
// A kernel configures the tiles when it begins and releases them before it returns. A goroutine
// cannot change its thread within assembly, so it never does while it uses tiles. If a signal
// interrupts a kernel, the system saves the tiles on the signal stack. It permits tiles only to a
// process whose signal stacks are large enough.
type tileCall struct {
	config [64]byte // set by the method shape; it must be the first field
	// a is the first row of A. tail is a copy of the last elements of each row, with zeros up to a
	// whole step: 64 bytes for each row. tail is nil if k is a multiple of a step.
	a, tail unsafe.Pointer
	aRow    int
	aStep   int            // distance in A between steps along k, in bytes
	aPanel  int            // distance in A between panels of rows, in bytes
	b       unsafe.Pointer // packed panel of B, with 32 columns for each 4 bytes along k
	steps   int            // number of whole steps, of 64 bytes along k, that are read from a
	// from is the address of the values with which the sums begin; nil means zeros
	from        unsafe.Pointer
	fromRow     int
	c           unsafe.Pointer // address at which the sums are stored
	cRow, cStep int            // distances in c between rows, and between panels of rows
	// address at which the sums are stored after rounding to bfloat16; may be nil
	low    unsafe.Pointer
	lowRow int
	mask   int // has a bit for each column
	rows   int // number of rows that are computed
	panels int
	// offsets of the current panel, which the kernel changes; they begin with 0
	aAt, tailAt, fromAt, cAt, lowAt int
	// whether a panel has more than 16 rows, and whether it has more than 16 columns
	tall, wide int
}

//go:noescape
func tilesBF16(call *tileCall)

// tilesDotInt8 multiplies int8 and adds in int32. It does not round, so call.low must be nil.
//
//go:noescape
func tilesDotInt8(call *tileCall)

// shape sets the configuration for panels of h rows and w columns (Intel, "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 2, LDTILECFG). Tiles 0 to 3 hold the sums.
// Elements of A are in tiles 4 and 5, and elements of B in tiles 6 and 7. Byte 16+2t of the
// configuration is the number of bytes in a row of tile t, and byte 48+t is its number of rows.
// Even a tile that the kernel does not use gets one row: the kernel sets all tiles of sums to zero,
// which fails for a tile without rows.
func (t *tileCall) shape(h, w int) {
	t.config = [64]byte{0: 1}
	for i := range 2 {
		rows, columns := min(max(1, h-16*i), 16), min(max(1, w-16*i), 16)
		for j := range 2 {
			t.config[48+2*i+j] = byte(rows)
			t.config[16+2*(i+2*j)] = byte(4 * columns)
		}
		t.config[48+4+i], t.config[16+2*(4+i)] = byte(rows), 64
		t.config[48+6+i], t.config[16+2*(6+i)] = 16, byte(4*columns)
	}
	t.rows, t.tall, t.wide, t.mask = h, 0, 0, 1<<w-1
	if h > 16 {
		t.tall = 1
	}
	if w > 16 {
		t.wide = 1
	}
}

// hasTiles reports whether this process may use the tiles of AMX. It asks the system only once.
var hasTiles = sync.OnceValue(func() bool {
	x := &cpu.X86
	return x.HasAMXTile && x.HasAMXBF16 && permitTiles()
})
