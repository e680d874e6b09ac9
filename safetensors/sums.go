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

// sumsKey is the metadata's entry with the check sums of a file: CRC-32C, in eight hexadecimal
// digits each. They are that of the header, with zeros where these digits stand, and those of the
// bytes of each tensor, in the order in which they lie in the file.
const sumsKey = "flambeau.crc32c.file"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrChecksum is wrapped by the error for contents that are not those that were written.
var ErrChecksum = errors.New("the check sum is wrong")

// Checksums writes check sums of the header and of each tensor into the metadata, as text that
// other programs pass over. [Open] compares the header's, [Load] those of the tensors too; tensors
// that are mapped are compared by [File.Verify] alone.
func Checksums() SaveOption { return func(s *saver) { s.sums = true } }

// sumsText is the metadata's entry for these sums.
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

// sumsAt is where the entry stands in a header's text, -1 for nowhere.
func sumsAt(text []byte, value string) int {
	at := bytes.Index(text, []byte(`"`+sumsKey+`":"`+value+`"`))
	if at < 0 {
		return at
	}
	return at + len(`"`+sumsKey+`":"`)
}

// checkHeader compares a header with its check sum, and gives the tensors, in their order in the
// file, theirs.
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

// agrees compares the sum of the bytes of a tensor.
func (i *Info) agrees(sum uint32) error {
	if !i.summed || sum == i.sum {
		return nil
	}
	return &Error{i.Path, i.Name, i.offset, "its values do not have the check sum that they were written with: the file is damaged; get it again", ErrChecksum}
}

// Verify compares all tensors that have a check sum (see [Checksums]) with it, which reads them
// from the file, and returns how many have one. The error is an *[Error] that wraps [ErrChecksum]
// and names the first tensor with other values.
func (f *File) Verify() (n int, err error) {
	f.mu.Lock()
	closed := f.closed
	files := map[*part]*os.File{}
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
