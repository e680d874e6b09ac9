package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/models"
)

// maxText limits the size of a text in memory, in bytes.
const maxText = 1 << 30

// A corpus is a text whose pieces are the samples of a dataset.
type corpus struct {
	path    string
	bytes   []byte
	ids     []int
	vocab   int
	context int // number of tokens in each piece
}

func openText(path string, known *card) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxText {
		return nil, fmt.Errorf("%s: %d bytes; texts of up to %d are read", path, info.Size(), maxText)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%s: the text is not UTF-8", path)
	}
	alphabet := string(b)
	if known != nil && known.Chars != "" {
		alphabet = known.Chars
	}
	chars, err := text.NewChars(alphabet)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ids, err := chars.Encode(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &corpus{path: path, bytes: b, ids: ids, vocab: chars.Vocab(), context: models.CharGPTDefaults().Config.Context}
	if known != nil && known.GPT != nil {
		c.context = known.GPT.Context
	}
	return &source{noun: "characters", text: c, card: card{Chars: chars.String()}}, nil
}

// split makes the last tenth of the text the test part.
func (c *corpus) split(s *source) (err error) {
	cut := c.cut()
	if len(c.ids)-cut < c.context+1 {
		return fmt.Errorf("%d characters are too few; at least %d are needed", len(c.ids), 10*(c.context+1))
	}
	if s.train, err = text.NewBlocks(c.ids[:cut], c.context, c.context/4); err != nil {
		return err
	}
	if s.test, err = text.NewBlocks(c.ids[cut:], c.context, 0); err != nil {
		return err
	}
	s.about = append(s.about, fmt.Sprintf("%d characters, %d different ones; a letter by its frequency alone costs %.3f nats",
		len(c.ids), c.vocab, entropy(c.ids[cut:], c.ids[:cut], c.vocab)))
	return nil
}

// cut returns the index of the first token of the test part.
func (c *corpus) cut() int { return len(c.ids) - len(c.ids)/10 }

// trained identifies the training part of the text, which is its beginning.
func (c *corpus) trained() *trained {
	at := 0
	for range c.cut() {
		_, size := utf8.DecodeRune(c.bytes[at:])
		at += size
	}
	return &trained{Samples: c.cut(), Bytes: at, SHA256: digest(c.bytes[:at])}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// entropy returns the mean cross-entropy in nats of a model that predicts each token in test by its
// frequency in train. It adds one to each count, so that no frequency is 0.
func entropy(test, train []int, vocab int) float64 {
	count := make([]float64, vocab)
	for i := range count {
		count[i] = 1
	}
	for _, id := range train {
		count[id]++
	}
	sum := 0.0
	for _, id := range test {
		sum -= math.Log(count[id] / float64(len(train)+vocab))
	}
	return sum / float64(len(test))
}
