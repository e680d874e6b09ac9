// Package zipfile reads and writes zip archives of tensors. Its reader finds and checks the offset
// of each entry. A caller can then map the entry into memory. Its writer aligns the contents of
// entries.
package zipfile

import (
	"archive/zip"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// An Error is an error in an entry of an archive, or in the whole archive if Entry is "".
type Error struct {
	Entry, Msg string
	Err        error
}

func (e *Error) Error() string {
	if e.Entry == "" {
		return e.Msg
	}
	return Printable(e.Entry) + ": " + e.Msg
}

// Printable returns a name from a file in a form that is safe to print on a terminal. It escapes
// characters that are not printable, as Go does.
func Printable(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) || r == '\uFFFD' }) {
		return name
	}
	q := strconv.Quote(name)
	return q[1 : len(q)-1]
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// An Entry is a file of an archive.
type Entry struct {
	*zip.File
	// From is the offset at which the bytes of the entry begin in the file, and Stored is the
	// number of these bytes. The bytes are compressed if Method is not zip.Store.
	From, Stored int64
}

// ErrChecksum is wrapped by the error for contents that were damaged after they were written.
var ErrChecksum = zip.ErrChecksum

// Check compares sum, the CRC-32 of the entry's uncompressed bytes, with the checksum in the
// archive's directory. A checksum of 0 means that the entry has none. Package archive/zip does the
// same. PyTorch writes 0 after torch.serialization.set_crc32_options(False). The error is an
// *[Error].
func (e Entry) Check(sum uint32) error {
	if e.CRC32 == 0 || sum == e.CRC32 {
		return nil
	}
	return &Error{e.Name, Damaged, ErrChecksum}
}

// Damaged is the text of errors about damaged contents.
const Damaged = "its contents do not have the check sum (CRC-32) that they were written with: the file is damaged; get it again"

// Entries returns the entries of the archive in r, in the order of its directory. It checks that
// their bytes lie in the file and do not overlap, that no name occurs twice, and that no entry is
// encrypted. Errors have the type *[Error].
func Entries(r io.ReaderAt, size int64) ([]Entry, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, &Error{Msg: "this is no whole zip archive: " + err.Error(), Err: err}
	}
	if n := int64(len(z.File)); n > size/46 { // each entry takes at least 46 bytes of the directory
		return nil, &Error{Msg: fmt.Sprintf("the archive claims %d files in %d bytes", n, size)}
	}
	list := make([]Entry, 0, len(z.File))
	names := make(map[string]bool, len(z.File))
	for _, f := range z.File {
		bad := func(format string, a ...any) ([]Entry, error) {
			return nil, &Error{Entry: f.Name, Msg: fmt.Sprintf(format, a...)}
		}
		if names[f.Name] {
			return bad("the archive has two files of that name")
		}
		names[f.Name] = true
		if f.Flags&1 != 0 {
			return bad("it is encrypted")
		}
		if f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64 {
			return bad("it takes %d bytes uncompressed, and is said to have %d: the archive is damaged", f.CompressedSize64, f.UncompressedSize64)
		}
		from, err := f.DataOffset()
		if err != nil {
			return nil, &Error{Entry: f.Name, Msg: err.Error(), Err: err}
		}
		if from < 0 || from > size || f.CompressedSize64 > uint64(size-from) {
			return bad("%d bytes at offset %d do not lie in the file of %d bytes", f.CompressedSize64, from, size)
		}
		list = append(list, Entry{f, from, int64(f.CompressedSize64)})
	}
	order := slices.DeleteFunc(slices.Clone(list), func(e Entry) bool { return e.Stored == 0 })
	slices.SortFunc(order, func(a, b Entry) int { return int(min(max(a.From-b.From, -1), 1)) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.From+a.Stored > b.From {
			return nil, &Error{Entry: b.Name, Msg: "it overlaps " + Printable(a.Name)}
		}
	}
	return list, nil
}
