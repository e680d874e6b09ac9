package vision

import (
	"cmp"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Grid configures [MakeGrid]. The zero value has torchvision's defaults.
type Grid struct {
	Columns int // number of images in a row; 0 means 8
	// Padding is the number of pixels between and around images. 0 means 2, and a negative number
	// means none.
	Padding  int
	PadValue float64 // value of the padding pixels

	// Normalize scales values from the bounds in Range to 0 … 1. If Range is zero, the bounds are
	// the smallest and the largest value of all images, or of each image if Each is true.
	Normalize bool
	Range     [2]float64
	Each      bool
}

// MakeGrid arranges a batch of images [N,C,H,W] in rows, as one image [C,h,w] with the type, device
// and scope of x. A tensor [C,H,W] or [H,W] is one image and gets no padding. Images with one
// channel get three equal channels. MakeGrid is torchvision.utils.make_grid. Gradients do not flow
// through it.
func MakeGrid(x *tensor.Tensor, how ...Grid) (grid *tensor.Tensor) {
	const op = "make_grid"
	var g Grid
	switch {
	case len(how) > 1:
		panic(tensor.NewError(op, tensor.ErrValue, "there is more than one Grid", x))
	case len(how) == 1:
		g = how[0]
	}
	if g.Columns < 0 {
		panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("%d columns", g.Columns), x))
	}
	if g.Padding > math.MaxInt32 { // larger sizes might overflow
		panic(tensor.NewError(op, tensor.ErrValue, fmt.Sprintf("a padding of %d pixels", g.Padding), x))
	}
	if g.Normalize && !x.Type().IsFloat() {
		panic(tensor.NewError(op, tensor.ErrType, "only floating-point numbers can be normalised", x))
	}
	if lo, hi := g.Range[0], g.Range[1]; g.Range != [2]float64{} && (!g.Normalize || !(lo < hi)) {
		panic(tensor.NewError(op, tensor.ErrValue, "a Range is two rising values, of Normalize", x))
	}
	x.Scope().Do(func(s *tensor.Scope) {
		x := x.In(s)
		for x.Rank() < 4 && x.Rank() > 1 {
			x = x.Unsqueeze(0)
		}
		if x.Rank() != 4 || x.Dim(1) != 1 && x.Dim(1) != 3 || x.Dim(0) == 0 {
			panic(tensor.NewError(op, tensor.ErrShape, "pictures are [N,C,H,W], [C,H,W] or [H,W], at least one, of 1 or 3 channels", x))
		}
		if g.Normalize {
			x = g.normalize(x)
		}
		x = x.Expand(-1, 3, -1, -1)
		if n := x.Dim(0); n == 1 {
			grid = x.Select(0, 0).Clone()
		} else {
			grid = g.lay(x, n)
		}
		s.Close(grid)
	}, tensor.NoGrad())
	return grid
}

// lay copies n images to their positions in the grid.
func (g Grid) lay(x *tensor.Tensor, n int) *tensor.Tensor {
	columns, padding := min(cmp.Or(g.Columns, 8), n), max(0, cmp.Or(g.Padding, 2))
	rows := (n + columns - 1) / columns
	h, w := x.Dim(2)+padding, x.Dim(3)+padding
	grid := x.NewFull(g.PadValue, 3, rows*h+padding, columns*w+padding)
	for i := range n {
		place := grid.Narrow(1, i/columns*h+padding, h-padding).Narrow(2, i%columns*w+padding, w-padding)
		place.Copy(x.Select(0, i))
	}
	return grid
}

// normalize scales values to 0 … 1. If Range is zero and all values are equal, they become 0.
func (g Grid) normalize(x *tensor.Tensor) *tensor.Tensor {
	if g.Range != [2]float64{} {
		lo, hi := g.Range[0], g.Range[1]
		return x.Clamp(lo, hi).SubScalar(lo).DivScalar(max(hi-lo, 1e-5))
	}
	flat := x.Reshape(1, -1)
	if g.Each {
		flat = x.Reshape(x.Dim(0), -1)
	}
	least, _ := flat.Min(1)
	most, _ := flat.Max(1)
	least, most = least.Reshape(-1, 1, 1, 1), most.Reshape(-1, 1, 1, 1)
	return x.Sub(least).Div(most.Sub(least).Clamp(1e-5, 1e300))
}

// SaveImage writes images to a file, arranged by [MakeGrid]: torchvision.utils.save_image. The
// extension of path chooses the format: .png, .jpg or .jpeg (with quality 95). Floating-point
// numbers from 0 to 1 become bytes. Other numbers are clamped, and NaN becomes black. uint8 values
// are written unchanged. The file is written completely or not at all. The error is an *[Error] if
// path is the cause, and a *[tensor.Error] if x is.
func SaveImage(path string, x *tensor.Tensor, how ...Grid) error {
	write := writers[strings.ToLower(filepath.Ext(path))]
	if write == nil {
		return failf(path, "the file's name ends in none of .png, .jpg, .jpeg")
	}
	var m *image.NRGBA
	if err := tensor.Try(func() { m = picture(MakeGrid(x, how...)) }); err != nil {
		return err
	}
	return save(path, func(w io.Writer) error { return write(w, m) })
}

var writers = map[string]func(io.Writer, image.Image) error{".png": png.Encode, ".jpg": writeJPEG, ".jpeg": writeJPEG}

func writeJPEG(w io.Writer, m image.Image) error {
	return jpeg.Encode(w, m, &jpeg.Options{Quality: 95})
}

// picture converts a grid [3,H,W] to an image.NRGBA, and frees the grid.
func picture(grid *tensor.Tensor) *image.NRGBA {
	defer grid.Free()
	if grid.Dim(1)*grid.Dim(2) == 0 {
		panic(tensor.NewError("save_image", tensor.ErrShape, "a picture has no pixels", grid))
	}
	m := image.NewNRGBA(image.Rect(0, 0, grid.Dim(2), grid.Dim(1)))
	grid.Scope().Do(func(s *tensor.Scope) {
		x := grid.In(s)
		switch {
		case x.Type().IsFloat():
			x = x.Float().NanToNum().MulScalar(255).AddScalar(0.5).Clamp(0, 255)
		case x.Type() != dtype.U8:
			panic(tensor.NewError("save_image", tensor.ErrType, "pictures are of floating-point numbers from 0 to 1, or of uint8", x))
		}
		planes := x.Cast(dtype.U8).Bytes()
		n := len(planes) / 3
		for i := range n {
			copy(m.Pix[4*i:], []uint8{planes[i], planes[n+i], planes[2*n+i], 255})
		}
	}, tensor.NoGrad())
	return m
}
