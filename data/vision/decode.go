package vision

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	_ "image/jpeg"
	_ "image/png"
	"io"

	_ "golang.org/x/image/bmp"
	_ "golang.org/x/image/tiff"
	_ "golang.org/x/image/webp"
)

// maxPixels is the default limit of pixels in a decoded image, about 67 million. A limit is needed
// because a small file can claim any size.
const maxPixels = 1 << 26

// maxFile is the largest accepted size of an image file, in bytes.
const maxFile = 256 << 20

// Decode configures how images are decoded. The zero value decodes as torchvision does, to RGB in
// the stored orientation.
type Decode struct {
	// Gray decodes to one channel instead of three. It computes L = 0.299 R + 0.587 G + 0.114 B as
	// Pillow does.
	Gray bool
	// Upright rotates or mirrors the image as its EXIF orientation says. PyTorch's readers do not
	// do this by default.
	Upright bool
	// MaxPixels is the largest number of pixels in an image; 0 means 67,108,864. A larger image is
	// a *[PixelsError]. Decoding needs up to seven bytes of memory for each pixel, or eleven if a
	// channel has 16 bits.
	MaxPixels int
	// Size is the length of the shorter side that a later [Resize] gets as its argument. 0 means
	// that it is not known. To save memory and time, the decoder may reduce blocks of k·k pixels
	// to their means. This happens if the shorter side of the image is at least 2k times Size,
	// for some k ≥ 2. The result is still at least twice as large as Size.
	Size int
}

// Read decodes an image to bytes, [3,H,W] or [1,H,W]. The formats are PNG, JPEG, GIF (its first
// frame), WebP, BMP, TIFF (its first page), PPM and PGM. Read drops transparency, as Pillow's
// convert("RGB") does. The pixels equal Pillow's, except that those of a JPEG differ by a few
// levels, because decoders round differently. For 16-bit values, Read takes the upper 8 bits, while
// Pillow clips the values. If a file claims too many pixels, Read returns an error before it
// decodes anything.
func (d Decode) Read(r io.Reader) (*Image, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, &Error{"", err}
	}
	m, err := d.bytes(text)
	if err != nil {
		return nil, &Error{"", err}
	}
	return m, nil
}

// Load decodes the image in a file, as [Decode.Read] does.
func (d Decode) Load(path string) (*Image, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := d.Read(f)
	var e *Error
	if errors.As(err, &e) {
		e.Path = path
	}
	return m, err
}

// A PixelsError means that an image has more pixels than [Decode.MaxPixels]. It is wrapped by an
// *[Error] that names the file.
type PixelsError struct {
	Width, Height int
	Max           int
}

func (e *PixelsError) Error() string {
	return fmt.Sprintf("%d×%d pixels, at most %d pixels are decoded; the field MaxPixels of vision.Decode raises the limit", e.Width, e.Height, e.Max)
}

func (d Decode) bytes(text []byte) (*Image, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	limit := d.MaxPixels
	if limit <= 0 {
		limit = maxPixels
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("not a picture: %w", err)
	}
	if w, h := config.Width, config.Height; w < 1 || h < 1 || w > limit/h {
		return nil, &PixelsError{w, h, limit}
	}
	var m *Image
	k := d.factor(config.Height, config.Width)
	if format == "gif" {
		if m, err = firstFrame(text, config); err == nil {
			m = reduce(m, k)
		}
	} else {
		var src image.Image
		if src, _, err = image.Decode(bytes.NewReader(text)); err == nil {
			b := src.Bounds()
			if b.Dx() != config.Width || b.Dy() != config.Height {
				return nil, fmt.Errorf("%d×%d pixels where %d×%d were announced", b.Dx(), b.Dy(), config.Width, config.Height)
			}
			m = reduced(src, format, k)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("a %s that cannot be decoded: %w", format, err)
	}
	if d.Gray {
		m = gray(m)
	} else if m.C == 1 {
		n := len(m.U8)
		rgb := make([]uint8, 3*n)
		copy(rgb, m.U8)
		copy(rgb[n:], m.U8)
		copy(rgb[2*n:], m.U8)
		m = &Image{C: 3, H: m.H, W: m.W, U8: rgb}
	}
	if d.Upright {
		m = orient(m, orientation(text))
	}
	return m, nil
}

// firstFrame draws the first frame of a GIF on a black screen of the GIF's size.
func firstFrame(text []byte, config image.Config) (*Image, error) {
	src, err := gif.Decode(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	frame, at := planes(src, "gif"), src.Bounds().Min
	if frame.W == config.Width && frame.H == config.Height {
		return frame, nil
	}
	m := &Image{C: frame.C, H: config.Height, W: config.Width, U8: make([]uint8, frame.C*config.Height*config.Width)}
	for c := range m.C {
		for y := range frame.H {
			if y+at.Y >= 0 && y+at.Y < m.H && at.X >= 0 && at.X+frame.W <= m.W {
				copy(m.U8[(c*m.H+y+at.Y)*m.W+at.X:], frame.U8[(c*frame.H+y)*frame.W:][:frame.W])
			}
		}
	}
	return m, nil
}

// planes returns the pixels of src, which was decoded from the given format. The result has one
// channel if src is grey, and three channels otherwise.
func planes(src image.Image, format string) *Image {
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	n := w * h
	switch s := src.(type) {
	case *image.Gray:
		m := &Image{C: 1, H: h, W: w, U8: make([]uint8, n)}
		for y := range h {
			copy(m.U8[y*w:(y+1)*w], s.Pix[s.PixOffset(b.Min.X, b.Min.Y+y):])
		}
		return m
	case *image.Gray16:
		m := &Image{C: 1, H: h, W: w, U8: make([]uint8, n)}
		for i := range n {
			m.U8[i] = s.Pix[s.PixOffset(b.Min.X+i%w, b.Min.Y+i/w)]
		}
		return m
	case *image.NYCbCrA: // a WebP with transparency
		return planes(&s.YCbCr, format)
	}
	m := &Image{C: 3, H: h, W: w, U8: make([]uint8, 3*n)}
	red, green, blue := m.U8[:n], m.U8[n:2*n], m.U8[2*n:]
	switch s := src.(type) {
	case *image.YCbCr:
		if format == "webp" {
			fromWebP(s, w, h, red, green, blue)
		} else {
			fromYCbCr(s, w, h, red, green, blue)
		}
	case *image.RGBA: // a PNG without transparency
		for y := range h {
			row := s.Pix[s.PixOffset(b.Min.X, b.Min.Y+y):][:4*w]
			for x := range w {
				i := y*w + x
				if a := row[4*x+3]; a != 255 && a != 0 {
					c := color.NRGBAModel.Convert(color.RGBA{row[4*x], row[4*x+1], row[4*x+2], a}).(color.NRGBA)
					red[i], green[i], blue[i] = c.R, c.G, c.B
					continue
				}
				red[i], green[i], blue[i] = row[4*x], row[4*x+1], row[4*x+2]
			}
		}
	case *image.NRGBA:
		for y := range h {
			row := s.Pix[s.PixOffset(b.Min.X, b.Min.Y+y):][:4*w]
			for x := range w {
				i := y*w + x
				red[i], green[i], blue[i] = row[4*x], row[4*x+1], row[4*x+2]
			}
		}
	case *image.Paletted:
		var table [256][3]uint8
		for i, c := range s.Palette[:min(len(s.Palette), 256)] {
			v := color.NRGBAModel.Convert(c).(color.NRGBA)
			table[i] = [3]uint8{v.R, v.G, v.B}
		}
		for y := range h {
			row := s.Pix[s.PixOffset(b.Min.X, b.Min.Y+y):][:w]
			for x, p := range row {
				i := y*w + x
				red[i], green[i], blue[i] = table[p][0], table[p][1], table[p][2]
			}
		}
	// This case gives the same result as the default case, whose calls of At allocate for each
	// pixel.
	case image.RGBA64Image:
		for i := range n {
			c := s.RGBA64At(b.Min.X+i%w, b.Min.Y+i/w)
			if a := uint32(c.A); a != 0xffff && a != 0 {
				c.R, c.G, c.B = uint16(uint32(c.R)*0xffff/a), uint16(uint32(c.G)*0xffff/a), uint16(uint32(c.B)*0xffff/a)
			}
			red[i], green[i], blue[i] = uint8(c.R>>8), uint8(c.G>>8), uint8(c.B>>8)
		}
	default:
		for y := range h {
			for x := range w {
				v := color.NRGBAModel.Convert(src.At(b.Min.X+x, b.Min.Y+y)).(color.NRGBA)
				i := y*w + x
				red[i], green[i], blue[i] = v.R, v.G, v.B
			}
		}
	}
	return m
}

// gray computes what Pillow's convert("L") does, in the same integer arithmetic (Convert.c, L24).
func gray(m *Image) *Image {
	if m.C == 1 {
		return m
	}
	n := m.H * m.W
	out := make([]uint8, n)
	red, green, blue := m.U8[:n], m.U8[n:2*n], m.U8[2*n:3*n]
	for i := range out {
		out[i] = uint8((uint32(red[i])*19595 + uint32(green[i])*38470 + uint32(blue[i])*7471 + 0x8000) >> 16)
	}
	return &Image{C: 1, H: m.H, W: m.W, U8: out}
}

// orientation returns the EXIF orientation of a JPEG, PNG, WebP or TIFF file, 1 to 8. It returns 1
// if the file has no orientation, or an invalid one. EXIF is a TIFF structure: CIPA DC-008, 4.6.
func orientation(text []byte) int {
	// In a JPEG, EXIF is in the APP1 segment.
	at := bytes.Index(text[:min(len(text), 1<<20)], []byte("Exif\x00\x00"))
	at += 6
	switch {
	case bytes.HasPrefix(text, []byte("\x89PNG")):
		if at = bytes.Index(text, []byte("eXIf")) + 4; at < 4 {
			return 1
		}
	case len(text) > 12 && string(text[8:12]) == "WEBP":
		if at = bytes.Index(text, []byte("EXIF")) + 8; at < 8 { // skip the chunk's name and length
			return 1
		}
		if bytes.HasPrefix(text[min(at, len(text)):], []byte("Exif\x00\x00")) {
			at += 6
		}
	case bytes.HasPrefix(text, []byte("II*\x00")), bytes.HasPrefix(text, []byte("MM\x00*")):
		at = 0
	case at < 6 || !bytes.HasPrefix(text, []byte("\xff\xd8")):
		return 1
	}
	t := text[min(at, len(text)):]
	if len(t) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	if string(t[:2]) == "MM" {
		order = binary.BigEndian
	} else if string(t[:2]) != "II" {
		return 1
	}
	dir := uint64(order.Uint32(t[4:]))
	if dir+2 > uint64(len(t)) {
		return 1
	}
	count := uint64(order.Uint16(t[dir:]))
	for i := range count {
		e := dir + 2 + 12*i
		if e+12 > uint64(len(t)) {
			return 1
		}
		if order.Uint16(t[e:]) == 0x0112 {
			if v := order.Uint16(t[e+8:]); v >= 1 && v <= 8 {
				return int(v)
			}
			return 1
		}
	}
	return 1
}

// orient undoes an EXIF orientation. The orientations are: 2 mirrored left to right, 3 rotated by
// half a turn, 4 mirrored top to bottom, 5 transposed, 6 rotated left, 7 transversed, 8 rotated
// right.
func orient(m *Image, o int) *Image {
	if o == 1 {
		return m
	}
	out := &Image{C: m.C, H: m.H, W: m.W, U8: make([]uint8, len(m.U8))}
	if o >= 5 {
		out.H, out.W = m.W, m.H
	}
	for c := range m.C {
		src, dst := m.U8[c*m.H*m.W:], out.U8[c*m.H*m.W:]
		for y := range out.H {
			for x := range out.W {
				sy, sx := y, x
				if o >= 5 {
					sy, sx = x, y
				}
				if o == 3 || o == 4 || o == 6 || o == 7 {
					sy = m.H - 1 - sy
				}
				if o == 2 || o == 3 || o == 7 || o == 8 {
					sx = m.W - 1 - sx
				}
				dst[y*out.W+x] = src[sy*m.W+sx]
			}
		}
	}
	return out
}
