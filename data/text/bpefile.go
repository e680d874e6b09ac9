package text

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/internal/atomicfile"
)

// maxFile is the largest accepted size of a tokenizer's file, 256 MiB. GPT-2's files have about a
// megabyte. The largest known vocabularies have about thirty megabytes.
const maxFile = 256 << 20

// byteRunes maps each byte to the visible character that GPT-2 writes for it. Printable Latin-1
// characters stand for themselves. All other bytes become U+0100, U+0101 and so on, in ascending
// order.
var byteRunes = func() (t [256]rune) {
	n := rune(256)
	for c := range t {
		if c >= '!' && c <= '~' || c >= 0xA1 && c <= 0xAC || c >= 0xAE {
			t[c] = rune(c)
		} else {
			t[c] = n
			n++
		}
	}
	return t
}()

var runeBytes = func() map[rune]byte {
	m := map[rune]byte{}
	for c, r := range byteRunes {
		m[r] = byte(c)
	}
	return m
}()

// visible converts bytes to the characters of byteRunes.
func visible(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(byteRunes[s[i]])
	}
	return b.String()
}

// raw is the inverse of visible. ok is false if s has a character that visible never writes.
func raw(s string) (out string, ok bool) {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		c, ok := runeBytes[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}

// readFile reads a file. A file of more than maxFile bytes is an error.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, wrong(path, "this is not a file of at most %d MiB", maxFile>>20)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("text: %w", err)
	}
	return data, nil
}

// LoadBPE reads GPT-2's two files, vocab.json and merges.txt. If the vocabulary has
// "<|endoftext|>", it is a special token. The error is an *[Error] or an error of the file system.
func LoadBPE(vocabPath, mergesPath string) (*BPE, error) {
	data, err := readFile(vocabPath)
	if err != nil {
		return nil, err
	}
	var vocab map[string]int
	if err := json.Unmarshal(data, &vocab); err != nil {
		return nil, wrong(vocabPath, "this is not a JSON object of tokens and numbers: %v", err)
	}
	if data, err = readFile(mergesPath); err != nil {
		return nil, err
	}
	var merges [][2]string
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line == "" || i == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, wrong(mergesPath, "line %d is %q, not two tokens", i+1, line)
		}
		merges = append(merges, [2]string{a, b})
	}
	return bpeOfVisible(vocabPath, mergesPath, vocab, merges, map[string]int{})
}

// endOfText is the only special token of GPT-2.
const endOfText = "<|endoftext|>"

// bpeOfVisible makes a tokenizer from a vocabulary and merges, both written in GPT-2's visible
// characters.
func bpeOfVisible(vocabPath, mergesPath string, vocab map[string]int, merges [][2]string, added map[string]int) (*BPE, error) {
	plain := make(map[string]int, len(vocab))
	if id, ok := vocab[endOfText]; ok {
		added[endOfText] = id
	}
	for t, id := range vocab {
		if at, ok := added[t]; ok {
			if at != id {
				return nil, wrong(vocabPath, "the special token %q has the numbers %d and %d", t, at, id)
			}
			continue
		}
		b, ok := raw(t)
		if !ok {
			return nil, wrong(vocabPath, "the token %q is not written in GPT-2's characters for bytes", t)
		}
		plain[b] = id
	}
	list := make([][2]string, len(merges))
	for i, m := range merges {
		for k := range 2 {
			b, ok := raw(m[k])
			if !ok {
				return nil, wrong(mergesPath, "merge %d has %q, which is not written in GPT-2's characters for bytes", i, m[k])
			}
			list[i][k] = b
		}
	}
	b, err := newBPE(vocabPath, mergesPath, plain, list)
	if err != nil {
		return nil, err
	}
	return b, b.addSpecial(vocabPath, added)
}

func (b *BPE) addSpecial(path string, added map[string]int) error {
	most := len(b.tokens) - 1
	for t, id := range added {
		switch {
		case t == "":
			return wrong(path, "the special token %d is empty", id)
		case id < 0 || id >= maxVocab || id > len(b.tokens)+2*len(added)+1000:
			return wrong(path, "the special token %q has the number %d", t, id)
		}
		most = max(most, id)
	}
	b.tokens = append(b.tokens, make([]string, most+1-len(b.tokens))...)
	for t, id := range added {
		if b.tokens[id] != "" {
			return wrong(path, "the tokens %q and %q have the same number %d", b.tokens[id], t, id)
		}
		b.tokens[id] = t
		b.special.add(t, id)
	}
	return nil
}

// Save writes the two files that [LoadBPE] and Hugging Face's GPT2Tokenizer read. It first writes
// each to a temporary file, and then renames it. The only special token that these files can have
// is "<|endoftext|>". If the tokenizer has other special tokens, or puts a space before text, Save
// returns an *[Error].
func (b *BPE) Save(vocabPath, mergesPath string) error {
	if b.prefix {
		return wrong(vocabPath, "that a space is put before text cannot be written in this form")
	}
	vocab := map[string]int{}
	for id, t := range b.tokens {
		at, special := b.special.id[t]
		switch {
		case t == "":
		case special && at == id && t != endOfText:
			return wrong(vocabPath, "the special token %q cannot be written in this form", t)
		case special && at == id:
			vocab[t] = id
		default:
			vocab[visible(t)] = id
		}
	}
	text, err := json.Marshal(vocab)
	if err != nil {
		return fmt.Errorf("text: %w", err)
	}
	if err := writeFile(vocabPath, func(w *bufio.Writer) { w.Write(text) }); err != nil {
		return err
	}
	return writeFile(mergesPath, func(w *bufio.Writer) {
		fmt.Fprintln(w, "#version: 0.2")
		for _, p := range b.pairs {
			fmt.Fprintf(w, "%s %s\n", visible(b.tokens[p.a]), visible(b.tokens[p.b]))
		}
	})
}

// writeFile writes a file completely, or leaves an existing file unchanged.
func writeFile(path string, fill func(w *bufio.Writer)) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return fmt.Errorf("text: %w", err)
	}
	defer f.Abort()
	w := bufio.NewWriter(f)
	fill(w)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("text: %w", err)
	}
	if err := f.Commit(); err != nil {
		return fmt.Errorf("text: %w", err)
	}
	return nil
}

// tokenizerJSON holds the fields of Hugging Face's tokenizer.json that LoadTokenizerJSON reads.
type tokenizerJSON struct {
	Added []struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
	} `json:"added_tokens"`
	Normalizer    *struct{ Type string } `json:"normalizer"`
	PreTokenizer  *byteLevel             `json:"pre_tokenizer"`
	PostProcessor *struct{ Type string } `json:"post_processor"`
	Model         struct {
		Type         string          `json:"type"`
		Dropout      *float64        `json:"dropout"`
		Prefix       *string         `json:"continuing_subword_prefix"`
		Suffix       *string         `json:"end_of_word_suffix"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
	} `json:"model"`
}

type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
}

// LoadTokenizerJSON reads a tokenizer.json of Hugging Face's tokenizers library. It must hold a
// byte-level BPE whose text is split as in GPT-2. If the file has a setting that this package does
// not support, the error is an *[Error]. Examples are another model, normalizer or splitter, and
// tokens added around text. No setting is silently ignored.
func LoadTokenizerJSON(path string) (*BPE, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var f tokenizerJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, wrong(path, "this is not a tokenizer.json: %v", err)
	}
	pre := f.PreTokenizer
	switch m := f.Model; {
	case m.Type != "BPE":
		return nil, wrong(path, "the model is %q, not BPE", m.Type)
	case pre == nil || pre.Type != "ByteLevel" || pre.UseRegex != nil && !*pre.UseRegex:
		return nil, wrong(path, "text is not split by ByteLevel with its pattern; other ways are not supported")
	case f.Normalizer != nil:
		return nil, wrong(path, "a normalizer %q is not supported", f.Normalizer.Type)
	case f.PostProcessor != nil && f.PostProcessor.Type != "ByteLevel":
		return nil, wrong(path, "a post-processor %q is not supported", f.PostProcessor.Type)
	case m.Dropout != nil && *m.Dropout != 0 || m.ByteFallback || m.IgnoreMerges || m.Prefix != nil && *m.Prefix != "" || m.Suffix != nil && *m.Suffix != "":
		return nil, wrong(path, "dropout, byte_fallback, ignore_merges, prefixes and suffixes are not supported")
	}
	var vocab map[string]int
	if err := json.Unmarshal(f.Model.Vocab, &vocab); err != nil {
		return nil, wrong(path, "the vocabulary is not an object of tokens and numbers: %v", err)
	}
	var merges [][2]string
	var pairs [][]string
	var lines []string
	// Older files have a string "a b" for each merged pair.
	if json.Unmarshal(f.Model.Merges, &pairs) != nil {
		pairs = nil
		if err := json.Unmarshal(f.Model.Merges, &lines); err != nil {
			return nil, wrong(path, "the merges are neither pairs nor lines: %v", err)
		}
		for _, l := range lines {
			pairs = append(pairs, strings.Split(l, " "))
		}
	}
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, wrong(path, "merge %d is %q, not two tokens", i, p)
		}
		merges = append(merges, [2]string{p[0], p[1]})
	}
	added := map[string]int{}
	for _, a := range f.Added {
		if a.SingleWord || a.LStrip || a.RStrip {
			return nil, wrong(path, "the special token %q takes in what is around it, which is not supported", a.Content)
		}
		if id, ok := added[a.Content]; ok && id != a.ID {
			return nil, wrong(path, "the special token %q has the numbers %d and %d", a.Content, id, a.ID)
		}
		added[a.Content] = a.ID
	}
	b, err := bpeOfVisible(path, path, vocab, merges, added)
	if err != nil {
		return nil, err
	}
	b.prefix = pre.AddPrefixSpace
	return b, nil
}

// Special returns the special tokens, ordered by number.
func (b *BPE) Special() []string {
	list := make([]string, 0, len(b.special.id))
	for t := range b.special.id {
		list = append(list, t)
	}
	slices.SortFunc(list, func(x, y string) int { return b.special.id[x] - b.special.id[y] })
	return list
}
