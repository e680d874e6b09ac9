package text

import (
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"
)

// BPE is byte-pair encoding over bytes, as in GPT-2 (R. Sennrich et al., arXiv:1508.07909; A.
// Radford et al., 2019). Text is split into words, each with the space before it. Each word is at
// first a sequence of bytes. The tokenizer repeatedly merges a pair of neighbouring symbols. It
// chooses the pair that training merged first. Every string of bytes can be encoded, and Decode
// returns the same bytes.
type BPE struct {
	tokens  []string // the bytes of each token, by token number; "" if no token has that number
	id      map[string]int32
	bytes   [256]int32 // the token of each byte
	merges  map[pair]merge
	pairs   []pair // merged pairs in the order of their ranks
	special specials
	prefix  bool // puts a space before text that begins without one

	mu    sync.RWMutex
	cache map[string][]int32
}

// A pair is two neighbouring tokens.
type pair struct{ a, b int32 }

// A merge replaces a pair by the token id. The pair of the lowest rank is merged first.
type merge struct{ rank, id int32 }

const (
	cacheWords = 1 << 16 // largest number of words in the cache
	cacheBytes = 48      // largest length of a word in the cache, in bytes
	// scanLimit is the largest number of symbols for which join searches for the best pair
	// linearly.
	scanLimit = 24
)

// newBPE checks a vocabulary of byte strings and its merges, and makes a tokenizer from them. Its
// errors name the file that is wrong, path or mergesPath.
func newBPE(path, mergesPath string, vocab map[string]int, merges [][2]string) (*BPE, error) {
	b := &BPE{id: make(map[string]int32, len(vocab)), merges: make(map[pair]merge, len(merges)), cache: map[string][]int32{}}
	most := -1
	for t, id := range vocab {
		if id < 0 || id >= maxVocab {
			return nil, wrong(path, "the token %q has the number %d; numbers are 0 to %d", t, id, maxVocab-1)
		}
		most = max(most, id)
	}
	if most >= 2*len(vocab)+1000 {
		return nil, wrong(path, "the greatest number of a token is %d, but there are %d tokens", most, len(vocab))
	}
	b.tokens = make([]string, most+1)
	for t, id := range vocab {
		switch {
		case t == "":
			return nil, wrong(path, "the token %d is empty", id)
		case b.tokens[id] != "":
			return nil, wrong(path, "the tokens %q and %q have the same number %d", b.tokens[id], t, id)
		}
		b.tokens[id] = t
		b.id[t] = int32(id)
	}
	for c := range 256 {
		id, ok := b.id[string([]byte{byte(c)})]
		if !ok {
			return nil, wrong(path, "the byte %#02x has no token; a byte-level vocabulary has one for every byte", c)
		}
		b.bytes[c] = id
	}
	for rank, m := range merges {
		l, okL := b.id[m[0]]
		r, okR := b.id[m[1]]
		both, ok := b.id[m[0]+m[1]]
		if !okL || !okR || !ok {
			return nil, wrong(mergesPath, "merge %d joins %q and %q; these and the whole are not all tokens", rank, m[0], m[1])
		}
		p := pair{l, r}
		if _, twice := b.merges[p]; twice {
			return nil, wrong(mergesPath, "merge %d, of %q and %q, is there twice", rank, m[0], m[1])
		}
		b.merges[p] = merge{int32(rank), both}
		b.pairs = append(b.pairs, p)
	}
	return b, nil
}

// Vocab returns the greatest token number, special tokens included, plus one.
func (b *BPE) Vocab() int { return len(b.tokens) }

// Token returns the number of the token that is spelled s, special or ordinary. ok is false if
// there is no such token.
func (b *BPE) Token(s string) (id int, ok bool) {
	if id, ok := b.special.id[s]; ok {
		return id, true
	}
	n, ok := b.id[s]
	return int(n), ok
}

// Encode returns the tokens of s. It recognises special tokens that are spelled out in s, such as
// "<|endoftext|>", as Hugging Face's tokenizers do. Use [BPE.EncodeOrdinary] for untrusted text.
// Encode never fails.
func (b *BPE) Encode(s string) ([]int, error) {
	var ids []int
	b.special.forEach(s, func(plain string, id int) {
		if plain != "" {
			ids = b.append(ids, plain)
		} else {
			ids = append(ids, id)
		}
	})
	return ids, nil
}

// EncodeOrdinary is Encode without special tokens. It encodes their spellings as ordinary text.
func (b *BPE) EncodeOrdinary(s string) []int {
	if s == "" {
		return nil
	}
	return b.append(nil, s)
}

// append appends the tokens of s, which has no special tokens, to ids.
func (b *BPE) append(ids []int, s string) []int {
	if b.prefix && s[0] != ' ' {
		s = " " + s
	}
	for len(s) > 0 {
		n := piece(s)
		for _, id := range b.word(s[:n]) {
			ids = append(ids, int(id))
		}
		s = s[n:]
	}
	return ids
}

// word returns the tokens of one word. The caller must not change the slice.
func (b *BPE) word(w string) []int32 {
	if len(w) > cacheBytes {
		return b.join(w)
	}
	b.mu.RLock()
	ids, ok := b.cache[w]
	b.mu.RUnlock()
	if ok {
		return ids
	}
	ids = b.join(w)
	b.mu.Lock()
	if len(b.cache) >= cacheWords {
		clear(b.cache)
	}
	b.cache[strings.Clone(w)] = ids
	b.mu.Unlock()
	return ids
}

// join returns the tokens of w. It repeatedly merges the pair of the lowest rank. Among pairs of
// the same rank it merges the leftmost.
func (b *BPE) join(w string) []int32 {
	ids := make([]int32, len(w))
	for i := range len(w) {
		ids[i] = b.bytes[w[i]]
	}
	if len(ids) > scanLimit {
		return b.joinLong(ids)
	}
	var ranks [scanLimit]merge // ranks[i] is the merge of the pair ids[i], ids[i+1]
	none := merge{rank: math.MaxInt32}
	look := func(i int) merge {
		if i+1 < len(ids) {
			if m, ok := b.merges[pair{ids[i], ids[i+1]}]; ok {
				return m
			}
		}
		return none
	}
	for i := range ids {
		ranks[i] = look(i)
	}
	for {
		best := 0
		for i := range ids {
			if ranks[i].rank < ranks[best].rank {
				best = i
			}
		}
		if len(ids) == 0 || ranks[best] == none {
			return slices.Clip(ids)
		}
		ids[best] = ranks[best].id
		ids = slices.Delete(ids, best+1, best+2)
		copy(ranks[best+1:], ranks[best+2:])
		ranks[best] = look(best)
		if best > 0 {
			ranks[best-1] = look(best - 1)
		}
	}
}

// joinLong does the same as join in O(n·log n). It has the pairs in a heap, and the symbols in a
// doubly linked list.
func (b *BPE) joinLong(ids []int32) []int32 {
	n := int32(len(ids))
	prev, next := make([]int32, n), make([]int32, n)
	var h waiting
	look := func(i int32) {
		if i >= 0 && next[i] < n {
			p := pair{ids[i], ids[next[i]]}
			if m, ok := b.merges[p]; ok {
				heap.Push(&h, waitingPair{m, i, p})
			}
		}
	}
	for i := range n {
		prev[i], next[i] = i-1, i+1
	}
	for i := range n {
		look(i)
	}
	for len(h) > 0 {
		w := heap.Pop(&h).(waitingPair)
		i := w.at
		// The pair no longer exists if one of its symbols was merged with another neighbour.
		if ids[i] != w.p.a || next[i] >= n || ids[next[i]] != w.p.b {
			continue
		}
		gone := next[i]
		ids[i], ids[gone] = w.id, -1
		next[i] = next[gone]
		if next[i] < n {
			prev[next[i]] = i
		}
		look(i)
		look(prev[i])
	}
	var out []int32
	for i := int32(0); i < n; i = next[i] {
		out = append(out, ids[i])
	}
	return out
}

type waitingPair struct {
	merge
	at int32
	p  pair
}

// waiting is a heap of pairs. The pair of the lowest rank comes first, and among equal ranks the
// leftmost pair.
type waiting []waitingPair

func (h waiting) Len() int { return len(h) }

func (h waiting) Less(i, j int) bool {
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	return h[i].at < h[j].at
}

func (h waiting) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *waiting) Push(x any) { *h = append(*h, x.(waitingPair)) }

func (h *waiting) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// Decode returns the bytes of the given tokens. A number that is not a token is an *[Error].
func (b *BPE) Decode(ids []int) (string, error) {
	var out strings.Builder
	for i, id := range ids {
		if id < 0 || id >= len(b.tokens) || b.tokens[id] == "" {
			return "", noToken(i, id, len(b.tokens))
		}
		out.WriteString(b.tokens[id])
	}
	return out.String(), nil
}
