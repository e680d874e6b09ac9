package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/data/vision"
)

// trained records which samples a model was trained on, so that eval recognises them.
//
// A sample is identified by its content, not by its path or index. The content is the bytes of an
// image file, the pixels and the class of an image in IDX or CIFAR files, or the numbers of a row.
// Therefore eval recognises data that was moved, renamed, reordered or extended. It does not
// recognise images that were compressed again. If the command has split the data, the hashes of all
// training samples are stored. If the data itself has a training and a test part, the hashes of
// some training samples are enough to recognise it. A text is identified by its beginning.
type trained struct {
	Samples int `json:"samples"` // number of training samples; for a text, number of its characters
	// Hashes has the first six bytes of each sample's SHA-256, sorted, in base64.
	Hashes string `json:"hashes,omitempty"`
	Bytes  int    `json:"bytes,omitempty"`  // length of a text's training part in bytes
	SHA256 string `json:"sha256,omitempty"` // SHA-256 of a text's training part
}

const (
	hashBytes = 6
	maxHashes = 1 << 20 // greatest number of hashes that are stored; if there are more, none are
	someOf    = 1024    // number of stored hashes if the data itself has two parts
)

// pixelsOf returns a function for the field source.content. The function returns the bytes of image
// i's file, or the image's pixels and class.
func pixelsOf(images vision.Images) func(i int) ([]byte, error) {
	if t, ok := images.(*vision.Transformed); ok {
		images = t.Images
	}
	if f, ok := images.(*vision.Folder); ok {
		return func(i int) ([]byte, error) { return os.ReadFile(f.Path(i)) }
	}
	return func(i int) ([]byte, error) {
		m, class, err := images.Image(i)
		if err != nil {
			return nil, err
		}
		return binary.LittleEndian.AppendUint64(m.U8, uint64(class)), nil
	}
}

// rowsOf returns a function for the field source.content. The function returns row i of a table as
// bytes.
func rowsOf(t *table.Table) func(i int) ([]byte, error) {
	x, y, n := t.X.Floats(), t.Y.Floats(), t.X.Dim(1)
	return func(i int) ([]byte, error) {
		var b []byte
		for _, v := range x[i*n : (i+1)*n] {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(y[i])), nil
	}
}

// hashes returns the hashes of the samples with the given indices. The indices refer to the dataset
// train as it was before prepare changed it.
func (s *source) hashes(e *env, index []int) ([]uint64, error) {
	out := make([]uint64, len(index))
	errs := make([]error, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(index) || errs[w] != nil {
					return
				}
				if e.ctx.Err() != nil {
					errs[w] = errInterrupted
					return
				}
				var b []byte
				if b, errs[w] = s.content(index[k]); errs[w] == nil {
					sum := sha256.Sum256(b)
					out[k] = binary.BigEndian.Uint64(sum[:]) >> (64 - 8*hashBytes)
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if errors.Is(err, errInterrupted) {
			return nil, errInterrupted
		}
	}
	return out, errors.Join(errs...)
}

// trained describes the training samples of the prepared source, or returns nil if they cannot be
// identified.
func (s *source) trained(e *env) (*trained, error) {
	switch {
	case s.text != nil:
		return s.text.trained(), nil
	case s.content == nil:
		return nil, nil
	}
	n := s.train.Len()
	var index []int
	sub, ours := s.train.(data.Subset)
	switch {
	case ours && n > maxHashes:
		return nil, nil
	case ours:
		index = sub.Index
	default:
		for k := range min(n, someOf) {
			index = append(index, k*n/min(n, someOf))
		}
	}
	list, err := s.hashes(e, index)
	if err != nil {
		return nil, err
	}
	slices.Sort(list)
	var b []byte
	for _, h := range list {
		b = append(b, binary.BigEndian.AppendUint64(nil, h)[8-hashBytes:]...)
	}
	return &trained{Samples: n, Hashes: base64.RawStdEncoding.EncodeToString(b)}, nil
}

// counts returns how many times each hash occurs, and the total number of hashes.
func (t *trained) counts() (map[uint64]int, int, error) {
	b, err := base64.RawStdEncoding.DecodeString(t.Hashes)
	if err != nil || len(b)%hashBytes != 0 {
		return nil, 0, errors.New("the list of samples that the model was trained on is damaged")
	}
	m := map[uint64]int{}
	for h := range slices.Chunk(b, hashBytes) {
		m[binary.BigEndian.Uint64(append(make([]byte, 8-hashBytes, 8), h...))]++
	}
	return m, len(b) / hashBytes, nil
}

// measurable returns the samples of the source that eval measures, and describes them in words. t
// is the card's record of the training. If all is set, it returns every sample.
func (s *source) measurable(e *env, t *trained, all bool) (d data.Dataset, words string, err error) {
	if s.text != nil {
		return s.text.measurable(t, all)
	}
	n := s.train.Len()
	if s.parts {
		total := n + s.test.Len()
		if !all {
			return s.test, fmt.Sprintf("%d of %d %s, the part for testing", s.test.Len(), total, s.noun), nil
		}
		return data.NewConcat(s.test, s.train), fmt.Sprintf("all %d %s, the part for training too", total, s.noun), nil
	}
	if n == 0 {
		return nil, "", fmt.Errorf("there are no %s", s.noun)
	}
	every := fmt.Sprintf("all %d %s", n, s.noun)
	if t == nil || t.Hashes == "" {
		return s.train, every + "; whether some of them were trained on is not known: the weights do not say what they were trained on", nil
	}
	index := make([]int, n)
	for i := range index {
		index[i] = i
	}
	list, err := s.hashes(e, index)
	if err != nil {
		return nil, "", err
	}
	count, listed, err := t.counts()
	if err != nil {
		return nil, "", err
	}
	var rest []int
	for i, h := range list {
		if count[h]--; count[h] < 0 {
			rest = append(rest, i)
		}
	}
	met := n - len(rest)
	here := 2*met >= listed // true if the source is the training data, perhaps without some samples
	switch {
	case met == 0:
		return s.train, every + ", none of which was trained on", nil
	case here && listed < t.Samples:
		return s.train, every + "; those that were trained on are among them", nil
	case here && len(rest) == 0:
		return s.train, every + ", each of which was trained on", nil
	case here && all:
		return s.train, fmt.Sprintf("%s, %d of which were trained on", every, met), nil
	case here:
		return data.Subset{Of: s.train, Index: rest}, fmt.Sprintf("%d of %d %s, held out: the other %d were trained on", len(rest), n, s.noun, met), nil
	}
	return s.train, fmt.Sprintf("%s, %d of which are equal to some that were trained on", every, met), nil
}

// measurable returns the pieces of a text that eval measures, and describes them in words. t is the
// card's record of the training. If all is set, it returns the whole text.
func (c *corpus) measurable(t *trained, all bool) (d data.Dataset, words string, err error) {
	n, from := len(c.ids), 0
	words = fmt.Sprintf("all %d characters", n)
	switch {
	case t == nil || t.SHA256 == "":
		words += "; whether some of them were trained on is not known: the weights do not say what they were trained on"
	case t.Bytes > len(c.bytes) || t.Bytes < 0 || digest(c.bytes[:t.Bytes]) != t.SHA256:
		words += "; it does not begin with the text that was trained on"
	default:
		trained := len(bytes.Runes(c.bytes[:t.Bytes]))
		if rest := n - trained; all || rest < c.context+1 {
			words += fmt.Sprintf(", the first %d of which were trained on", trained)
		} else {
			from, words = trained, fmt.Sprintf("%d of %d characters, held out: the first %d were trained on", rest, n, trained)
		}
	}
	if n-from < c.context+1 {
		return nil, "", fmt.Errorf("%s: %d characters are too few; at least %d are needed", c.path, n-from, c.context+1)
	}
	d, err = text.NewBlocks(c.ids[from:], c.context, 0)
	return d, words, err
}
