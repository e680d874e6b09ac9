// Package vision supplies images for training. It reads data sets and directories of image files,
// and transforms the images on the loader's goroutines.
//
// A program opens a set ([MNIST], [CIFAR10], [ImageFolder]), applies transforms to it ([Apply]),
// and passes it to a data.Loader. [Download] fetches published sets. [SaveImage] writes a batch as
// an image file.
//
// The package guarantees:
//
//   - A dataset of this package is [Images]: sample i is an image and the number of its class. As a
//     data.Dataset, its inputs are float32 tensors [C,H,W] from 0 to 1, and its targets are int64.
//     With transforms but without a [ToTensor] among them, the inputs stay uint8 tensors from 0 to
//     255.
//   - A random transform draws from the sample's own random numbers (data.RandDataset). So the
//     result depends on seed, epoch and index, and not on the number of workers.
//   - What a file claims is checked before memory is allocated for it. A file that cannot be read
//     is an *[Error] that names the file.
//   - Only [Download] uses the network.
package vision

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Error says what is wrong with a file, a directory or a setting.
type Error struct {
	Path string // path of the file or directory; "" if there is none, as for a stream
	Err  error
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "vision: " + e.Err.Error()
	}
	err := e.Err
	if p, ok := err.(*fs.PathError); ok && p.Path == e.Path {
		// The message already names the path, so the *fs.PathError, which would repeat it, is
		// dropped.
		err = p.Err
	}
	return "vision: " + e.Path + ": " + err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func failf(path, format string, args ...any) error { return &Error{path, fmt.Errorf(format, args...)} }

// save writes a file at path with the contents that write writes. The file is written completely or
// not at all.
func save(path string, write func(w io.Writer) error) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return &Error{path, err}
	}
	defer f.Abort()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return &Error{path, err}
	}
	if err := w.Flush(); err != nil {
		return &Error{path, err}
	}
	if err := f.Commit(); err != nil {
		return &Error{path, err}
	}
	return nil
}

// An Image holds pixels in row-major order [C,H,W]. The values are bytes or floating-point numbers.
// Exactly one of U8 and F32 is not nil, and it has C·H·W values. Three channels are red, green and
// blue. A single channel is grey.
type Image struct {
	C, H, W int
	U8      []uint8
	F32     []float32
}

// Tensor returns the image as a tensor [C,H,W], uint8 or float32, in the root scope.
func (m *Image) Tensor() *tensor.Tensor {
	if m.F32 != nil {
		return tensor.From(m.F32, m.C, m.H, m.W)
	}
	return tensor.FromBytes(dtype.U8, m.U8, m.C, m.H, m.W)
}

// Images is a dataset of images with classes. The caller may change the image that Image returns.
type Images interface {
	data.Dataset
	Image(i int) (m *Image, class int64, err error)
	Classes() []string
}

// A Transform returns a changed image. It may change m in place and return it. It draws all random
// numbers from rng. Several goroutines may call it at the same time. An error means wrong settings,
// or an image to which the transform cannot be applied.
type Transform func(m *Image, rng *rand.Rand) (*Image, error)

// Compose returns a transform that applies the given transforms one after another.
func Compose(list ...Transform) Transform {
	list = slices.Clone(list)
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		var err error
		for _, t := range list {
			if m, err = t(m, rng); err != nil {
				return nil, err
			}
		}
		return m, nil
	}
}

// A Transformed is a dataset of images with transforms applied.
type Transformed struct {
	Images
	transform Transform
}

var _ data.RandDataset = (*Transformed)(nil)

// Apply returns a dataset that applies the transforms to images, in order. The inputs of its
// samples are float32 or uint8 tensors [C,H,W], depending on the last transform. For a loader, all
// inputs must have the same size.
func Apply(images Images, list ...Transform) *Transformed {
	return &Transformed{images, Compose(list...)}
}

// GetRand returns sample i: a tensor [C,H,W] and its class, int64. The transforms draw from rng.
func (t *Transformed) GetRand(i int, rng *rand.Rand) (data.Sample, error) {
	m, class, err := t.Images.Image(i)
	if err != nil {
		return data.Sample{}, err
	}
	if m, err = t.transform(m, rng); err != nil {
		return data.Sample{}, err
	}
	return data.Sample{X: m.Tensor(), Y: class}, nil
}

// Get returns sample i with random numbers that depend only on i. A loader calls GetRand instead.
func (t *Transformed) Get(i int) (data.Sample, error) {
	return t.GetRand(i, rand.New(rand.NewPCG(0, uint64(i))))
}

// Image returns image i with the transforms applied. Its random numbers are those of Get, so they
// depend only on i.
func (t *Transformed) Image(i int) (*Image, int64, error) {
	m, class, err := t.Images.Image(i)
	if err == nil {
		m, err = t.transform(m, rand.New(rand.NewPCG(0, uint64(i))))
	}
	return m, class, err
}
