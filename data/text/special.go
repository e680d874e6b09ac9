package text

import "strings"

// maxVocab is the upper limit of token numbers.
const maxVocab = 1 << 24

// specials are the tokens that are recognised in text before it is split. If several begin at the
// same byte, the longest one counts.
type specials struct {
	id      map[string]int
	byFirst [256][]string // tokens by their first byte, the longest first
}

// add adds the special token t, which must be new.
func (s *specials) add(t string, id int) {
	if s.id == nil {
		s.id = map[string]int{}
	}
	s.id[t] = id
	list := append(s.byFirst[t[0]], t)
	for i := len(list) - 1; i > 0 && len(list[i]) > len(list[i-1]); i-- {
		list[i], list[i-1] = list[i-1], list[i]
	}
	s.byFirst[t[0]] = list
}

// forEach calls f for the special tokens in text and for the text between them, in order. For a
// special token, plain is "" and id is its number.
func (s *specials) forEach(text string, f func(plain string, id int)) {
	from := 0
	if len(s.id) > 0 {
	next:
		for at := 0; at < len(text); {
			for _, t := range s.byFirst[text[at]] {
				if strings.HasPrefix(text[at:], t) {
					if from < at {
						f(text[from:at], 0)
					}
					f("", s.id[t])
					at += len(t)
					from = at
					continue next
				}
			}
			at++
		}
	}
	if from < len(text) {
		f(text[from:], 0)
	}
}
