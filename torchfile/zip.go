package torchfile

import (
	"archive/zip"
	"errors"
	"hash/crc32"
	"io"
	"strings"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/zipfile"
	"github.com/flambeau-go/flambeau/tensor"
)

// loadZip reads the format of PyTorch 1.6 and later. A file is a zip archive without compression.
// Its entries are NAME/data.pkl, NAME/byteorder, NAME/version, and the storages NAME/data/KEY.
func (f *file) loadZip() *loaded {
	list, err := zipfile.Entries(f.r, f.size)
	if err != nil {
		f.failed(err)
	}
	spans := make(map[string]storageAt, len(list))
	root := ""
	for _, e := range list {
		spans[e.Name] = storageAt{e.Name, e.From, e.Stored, e}
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
	if _, ok := spans[root+"constants.pkl"]; ok {
		f.fail("", -1, "this is a TorchScript archive, which holds a program: save model.state_dict() instead")
	}
	for _, e := range list {
		if e.Method != zip.Store {
			f.fail(e.Name, -1, "it is compressed, which PyTorch does not do: pack the archive without compression (zip -0)")
		}
	}
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
		f.check(at, crc32.ChecksumIEEE(b), at.size)
		return string(b)
	}
	if order := small("byteorder"); order != "" && order != "little" {
		f.fail(root+"byteorder", -1, "the numbers are %s-endian, only little-endian files are read", order)
	}
	pickle := spans[root+"data.pkl"]
	f.check(pickle, 0, 0)
	u := newUnpickler(f, pickle.entry, pickle.from, pickle.from+pickle.size)
	u.storages = storages(map[string]*storageRef{}, f.size)
	v := u.run()
	return &loaded{root: v, bytes: pickle.size, entry: pickle.entry, place: func(key string) (storageAt, bool) {
		at, ok := spans[root+"data/"+key]
		return at, ok
	}}
}

// readTensor fills x, a tensor with one dimension, with the first bytes of a storage.
func (f *file) readTensor(at storageAt, x *tensor.Tensor) {
	var err error
	sum, n := uint32(0), int64(x.Size()*x.Type().Size())
	tensor.Raw("load", []*tensor.Tensor{x}, nil, func(_ device.Stream, outs, _ []device.View) error {
		b := outs[0].Buf.Host()[:n]
		if len(b) == 0 {
			return nil
		}
		if _, err = f.r.ReadAt(b, at.from); err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		sum = crc32.ChecksumIEEE(b)
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
	f.check(at, sum, n)
}
