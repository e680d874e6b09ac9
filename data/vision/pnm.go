package vision

import (
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math"
	"strconv"
)

// This file reads the formats of netpbm. PGM images are grey (P2 as text, P5 binary). PPM images
// are red, green and blue (P3 as text, P6 binary). Source:
// https://netpbm.sourceforge.net/doc/pgm.html and ppm.html.

func init() {
	for _, magic := range []string{"P2", "P3", "P5", "P6"} {
		image.RegisterFormat("netpbm", magic, decodePNM, configPNM)
	}
}

// pnm is a netpbm file: its header, and the bytes after it.
type pnm struct {
	kind    byte // '2', '3', '5' or '6'
	w, h    int
	largest int // the value that means full brightness, up to 65535
	rest    []byte
}

func (p *pnm) channels() int {
	if p.kind == '3' || p.kind == '6' {
		return 3
	}
	return 1
}

var errShort = errors.New("the file ends before its last pixel")

func configPNM(r io.Reader) (image.Config, error) {
	// In practice, even a header with long comments fits into this size.
	head := make([]byte, 1<<16)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return image.Config{}, err
	}
	p, err := headPNM(head[:n])
	if err != nil {
		return image.Config{}, err
	}
	c := image.Config{ColorModel: color.RGBAModel, Width: p.w, Height: p.h}
	if p.channels() == 1 {
		c.ColorModel = color.GrayModel
	}
	return c, nil
}

// headPNM reads the header. It consists of the kind and three numbers, separated by white space,
// and one white space character at the end.
func headPNM(text []byte) (*pnm, error) {
	if len(text) < 2 {
		return nil, errShort
	}
	p := &pnm{kind: text[1], rest: text[2:]}
	for _, v := range []*int{&p.w, &p.h, &p.largest} {
		n, err := p.number()
		if err != nil {
			return nil, fmt.Errorf("its header: %w", err)
		}
		*v = n
	}
	if p.largest < 1 || p.largest > math.MaxUint16 {
		return nil, fmt.Errorf("its header: %d as the largest value", p.largest)
	}
	return p, nil
}

// number reads the next number and the white space character after it. A comment extends from # to
// the end of its line.
func (p *pnm) number() (int, error) {
	at, from := 0, -1
	for ; at < len(p.rest); at++ {
		c := p.rest[at]
		switch {
		case c >= '0' && c <= '9':
			if from < 0 {
				from = at
			}
			continue
		case c != ' ' && (c < '\t' || c > '\r') && c != '#':
			return 0, fmt.Errorf("%q where a number belongs", c)
		case from >= 0:
		case c == '#':
			for at+1 < len(p.rest) && p.rest[at] != '\n' && p.rest[at] != '\r' {
				at++
			}
			continue
		default:
			continue
		}
		break
	}
	if from < 0 {
		return 0, errShort
	}
	n, err := strconv.ParseUint(string(p.rest[from:min(at, from+11)]), 10, 31)
	// A comment before the next number counts as white space.
	if at < len(p.rest) && p.rest[at] != '#' {
		at++
	}
	p.rest = p.rest[at:]
	return int(n), err
}

func decodePNM(r io.Reader) (image.Image, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	p, err := headPNM(text)
	if err != nil {
		return nil, err
	}
	bytes, plain := 1, p.kind < '4'
	if !plain && p.largest > 255 {
		bytes = 2
	}
	have := len(p.rest) / bytes
	if plain {
		have = (len(p.rest) + 1) / 2 // a value takes at least a digit and a space
	}
	c := p.channels()
	if p.w < 1 || p.h < 1 || p.w > have/c/p.h {
		return nil, errShort
	}
	// The table scales values as Pillow does (PpmImagePlugin.py).
	table := make([]uint8, p.largest+1)
	for v := range table {
		table[v] = uint8(math.RoundToEven(float64(v) / float64(p.largest) * 255))
	}
	next := func() (v int, err error) {
		switch {
		case plain:
			v, err = p.number()
		case bytes == 2:
			v, p.rest = int(binary.BigEndian.Uint16(p.rest)), p.rest[2:]
		default:
			v, p.rest = int(p.rest[0]), p.rest[1:]
		}
		if err == nil && v > p.largest {
			err = fmt.Errorf("a value of %d, where %d is the largest", v, p.largest)
		}
		return v, err
	}
	box := image.Rect(0, 0, p.w, p.h)
	var m image.Image
	var pix []uint8
	if c == 1 {
		g := image.NewGray(box)
		m, pix = g, g.Pix
	} else {
		g := image.NewRGBA(box)
		m, pix = g, g.Pix
	}
	for i := range pix {
		if c == 3 && i%4 == 3 {
			pix[i] = 255
			continue
		}
		v, err := next()
		if err != nil {
			return nil, err
		}
		pix[i] = table[v]
	}
	return m, nil
}
