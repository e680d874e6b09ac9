package torchfile

import (
	"encoding/binary"
	"math/big"

	"github.com/flambeau-go/flambeau/dtype"
)

// loadLegacy reads the format of PyTorch before 1.6. Later versions write it with
// _use_new_zipfile_serialization=False. A file has five pickles: a magic number, the protocol
// version, a dict about the system, the contents, and a list of keys. After the pickles, the
// file has a storage for each key: the number of elements in eight bytes, then the elements.
func (f *file) loadLegacy(head []byte) *loaded {
	if head[0] != 0x80 {
		f.notLegacy(head)
	}
	at := int64(0)
	known := map[string]*storageRef{}
	next := func() any {
		u := newUnpickler(f, "", at, f.size)
		u.storages = storages(known, f.size)
		v := u.run()
		at = u.pos
		return v
	}
	// This is the magic number in torch/serialization.py.
	magic, _ := new(big.Int).SetString("1950a86a20f9469cfc6c", 16)
	if m, ok := next().(*big.Int); !ok || m.Cmp(magic) != 0 {
		f.fail("", 0, "this is a pickle, but not one that PyTorch wrote: it does not begin with its number")
	}
	place := at
	if v, ok := next().(int64); !ok || v != 1001 {
		f.fail("", place, "version %s of the format, 1001 is supported", describe(v))
	}
	place = at
	about, ok := next().(*Dict)
	if !ok {
		f.fail("", place, "there is no dict about the system that wrote the file")
	}
	if little, ok := about.Get("little_endian"); ok && little != true {
		f.fail("", place, "the numbers are big-endian, only little-endian files are read")
	}
	place = at
	root := next()
	length := at - place
	place = at
	keys, ok := next().(*list)
	if !ok {
		f.fail("", place, "there is no list of storages")
	}
	spans := map[string]storageAt{}
	for _, k := range keys.items {
		key, ok := k.(string)
		st := known[key]
		if _, twice := spans[key]; !ok || st == nil || twice || st.t == dtype.Invalid {
			f.fail("", place, "%s in the list of storages, which no tensor uses, or which is there twice", describe(k))
		}
		var n [8]byte
		if f.size-at < 8 {
			f.fail("", at, "the file ends before storage %q", key)
		}
		f.read("", n[:], at)
		at += 8
		elements := binary.LittleEndian.Uint64(n[:])
		if elements > uint64(f.size-at)/uint64(st.t.Size()) {
			f.fail("", at-8, "storage %q of %d elements of %v does not lie in the file", key, elements, st.t)
		}
		spans[key] = storageAt{from: at, size: int64(elements) * int64(st.t.Size())}
		at += spans[key].size
	}
	return &loaded{root: root, bytes: length, place: func(key string) (storageAt, bool) { s, ok := spans[key]; return s, ok }}
}

// notLegacy fails with an error that says what the file may be instead.
func (f *file) notLegacy(head []byte) {
	var tar [5]byte
	if f.size > 262 {
		f.read("", tar[:], 257)
	}
	switch {
	case string(tar[:]) == "ustar":
		f.fail("", -1, "this is a tar archive, as PyTorch before 0.2 wrote; load and save it with a newer one")
	case head[0] == 0x1f && head[1] == 0x8b:
		f.fail("", -1, "this file is compressed by gzip; decompress it first")
	case f.size >= 10:
		var text [2]byte
		f.read("", text[:], 8)
		if n := binary.LittleEndian.Uint32(head); n > 0 && int64(n) < f.size && text[0] == '{' {
			f.fail("", -1, "this is a safetensors file: load it with package safetensors")
		}
	}
	f.fail("", 0, "this is neither a zip archive nor a pickle: no file of PyTorch begins with % x", head)
}
