package npy

import (
	"encoding/binary"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

const (
	magic     = "\x93NUMPY"
	maxHeader = 64 << 10 // greatest length of a header in bytes; NumPy itself accepts 10000
)

// codes maps the types that can be written to NumPy's names.
var codes = map[dtype.Type]string{dtype.Bool: "|b1", dtype.U8: "|u1", dtype.I8: "|i1", dtype.I16: "<i2", dtype.I32: "<i4", dtype.I64: "<i8",
	dtype.F16: "<f2", dtype.F32: "<f4", dtype.F64: "<f8"}

var typeOf = func() map[string]dtype.Type {
	m := map[string]dtype.Type{}
	for t, c := range codes {
		m[c[1:]] = t
	}
	return m
}()

// A header describes the array in a .npy file.
type header struct {
	t       dtype.Type
	swap    bool // whether the elements are big-endian
	fortran bool
	dims    []int
	length  int64 // length of the header in bytes
	bytes   int64 // length of all elements in bytes
}

// readHeader reads the header from r. It checks that the header and the elements fit into the file,
// which has size bytes.
func readHeader(path, entry string, r io.Reader, size int64) (*header, error) {
	bad := func(at int64, format string, a ...any) (*header, error) {
		return nil, fail(path, entry, at, format, a...)
	}
	head := make([]byte, 12)
	if _, err := io.ReadFull(r, head[:8]); err != nil || string(head[:6]) != magic {
		if string(head[:4]) == "PK\x03\x04" {
			return bad(0, "this is a zip archive, as .npz files are: LoadArchive reads it")
		}
		return bad(0, "this is no .npy file: it does not begin with NumPy's mark")
	}
	wide := 4
	switch major, minor := head[6], head[7]; {
	case minor == 0 && major == 1:
		wide = 2
	case minor == 0 && (major == 2 || major == 3):
	default:
		return bad(6, "version %d.%d of the format, 1.0 to 3.0 are supported", major, minor)
	}
	if _, err := io.ReadFull(r, head[8:8+wide]); err != nil {
		return bad(8, "the file ends in its header")
	}
	// The length of the header's text is at head[8:]. Version 1 stores it in two bytes instead of
	// four. The next two bytes of head are then zero.
	n := int64(binary.LittleEndian.Uint32(head[8:]))
	at := int64(8 + wide)
	if n > maxHeader || n > size-at {
		return bad(8, "the header claims %d bytes, of at most %d and %d that are left", n, maxHeader, size-at)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, failed(path, entry, err)
	}
	h := &header{length: at + n}
	p := &literal{text: string(text)}
	if why := p.header(h); why != "" {
		return bad(at+int64(p.at), "%s", why)
	}
	h.bytes = int64(h.t.Size())
	for _, d := range h.dims {
		if d > 0 && h.bytes > math.MaxInt64/int64(d) {
			return bad(at, "shape %v has too many elements", h.dims)
		}
		h.bytes *= int64(d)
	}
	// The sizes are checked even if one of them is 0, because another may be too large for a
	// tensor.
	p64 := int64(h.t.Size())
	for _, d := range h.dims {
		if d > 0 {
			if p64 > math.MaxInt64/int64(d) {
				return bad(at, "shape %v has too many elements", h.dims)
			}
			p64 *= int64(d)
		}
	}
	if h.bytes > size-h.length {
		return bad(at, "shape %v of %v needs %d bytes, %d are left", h.dims, h.t, h.bytes, size-h.length)
	}
	return h, nil
}

// A literal is the rest of a Python literal that is being parsed.
type literal struct {
	text string
	at   int
}

func (p *literal) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// skip skips optional white space and then the text s. It reports whether it has found s.
func (p *literal) skip(s string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// str parses a quoted string without escapes.
func (p *literal) str() (string, bool) {
	p.space()
	if p.at >= len(p.text) || p.text[p.at] != '\'' && p.text[p.at] != '"' {
		return "", false
	}
	end := strings.IndexByte(p.text[p.at+1:], p.text[p.at])
	if end < 0 {
		return "", false
	}
	s := p.text[p.at+1 : p.at+1+end]
	p.at += end + 2
	return s, !strings.ContainsRune(s, '\\')
}

// header parses text such as "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }" into h.
// It returns what is wrong, or "".
func (p *literal) header(h *header) string {
	if !p.skip("{") {
		return "the header is no dict"
	}
	seen := map[string]bool{}
	for !p.skip("}") {
		key, ok := p.str()
		if !ok || !p.skip(":") {
			return "the header is no dict with names"
		}
		if seen[key] {
			return "the header has the key " + strconv.Quote(key) + " twice"
		}
		seen[key] = true
		why := ""
		switch key {
		case "descr":
			why = p.descr(h)
		case "fortran_order":
			if h.fortran = p.skip("True"); !h.fortran && !p.skip("False") {
				why = "fortran_order is neither True nor False"
			}
		case "shape":
			why = p.shape(h)
		default:
			why = "the header has the key " + strconv.Quote(key) + ", which the format does not know"
		}
		if why != "" {
			return why
		}
		if !p.skip(",") {
			if p.skip("}") {
				break
			}
			return "the header is no dict: a comma is missing"
		}
	}
	if p.space(); p.at != len(p.text) {
		return "there is more behind the header's dict"
	}
	if len(seen) != 3 {
		return "the header lacks descr, fortran_order or shape"
	}
	return ""
}

func (p *literal) descr(h *header) string {
	if p.skip("[") {
		return "a structured array: only arrays of one type are supported, save its fields one by one"
	}
	s, ok := p.str()
	if !ok {
		return "descr is no string"
	}
	code := s
	order := byte('<')
	if len(code) > 0 && strings.IndexByte("<>=|", code[0]) >= 0 {
		order, code = code[0], code[1:]
	}
	h.t = typeOf[code]
	if h.t != dtype.Invalid && (h.t.Size() == 1 || order != '|') {
		h.swap = order == '>' && h.t.Size() > 1
		return ""
	}
	kind := byte(0)
	if code != "" {
		kind = code[0]
	}
	what := map[byte]string{'c': "complex numbers", 'O': "Python objects, which are not read: they could run anything", 'S': "text", 'U': "text", 'M': "dates", 'm': "times",
		'V': "structures", 'u': "unsigned integers wider than a byte", 'f': "floating-point numbers of another size"}[kind]
	if what == "" {
		what = "elements of an unknown type"
	}
	return "an array of type " + strconv.Quote(s) + ": " + what + " are not supported"
}

func (p *literal) shape(h *header) string {
	if !p.skip("(") {
		return "shape is no tuple"
	}
	h.dims = []int{}
	for !p.skip(")") {
		p.space()
		from := p.at
		for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
			p.at++
		}
		n, err := strconv.ParseInt(p.text[from:p.at], 10, 64)
		if err != nil || int64(int(n)) != n {
			return "shape holds what is no size"
		}
		_ = p.skip("L") // Python 2 writes an L after long integers
		if len(h.dims) == shape.MaxRank {
			return "more than " + strconv.Itoa(shape.MaxRank) + " dimensions, which are not supported"
		}
		h.dims = append(h.dims, int(n))
		if !p.skip(",") && (len(h.dims) == 1 || !strings.HasPrefix(p.text[p.at:], ")")) {
			return "shape is no tuple"
		}
	}
	return ""
}
