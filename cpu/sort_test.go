package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// TestSortsKeysOfManyBits sorts keys that have too many bits for a word that also holds the
// position. Some keys differ only in the bits that words leave out. Keys of few bits are often
// equal.
func TestSortsKeysOfManyBits(t *testing.T) {
	d := newDevice(1)
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 100, -100, 127, 128, -128, 3000, -3000} {
		few := n < 0
		n = max(n, -n)
		x := newView(t, d, dtype.I64, 1, n)
		v := at[int64](pointer(&x), n)
		for i := range v {
			if few {
				v[i] = rnd.Int64N(4)
				continue
			}
			switch v[i] = int64(rnd.Uint64()); rnd.IntN(3) {
			case 0:
				v[i] = v[i]>>2<<2 | 1
			case 1:
				v[i] = v[rnd.IntN(i+1)] ^ rnd.Int64N(4)
			}
		}
		for _, k := range []int{1, max(1, n/20), n} {
			for _, descending := range []bool{false, true} {
				out := newView(t, d, dtype.I64, 1, k)
				do(t, d, &device.Argsort{Out: out, X: x, Descending: descending})
				want := make([]int64, n)
				for i := range want {
					want[i] = int64(i)
				}
				slices.SortStableFunc(want, func(a, b int64) int {
					less := v[a] < v[b]
					switch {
					case v[a] == v[b]:
						return 0
					case less != descending:
						return -1
					}
					return 1
				})
				if got := unsafe.Slice((*int64)(pointer(&out)), k); !slices.Equal(got, want[:k]) {
					t.Fatalf("%d of %d, descending %v: %v, want %v", k, n, descending, got, want[:k])
				}
			}
		}
	}
}
