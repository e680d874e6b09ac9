package ptxvm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokKind uint8

const (
	tkEOF tokKind = iota
	tkWord
	tkInt
	tkF32
	tkF64
	tkString
	tkPunct
)

type token struct {
	kind tokKind
	line int
	text string // the text of a word, a string or punctuation
	val  uint64 // the value of a number, or its bits
}

func (t token) String() string {
	switch t.kind {
	case tkEOF:
		return "end of text"
	case tkInt, tkF32, tkF64:
		return "number " + t.text
	}
	return strconv.Quote(t.text)
}

type lexer struct {
	src  string
	pos  int
	line int
	cur  token
}

func newLexer(src string) *lexer {
	l := &lexer{src: src, line: 1}
	for i := range len(src) {
		if src[i] >= utf8.RuneSelf {
			fail(1+strings.Count(src[:i], "\n"), "character beyond ASCII, which the assembler of CUDA 12.8 refuses in comments too")
		}
	}
	l.next()
	return l
}

// fail panics with a *ParseError, which Parse returns as its error.
func fail(line int, format string, args ...any) {
	panic(&ParseError{Line: line, Msg: fmt.Sprintf(format, args...)})
}

func wordStart(c byte) bool {
	return c == '_' || c == '$' || c == '%' || c == '.' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
func wordPart(c byte) bool { return wordStart(c) && c != '%' || c >= '0' && c <= '9' }
func digit(c byte) bool    { return c >= '0' && c <= '9' }

func (l *lexer) skip() {
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		switch {
		case c == '\n':
			l.line++
			l.pos++
		case c == ' ' || c == '\t' || c == '\r':
			l.pos++
		case strings.HasPrefix(l.src[l.pos:], "//"):
			n := strings.IndexByte(l.src[l.pos:], '\n')
			if n < 0 {
				n = len(l.src) - l.pos
			}
			l.pos += n
		case strings.HasPrefix(l.src[l.pos:], "/*"):
			n := strings.Index(l.src[l.pos+2:], "*/")
			if n < 0 {
				fail(l.line, "comment without end")
			}
			l.line += strings.Count(l.src[l.pos:l.pos+2+n], "\n")
			l.pos += n + 4
		default:
			return
		}
	}
}

// next advances to the next token and returns the current one.
func (l *lexer) next() token {
	old := l.cur
	l.skip()
	l.cur = token{line: l.line}
	if l.pos >= len(l.src) {
		return old
	}
	s, c := l.src[l.pos:], l.src[l.pos]
	switch {
	case wordStart(c):
		n := 1
		for n < len(s) && (wordPart(s[n]) && !(c == '.' && s[n] == '.') || n+2 < len(s) && s[n] == ':' && s[n+1] == ':' && wordPart(s[n+2])) {
			if s[n] == ':' {
				n++
			}
			n++
		}
		l.cur.kind, l.cur.text = tkWord, s[:n]
	case digit(c):
		l.number(s)
	case c == '"':
		n := strings.IndexByte(s[1:], '"')
		if n < 0 || strings.IndexByte(s[1:1+n], '\n') >= 0 {
			fail(l.line, "string without end")
		}
		l.cur.kind, l.cur.text = tkString, s[1:1+n]
		l.pos += 2
	case strings.IndexByte("{}()[]<>,;:@!|+-=*", c) >= 0:
		l.cur.kind, l.cur.text = tkPunct, s[:1]
	default:
		fail(l.line, "unexpected character %q", c)
	}
	l.pos += len(l.cur.text)
	return old
}

func (l *lexer) number(s string) {
	n := 1
	hexFloat := len(s) > 1 && s[0] == '0' && (s[1]|32 == 'f' || s[1]|32 == 'd')
	hex := len(s) > 1 && s[0] == '0' && s[1]|32 == 'x'
	for n < len(s) && (digit(s[n]) || s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || s[n] == '.') {
		if !hex && !hexFloat && s[n]|32 == 'e' && n+1 < len(s) && (s[n+1] == '-' || s[n+1] == '+') {
			n++
		}
		n++
	}
	text := s[:n]
	l.cur.text, l.cur.kind = text, tkInt
	var err error
	switch {
	case hexFloat:
		want, kind := 8, tkF32
		if s[1]|32 == 'd' {
			want, kind = 16, tkF64
		}
		if n != 2+want {
			fail(l.line, "float literal %s needs %d hexadecimal digits", text, want)
		}
		l.cur.kind = kind
		l.cur.val, err = strconv.ParseUint(text[2:], 16, 64)
	case !hex && strings.ContainsAny(text, ".eE"):
		var f float64
		f, err = strconv.ParseFloat(text, 64)
		l.cur.kind, l.cur.val = tkF64, math.Float64bits(f)
	default:
		t := strings.TrimSuffix(text, "U")
		if strings.Contains(t, "_") || len(t) > 1 && t[0] == '0' && t[1]|32 == 'o' {
			fail(l.line, "bad number %s", text)
		}
		l.cur.val, err = strconv.ParseUint(t, 0, 64)
	}
	if err != nil {
		fail(l.line, "bad number %s", text)
	}
}

func (l *lexer) is(p string) bool {
	return (l.cur.kind == tkPunct || l.cur.kind == tkWord) && l.cur.text == p
}

func (l *lexer) accept(p string) bool {
	if l.is(p) {
		l.next()
		return true
	}
	return false
}

func (l *lexer) expect(p string) {
	if !l.accept(p) {
		fail(l.cur.line, "expected %q, found %s", p, l.cur)
	}
}

func (l *lexer) word(what string) string {
	if l.cur.kind != tkWord {
		fail(l.cur.line, "expected %s, found %s", what, l.cur)
	}
	return l.next().text
}

func (l *lexer) integer(what string, limit uint64) int {
	if l.cur.kind != tkInt {
		fail(l.cur.line, "expected %s, found %s", what, l.cur)
	}
	if l.cur.val > limit {
		fail(l.cur.line, "%s %s is larger than %d", what, l.cur.text, limit)
	}
	return int(l.next().val)
}
