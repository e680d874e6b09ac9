package vision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/internal/fetch"
)

// A DownloadError means that a published file could not be downloaded. It says where the file is
// published, and where to put it on this machine.
type DownloadError = fetch.Error

// ErrOffline is wrapped by a [DownloadError] if there is no network, or if FLAMBEAU_OFFLINE=1
// forbids its use.
var ErrOffline = fetch.ErrOffline

// published describes a set of images that can be downloaded. The MD5 digests come from the
// publisher, and for MNIST and Fashion-MNIST from torchvision.
type published struct {
	name  string
	at    []string    // URLs of directories that have the same files
	files [][2]string // name and MD5 of each file
}

var sets = []published{
	{"mnist", []string{"https://ossci-datasets.s3.amazonaws.com/mnist/"}, [][2]string{
		{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"}, {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"},
		{"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"}, {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"}}},
	{"fashion-mnist", []string{"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"}, [][2]string{
		{"train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"}, {"train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"},
		{"t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"}, {"t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"}}},
	{"cifar10", []string{"https://www.cs.toronto.edu/~kriz/"}, [][2]string{{"cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"}}},
	{"cifar100", []string{"https://www.cs.toronto.edu/~kriz/"}, [][2]string{{"cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"}}},
}

// Published returns the names of the sets that [Download] can download.
func Published() (names []string) {
	for _, s := range sets {
		names = append(names, s.name)
	}
	return names
}

// Download puts the files of a published set ("mnist", "fashion-mnist", "cifar10", "cifar100") into
// dir, unless they are already there. If dir is "", Download uses the user's cache directory, which
// FLAMBEAU_CACHE can change. Download returns the path to pass to [MNIST], [CIFAR10] or [CIFAR100]:
// the directory or the archive. Download checks the digests of files, and continues an interrupted
// download. If progress is not nil, Download calls it with the number of received bytes of a file,
// and the size of the file. The size is -1 if unknown.
//
// Errors are of type *[DownloadError]. Without a network, the error says which files to put where.
func Download(ctx context.Context, name, dir string, progress func(file string, done, total int64)) (path string, err error) {
	at := slices.IndexFunc(sets, func(s published) bool { return s.name == name })
	if at < 0 {
		return "", &DownloadError{Err: fmt.Errorf("there is no set %q, only %s", name, strings.Join(Published(), ", "))}
	}
	s := sets[at]
	if dir == "" {
		if dir, err = fetch.CacheDir("data/" + name); err != nil {
			return "", &DownloadError{Err: err}
		}
	}
	for _, f := range s.files {
		src := fetch.Source{Digest: fetch.MD5(f[1]), Max: 1 << 30}
		for _, base := range s.at {
			src.URLs = append(src.URLs, base+f[0])
		}
		o := fetch.Options{Dir: dir}
		if progress != nil {
			o.Progress = func(done, total int64) { progress(f[0], done, total) }
		}
		if path, err = fetch.File(ctx, src, o); err != nil {
			return "", withNames(err, dir, s.files)
		}
	}
	if len(s.files) > 1 {
		return dir, nil
	}
	return path, nil
}

// withNames adds the names of all files of a set to err, if err is about one of these files.
func withNames(err error, dir string, files [][2]string) error {
	var e *DownloadError
	if errors.As(err, &e) && errors.Is(err, ErrOffline) && len(files) > 1 {
		var names []string
		for _, f := range files {
			names = append(names, f[0])
		}
		e.Err = fmt.Errorf("%w (the set is %s in %s)", e.Err, strings.Join(names, ", "), dir)
	}
	return err
}
