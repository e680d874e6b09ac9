package arch

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A proseWord is a sequence of characters without spaces. Only a code span in backquotes may
// contain spaces.
type proseWord struct {
	text string
	line int
}

// proseWords are the words of a paragraph or a sentence.
type proseWords []proseWord

func (p proseWords) String() string {
	var list []string
	for _, w := range p {
		list = append(list, strings.Fields(w.text)...)
	}
	return strings.Join(list, " ")
}

var (
	listItem = regexp.MustCompile(`^(?:[-*]|\d+[.)])\s`)
	heading  = regexp.MustCompile(`^#+ `)
)

// paragraphs returns the words of each paragraph of a group. Blank lines, list items, headings,
// tables and code end a paragraph. Code is indented by 3 columns in a comment. In a page it is
// indented by 4 and follows a blank line.
func paragraphs(group []proseLine, page bool) []proseWords {
	var list []proseWords
	var text strings.Builder
	first := 0    // index of the first character after the comment or list marker
	item := -1    // indent of the list marker; -1 outside a list
	code := false // whether the previous line is code
	blank := true // whether the previous line ended a paragraph
	flush := func() {
		if text.Len() > 0 {
			list = append(list, splitWords(text.String(), first))
		}
		text.Reset()
	}
	deep := 3
	if page {
		deep = 4
	}
	for _, l := range group {
		start := strings.TrimSpace(l.text)
		in := columns(l.text[:len(l.text)-len(strings.TrimLeft(l.text, " \t"))])
		if l.free || strings.HasPrefix(start, "|") || !strings.ContainsFunc(start, wordRune) {
			flush()
			blank = true
			continue
		}
		marked := listItem.MatchString(start) && !(code && in >= deep)
		if item >= 0 && (in < item || blank && (in == item || !page)) {
			flush()
			item = -1
		}
		code = !marked && item < 0 && in >= deep && (code || blank || !page)
		switch {
		case code:
			flush()
			blank = true
			continue
		case heading.MatchString(start):
			flush()
			item = -1
			list = append(list, splitWords(heading.ReplaceAllString(start, ""), l.no))
			blank = true
			continue
		case marked:
			flush()
			item = in
			start = listItem.ReplaceAllString(start, "")
		case blank:
			flush()
		}
		if text.Len() == 0 {
			first = l.no
		} else {
			text.WriteByte('\n')
		}
		text.WriteString(start)
		blank = false
	}
	flush()
	return list
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// splitWords splits text at white space outside of code spans.
func splitWords(text string, line int) proseWords {
	var list proseWords
	start, at := -1, line
	for i := 0; i < len(text); i++ {
		space := strings.IndexByte(" \t\r\n", text[i]) >= 0
		if !space && start < 0 {
			start, at = i, line
		}
		if space && start >= 0 {
			list = append(list, proseWord{text[start:i], at})
			start = -1
		}
		if text[i] == '`' {
			if n := strings.IndexByte(text[i+1:], '`'); n >= 0 {
				line += strings.Count(text[i+1:i+1+n], "\n")
				i += n + 1
			}
		}
		if text[i] == '\n' {
			line++
		}
	}
	if start >= 0 {
		list = append(list, proseWord{text[start:], at})
	}
	return list
}

// sentences splits a paragraph into sentences.
func sentences(p proseWords) []proseWords {
	var list []proseWords
	for i := 0; i < len(p)-1; i++ {
		if endsSentence(p[i].text, p[i+1].text) {
			list = append(list, p[:i+1])
			p, i = p[i+1:], -1
		}
	}
	if len(p) > 0 {
		list = append(list, p)
	}
	return list
}

const (
	openers = "([{\"'“‘*_"
	closers = ")]}\"'”’*_"
)

// After an abbreviation in the first list, a full stop never ends a sentence. After one in the
// second list, it does not end a sentence if a number follows. After one in the third list, it ends
// a sentence only if a capital letter follows.
var (
	abbreviations = []string{
		"al", "approx", "cf", "dr", "ed", "eds", "incl", "mr", "mrs", "prof", "resp", "st", "vs",
	}
	numbered = []string{
		"alg", "app", "art", "ca", "ch", "chap", "eq", "eqs", "fig", "figs", "no", "nos",
		"p", "pp", "sec", "sect", "tab", "vol",
	}
	beforeSmall = []string{"etc", "inc", "max", "min"}
)

// initials matches a word that consists of initials, without its last full stop: "A", "J.-M" or
// "i.e".
var initials = regexp.MustCompile(`^\p{L}(?:\.-?\p{L})*$`)

// opening holds words that begin a sentence and are not names. If such a word follows "X.", then X
// is not an initial.
var opening = []string{
	"A", "All", "An", "And", "As", "At", "Both", "But", "By", "Each", "Every", "For", "From",
	"Here", "If", "In", "It", "Its", "No", "Not", "Of", "On", "One", "Only", "So", "That", "The",
	"Then", "There", "These", "They", "This", "To", "What", "When", "Where", "Which", "With",
}

// linkTarget matches the end of a link in Markdown.
var linkTarget = regexp.MustCompile(`\]\([^)]*\)`)

// endsSentence reports whether the given word ends a sentence. The argument next is the word that
// follows it.
func endsSentence(word, next string) bool {
	word = linkTarget.ReplaceAllString(word, "]")
	body := strings.TrimRight(word, closers)
	closed := word[len(body):]
	follows := strings.TrimLeft(next, openers+"`")
	r, _ := utf8.DecodeRuneInString(follows)
	capital := unicode.IsUpper(r)
	body = strings.TrimLeft(body, openers)
	switch {
	case strings.HasSuffix(body, "…"), strings.HasSuffix(body, ".."):
		return capital
	case strings.HasSuffix(body, "!"), strings.HasSuffix(body, "?"):
		quoted := strings.ContainsAny(closed, "\"'”’")
		return strings.ContainsFunc(body, wordRune) && (capital || !quoted)
	case !strings.HasSuffix(body, ".") || body == ".":
		return false
	}
	body = strings.TrimSuffix(body, ".")
	small := strings.ToLower(body)
	switch {
	case slices.Contains(abbreviations, small):
		return false
	case slices.Contains(numbered, small):
		return !unicode.IsDigit(r)
	case slices.Contains(beforeSmall, small):
		return capital
	case !initials.MatchString(body):
		return true
	case utf8.RuneCountInString(body) > 1:
		return false
	}
	r, _ = utf8.DecodeRuneInString(body)
	return !unicode.IsUpper(r) || slices.Contains(opening, follows)
}

// operator matches the text between two parts of a formula.
var operator = regexp.MustCompile(`^[-=+*/·×÷≤≥<>≈≠≡←→⇒^%&|∈∘⊙~∼∝:!]*[-=+*/·×÷≤≥<>≈≠≡←→⇒^%&|∈∘⊙~∼∝]$`)

// countWords counts the words of a sentence that contain a letter or a digit. A formula counts as
// one: "a = b + c", "f(x, y)", "[rows, columns]".
func countWords(s proseWords) int {
	n := 0
	joined := false // whether the current word continues a formula that began before it
	var open []bool // for each open bracket, whether it belongs to a formula
	for _, w := range s {
		if n > 0 && operator.MatchString(w.text) {
			joined = true
			continue
		}
		if strings.ContainsFunc(w.text, wordRune) && !joined {
			n++
		}
		var before rune
		for _, r := range w.text {
			switch r {
			case '[', '{':
				open = append(open, true)
			case '(':
				open = append(open, wordRune(before))
			case ']', '}', ')':
				open = open[:max(0, len(open)-1)]
			}
			before = r
		}
		joined = slices.Contains(open, true) && strings.HasSuffix(w.text, ",")
	}
	return n
}
