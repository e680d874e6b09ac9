// Package text converts text to tokens and back, and makes training samples from tokens.
//
// The package has three parts:
//
//   - A [Tokenizer] maps strings to numbers: [Bytes], [Chars], [BPE] (GPT-2's byte-level byte-pair
//     encoding) and [WordPiece] (BERT's). [LoadBPE], [LoadTokenizerJSON] and [LoadWordPiece] read
//     the files that Hugging Face publishes. [TrainBPE] learns a vocabulary.
//   - [NewBlocks] cuts a stream of tokens into samples for a data.Loader.
//   - [Pad] makes a batch of sequences of different lengths, with its mask.
//
// Tokenizers give the same numbers as Hugging Face's tokenizers library. Several goroutines may use
// a tokenizer at the same time. A Go string holds any bytes. [Bytes] and [BPE] also tokenize bytes
// that are not UTF-8, one by one. Decoding returns exactly these bytes, where Python's decoders
// return replacement characters.
package text

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Tokenizer converts text to tokens and back. A token is a number, 0 or greater.
type Tokenizer interface {
	Encode(s string) ([]int, error)
	Decode(ids []int) (string, error)
	Vocab() int // greatest token number plus one, which is the number of rows of an embedding
}

var (
	_ Tokenizer = Bytes{}
	_ Tokenizer = (*Chars)(nil)
	_ Tokenizer = (*BPE)(nil)
	_ Tokenizer = (*WordPiece)(nil)
)

// An Error says what is wrong with a tokenizer's file, or with the input of Encode or Decode.
type Error struct {
	Path string // path of the tokenizer's file, "" if there is none
	Msg  string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return "text: " + e.Msg
	}
	return "text: " + e.Path + ": " + e.Msg
}

func wrong(path, format string, a ...any) error { return &Error{path, fmt.Sprintf(format, a...)} }

// noToken returns the error for ids[at], which has the value id and is not a token.
func noToken(at, id, vocab int) error {
	return wrong("", "number %d of those to decode is %d, which is not a token; there are %d", at, id, vocab)
}

// Bytes has a token for each of the 256 bytes.
type Bytes struct{}

// Vocab returns 256.
func (Bytes) Vocab() int { return 256 }

// Encode returns the bytes of s. It never fails.
func (Bytes) Encode(s string) ([]int, error) {
	ids := make([]int, len(s))
	for i := range len(s) {
		ids[i] = int(s[i])
	}
	return ids, nil
}

// Decode returns the string of the given bytes. A number above 255 is an *[Error].
func (Bytes) Decode(ids []int) (string, error) {
	out := make([]byte, len(ids))
	for i, id := range ids {
		if id < 0 || id > 255 {
			return "", noToken(i, id, 256)
		}
		out[i] = byte(id)
	}
	return string(out), nil
}

// Chars has a token for each character of a text. Tokens are in the order of the characters' code
// points.
type Chars struct {
	runes []rune
	id    map[rune]int
}

// NewChars returns a tokenizer for the characters of s. s must be UTF-8 and not empty.
// NewChars(c.String()) returns a tokenizer equal to c.
func NewChars(s string) (*Chars, error) {
	if s == "" {
		return nil, wrong("", "there is no text to take characters from")
	}
	if !utf8.ValidString(s) {
		return nil, wrong("", "the text is not UTF-8; use Bytes")
	}
	c := &Chars{id: map[rune]int{}}
	for _, r := range s {
		c.id[r] = 0
	}
	for r := range c.id {
		c.runes = append(c.runes, r)
	}
	slices.Sort(c.runes)
	for i, r := range c.runes {
		c.id[r] = i
	}
	return c, nil
}

// String returns the characters in the order of their tokens.
func (c *Chars) String() string { return string(c.runes) }

// Vocab returns the number of different characters.
func (c *Chars) Vocab() int { return len(c.runes) }

// Encode returns the tokens of s. If a character of s has no token, the error is an *[Error].
func (c *Chars) Encode(s string) ([]int, error) {
	ids := make([]int, 0, len(s))
	for at, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[at:], "\uFFFD") {
			return nil, wrong("", "the byte %#02x at %d is not UTF-8", s[at], at)
		}
		id, ok := c.id[r]
		if !ok {
			return nil, wrong("", "the character %q at byte %d is not among the %d known ones", r, at, len(c.runes))
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Decode returns the string of the given tokens. A number that is not a token is an *[Error].
func (c *Chars) Decode(ids []int) (string, error) {
	var b strings.Builder
	for i, id := range ids {
		if id < 0 || id >= len(c.runes) {
			return "", noToken(i, id, len(c.runes))
		}
		b.WriteRune(c.runes[id])
	}
	return b.String(), nil
}
