package zipfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"strings"
)

// An Output is a file to which an archive is written.
type Output interface {
	io.Writer
	io.WriterAt
}

// A Writer writes an archive without compression. The contents of each entry begin at a multiple of
// 64 bytes. The format is PKWARE's APPNOTE 6.3. Like PyTorch, it pads with a field "FB" in the
// local header. After the first error all methods return that error.
type Writer struct {
	f       Output
	w       *bufio.Writer
	offset  int64
	entries []written
	left    uint64
	err     error
}

type written struct {
	name string
	at   int64
	size uint64
	crc  uint32
}

// NewWriter returns a Writer that writes to an empty file.
func NewWriter(f Output) *Writer { return &Writer{f: f, w: bufio.NewWriterSize(f, 1<<20)} }

// Sums calls f for each entry that was written, with the CRC-32 of its contents.
func (z *Writer) Sums(f func(name string, crc uint32)) {
	for _, e := range z.entries {
		f(e.name, e.crc)
	}
}

const zip32 = 1<<32 - 1

func (z *Writer) put(b []byte) {
	if z.err == nil {
		_, z.err = z.w.Write(b)
		z.offset += int64(len(b))
	}
}

// Write appends to the contents of the current entry.
func (z *Writer) Write(b []byte) (int, error) {
	e := &z.entries[len(z.entries)-1]
	if uint64(len(b)) > z.left {
		return 0, errors.New("more bytes than were announced")
	}
	e.crc = crc32.Update(e.crc, crc32.IEEETable, b)
	z.left -= uint64(len(b))
	z.put(b)
	return len(b), z.err
}

// Add writes a whole entry.
func (z *Writer) Add(name string, contents []byte) {
	z.Begin(name, uint64(len(contents)))
	_, _ = z.Write(contents) // z keeps the error
	if err := z.End(); z.err == nil {
		z.err = err
	}
}

func fields(v ...any) []byte {
	var b []byte
	for _, x := range v {
		b, _ = binary.Append(b, binary.LittleEndian, x) // cannot fail for numbers
	}
	return b
}

// Begin begins an entry of the given size. Write writes its contents, and End ends it.
func (z *Writer) Begin(name string, size uint64) {
	e := written{name: name, at: z.offset, size: size}
	z.entries = append(z.entries, e)
	z.left = size
	var extra []byte
	version, short := uint16(20), uint32(min(size, zip32))
	if size >= zip32 {
		version = 45
		extra = fields(uint16(1), uint16(16), size, size)
	}
	pad := -(z.offset + 30 + int64(len(e.name)+len(extra)) + 4) & 63
	extra = append(extra, fields(uint16(0x4246), uint16(pad))...)
	extra = append(extra, strings.Repeat("Z", int(pad))...)
	z.put(fields(uint32(0x04034b50), version, uint16(0x800), uint16(0), uint16(0), uint16(0x21), uint32(0), short, short, uint16(len(e.name)), uint16(len(extra))))
	z.put([]byte(e.name))
	z.put(extra)
}

// End ends the current entry and writes its CRC-32.
func (z *Writer) End() error {
	if z.err == nil && z.left != 0 {
		z.err = errors.New("fewer bytes than were announced")
	}
	if z.err == nil {
		z.err = z.w.Flush()
	}
	if z.err == nil {
		e := z.entries[len(z.entries)-1]
		_, z.err = z.f.WriteAt(fields(e.crc), e.at+14)
	}
	return z.err
}

// Close writes the central directory.
func (z *Writer) Close() error {
	start := z.offset
	for _, e := range z.entries {
		var extra []byte
		version, short, at := uint16(20), uint32(min(e.size, zip32)), uint32(min(e.at, zip32))
		if e.size >= zip32 || e.at >= zip32 {
			version = 45
			if e.size >= zip32 {
				extra = append(extra, fields(e.size, e.size)...)
			}
			if e.at >= zip32 {
				extra = append(extra, fields(e.at)...)
			}
			extra = append(fields(uint16(1), uint16(len(extra))), extra...)
		}
		z.put(fields(uint32(0x02014b50), version, version, uint16(0x800), uint16(0), uint16(0), uint16(0x21), e.crc, short, short,
			uint16(len(e.name)), uint16(len(extra)), uint16(0), uint16(0), uint16(0), uint32(0), at))
		z.put([]byte(e.name))
		z.put(extra)
	}
	size, end, n := z.offset-start, z.offset, len(z.entries)
	if start >= zip32 || size >= zip32 || n >= 1<<16-1 {
		z.put(fields(uint32(0x06064b50), uint64(44), uint16(45), uint16(45), uint32(0), uint32(0), uint64(n), uint64(n), uint64(size), uint64(start)))
		z.put(fields(uint32(0x07064b50), uint32(0), uint64(end), uint32(1)))
	}
	z.put(fields(uint32(0x06054b50), uint16(0), uint16(0), uint16(min(n, 1<<16-1)), uint16(min(n, 1<<16-1)),
		uint32(min(size, zip32)), uint32(min(start, zip32)), uint16(0)))
	if z.err != nil {
		return z.err
	}
	return z.w.Flush()
}
