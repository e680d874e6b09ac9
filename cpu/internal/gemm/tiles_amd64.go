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
// Tiles hold no state between calls. A kernel configures them when it begins and releases them
// before it returns. A goroutine cannot change its thread within assembly, so it never moves with
// tiles in use. If a signal interrupts a kernel, the system saves the tiles on the signal stack. It
// permits tiles only to a process whose signal stacks are large enough.
type tileCall struct {
	config [64]byte // see [tileCall.shape]; it must be the first field
	// a is the first row of A. tail is a copy of the last elements of the rows, with zeros up to a
	// whole step. It has 64 bytes for a row. It is nil if k is a number of whole steps.
	a, tail unsafe.Pointer
	aRow    int
	aStep   int            // distance between steps along k
	aPanel  int            // distance between panels of rows
	b       unsafe.Pointer // packed panel of B: for each 4 bytes along k, 32 columns
	steps   int            // whole steps of 64 bytes along k from a
	// from is where the sums begin, or nil if they begin with zeros.
	from        unsafe.Pointer
	fromRow     int
	c           unsafe.Pointer // where the sums go
	cRow, cStep int            // cStep is the distance between panels of rows
	low         unsafe.Pointer // where the sums go after rounding to bfloat16, or nil
	lowRow      int
	mask        int // has a bit for each column
	rows        int // rows of a panel
	panels      int
	// the kernel's offsets of the current panel; they begin with 0
	aAt, tailAt, fromAt, cAt, lowAt int
	tall, wide                      int // whether a panel has more than 16 rows, and more than 16 columns
}

//go:noescape
func tilesBF16(call *tileCall)

// tilesDotInt8 multiplies int8 and adds in int32. It does not round, so call.low must be nil.
//
//go:noescape
func tilesDotInt8(call *tileCall)

// shape sets the configuration for panels of h rows and w columns (Intel, "Intel 64 and IA-32
// Architectures Software Developer's Manual", volume 2, LDTILECFG). Tiles 0 to 3 are the sums, 4
// and 5 are for A, 6 and 7 are for B. Byte 16+2t holds the number of bytes in a row of tile t. Byte
// 48+t holds its number of rows. Each tile gets at least one row, even if the kernel does not use
// it, because the kernel sets all tiles of sums to zero. That fails for a tile without rows.
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

// hasTiles reports whether this process may use the tiles of AMX. It asks the system once.
var hasTiles = sync.OnceValue(func() bool {
	x := &cpu.X86
	return x.HasAMXTile && x.HasAMXBF16 && permitTiles()
})
