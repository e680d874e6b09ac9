package torchfile

import (
	"archive/zip"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// loadZip reads the format of PyTorch 1.6 and later: a zip archive without compression that holds NAME/data.pkl, NAME/byteorder,
// NAME/version and the storages NAME/data/KEY.
func (f *file) loadZip() *loaded {
	z, err := zip.NewReader(f.r, f.size)
	if err != nil {
		panic(&Error{Path: f.path, Offset: -1, Msg: "this is no whole zip archive: " + err.Error(), Err: err})
	}
	entries := map[string]*zip.File{}
	root := ""
	for _, e := range z.File {
		if entries[e.Name] != nil {
			f.fail(e.Name, -1, "the archive has two files of that name")
		}
		entries[e.Name] = e
		if dir, ok := strings.CutSuffix(e.Name, "data.pkl"); ok && (root == "" || len(dir) < len(root)) && (dir == "" || strings.HasSuffix(dir, "/")) {
			root = dir
			if dir == "" {
				root = "./"
			}
		}
	}
	if root == "" {
		f.fail("", -1, "this zip archive has no data.pkl, it is no file of PyTorch")
	}
	root = strings.TrimPrefix(root, "./")
	if entries[root+"constants.pkl"] != nil {
		f.fail("", -1, "this is a TorchScript archive, which holds a program: save model.state_dict() instead")
	}
	if len(z.File) > 0 && f.size/int64(len(z.File)) < 46 {
		f.fail("", -1, "the archive claims %d files", len(z.File))
	}
	spans := f.spans(z.File)
	small := func(name string) string {
		at, ok := spans[root+name]
		if !ok {
			return ""
		}
		if at.size > 100 {
			f.fail(at.entry, -1, "%d bytes, where a word is expected", at.size)
		}
		b := make([]byte, at.size)
		f.read(at.entry, b, at.from)
		return string(b)
	}
	if order := small("byteorder"); order != "" && order != "little" {
		f.fail(root+"byteorder", -1, "the numbers are %s-endian, only little-endian files are read", order)
	}
	pickle := spans[root+"data.pkl"]
	u := newUnpickler(f, pickle.entry, pickle.from, pickle.from+pickle.size)
	u.storages = storages(map[string]*storageRef{}, f.size)
	v := u.run()
	return &loaded{root: v, entry: pickle.entry, place: func(key string) (storageAt, bool) {
		at, ok := spans[root+"data/"+key]
		return at, ok
	}}
}

// spans returns where the contents of an archive's files are, having made sure that they lie in the file, one behind the other.
func (f *file) spans(list []*zip.File) map[string]storageAt {
	spans := make(map[string]storageAt, len(list))
	order := make([]storageAt, 0, len(list))
	for _, e := range list {
		if e.Method != zip.Store || e.CompressedSize64 != e.UncompressedSize64 {
			f.fail(e.Name, -1, "it is compressed or encrypted, which PyTorch does not do: pack the archive without compression (zip -0)")
		}
		from, err := e.DataOffset()
		if err != nil {
			panic(&Error{Path: f.path, Entry: e.Name, Offset: -1, Msg: err.Error(), Err: err})
		}
		if from < 0 || from > f.size || e.UncompressedSize64 > uint64(f.size-from) {
			f.fail(e.Name, -1, "%d bytes at offset %d do not lie in the file of %d bytes", e.UncompressedSize64, from, f.size)
		}
		at := storageAt{e.Name, from, int64(e.UncompressedSize64)}
		spans[e.Name] = at
		if at.size > 0 {
			order = append(order, at)
		}
	}
	slices.SortFunc(order, func(a, b storageAt) int { return int(min(max(a.from-b.from, -1), 1)) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.from+a.size > b.from {
			f.fail(b.entry, -1, "it overlaps %s", a.entry)
		}
	}
	return spans
}

// readTensor fills a tensor of rank 1 with the bytes of a storage.
func (f *file) readTensor(at storageAt, x *tensor.Tensor) {
	var err error
	tensor.Raw("load", []*tensor.Tensor{x}, nil, func(_ device.Stream, outs, _ []device.View) error {
		b := outs[0].Buf.Host()[:at.size]
		if len(b) == 0 {
			return nil
		}
		if _, err = f.r.ReadAt(b, at.from); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if outs[0].Type == dtype.Bool {
			for i, v := range b {
				if v != 0 {
					b[i] = 1
				}
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		panic(&Error{Path: f.path, Entry: at.entry, Offset: -1, Msg: err.Error(), Err: err})
	}
}
