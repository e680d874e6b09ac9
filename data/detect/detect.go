// Package detect finds out which kind of data a path holds.
//
// [Path] recognises tables, text, and the sets of images that package vision reads. It looks only
// at file names and at the beginnings of files. The [Found] that it returns opens the data with
// [Found.Images] or [Found.Table].
package detect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/vision"
)

// A Kind is a format of data.
type Kind string

// These are the kinds. [Found.Images] opens the first four, and [Found.Table] opens CSV.
const (
	IDX      Kind = "idx"      // a directory with IDX files, the format of MNIST
	CIFAR10  Kind = "cifar10"  // CIFAR-10's binary files, in a directory or an archive
	CIFAR100 Kind = "cifar100" // CIFAR-100's binary files, in a directory or an archive
	Pictures Kind = "pictures" // a directory with a subdirectory of image files for each class
	CSV      Kind = "csv"      // a table whose fields are separated by commas, semicolons or tabs
	Text     Kind = "text"     // a file of UTF-8 text
)

// Found describes what was found at a path.
type Found struct {
	Kind Kind
	// Train and Test are the paths of the training part and the test part. Test is "" if the data
	// has only one part. Test equals Train if one path holds both parts (IDX, CIFAR).
	Train, Test string
	// Name is the name of the set within a directory of IDX files: the text before "-train-images",
	// or "".
	Name string
	// Comma separates the fields of a table.
	Comma rune
}

// An Error means that a path holds no data of a known kind.
type Error struct {
	Path string
	Err  error
}

func (e *Error) Error() string {
	err := e.Err
	if p, ok := err.(*fs.PathError); ok && p.Path == e.Path {
		// e.Path already names the path, so the *fs.PathError, which would repeat it, is dropped.
		err = p.Err
	}
	return "detect: " + e.Path + ": " + err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

const kinds = "known are directories of IDX files (train-images-idx3-ubyte.gz), CIFAR's binary files, directories of pictures with a directory " +
	"for each class (also below train and val or test), tables (.csv, .tsv; also train.csv and test.csv in a directory) and text files"

// Path returns a description of the data that the path holds. If the path holds none of the known
// kinds, the error is an *[Error] that says what was found instead.
func Path(path string) (*Found, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	var f *Found
	if !info.IsDir() && !info.Mode().IsRegular() {
		return nil, &Error{path, errors.New("a pipe, a socket or a device, which cannot be read twice; write what it gives to a file")}
	}
	if info.IsDir() {
		f, err = directory(path)
	} else {
		f, err = file(path)
	}
	if err != nil {
		return nil, &Error{path, err}
	}
	return f, nil
}

// Images returns the dataset of the training part or the test part of a set of images. decode says
// how to decode image files. If the data has only one part, it is the training part, and a request
// for the test part is an error.
func (f *Found) Images(train bool, decode ...vision.Decode) (vision.Images, error) {
	path := f.Train
	if !train {
		path = f.Test
	}
	if path == "" {
		return nil, &Error{f.Train, errors.New("there is no part for testing; split the training part")}
	}
	switch f.Kind {
	case IDX:
		return asImages(vision.MNIST(path, train, f.Name))
	case CIFAR10:
		return asImages(vision.CIFAR10(path, train))
	case CIFAR100:
		return asImages(vision.CIFAR100(path, train))
	case Pictures:
		return asImages(vision.ImageFolder(path, decode...))
	}
	return nil, &Error{f.Train, fmt.Errorf("%s is not a kind of images", f.Kind)}
}

// asImages converts s to an interface. It returns a nil interface if there is an error.
func asImages[T vision.Images](s T, err error) (vision.Images, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Table reads the training part or the test part of a table. If c.Comma is 0, fields are separated
// by f.Comma.
func (f *Found) Table(train bool, c table.Config) (*table.Table, error) {
	path := f.Train
	if !train {
		path = f.Test
	}
	switch {
	case f.Kind != CSV:
		return nil, &Error{f.Train, fmt.Errorf("%s is not a table", f.Kind)}
	case path == "":
		return nil, &Error{f.Train, errors.New("there is no part for testing; split the training part")}
	case c.Comma == 0:
		c.Comma = f.Comma
	}
	return table.Load(path, c)
}

func exists(elem ...string) bool {
	info, err := os.Stat(filepath.Join(elem...))
	return err == nil && info.Mode().IsRegular()
}

// testNames lists the usual directory and file names of the test part. The preferred name comes
// first.
var testNames = []string{"val", "valid", "validation", "test", "testing"}

func directory(path string) (*Found, error) {
	names, err := vision.MNISTNames(path)
	if err != nil {
		return nil, err
	}
	if len(names) == 1 || len(names) > 1 && names[0] == "" {
		return &Found{Kind: IDX, Train: path, Test: path, Name: names[0]}, nil
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("several sets of IDX files: %s; put one into a directory of its own", strings.Join(names, ", "))
	}
	for _, dir := range []string{path, filepath.Join(path, "cifar-10-batches-bin"), filepath.Join(path, "cifar-100-binary")} {
		if exists(dir, "data_batch_1.bin") || exists(dir, "test_batch.bin") {
			return &Found{Kind: CIFAR10, Train: dir, Test: dir}, nil
		}
		if exists(dir, "train.bin") && exists(dir, "test.bin") && exists(dir, "fine_label_names.txt") {
			return &Found{Kind: CIFAR100, Train: dir, Test: dir}, nil
		}
	}
	for _, ext := range []string{".csv", ".tsv"} {
		if train := filepath.Join(path, "train"+ext); exists(train) {
			f, err := file(train)
			if err != nil {
				return nil, fmt.Errorf("train%s: %w", ext, err)
			}
			for _, name := range testNames {
				if f.Test == "" && exists(path, name+ext) {
					f.Test = filepath.Join(path, name+ext)
				}
			}
			return f, nil
		}
	}
	if f := pictures(path); f != nil {
		return f, nil
	}
	what := census(path)
	if what == "" {
		return nil, fmt.Errorf("an empty directory; %s", kinds)
	}
	return nil, fmt.Errorf("a directory of %s; %s", what, kinds)
}

// pictures describes path if it holds directories of image files. Otherwise it returns nil.
func pictures(path string) *Found {
	if train := filepath.Join(path, "train"); classes(train) {
		f := &Found{Kind: Pictures, Train: train}
		for _, name := range testNames {
			if dir := filepath.Join(path, name); f.Test == "" && classes(dir) {
				f.Test = dir
			}
		}
		if f.Test != "" {
			return f
		}
		if list, err := os.ReadDir(path); err == nil && len(list) == 1 {
			return f
		}
	}
	if classes(path) {
		return &Found{Kind: Pictures, Train: path}
	}
	return nil
}

// classes reports whether a directory in path holds an image file, at any depth.
func classes(path string) bool {
	list, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	for _, e := range list {
		dir := filepath.Join(path, e.Name())
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		found := false
		filepath.WalkDir(dir+string(filepath.Separator), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && vision.IsPicture(d.Name()) {
				found = true
				return fs.SkipAll
			}
			return nil
		})
		if found {
			return true
		}
	}
	return false
}

// census describes the contents of a directory in a few words, or returns "" if the directory is
// empty.
func census(path string) string {
	list, err := os.ReadDir(path)
	if err != nil {
		return err.Error()
	}
	if len(list) == 0 {
		return ""
	}
	var names []string
	for _, e := range list[:min(len(list), 5)] {
		names = append(names, e.Name())
	}
	text := strings.Join(names, ", ")
	if len(list) > 5 {
		text += fmt.Sprintf(" and %d more", len(list)-5)
	}
	return text
}

func file(path string) (*Found, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	head := make([]byte, 1<<16)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	head = head[:n]
	name := strings.ToLower(filepath.Base(path))
	switch {
	case n == 0:
		return nil, errors.New("an empty file")
	case strings.Contains(name, "cifar-100") && archive(name):
		return &Found{Kind: CIFAR100, Train: path, Test: path}, nil
	case strings.Contains(name, "cifar-10") && archive(name):
		return &Found{Kind: CIFAR10, Train: path, Test: path}, nil
	case vision.IsPicture(name):
		return nil, errors.New("one picture; give the directory whose directories are the classes")
	case strings.Contains(name, "-ubyte") || bytes.HasPrefix(head, []byte{0, 0, 8, 3}):
		return nil, errors.New("one IDX file; give the directory of all four")
	case !isText(head, n == 1<<16):
		return nil, fmt.Errorf("a file that is not text in UTF-8 (it begins with % x); %s", head[:min(n, 8)], kinds)
	}
	switch filepath.Ext(name) {
	case ".tsv":
		return &Found{Kind: CSV, Train: path, Comma: '\t'}, nil
	case ".csv":
		return &Found{Kind: CSV, Train: path, Comma: comma(head)}, nil
	}
	return &Found{Kind: Text, Train: path}, nil
}

func archive(name string) bool {
	return strings.HasSuffix(name, ".tar") || strings.HasSuffix(name, ".tar.gz") || strings.HasSuffix(name, ".tgz")
}

// comma returns the separator of a table's fields: comma, semicolon or tab. It chooses the
// character that occurs most often in the first line, outside of quotes.
func comma(head []byte) rune {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	count := map[byte]int{}
	quoted := false
	for _, b := range line {
		if b == '"' {
			quoted = !quoted
		} else if !quoted {
			count[b]++
		}
	}
	best := byte(',')
	for _, b := range []byte{';', '\t'} {
		if count[b] > count[best] {
			best = b
		}
	}
	return rune(best)
}

// isText reports whether head is UTF-8 text. It allows only the control characters that occur in
// ordinary text. If cut is true, head may end in the middle of a character.
func isText(head []byte, cut bool) bool {
	if cut {
		for range utf8.UTFMax - 1 {
			if r, size := utf8.DecodeLastRune(head); r != utf8.RuneError || size != 1 {
				break
			}
			head = head[:len(head)-1]
		}
	}
	return utf8.Valid(head) && !slices.ContainsFunc(head, func(b byte) bool { return b < 9 || b > 13 && b < 32 && b != 27 })
}
