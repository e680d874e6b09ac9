package vision

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Set is a dataset of images that are held in memory. All images have the same shape, and each
// value takes one byte.
type Set struct {
	c, h, w int
	pixels  []uint8
	labels  []int64
	classes []string
}

var (
	_ Images       = (*Set)(nil)
	_ data.Batcher = (*Set)(nil)
)

// NewSet returns a set of len(labels) images of c×h×w bytes. pixels holds the images one after
// another. labels are indexes into classes, which holds the names of the classes. If classes is
// nil, the names are "0", "1", …
func NewSet(c, h, w int, pixels []uint8, labels []int64, classes []string) (*Set, error) {
	if c < 1 || h < 1 || w < 1 || c > 1<<8 || h > 1<<20 || w > 1<<20 || len(pixels)%(c*h*w) != 0 || len(pixels)/(c*h*w) != len(labels) {
		return nil, failf("", "%d bytes are not %d images of %d×%d×%d", len(pixels), len(labels), c, h, w)
	}
	most := int64(-1)
	for i, l := range labels {
		switch {
		case l < 0 || l >= 1<<20:
			return nil, failf("", "the label of image %d is %d; classes are numbered from 0, to at most %d", i, l, 1<<20-1)
		case classes != nil && l >= int64(len(classes)):
			return nil, failf("", "the label of image %d is %d; there are %d classes", i, l, len(classes))
		}
		most = max(most, l)
	}
	if classes == nil {
		for i := range most + 1 {
			classes = append(classes, strconv.FormatInt(i, 10))
		}
	}
	return &Set{c, h, w, pixels, labels, slices.Clone(classes)}, nil
}

// Len returns the number of images.
func (s *Set) Len() int { return len(s.labels) }

// Size returns the channels, rows and columns of an image.
func (s *Set) Size() (c, h, w int) { return s.c, s.h, s.w }

// Classes returns the names of the classes.
func (s *Set) Classes() []string { return slices.Clone(s.classes) }

// Labels returns the class of each image.
func (s *Set) Labels() []int64 { return slices.Clone(s.labels) }

func (s *Set) raw(i int) ([]uint8, error) {
	if i < 0 || i >= s.Len() {
		return nil, fmt.Errorf("vision: image %d of %d", i, s.Len())
	}
	n := s.c * s.h * s.w
	return s.pixels[i*n : (i+1)*n], nil
}

// Image returns a copy of image i and its class.
func (s *Set) Image(i int) (*Image, int64, error) {
	p, err := s.raw(i)
	if err != nil {
		return nil, 0, err
	}
	return &Image{C: s.c, H: s.h, W: s.w, U8: slices.Clone(p)}, s.labels[i], nil
}

// Get returns sample i: a float32 tensor [C,H,W] with values 0 … 1, and its class as int64.
func (s *Set) Get(i int) (data.Sample, error) {
	p, err := s.raw(i)
	if err != nil {
		return data.Sample{}, err
	}
	x := make([]float32, len(p))
	scaled(x, p)
	return data.Sample{X: tensor.From(x, s.c, s.h, s.w), Y: s.labels[i]}, nil
}

// GetBatch returns the samples of the given indexes as tensors [n,C,H,W] float32 and [n] int64.
func (s *Set) GetBatch(index []int) (x, y *tensor.Tensor, err error) {
	n := s.c * s.h * s.w
	px, ls := make([]float32, len(index)*n), make([]int64, len(index))
	for k, i := range index {
		p, err := s.raw(i)
		if err != nil {
			return nil, nil, err
		}
		scaled(px[k*n:], p)
		ls[k] = s.labels[i]
	}
	err = tensor.Try(func() { x, y = tensor.From(px, len(index), s.c, s.h, s.w), tensor.From(ls) })
	return x, y, err
}

// scaled sets dst to p/255. It rounds as torchvision's ToTensor does.
func scaled(dst []float32, p []uint8) {
	dst = dst[:len(p)]
	for i, v := range p {
		dst[i] = unit[v]
	}
}

var unit = func() (t [256]float32) {
	for i := range t {
		t[i] = float32(i) / 255
	}
	return t
}()
