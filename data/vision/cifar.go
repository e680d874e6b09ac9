package vision

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A CIFAR file is a sequence of records. A record has one or two bytes of labels, and 3·32·32 bytes
// of pixels, channel after channel. Source: https://www.cs.toronto.edu/~kriz/cifar.html.
const cifarPixels = 3 * 32 * 32

// A cifarForm describes the files of CIFAR-10 or CIFAR-100.
type cifarForm struct {
	labels      int // number of label bytes in a record; the last one is the class
	train, test []string
	names       string
	classes     int
}

var (
	cifar10 = cifarForm{1, []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
		[]string{"test_batch.bin"}, "batches.meta.txt", 10}
	cifar100 = cifarForm{2, []string{"train.bin"}, []string{"test.bin"}, "fine_label_names.txt", 100}
)

// CIFAR10 reads the binary version of CIFAR-10, whose images are [3,32,32]. path is one of these:
//
//   - the directory of data_batch_1.bin … data_batch_5.bin and test_batch.bin;
//   - a directory that contains cifar-10-batches-bin;
//   - the file cifar-10-binary.tar.gz.
func CIFAR10(path string, train bool) (*Set, error) { return cifar10.load(path, train) }

// CIFAR100 reads the binary version of CIFAR-100, whose images are [3,32,32]. The classes are the
// hundred fine labels. path is one of these:
//
//   - the directory of train.bin and test.bin;
//   - a directory that contains cifar-100-binary;
//   - the file cifar-100-binary.tar.gz.
func CIFAR100(path string, train bool) (*Set, error) { return cifar100.load(path, train) }

const binaryWanted = "the set is read in its binary version (cifar-10-binary.tar.gz, cifar-100-binary.tar.gz), not in Python's"

// maxCIFAR is the largest accepted size of a CIFAR file in bytes. The published files have less
// than 154 MB.
const maxCIFAR = 1 << 30

func (f *cifarForm) load(path string, train bool) (*Set, error) {
	want := f.test
	if train {
		want = f.train
	}
	files := map[string][]byte{}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, &Error{path, err}
	case info.IsDir():
		dir := f.dir(path, want[0])
		for _, name := range append([]string{f.names}, want...) {
			b, err := readLimited(filepath.Join(dir, name))
			switch missing := errors.Is(err, os.ErrNotExist); {
			case missing && name != f.names:
				return nil, &Error{filepath.Join(dir, name), fmt.Errorf("%s: %w", binaryWanted, err)}
			case err != nil && !missing:
				return nil, &Error{filepath.Join(dir, name), err}
			}
			files[name] = b
		}
	default:
		if files, err = untar(path, append([]string{f.names}, want...)); err != nil {
			return nil, &Error{path, err}
		}
	}
	var pixels []uint8
	var labels []int64
	for _, name := range want {
		b := files[name]
		size := f.labels + cifarPixels
		if len(b) == 0 || len(b)%size != 0 {
			return nil, failf(filepath.Join(path, name), "%d bytes are not records of %d", len(b), size)
		}
		for ; len(b) > 0; b = b[size:] {
			l := int64(b[f.labels-1])
			if l >= int64(f.classes) {
				return nil, failf(filepath.Join(path, name), "the label of image %d is %d, there are %d classes", len(labels), l, f.classes)
			}
			labels, pixels = append(labels, l), append(pixels, b[f.labels:size]...)
		}
	}
	classes := strings.Fields(string(files[f.names]))
	if len(classes) != f.classes { // the file of class names may be missing
		classes = make([]string, f.classes)
		for i := range classes {
			classes[i] = fmt.Sprint(i)
		}
	}
	return NewSet(3, 32, 32, pixels, labels, classes)
}

// dir returns the directory that contains the named file: path itself, or the set's subdirectory of
// path.
func (f *cifarForm) dir(path, name string) string {
	for _, sub := range []string{"", "cifar-10-batches-bin", "cifar-100-binary"} {
		dir := filepath.Join(path, sub)
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return dir
		}
	}
	return path
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return limited(f)
}

func limited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxCIFAR+1))
	if err == nil && len(b) > maxCIFAR {
		err = fmt.Errorf("more than %d bytes", maxCIFAR)
	}
	return b, err
}

// untar returns the files with the given names, in any directory of a tar file. The tar file may be
// gzipped.
func untar(path string, names []string) (map[string][]byte, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var r io.Reader = in
	if z, err := gzip.NewReader(in); err == nil {
		r = z
	} else if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("not a tar file: %w", err)
		}
		for _, name := range names {
			if h.Typeflag == tar.TypeReg && h.FileInfo().Name() == name {
				if files[name], err = limited(t); err != nil {
					return nil, fmt.Errorf("%s: %w", h.Name, err)
				}
			}
		}
	}
	for _, name := range names[1:] {
		if files[name] == nil {
			return nil, fmt.Errorf("there is no %s in it; %s", name, binaryWanted)
		}
	}
	return files, nil
}
