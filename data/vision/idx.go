package vision

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// The IDX format is described at http://yann.lecun.com/exdb/mnist/. A file has two zero bytes, a
// byte for the type, a byte for the number of dimensions, and four bytes for each dimension. The
// elements follow in row-major order. All numbers are big-endian.

// maxIDX is the largest accepted number of bytes of elements, 4 GiB. All 402,953 digits of QMNIST
// take 0.3 GB.
const maxIDX = 4 << 30

var idxTypes = map[byte]dtype.Type{0x08: dtype.U8, 0x09: dtype.I8, 0x0b: dtype.I16, 0x0c: dtype.I32, 0x0d: dtype.F32, 0x0e: dtype.F64}

// idx is an IDX file in memory, with its elements in little-endian byte order.
type idx struct {
	t    dtype.Type
	dims []int
	data []byte
}

// readIDX reads an IDX file to its end. The file may be gzipped.
func readIDX(r io.Reader) (*idx, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("not a gzip file: %w", err)
		}
		in = bufio.NewReaderSize(z, 1<<16)
	}
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, fmt.Errorf("not an IDX file: its header is cut: %w", err)
	}
	f := &idx{t: idxTypes[head[2]]}
	if head[0] != 0 || head[1] != 0 || f.t == dtype.Invalid {
		return nil, fmt.Errorf("not an IDX file: it begins with % x", head)
	}
	if int(head[3]) > shape.MaxRank {
		return nil, fmt.Errorf("an IDX file of %d dimensions, at most %d are supported", head[3], shape.MaxRank)
	}
	size := int64(f.t.Size())
	for range head[3] {
		var d [4]byte
		if _, err := io.ReadFull(in, d[:]); err != nil {
			return nil, fmt.Errorf("the header of the IDX file is cut: %w", err)
		}
		n := int64(d[0])<<24 | int64(d[1])<<16 | int64(d[2])<<8 | int64(d[3])
		f.dims = append(f.dims, int(n))
		if n != 0 && size > maxIDX/n {
			return nil, fmt.Errorf("an IDX file of shape %v and type %v, at most %d bytes are read", f.dims, f.t, int64(maxIDX))
		}
		size *= n
	}
	// The buffer grows as bytes arrive, because the header may claim any size.
	var b bytes.Buffer
	if got, err := io.Copy(&b, io.LimitReader(in, size)); err != nil || got < size {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d bytes of elements, %v of type %v are %d: %w", got, f.dims, f.t, size, err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("there is more than the %d bytes of %v of type %v", size, f.dims, f.t)
	}
	f.data = b.Bytes()
	swap(f.data, f.t.Size())
	return f, nil
}

// swap reverses the bytes of each element.
func swap(b []byte, size int) {
	for ; size > 1 && len(b) >= size; b = b[size:] {
		for i := range size / 2 {
			b[i], b[size-1-i] = b[size-1-i], b[i]
		}
	}
}

// ReadIDX reads a tensor in IDX format, which may be gzipped. The type is uint8, int8, int16,
// int32, float32 or float64. A tensor has at most 8 dimensions and 4 GiB. Errors are of type
// *[Error].
func ReadIDX(r io.Reader) (*tensor.Tensor, error) {
	f, err := readIDX(r)
	if err != nil {
		return nil, &Error{"", err}
	}
	var x *tensor.Tensor
	if err := tensor.Try(func() { x = tensor.FromBytes(f.t, f.data, f.dims...) }); err != nil {
		return nil, &Error{"", err}
	}
	return x, nil
}

// LoadIDX reads a tensor from a file in IDX format, as [ReadIDX] does.
func LoadIDX(path string) (*tensor.Tensor, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	defer f.Close()
	x, err := ReadIDX(f)
	var e *Error
	if errors.As(err, &e) {
		e.Path = path
	}
	return x, err
}

// WriteIDX writes x in IDX format. The type of x must be one that [ReadIDX] reads.
func WriteIDX(w io.Writer, x *tensor.Tensor) error {
	code := byte(0)
	for c, t := range idxTypes {
		if t == x.Type() {
			code = c
		}
	}
	if code == 0 {
		return failf("", "an IDX file cannot hold %v", x.Type())
	}
	head := []byte{0, 0, code, byte(x.Rank())}
	for _, n := range x.Shape().Slice() {
		if int64(n) > 1<<32-1 {
			return failf("", "an IDX file cannot hold a dimension of %d", n)
		}
		head = append(head, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	var b []byte
	if err := tensor.Try(func() { b = x.Bytes() }); err != nil {
		return &Error{"", err}
	}
	swap(b, x.Type().Size())
	if _, err := w.Write(head); err != nil {
		return &Error{"", err}
	}
	if _, err := w.Write(b); err != nil {
		return &Error{"", err}
	}
	return nil
}

// SaveIDX writes x to a file in IDX format. If path ends in .gz, the file is gzipped. It is written
// completely or not at all.
func SaveIDX(path string, x *tensor.Tensor) error {
	return save(path, func(w io.Writer) error {
		if !strings.HasSuffix(path, ".gz") {
			return WriteIDX(w, x)
		}
		z := gzip.NewWriter(w)
		if err := WriteIDX(z, x); err != nil {
			return err
		}
		return z.Close()
	})
}
