// Package digits is a small data set for experiments: 1,797 handwritten digits of 8×8 pixels,
// embedded in the program.
//
// [Load] returns the [Set], a data.Dataset. [Set.Split] divides it into digits to train on and
// digits to test with.
//
// The digits are the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C.
// Kaynak, UCI Machine Learning Repository, 1998, DOI 10.24432/C50P49, licensed CC BY 4.0
// (https://creativecommons.org/licenses/by/4.0/).
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

//go:embed digits.csv.gz
var packed []byte

// These are the sizes of the data set.
const (
	Pixels  = 64 // 8 rows of 8 pixels
	Classes = 10
	Len     = 1797
)

// A Set is a set of digits. Their pixels are scaled to 0 … 1 and stored row after row. Their
// classes are 0 … 9.
type Set struct {
	pixels []float32
	labels []int64
}

var _ data.Batcher = (*Set)(nil)

// Load returns all digits.
func Load() (*Set, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	rows, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("digits: %w", err)
	}
	s := &Set{}
	for i, r := range rows {
		if len(r) != Pixels+1 {
			return nil, fmt.Errorf("digits: row %d has %d fields, not %d", i, len(r), Pixels+1)
		}
		for k, f := range r {
			v, err := strconv.Atoi(f)
			if err != nil || v < 0 || v > 16 {
				return nil, fmt.Errorf("digits: row %d, field %d: %q", i, k, f)
			}
			if k < Pixels {
				s.pixels = append(s.pixels, float32(v)/16)
			} else {
				s.labels = append(s.labels, int64(v))
			}
		}
	}
	return s, nil
}

// Len returns the number of digits.
func (s *Set) Len() int { return len(s.labels) }

// Get returns digit i: its 64 pixels as []float32, and its class as int64.
func (s *Set) Get(i int) (data.Sample, error) {
	if i < 0 || i >= s.Len() {
		return data.Sample{}, fmt.Errorf("digit %d of %d", i, s.Len())
	}
	return data.Sample{X: s.pixels[i*Pixels : (i+1)*Pixels : (i+1)*Pixels], Y: s.labels[i]}, nil
}

// GetBatch returns the digits of the given indexes as tensors [n, 64] float32 and [n] int64.
func (s *Set) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	px, ls := make([]float32, 0, len(index)*Pixels), make([]int64, 0, len(index))
	for _, i := range index {
		if i < 0 || i >= s.Len() {
			return nil, nil, fmt.Errorf("digit %d of %d", i, s.Len())
		}
		px = append(px, s.pixels[i*Pixels:(i+1)*Pixels]...)
		ls = append(ls, s.labels[i])
	}
	err = tensor.Try(func() { x, y = tensor.From(px, len(index), Pixels), tensor.From(ls) })
	return x, y, err
}

// Split returns a training set and a test set. The test set has a fifth of each class. Every call
// chooses the same digits.
func (s *Set) Split() (train, test *Set) {
	train, test = &Set{}, &Set{}
	var count, seen [Classes]int
	for _, l := range s.labels {
		count[l]++
	}
	// The seed must never change, so that results of different versions can be compared.
	const seed = 20240229
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(s.Len()) {
		l := s.labels[i]
		to := train
		if seen[l]++; 5*seen[l] <= count[l] {
			to = test
		}
		to.pixels = append(to.pixels, s.pixels[i*Pixels:(i+1)*Pixels]...)
		to.labels = append(to.labels, l)
	}
	return train, test
}
