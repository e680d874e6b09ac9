package text

import (
	"bufio"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// WordPieceOptions configure a [WordPiece] tokenizer. The zero value suits bert-base-uncased.
type WordPieceOptions struct {
	Cased       bool // keeps the case of the text
	KeepAccents bool // keeps accents when text is converted to lower case
	StripCased  bool // strips accents even if Cased is set
	NoChinese   bool // does not treat each Chinese character as a word
	// MaxChars is the greatest number of characters of a word. Longer words become [UNK]. 0 means
	// 100.
	MaxChars int
	// Special are the tokens that are recognised in text before it is split. Nil means those
	// of [PAD], [UNK], [CLS], [SEP] and [MASK] that are in the vocabulary.
	Special []string
}

// WordPiece is BERT's tokenizer (J. Devlin et al., arXiv:1810.04805;
// https://github.com/google-research/bert/blob/master/tokenization.py). It removes control
// characters from the text, converts it to lower case and strips accents. It splits the text at
// white space and around punctuation and Chinese characters. Then it divides each word, from left
// to right, into the longest pieces that are in the vocabulary. Pieces that do not begin a word are
// marked with ##. A word that cannot be divided in this way, or that is longer than MaxChars,
// becomes the token [UNK].
type WordPiece struct {
	o       WordPieceOptions
	tokens  []string
	id      map[string]int
	special specials
	unknown int
	longest int // length of the longest token, in bytes
}

// NewWordPiece returns the tokenizer of a vocabulary. The number of a token is its index in vocab.
// The vocabulary must contain [UNK].
func NewWordPiece(vocab []string, o WordPieceOptions) (*WordPiece, error) {
	return newWordPiece("", vocab, o)
}

// LoadWordPiece reads a vocab.txt, which has one token on each line. The error is an *[Error] or an
// error of the file system.
func LoadWordPiece(path string, o WordPieceOptions) (*WordPiece, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	return newWordPiece(path, strings.Split(text, "\n"), o)
}

func newWordPiece(path string, vocab []string, o WordPieceOptions) (*WordPiece, error) {
	if o.MaxChars < 0 {
		return nil, wrong(path, "words of at most %d characters", o.MaxChars)
	}
	if o.MaxChars == 0 {
		o.MaxChars = 100
	}
	if len(vocab) > maxVocab {
		return nil, wrong(path, "there are %d tokens, more than %d", len(vocab), maxVocab)
	}
	w := &WordPiece{o: o, tokens: append([]string(nil), vocab...), id: make(map[string]int, len(vocab))}
	for i, t := range w.tokens {
		if at, twice := w.id[t]; twice {
			return nil, wrong(path, "the token %q is there twice, as number %d and %d", t, at, i)
		}
		if t == "" {
			return nil, wrong(path, "the token %d is empty", i)
		}
		w.id[t] = i
		w.longest = max(w.longest, len(t))
	}
	var ok bool
	if w.unknown, ok = w.id["[UNK]"]; !ok {
		return nil, wrong(path, "there is no token [UNK] among %d; is this a vocab.txt of BERT?", len(vocab))
	}
	names := o.Special
	if names == nil {
		names = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
	}
	for _, t := range names {
		id, ok := w.id[t]
		if !ok && o.Special != nil {
			return nil, wrong(path, "the special token %q is not in the vocabulary", t)
		}
		if _, twice := w.special.id[t]; ok && !twice {
			w.special.add(t, id)
		}
	}
	return w, nil
}

// Save writes the vocabulary as a vocab.txt. It first writes a temporary file, and then renames it.
func (w *WordPiece) Save(path string) error {
	return writeFile(path, func(f *bufio.Writer) {
		for _, t := range w.tokens {
			fmt.Fprintln(f, t)
		}
	})
}

// Vocab returns the number of tokens.
func (w *WordPiece) Vocab() int { return len(w.tokens) }

// Token returns the number of the token that is spelled s. ok is false if there is no such token.
func (w *WordPiece) Token(s string) (id int, ok bool) {
	id, ok = w.id[s]
	return id, ok
}

// Encode returns the tokens of s without [CLS] and [SEP], which [WordPiece.Pair] adds. It
// recognises special tokens that are spelled out in s. It never fails.
func (w *WordPiece) Encode(s string) ([]int, error) {
	var ids []int
	w.special.forEach(s, func(plain string, id int) {
		if plain == "" {
			ids = append(ids, id)
			return
		}
		words(w.o.normal(plain), func(word string) { ids = w.pieces(ids, word) })
	})
	return ids, nil
}

// Pair returns the tokens of one text, or of two if b is not empty, in the form that BERT expects:
// [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. types has a 0 for each token of the first part and a 1
// for each token of the second part. While there are more than limit tokens, the longer text loses
// its last token. If both are equally long, the second text loses it. A limit of 0 means no limit.
// The error is an *[Error] if the vocabulary has no [CLS] or [SEP], or if the limit leaves no room
// for these tokens.
func (w *WordPiece) Pair(a, b string, limit int) (ids, types []int, err error) {
	cls, ok := w.id["[CLS]"]
	sep, ok2 := w.id["[SEP]"]
	if !ok || !ok2 {
		return nil, nil, wrong("", "the vocabulary has no [CLS] or no [SEP]")
	}
	x, _ := w.Encode(a)
	y, _ := w.Encode(b)
	around := 2
	if b != "" {
		around = 3
	}
	if limit != 0 {
		if limit < around {
			return nil, nil, wrong("", "%d tokens have no room for [CLS] and [SEP]", limit)
		}
		for len(x)+len(y)+around > limit {
			if len(x) > len(y) {
				x = x[:len(x)-1]
			} else {
				y = y[:len(y)-1]
			}
		}
	}
	ids = append(append(append(ids, cls), x...), sep)
	types = make([]int, len(ids))
	if b != "" {
		ids = append(append(ids, y...), sep)
		for len(types) < len(ids) {
			types = append(types, 1)
		}
	}
	return ids, types, nil
}

// Decode joins tokens with spaces, but puts no space before a token marked with ##. It cannot
// restore characters that normalisation and splitting removed from the text. A number that is not a
// token is an *[Error].
func (w *WordPiece) Decode(ids []int) (string, error) {
	var b strings.Builder
	for i, id := range ids {
		if id < 0 || id >= len(w.tokens) {
			return "", noToken(i, id, len(w.tokens))
		}
		t, inside := strings.CutPrefix(w.tokens[id], "##")
		if i > 0 && !inside {
			b.WriteByte(' ')
		} else if i == 0 {
			t = w.tokens[id]
		}
		b.WriteString(t)
	}
	return b.String(), nil
}

// pieces appends the tokens of one word to ids.
func (w *WordPiece) pieces(ids []int, word string) []int {
	if utf8.RuneCountInString(word) > w.o.MaxChars {
		return append(ids, w.unknown)
	}
	begin, buf := len(ids), make([]byte, 0, 64)
	for at := 0; at < len(word); {
		end := len(word)
		if room := w.longest; end-at > room { // no token is longer than w.longest
			for end = at + room; end > at && !utf8.RuneStart(word[end]); end-- {
			}
		}
		found := false
		for end > at {
			buf = buf[:0]
			if at > 0 {
				buf = append(buf, "##"...)
			}
			buf = append(buf, word[at:end]...)
			if id, ok := w.id[string(buf)]; ok {
				ids, found = append(ids, id), true
				break
			}
			_, n := utf8.DecodeLastRuneInString(word[at:end])
			end -= n
		}
		if !found {
			return append(ids[:begin], w.unknown)
		}
		at = end
	}
	return ids
}

// normal removes control characters, puts spaces around Chinese characters, strips accents and
// converts to lower case. It drops bytes that are not UTF-8, and the replacement character.
func (o WordPieceOptions) normal(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n' || r == '\r':
			b.WriteByte(' ')
		case r < utf8.RuneSelf:
			if r >= ' ' && r != 0x7F {
				b.WriteRune(r)
			}
		case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		case !o.NoChinese && chinese(r):
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		default:
			b.WriteRune(r)
		}
	}
	s = b.String()
	if o.StripCased && o.Cased || !o.Cased && !o.KeepAccents {
		b.Reset()
		for _, r := range norm.NFD.String(s) {
			if r < utf8.RuneSelf || !unicode.Is(unicode.Mn, r) {
				b.WriteRune(r)
			}
		}
		s = b.String()
	}
	if o.Cased {
		return s
	}
	b.Reset()
	for _, r := range s {
		b.WriteRune(unicode.ToLower(r))
		// This character is the only one whose lower case has two characters.
		if r == 'İ' {
			b.WriteRune('\u0307')
		}
	}
	return b.String()
}

// chinese reports whether r is in one of the blocks of CJK ideographs around which BERT splits
// text. Hangul and Kana are in other blocks. The bounds are those of Hugging Face's tokenizers,
// where extension E begins at U+2B920 instead of U+2B820.
func chinese(r rune) bool {
	return r >= 0x3400 && (r <= 0x4DBF || r >= 0x4E00 && r <= 0x9FFF || r >= 0xF900 && r <= 0xFAFF || r >= 0x20000 && r <= 0x2A6DF ||
		r >= 0x2A700 && r <= 0x2B81F || r >= 0x2B920 && r <= 0x2CEAF || r >= 0x2F800 && r <= 0x2FA1F)
}

// words calls f with each word of a text. White space separates words, and each punctuation
// character is a word.
func words(s string, f func(string)) {
	from := 0
	for at, r := range s {
		gap, mark := unicode.IsSpace(r), punctuation(r)
		if !gap && !mark {
			continue
		}
		if from < at {
			f(s[from:at])
		}
		from = at + utf8.RuneLen(r)
		if mark {
			f(s[at:from])
		}
	}
	if from < len(s) {
		f(s[from:])
	}
}

// punctuation reports whether r is a character around which BERT splits text: Unicode's
// punctuation, or one of ASCII's symbols.
func punctuation(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= '!' && r <= '/' || r >= ':' && r <= '@' || r >= '[' && r <= '`' || r >= '{' && r <= '~'
	}
	return unicode.IsPunct(r)
}
