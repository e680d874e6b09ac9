package vision

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
)

// idxName matches the file names of data sets in MNIST's format, as they are published or unpacked.
// Examples are train-images-idx3-ubyte, t10k-labels.idx1-ubyte.gz and
// emnist-letters-test-images-idx3-ubyte.gz.
var idxName = regexp.MustCompile(`^(?:(.+)-)?(train|t10k|test)-(images|labels)[-.]idx[134][-.]ubyte(\.gz)?$`)

// idxFiles has the paths of a set's files, by part ("train", "test") and kind ("images", "labels").
type idxFiles map[string]map[string]string

// findIDX looks for sets in dir, in dir/raw and in dir/NAME/raw, where PyTorch puts them. It
// prefers a file to its gzipped form. The keys of the result are the names of the sets: the text
// before "-train" in the file names, or "" for MNIST itself.
func findIDX(dir string) (sets map[string]idxFiles, err error) {
	sets = map[string]idxFiles{}
	places := []string{dir, filepath.Join(dir, "raw")}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, &Error{dir, err}
	}
	for _, e := range list {
		if e.IsDir() {
			places = append(places, filepath.Join(dir, e.Name(), "raw"))
		}
	}
	for _, place := range places {
		list, err := os.ReadDir(place)
		if err != nil {
			continue // the directory does not exist
		}
		for _, e := range list {
			m := idxName.FindStringSubmatch(e.Name())
			if m == nil || e.IsDir() {
				continue
			}
			part := "test"
			if m[2] == "train" {
				part = "train"
			}
			if sets[m[1]] == nil {
				sets[m[1]] = idxFiles{"train": {}, "test": {}}
			}
			if old := sets[m[1]][part][m[3]]; old == "" || strings.HasSuffix(old, ".gz") && m[4] == "" {
				sets[m[1]][part][m[3]] = filepath.Join(place, e.Name())
			}
		}
		if len(sets) > 0 {
			return sets, nil
		}
	}
	return sets, nil
}

// MNISTNames returns the sorted names of the sets that [MNIST] finds in dir. The name of a set is
// the text before "-train" in its file names, or "". A directory without a set is not an error.
func MNISTNames(dir string) ([]string, error) {
	sets, err := findIDX(dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(sets)), nil
}

// MNIST reads a set in MNIST's format: MNIST itself, Fashion-MNIST, KMNIST, the original form
// of QMNIST, and EMNIST. A set is four IDX files in a directory. The files may be gzipped. The
// training set has the files train-images-idx3-ubyte and train-labels-idx1-ubyte. In the names
// of the test set, t10k- or test- replaces train-. A dot may replace the "-" before idx. MNIST
// looks for the files in dir, dir/raw and dir/NAME/raw. It returns the training set if train is
// true, otherwise the test set. If a directory holds several sets (emnist-letters-train-…),
// name chooses one of them, such as "emnist-letters".
//
// Images are [1,28,28], or the size that the files state. MNIST does not transpose the images of
// EMNIST, which are stored transposed. Classes are "0", "1", … up to the largest label.
func MNIST(dir string, train bool, name ...string) (*Set, error) {
	sets, err := findIDX(dir)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(sets))
	var want string
	switch {
	case len(sets) == 0:
		return nil, failf(dir, "there are no files such as train-images-idx3-ubyte.gz")
	case len(name) > 0:
		want = name[0]
	case len(sets) == 1:
		want = names[0]
	case sets[""] == nil:
		return nil, failf(dir, "there are several sets: %s; name one", strings.Join(names, ", "))
	}
	part := "test"
	if train {
		part = "train"
	}
	if sets[want] == nil {
		return nil, failf(dir, "there is no set %q, only %s", want, strings.Join(names, ", "))
	}
	files := sets[want][part]
	for _, kind := range []string{"images", "labels"} {
		if files[kind] == "" {
			return nil, failf(dir, "the %s of the %s set are missing", kind, part)
		}
	}
	return pair(files["images"], files["labels"])
}

func loadRaw(path string) (*idx, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	defer f.Close()
	x, err := readIDX(f)
	if err != nil {
		return nil, &Error{path, err}
	}
	return x, nil
}

// pair reads the set in a file of images and a file of labels.
func pair(images, labels string) (*Set, error) {
	x, err := loadRaw(images)
	if err != nil {
		return nil, err
	}
	y, err := loadRaw(labels)
	if err != nil {
		return nil, err
	}
	c := 1
	if len(x.dims) == 4 {
		c = x.dims[1]
	} else if len(x.dims) != 3 {
		return nil, failf(images, "shape %v: images are [N,H,W] or [N,C,H,W]", x.dims)
	}
	if x.t != dtype.U8 {
		return nil, failf(images, "elements are %v; images are uint8", x.t)
	}
	if len(y.dims) != 1 || y.t.IsFloat() {
		return nil, failf(labels, "shape %v of %v: labels are one dimension of integers", y.dims, y.t)
	}
	if x.dims[0] != y.dims[0] {
		return nil, failf(labels, "%d labels for the %d images of %s", y.dims[0], x.dims[0], filepath.Base(images))
	}
	ls := make([]int64, y.dims[0])
	for i := range ls {
		switch y.t {
		case dtype.U8:
			ls[i] = int64(y.data[i])
		case dtype.I8:
			ls[i] = int64(int8(y.data[i]))
		case dtype.I16:
			ls[i] = int64(int16(uint16(y.data[2*i]) | uint16(y.data[2*i+1])<<8))
		default:
			b := y.data[4*i:]
			ls[i] = int64(int32(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24))
		}
	}
	n := len(x.dims)
	s, err := NewSet(c, x.dims[n-2], x.dims[n-1], x.data, ls, nil)
	if e, ok := err.(*Error); ok {
		e.Path = labels
	}
	return s, err
}
