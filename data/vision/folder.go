package vision

import (
	"errors"
	"fmt"
	"image"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Folder is a dataset of image files in directories. Each directory is a class. An image is
// decoded when Image or Get returns it.
type Folder struct {
	dir     string
	decode  Decode
	classes []string
	paths   []string
	labels  []int64
}

var _ Images = (*Folder)(nil)

// IsPicture reports whether a file name has an extension that [ImageFolder] accepts: .png, .jpg,
// .jpeg, .gif, .webp, .bmp, .tif, .tiff, .ppm or .pgm, in any case.
func IsPicture(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm":
		return true
	}
	return false
}

func hidden(name string) bool { return strings.HasPrefix(name, ".") }

// ImageFolder lists the image files below dir. Each directory in dir is a class. Classes are in the
// order of their names. The images of a class are all image files below its directory, in the order
// of their paths. ImageFolder skips names that begin with a dot, and files without an extension
// that [IsPicture] accepts.
//
// A class may be a link to a directory. Unlike torchvision, ImageFolder does not follow links to
// directories below a class. A class without an image is an error, as in torchvision. A pipe, a
// device or a dangling link whose name is that of an image file is an error too. decode, if given,
// says how to decode the images.
func ImageFolder(dir string, decode ...Decode) (*Folder, error) {
	f := &Folder{dir: dir}
	if len(decode) > 0 {
		f.decode = decode[0]
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, &Error{dir, err}
	}
	for _, e := range list { // the entries are sorted by name
		class := filepath.Join(dir, e.Name())
		if info, err := os.Stat(class); err != nil || !info.IsDir() || hidden(e.Name()) {
			continue
		}
		var found []string
		// With a separator at the end of the path, WalkDir follows a link to a directory.
		err := filepath.WalkDir(class+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case hidden(d.Name()) && d.IsDir():
				return filepath.SkipDir
			case !d.IsDir() && !hidden(d.Name()) && IsPicture(d.Name()):
				if !d.Type().IsRegular() {
					if err := isFile(path); err != nil {
						return err
					}
				}
				found = append(found, filepath.Clean(path))
			}
			return nil
		})
		if e := (*Error)(nil); errors.As(err, &e) {
			return nil, err
		} else if err != nil {
			return nil, &Error{class, err}
		}
		if len(found) == 0 {
			return nil, failf(class, "a class without a picture (.png, .jpg, .jpeg, .gif, .webp, .bmp, .tiff, .ppm, .pgm)")
		}
		slices.Sort(found)
		for range found {
			f.labels = append(f.labels, int64(len(f.classes)))
		}
		f.paths, f.classes = append(f.paths, found...), append(f.classes, e.Name())
	}
	if len(f.classes) == 0 {
		return nil, failf(dir, "there is no directory in it: each is to be a class of pictures")
	}
	return f, nil
}

// Len returns the number of images.
func (f *Folder) Len() int { return len(f.paths) }

// Classes returns the names of the classes.
func (f *Folder) Classes() []string { return slices.Clone(f.classes) }

// Labels returns the class of each image.
func (f *Folder) Labels() []int64 { return slices.Clone(f.labels) }

// Path returns the path of image i.
func (f *Folder) Path(i int) string { return f.paths[i] }

// Image decodes image i. An error names its file.
func (f *Folder) Image(i int) (*Image, int64, error) {
	if i < 0 || i >= len(f.paths) {
		return nil, 0, fmt.Errorf("vision: image %d of %d", i, len(f.paths))
	}
	m, err := f.decode.Load(f.paths[i])
	return m, f.labels[i], err
}

// Get returns sample i: a float32 tensor [C,H,W] with values 0 … 1, and its class as int64.
// Images of several sizes need transforms ([Apply]) before a loader can make batches of them.
func (f *Folder) Get(i int) (data.Sample, error) {
	m, class, err := f.Image(i)
	if err != nil {
		return data.Sample{}, err
	}
	x := make([]float32, len(m.U8))
	scaled(x, m.U8)
	return data.Sample{X: tensor.From(x, m.C, m.H, m.W), Y: class}, nil
}

// Size returns the rows and columns of image i, as [Folder.Image] decodes it. It reads only the
// beginning of the file unless Upright is set. An error names the file.
func (f *Folder) Size(i int) (h, w int, err error) {
	if i < 0 || i >= len(f.paths) {
		return 0, 0, fmt.Errorf("vision: image %d of %d", i, len(f.paths))
	}
	if f.decode.Upright {
		m, _, err := f.Image(i)
		if err != nil {
			return 0, 0, err
		}
		return m.H, m.W, nil
	}
	file, err := open(f.paths[i])
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	c, _, err := image.DecodeConfig(file)
	if err != nil {
		return 0, 0, failf(f.paths[i], "not a picture: %w", err)
	}
	k := f.decode.factor(c.Height, c.Width)
	return (c.Height + k - 1) / k, (c.Width + k - 1) / k, nil
}
