package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"strings"
)

// sumsKey is the metadata key of a file's checksums: CRC-32C, each in eight hexadecimal digits. The
// first checksum is that of the header, computed with zeros in place of these digits. The following
// checksums are those of the tensors' bytes, in file order.
const sumsKey = "flambeau.crc32c.file"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrChecksum is wrapped by the error for a file whose contents have changed since it was written.
var ErrChecksum = errors.New("the check sum is wrong")

// Checksums writes checksums of the header and of each tensor into the metadata, where other
// programs ignore them. [Open] verifies the header's checksum, and [Load] also verifies the
// checksums of the tensors. The checksums of mapped tensors are verified only by [File.Verify].
func Checksums() SaveOption { return func(s *saver) { s.sums = true } }

// sumsText returns the value of the metadata key sumsKey for the given checksums.
func sumsText(sums []uint32) string {
	var b strings.Builder
	for i, sum := range sums {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%08x", sum)
	}
	return b.String()
}

// sumsAt returns the offset of the value of sumsKey in the header's text, or -1.
func sumsAt(text []byte, value string) int {
	at := bytes.Index(text, []byte(`"`+sumsKey+`":"`+value+`"`))
	if at < 0 {
		return at
	}
	return at + len(`"`+sumsKey+`":"`)
}

// checkHeader verifies the checksum of a header, and stores the tensors' checksums in infos. infos
// must be in file order.
func checkHeader(path string, text []byte, value string, infos []*Info) error {
	damaged := func() error {
		return &Error{path, "", 8, "the header does not have the check sum that it was written with: the file is damaged, " +
			"or a program that changed it kept the entry " + sumsKey + " of its metadata, which has to be left out", ErrChecksum}
	}
	at, digits := sumsAt(text, value), strings.Fields(value)
	if at < 0 || len(digits) != len(infos)+1 {
		return damaged()
	}
	var header uint32
	for i, d := range digits {
		sum, err := strconv.ParseUint(d, 16, 32)
		if err != nil || fmt.Sprintf("%08x", sum) != d {
			return damaged()
		}
		if i == 0 {
			header = uint32(sum)
		} else {
			infos[i-1].sum, infos[i-1].summed = uint32(sum), true
		}
	}
	zeros := sumsText(make([]uint32, len(digits)))
	sum := crc32.Update(0, castagnoli, text[:at])
	sum = crc32.Update(sum, castagnoli, []byte(zeros))
	if crc32.Update(sum, castagnoli, text[at+len(value):]) != header {
		return damaged()
	}
	return nil
}

// agrees returns an error unless sum is the checksum of the tensor.
func (i *Info) agrees(sum uint32) error {
	if !i.summed || sum == i.sum {
		return nil
	}
	return &Error{i.Path, i.Name, i.offset, "its values do not have the check sum that they were written with: the file is damaged; get it again", ErrChecksum}
}

// Verify reads all tensors that have a checksum (see [Checksums]) from the file and verifies them.
// It returns their number. The error is an *[Error] that wraps [ErrChecksum] and names the first
// damaged tensor.
func (f *File) Verify() (n int, err error) {
	f.mu.Lock()
	closed := f.closed
	files := map[*shard]*os.File{}
	for _, p := range f.parts {
		files[p] = p.f
	}
	f.mu.Unlock()
	for _, i := range f.infos {
		if !i.summed {
			continue
		}
		if closed {
			return n, f.closedError(i.Name)
		}
		n++
		sum := crc32.New(castagnoli)
		read, err := io.Copy(sum, io.NewSectionReader(files[i.part], i.offset, i.Bytes))
		if err == nil && read < i.Bytes {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, &Error{i.Path, i.Name, i.offset, err.Error(), err}
		}
		if err := i.agrees(sum.Sum32()); err != nil {
			return n, err
		}
	}
	return n, nil
}
