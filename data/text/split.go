package text

import (
	"unicode"
	"unicode/utf8"
)

// A class is one of the kinds of characters that GPT-2's splitter distinguishes. Bytes that are not
// UTF-8 have the class other.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		return ascii[r]
	case unicode.IsLetter(r):
		return letter
	case unicode.IsNumber(r):
		return number
	case unicode.IsSpace(r):
		return space
	}
	return other
}

var ascii = func() (t [utf8.RuneSelf]class) {
	for r := range rune(utf8.RuneSelf) {
		switch {
		case unicode.IsLetter(r):
			t[r] = letter
		case unicode.IsNumber(r):
			t[r] = number
		case unicode.IsSpace(r):
			t[r] = space
		}
	}
	return t
}()

// contraction returns the length of an English contraction such as 're at the beginning of s, or 0
// if there is none.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) > 2 {
		switch s[1:3] {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}

// piece returns the length of the first match of GPT-2's pattern in s, which is not empty. The
// pattern splits text before merging:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// (https://github.com/openai/gpt-2/blob/master/src/encoder.py). Every string is a sequence of such
// matches.
func piece(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	r, n := utf8.DecodeRuneInString(s)
	c := classOf(r)
	if r == ' ' && len(s) > 1 {
		if next, _ := utf8.DecodeRuneInString(s[1:]); classOf(next) != space {
			c = classOf(next)
		}
	}
	last := 0 // offset of the last character of the match
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if classOf(r) != c {
			break
		}
		last = n
		n += size
	}
	// If several white space characters precede a word, only the last belongs to the word.
	if c == space && n < len(s) && last > 0 {
		return last
	}
	return n
}
