package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// typeBits maps each of the format's types to the number of bits of an element. A type without a
// dtype.Type can be listed but not read.
var typeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
	"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

var names = map[dtype.Type]string{dtype.Bool: "BOOL", dtype.U8: "U8", dtype.I8: "I8", dtype.I16: "I16", dtype.I32: "I32",
	dtype.I64: "I64", dtype.F16: "F16", dtype.BF16: "BF16", dtype.F32: "F32", dtype.F64: "F64"}

var types = func() map[string]dtype.Type {
	m := map[string]dtype.Type{}
	for t, n := range names {
		m[n] = t
	}
	return m
}()

// An Info describes a tensor in a file.
type Info struct {
	Name  string
	DType string     // format's name of the type, such as "F32" or "F8_E4M3"
	Type  dtype.Type // type of the elements; dtype.Invalid if Flambeau has no such type
	Shape []int
	Bytes int64
	Path  string // path of the file that contains the tensor; a shard if the model is sharded

	part   *shard
	offset int64 // offset of the tensor's bytes in the file
	summed bool  // whether the file has a checksum of the tensor
	sum    uint32
}

// header reads and checks the header of a file of the given size. It returns descriptions of the
// tensors in file order. Like the reference implementation, it allows no holes and no overlaps.
func header(path string, r io.ReaderAt, fileSize int64) (infos []*Info, metadata map[string]string, err error) {
	bad := func(at int64, format string, a ...any) ([]*Info, map[string]string, error) {
		return nil, nil, &Error{Path: path, Offset: at, Msg: fmt.Sprintf(format, a...)}
	}
	var size [8]byte
	if fileSize < 8 {
		return bad(-1, "the file has %d bytes, it is too short", fileSize)
	}
	if _, err := r.ReadAt(size[:], 0); err != nil {
		return nil, nil, &Error{Path: path, Offset: 0, Msg: err.Error(), Err: err}
	}
	n := binary.LittleEndian.Uint64(size[:])
	if n > maxHeader || int64(n) > fileSize-8 {
		if bytes.HasPrefix(size[:], []byte("PK\x03\x04")) {
			return bad(0, "this is a zip file, as PyTorch's .pt files are, not a safetensors file: package torchfile reads those")
		}
		if n <= maxHeader || fileSize-8 < maxHeader {
			return bad(0, "the header claims %d bytes, the file has %d", n, fileSize)
		}
		return bad(0, "the header claims %d bytes, at most %d are read", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil && err != io.EOF {
		return nil, nil, &Error{Path: path, Offset: 8, Msg: "reading the header: " + err.Error(), Err: err}
	}
	if !utf8.Valid(text) {
		return bad(8, "the header is not valid JSON: it is not UTF-8")
	}
	if at := loneSurrogate(text); at >= 0 {
		return bad(8+int64(at), "%s", aboutSurrogate(text[at:]))
	}
	p := &parser{path: path, d: json.NewDecoder(bytes.NewReader(text))}
	p.d.UseNumber()
	if infos, metadata, err = p.header(); err != nil {
		return nil, nil, err
	}
	if rest := bytes.TrimRight(text[p.d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return bad(8+p.d.InputOffset(), "the header is not valid JSON: there is more behind its end")
	}
	// In file order, each tensor must begin where the previous one ends.
	slices.SortStableFunc(infos, func(a, b *Info) int {
		if a.offset != b.offset {
			return int(min(max(a.offset-b.offset, -1), 1))
		}
		return int(min(max(a.Bytes-b.Bytes, -1), 1))
	})
	body, at := fileSize-8-int64(n), int64(0)
	for _, i := range infos {
		end := i.offset + i.Bytes
		switch {
		case end > body:
			return nil, nil, p.tensor(i.Name, "its data end at %d, the file's at %d", end, body)
		case i.offset < at:
			return nil, nil, p.tensor(i.Name, "its data begin at %d and overlap those of another tensor, which end at %d", i.offset, at)
		case i.offset > at:
			return nil, nil, p.tensor(i.Name, "its data begin at %d, and those before end at %d: there is a hole", i.offset, at)
		}
		at = end
		i.offset += 8 + int64(n)
		i.Path = path
	}
	if at != body {
		return bad(8+int64(n)+at, "there are %d bytes behind the last tensor", body-at)
	}
	if sums, ok := metadata[sumsKey]; ok {
		if err := checkHeader(path, text, sums, infos); err != nil {
			return nil, nil, err
		}
		delete(metadata, sumsKey)
	}
	return infos, metadata, nil
}

// loneSurrogate returns the offset of the first lone surrogate in JSON, or -1. A lone surrogate,
// such as \ud800 without \udc00 to \udfff after it, has no other half. It represents no character
// (RFC 8259, 8.2). Package encoding/json would replace it by U+FFFD and so change a name.
func loneSurrogate(text []byte) int {
	escape := func(at int) (rune, bool) { // reads \uXXXX
		if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
		return rune(v), err == nil
	}
	for at := 0; at < len(text); at++ {
		if text[at] != '\\' {
			continue
		}
		r, ok := escape(at)
		if !ok || !utf16.IsSurrogate(r) {
			at++ // the escaped character, such as a backslash
			continue
		}
		low, ok := escape(at + 6)
		if !ok || utf16.DecodeRune(r, low) == unicode.ReplacementChar {
			return at
		}
		at += 11
	}
	return -1
}

func aboutSurrogate(text []byte) string {
	return fmt.Sprintf("a name or text holds %s, half of a character (a lone surrogate), which cannot be read as it is; write the file again without it", text[:6])
}

// A parser reads the JSON of a header, in which no key may be repeated.
type parser struct {
	path string
	d    *json.Decoder
}

func (p *parser) fail(format string, a ...any) error {
	return &Error{Path: p.path, Offset: 8 + p.d.InputOffset(), Msg: fmt.Sprintf(format, a...)}
}

func (p *parser) tensor(name, format string, a ...any) error {
	return &Error{Path: p.path, Tensor: name, Offset: -1, Msg: fmt.Sprintf(format, a...)}
}

func (p *parser) token() (json.Token, error) {
	t, err := p.d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, p.fail("the header is not valid JSON: %v", err)
	}
	return t, nil
}

func (p *parser) delim(want json.Delim, what string) error {
	t, err := p.token()
	if err == nil && t != want {
		err = p.fail("the header is not valid: %s is no %c", what, want)
	}
	return err
}

// object calls f for each key of an object, and f reads the value.
func (p *parser) object(what string, f func(key string) error) error {
	if err := p.delim('{', what); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.d.More() {
		t, err := p.token()
		if err != nil {
			return err
		}
		key := t.(string) // the decoder returns only strings as keys
		if seen[key] {
			return p.fail("the key %q appears twice in %s", key, what)
		}
		seen[key] = true
		if err := f(key); err != nil {
			return err
		}
	}
	return p.delim('}', what)
}

func (p *parser) text(what string) (string, error) {
	t, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", p.fail("%s is no string", what)
	}
	return s, nil
}

// numbers reads a list of whole numbers. The argument most is the largest allowed length of the
// list.
func (p *parser) numbers(what string, most int) ([]int64, error) {
	if err := p.delim('[', what); err != nil {
		return nil, err
	}
	list := []int64{}
	for p.d.More() {
		t, err := p.token()
		if err != nil {
			return nil, err
		}
		n, ok := t.(json.Number)
		if !ok {
			return nil, p.fail("%s holds %v, which is no number", what, t)
		}
		v, err := strconv.ParseInt(n.String(), 10, 64)
		if err != nil || v < 0 {
			return nil, p.fail("%s holds %s, which is no size", what, n)
		}
		if len(list) == most {
			return nil, p.fail("%s holds more than %d numbers", what, most)
		}
		list = append(list, v)
	}
	return list, p.delim(']', what)
}

func (p *parser) header() (infos []*Info, metadata map[string]string, err error) {
	err = p.object("the header", func(name string) error {
		if name == metadataKey {
			metadata = map[string]string{}
			return p.object(metadataKey, func(key string) (err error) {
				metadata[key], err = p.text("the value of " + strconv.Quote(key) + " in the metadata")
				return err
			})
		}
		i, err := p.info(name)
		infos = append(infos, i)
		return err
	})
	return infos, metadata, err
}

// info reads the description of a tensor.
func (p *parser) info(name string) (*Info, error) {
	i := &Info{Name: name}
	var dims, offsets []int64
	what := "tensor " + strconv.Quote(name)
	err := p.object(what, func(key string) (err error) {
		switch key {
		case "dtype":
			i.DType, err = p.text("the dtype of " + what)
		case "shape":
			dims, err = p.numbers("the shape of "+what, 1000)
		case "data_offsets":
			offsets, err = p.numbers("the data_offsets of "+what, 2)
		default:
			err = p.fail("%s has the key %q, which the format does not know", what, key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if i.DType == "" || dims == nil || len(offsets) != 2 {
		return nil, p.tensor(name, "it lacks a dtype, a shape or two data_offsets")
	}
	if offsets[1] < offsets[0] {
		return nil, p.tensor(name, "its data end at %d, before they begin at %d", offsets[1], offsets[0])
	}
	i.Type, i.offset, i.Bytes = types[i.DType], offsets[0], offsets[1]-offsets[0]
	// nonZero is the number of bits if each size of 0 counts as 1. A size of 0 would hide an
	// overflow of the other sizes.
	elements, nonZero := uint64(1), uint64(8)
	for _, d := range dims {
		if over, least := bits.Mul64(nonZero, uint64(max(d, 1))); over != 0 || least > math.MaxInt64 {
			nonZero = math.MaxUint64
		} else {
			nonZero = least
		}
		hi, lo := bits.Mul64(elements, uint64(d))
		if hi != 0 || lo > math.MaxInt64 || int64(int(d)) != d {
			return nil, p.tensor(name, "shape %v has too many elements", dims)
		}
		elements = lo
		i.Shape = append(i.Shape, int(d))
	}
	if elements == 0 && nonZero == math.MaxUint64 {
		return nil, p.tensor(name, "shape %v has too many elements", dims)
	}
	if width := typeBits[i.DType]; width != 0 {
		hi, need := bits.Mul64(elements, width)
		if hi != 0 || need%8 != 0 || need/8 != uint64(i.Bytes) {
			return nil, p.tensor(name, "%d bytes at %v, shape %v of %s needs %s", i.Bytes, offsets, dims, i.DType, needs(hi, need))
		}
	}
	if i.Type != dtype.Invalid && len(dims) > shape.MaxRank {
		i.Type = dtype.Invalid
	}
	return i, nil
}

func needs(hi, need uint64) string {
	switch {
	case hi != 0:
		return "far more"
	case need%8 != 0:
		return "a part of a byte"
	}
	return strconv.FormatUint(need/8, 10)
}

// readable returns an error that says why the tensor cannot be read, or nil.
func (i *Info) readable() error {
	fail := func(format string, a ...any) error {
		return &Error{Path: i.Path, Tensor: i.Name, Offset: i.offset, Msg: fmt.Sprintf(format, a...)}
	}
	switch {
	case i.Type != dtype.Invalid:
		return nil
	case types[i.DType] != dtype.Invalid:
		return fail("%d dimensions, at most %d are supported", len(i.Shape), shape.MaxRank)
	case typeBits[i.DType] != 0:
		return fail("tensors of type %s are not supported", i.DType)
	}
	return fail("unknown type %q", strings.ToValidUTF8(i.DType, "?"))
}
