package text

import (
	"cmp"
	"container/heap"
	"slices"
)

// TrainOptions configure [TrainBPE].
type TrainOptions struct {
	Vocab        int      // size of the vocabulary, at least 256 plus the special tokens
	MinFrequency int      // least number of occurrences of a pair that is merged; 0 means 2
	Special      []string // special tokens, such as "<|endoftext|>"; they get the lowest numbers
}

// TrainBPE learns a byte-level BPE from texts. It repeatedly merges the pair of neighbouring tokens
// that occurs most often within words. It stops when there are Vocab tokens, or when no pair is
// frequent enough. Among equally frequent pairs it merges the pair with the lowest token numbers.
// Tokens are numbered as Hugging Face's trainer numbers them: special tokens, then bytes in the
// order of GPT-2's characters for them, then merges.
func TrainBPE(texts []string, o TrainOptions) (*BPE, error) {
	if o.MinFrequency == 0 {
		o.MinFrequency = 2
	}
	if o.MinFrequency < 0 || o.Vocab > maxVocab || o.Vocab < 256+len(o.Special) {
		return nil, wrong("", "a vocabulary of %d tokens, from pairs that come %d times, does not hold 256 bytes and %d special tokens", o.Vocab, o.MinFrequency, len(o.Special))
	}
	var sp specials
	added := map[string]int{}
	for i, t := range o.Special {
		if _, twice := added[t]; twice || t == "" {
			return nil, wrong("", "the special token %q is empty or there twice", t)
		}
		added[t] = i
		sp.add(t, i)
	}
	t := trainer{id: map[string]int32{}, wordsOf: map[pair][]int32{}, count: map[pair]int{}}
	for range o.Special {
		t.tokens = append(t.tokens, "")
	}
	order := make([]int, 256)
	for c := range order {
		order[c] = c
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(byteRunes[a], byteRunes[b]) })
	for _, c := range order {
		t.add(string([]byte{byte(c)}))
	}
	counts := map[string]int{}
	for _, s := range texts {
		sp.forEach(s, func(plain string, _ int) {
			for len(plain) > 0 {
				n := piece(plain)
				counts[plain[:n]]++
				plain = plain[n:]
			}
		})
	}
	words := make([]string, 0, len(counts))
	for w := range counts {
		words = append(words, w)
	}
	slices.Sort(words)
	for _, w := range words {
		t.word(w, counts[w])
	}
	var merges [][2]string
	for len(t.tokens) < o.Vocab {
		p, ok := t.best(o.MinFrequency)
		if !ok {
			break
		}
		merges = append(merges, [2]string{t.tokens[p.a], t.tokens[p.b]})
		t.join(p)
	}
	vocab := map[string]int{}
	for s, id := range t.id {
		vocab[s] = int(id)
	}
	b, err := newBPE("", "", vocab, merges)
	if err != nil {
		return nil, err
	}
	return b, b.addSpecial("", added)
}

// A trainer counts the pairs of neighbouring tokens in words.
type trainer struct {
	tokens []string
	id     map[string]int32
	words  []trainWord
	count  map[pair]int
	// wordsOf lists, for each pair, the words that contain it or have contained it. A word may be
	// listed several times.
	wordsOf map[pair][]int32
	heap    candidates
}

type trainWord struct {
	ids []int32
	n   int
}

func (t *trainer) add(s string) int32 {
	if id, ok := t.id[s]; ok { // two different pairs may have the same spelling when merged
		return id
	}
	id := int32(len(t.tokens))
	t.tokens, t.id[s] = append(t.tokens, s), id
	return id
}

func (t *trainer) word(w string, n int) {
	ids := make([]int32, len(w))
	for i := range len(w) {
		ids[i] = t.id[w[i:i+1]]
	}
	at := int32(len(t.words))
	t.words = append(t.words, trainWord{ids, n})
	for i := range len(ids) - 1 {
		p := pair{ids[i], ids[i+1]}
		t.count[p] += n
		if l := t.wordsOf[p]; len(l) == 0 || l[len(l)-1] != at {
			t.wordsOf[p] = append(l, at)
		}
	}
}

// best returns the most frequent pair. ok is false if the pair occurs less than minCount times.
func (t *trainer) best(minCount int) (pair, bool) {
	if t.heap == nil {
		t.heap = make(candidates, 0, len(t.count))
		for p, n := range t.count {
			t.heap = append(t.heap, candidate{p, n})
		}
		heap.Init(&t.heap)
	}
	for len(t.heap) > 0 {
		c := heap.Pop(&t.heap).(candidate)
		n := t.count[c.p]
		if n != c.n { // the count in the heap is too high, because merges have made the pair rarer
			if n > 0 {
				heap.Push(&t.heap, candidate{c.p, n})
			}
			continue
		}
		return c.p, n >= minCount
	}
	return pair{}, false
}

// join replaces a pair in all words by the token of its merged spelling.
func (t *trainer) join(p pair) {
	id := t.add(t.tokens[p.a] + t.tokens[p.b])
	list := t.wordsOf[p]
	slices.Sort(list)
	fresh := map[pair]bool{}
	for _, at := range slices.Compact(list) {
		w := &t.words[at]
		change := func(q pair, n int) {
			t.count[q] += n
			if n > 0 {
				t.wordsOf[q] = append(t.wordsOf[q], at)
				fresh[q] = true
			}
		}
		for i := 0; i+1 < len(w.ids); i++ {
			if w.ids[i] != p.a || w.ids[i+1] != p.b {
				continue
			}
			if i > 0 {
				change(pair{w.ids[i-1], p.a}, -w.n)
				change(pair{w.ids[i-1], id}, w.n)
			}
			if i+2 < len(w.ids) {
				change(pair{p.b, w.ids[i+2]}, -w.n)
				change(pair{id, w.ids[i+2]}, w.n)
			}
			w.ids[i] = id
			w.ids = slices.Delete(w.ids, i+1, i+2)
		}
	}
	delete(t.wordsOf, p)
	delete(t.count, p)
	for q := range fresh {
		if n := t.count[q]; n > 0 {
			heap.Push(&t.heap, candidate{q, n})
		}
	}
}

type candidate struct {
	p pair
	n int
}

// candidates is a heap of pairs. The most frequent pair comes first, and among equally frequent
// pairs the one with the lower token numbers.
type candidates []candidate

func (h candidates) Len() int { return len(h) }

func (h candidates) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(-cmp.Compare(a.n, b.n), cmp.Compare(a.p.a, b.p.a), cmp.Compare(a.p.b, b.p.b)) < 0
}

func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *candidates) Push(x any) { *h = append(*h, x.(candidate)) }

func (h *candidates) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
