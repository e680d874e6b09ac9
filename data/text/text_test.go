package text_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/tensor"
)

// Decode returns the bytes that were given to Encode, even if they are not valid UTF-8.
func TestRoundTrip(t *testing.T) {
	b := bpe(t, load(t))
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "e", " ", "  ", "\n", "'s", "lamp", "💡", "灯", "\xff", "\xe7\x81", "1", "!", "\u00a0", "<|endoftext|>", "<|pad"}
	for range 3000 {
		var s string
		for range rng.IntN(40) {
			if rng.IntN(4) == 0 {
				s += string([]byte{byte(rng.IntN(256))})
			} else {
				s += alphabet[rng.IntN(len(alphabet))]
			}
		}
		for _, k := range []text.Tokenizer{b, text.Bytes{}} {
			if back, err := k.Decode(encode(t, k, s)); back != s {
				t.Fatalf("%T: %q comes back as %q, %v", k, s, back, err)
			}
		}
		ids := b.EncodeOrdinary(s)
		if back, _ := b.Decode(ids); back != s || slices.Contains(ids, 0) {
			t.Fatalf("%q without special tokens is %v", s, ids)
		}
	}
}

// join encodes a word by the definition of byte-pair encoding. It repeatedly merges the pair of the
// lowest rank, until no pair has a rank. Among pairs of the same rank it merges the first.
func join(rank map[[2]string]int, w string) (parts []string) {
	for i := range len(w) {
		parts = append(parts, w[i:i+1])
	}
	for {
		best := -1
		for i := range len(parts) - 1 {
			r, ok := rank[[2]string{parts[i], parts[i+1]}]
			if ok && (best < 0 || r < rank[[2]string{parts[best], parts[best+1]}]) {
				best = i
			}
		}
		if best < 0 {
			return parts
		}
		parts[best] += parts[best+1]
		parts = slices.Delete(parts, best+1, best+2)
	}
}

// Encode gives the same tokens as the definition of byte-pair encoding, for short and long words.
// This holds even if the merges are in an order that training would not produce.
func TestJoinIsTheDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		vocab, merges, rank := map[string]int{}, []string{}, map[[2]string]int{}
		n := rune(256)
		for c := range 256 {
			r := rune(c)
			if c < '!' || c > '~' && c < 0xA1 || c == 0xAD {
				r, n = n, n+1
			}
			vocab[string(r)] = c
		}
		parts := []string{"a", "b", "c"}
		for range 25 {
			x, y := parts[rng.IntN(len(parts))], parts[rng.IntN(len(parts))]
			p := [2]string{x, y}
			if _, twice := rank[p]; twice || len(x+y) > 12 {
				continue
			}
			rank[p] = len(rank)
			merges = append(merges, x+" "+y)
			if _, ok := vocab[x+y]; !ok {
				vocab[x+y] = len(vocab)
				parts = append(parts, x+y)
			}
		}
		text1, _ := json.Marshal(vocab)
		b, err := text.LoadBPE(write(t, "vocab.json", string(text1)), write(t, "merges.txt", strings.Join(merges, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			var w strings.Builder
			for range rng.IntN(90) + 1 {
				w.WriteByte("abc"[rng.IntN(3)])
			}
			var want []int
			for _, p := range join(rank, w.String()) {
				want = append(want, vocab[p])
			}
			if got := encode(t, b, w.String()); !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", w.String(), got, want)
			}
		}
	}
}

func TestConcurrent(t *testing.T) {
	r := load(t)
	b := bpe(t, r)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i, s := range r.Texts {
				if got, _ := b.Encode(s); !slices.Equal(got, r.BPE[i]) {
					t.Errorf("%q: %v", s, got)
				}
			}
		})
	}
	wg.Wait()
}

// The files that Save writes load as an equal tokenizer. If FLAMBEAU_EXCHANGE names a directory,
// the test writes the files and the tokens of the texts there. _golden/exchange_language.py then
// reads the directory with the tokenizers library.
func TestSave(t *testing.T) {
	r := load(t)
	b, err := text.TrainBPE(r.Corpus, text.TrainOptions{Vocab: 400, Special: []string{"<|endoftext|>"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if exchange := os.Getenv("FLAMBEAU_EXCHANGE"); exchange != "" {
		dir = filepath.Join(exchange, "text")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	vocab, merges := filepath.Join(dir, "vocab.json"), filepath.Join(dir, "merges.txt")
	if err := b.Save(vocab, merges); err != nil {
		t.Fatal(err)
	}
	again, err := text.LoadBPE(vocab, merges)
	if err != nil {
		t.Fatal(err)
	}
	w, err := text.NewWordPiece(r.Vocab, text.WordPieceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Save(filepath.Join(dir, "vocab.txt")); err != nil {
		t.Fatal(err)
	}
	w2, err := text.LoadWordPiece(filepath.Join(dir, "vocab.txt"), text.WordPieceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Texts {
		if !slices.Equal(encode(t, b, s), encode(t, again, s)) || !slices.Equal(encode(t, w, s), encode(t, w2, s)) {
			t.Errorf("%q has other tokens", s)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("files are left: %v", left)
	}
	var said [][2][]int
	for _, s := range r.Texts {
		said = append(said, [2][]int{encode(t, b, s), encode(t, w, s)})
	}
	told, err := json.Marshal(map[string]any{"texts": r.Texts, "ids": said})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "told.json"), told, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bpe(t, r).Save(vocab, merges); err == nil {
		t.Error("other special tokens cannot be saved")
	}
	if err := b.Save(filepath.Join(dir, "no", "vocab.json"), merges); err == nil {
		t.Error("there is no such folder")
	}
}

func TestSpecialAndTokens(t *testing.T) {
	r := load(t)
	b := bpe(t, r)
	if id, ok := b.Token("<|pad|>>"); !ok || id != 2 || fmt.Sprint(b.Special()) != "[<|endoftext|> <|pad|> <|pad|>>]" {
		t.Errorf("%d %v %v", id, ok, b.Special())
	}
	if id, ok := b.Token("a"); !ok || encode(t, b, "a")[0] != id {
		t.Errorf("a is %d", id)
	}
	if _, ok := b.Token("no such token"); ok {
		t.Error("there is no such token")
	}
	w, err := text.NewWordPiece(r.Vocab, text.WordPieceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := w.Token("[SEP]"); !ok || id != 3 {
		t.Errorf("[SEP] is %d", id)
	}
	a, c := "the lamp was lit", "the keeper slept"
	x, y := encode(t, w, a), encode(t, w, c)
	ids, types, err := w.Pair(a, c, 0)
	want := slices.Concat([]int{2}, x, []int{3}, y, []int{3})
	if err != nil || !slices.Equal(ids, want) || len(types) != len(ids) || types[len(x)+1] != 0 || types[len(x)+2] != 1 {
		t.Errorf("%v %v, want %v; %v", ids, types, want, err)
	}
	if ids, types, err = w.Pair(a, "", 4); err != nil || !slices.Equal(ids, []int{2, x[0], x[1], 3}) || !slices.Equal(types, make([]int, 4)) {
		t.Errorf("%v %v %v", ids, types, err)
	}
	if ids, _, err = w.Pair(a+" "+a, c, 7); err != nil || !slices.Equal(ids, []int{2, x[0], x[1], 3, y[0], y[1], 3}) {
		t.Errorf("%v %v", ids, err)
	}
	if _, _, err = w.Pair(a, c, 2); err == nil {
		t.Error("there is no room")
	}
}

func TestBadFiles(t *testing.T) {
	r := load(t)
	var whole map[string]any
	if err := json.Unmarshal([]byte(r.JSON), &whole); err != nil {
		t.Fatal(err)
	}
	changed := func(f func(m map[string]any)) string {
		var c map[string]any
		if err := json.Unmarshal([]byte(r.JSON), &c); err != nil {
			t.Fatal(err)
		}
		f(c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	model := func(c map[string]any) map[string]any { return c["model"].(map[string]any) }
	vocab := func(c map[string]any) map[string]any { return model(c)["vocab"].(map[string]any) }
	for want, content := range map[string]string{
		"not a tokenizer.json":     "{",
		`the model is ""`:          "{}",
		`the model is "WordPiece"`: changed(func(c map[string]any) { model(c)["type"] = "WordPiece" }),
		"not split by ByteLevel":   changed(func(c map[string]any) { c["pre_tokenizer"] = map[string]any{"type": "Split"} }),
		`a normalizer "NFC"`:       changed(func(c map[string]any) { c["normalizer"] = map[string]any{"type": "NFC"} }),
		"a post-processor":         changed(func(c map[string]any) { c["post_processor"] = map[string]any{"type": "TemplateProcessing"} }),
		"byte_fallback":            changed(func(c map[string]any) { model(c)["byte_fallback"] = true }),
		"not an object of tokens":  changed(func(c map[string]any) { model(c)["vocab"] = []int{1} }),
		"neither pairs nor lines":  changed(func(c map[string]any) { model(c)["merges"] = "x" }),
		"not two tokens":           changed(func(c map[string]any) { model(c)["merges"] = [][]string{{"a"}} }),
		"these and the whole":      changed(func(c map[string]any) { model(c)["merges"] = [][]string{{"q", "ZZ"}} }),
		"there twice":              changed(func(c map[string]any) { l := model(c)["merges"].([]any); model(c)["merges"] = append(l, l[0]) }),
		"takes in what is around":  changed(func(c map[string]any) { c["added_tokens"].([]any)[0].(map[string]any)["lstrip"] = true }),
		"has the number 1e9":       changed(func(c map[string]any) { vocab(c)["zzz"] = 1e9 }),
		"the greatest number":      changed(func(c map[string]any) { vocab(c)["zzz"] = 1e6 }),
		"same number":              changed(func(c map[string]any) { vocab(c)["zzz"] = 100 }),
		"has no token":             changed(func(c map[string]any) { delete(vocab(c), "a") }),
		"is empty":                 changed(func(c map[string]any) { vocab(c)[""] = 600 }),
		"GPT-2's characters":       changed(func(c map[string]any) { vocab(c)["灯"] = 600 }),
		"has the numbers":          changed(func(c map[string]any) { vocab(c)["<|pad|>"] = 600 }),
		`special token "<|pad|>" has`: changed(func(c map[string]any) {
			delete(vocab(c), "<|pad|>")
			c["added_tokens"].([]any)[1].(map[string]any)["id"] = 1e6
		}),
	} {
		_, err := text.LoadTokenizerJSON(write(t, "tokenizer.json", content))
		var e *text.Error
		if want = strings.Replace(want, "1e9", "1000000000", 1); !errors.As(err, &e) || !strings.Contains(e.Error(), want) || e.Path == "" {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	old := changed(func(c map[string]any) { // older files have merges as strings
		var lines []string
		for _, p := range model(c)["merges"].([]any) {
			lines = append(lines, fmt.Sprint(p.([]any)[0], " ", p.([]any)[1]))
		}
		model(c)["merges"] = lines
		c["pre_tokenizer"].(map[string]any)["add_prefix_space"] = true
	})
	b, err := text.LoadTokenizerJSON(write(t, "tokenizer.json", old))
	if err != nil || !slices.Equal(encode(t, b, "lamp"), encode(t, bpe(t, r), " lamp")) || !slices.Equal(encode(t, b, " lamp"), encode(t, b, "lamp")) {
		t.Errorf("the older form, with a space put before: %v", err)
	}
	good := write(t, "merges.txt", "#version: 0.2\n")
	for _, p := range [][2]string{{write(t, "vocab.json", "[]"), good}, {t.TempDir(), good}, {filepath.Join(t.TempDir(), "none"), good}, {write(t, "vocab.json", "{}"), good},
		{write(t, "vocab.json", "{}"), write(t, "merges.txt", "a b c\n")}} {
		if _, err := text.LoadBPE(p[0], p[1]); err == nil {
			t.Errorf("%v is taken", p)
		}
	}
	for want, vocab := range map[string][]string{"no token [UNK]": {"a"}, "there twice": {"[UNK]", "a", "a"}, "is empty": {"[UNK]", ""}} {
		if _, err := text.LoadWordPiece(write(t, "vocab.txt", strings.Join(vocab, "\n")+"\n"), text.WordPieceOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, o := range []text.WordPieceOptions{{MaxChars: -1}, {Special: []string{"[X]"}}} {
		if _, err := text.NewWordPiece([]string{"[UNK]"}, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	for _, o := range []text.TrainOptions{{Vocab: 255}, {Vocab: 257, Special: []string{"x", "x"}}, {Vocab: 300, MinFrequency: -1}, {Vocab: 1 << 30}} {
		if _, err := text.TrainBPE(nil, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestNumbersThatAreNoTokens(t *testing.T) {
	r := load(t)
	w, err := text.NewWordPiece(r.Vocab, text.WordPieceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := text.NewChars("abc")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []text.Tokenizer{bpe(t, r), w, c, text.Bytes{}} {
		for _, id := range []int{-1, k.Vocab()} {
			var e *text.Error
			if _, err := k.Decode([]int{0, id}); !errors.As(err, &e) {
				t.Errorf("%T decodes %d: %v", k, id, err)
			}
		}
		if _, err := k.Decode([]int{0, k.Vocab() - 1}); err != nil {
			t.Errorf("%T: %v", k, err)
		}
	}
}

func TestChars(t *testing.T) {
	c, err := text.NewChars("the lamp 灯\n\uFFFD")
	if err != nil {
		t.Fatal(err)
	}
	again, err := text.NewChars(c.String())
	if err != nil || again.String() != c.String() || c.Vocab() != utf8.RuneCountInString(c.String()) || c.String() != "\n aehlmpt灯\uFFFD" {
		t.Errorf("%q %q %v", c, again, err)
	}
	s := "map the 灯 \uFFFD"
	if back, err := c.Decode(encode(t, c, s)); back != s {
		t.Errorf("%q %v", back, err)
	}
	for _, s := range []string{"x", "a\xff"} {
		if _, err := c.Encode(s); err == nil {
			t.Errorf("%q has tokens", s)
		}
	}
	for _, s := range []string{"", "a\xff"} {
		if _, err := text.NewChars(s); err == nil {
			t.Errorf("characters of %q", s)
		}
	}
}

func TestBlocks(t *testing.T) {
	ids := make([]int, 23)
	for i := range ids {
		ids[i] = i * i
	}
	for _, r := range []struct{ length, stride, n, last int }{{5, 0, 4, 15}, {5, 1, 18, 17}, {22, 0, 1, 0}, {7, 3, 6, 15}} {
		b, err := text.NewBlocks(ids, r.length, r.stride)
		if err != nil || b.Len() != r.n {
			t.Fatalf("%+v: %d blocks, %v", r, b.Len(), err)
		}
		s, err := b.Get(r.n - 1)
		if err != nil {
			t.Fatal(err)
		}
		for k := range r.length {
			if at := r.last + k; s.X.([]int64)[k] != int64(at*at) || s.Y.([]int64)[k] != int64((at+1)*(at+1)) {
				t.Errorf("%+v: %v", r, s)
			}
		}
		x, y, err := b.GetBatch([]int{r.n - 1, 0})
		if err != nil || !slices.Equal(tensor.Data[int64](x.Select(0, 0)), s.X.([]int64)) || !slices.Equal(tensor.Data[int64](y.Select(0, 0)), s.Y.([]int64)) || y.Select(0, 1).Select(0, 0).Item() != 1 {
			t.Errorf("%+v: %v %v %v", r, x, y, err)
		}
		for _, i := range []int{-1, r.n} {
			_, err1 := b.Get(i)
			_, _, err2 := b.GetBatch([]int{i})
			if err1 == nil || err2 == nil {
				t.Errorf("block %d of %d", i, r.n)
			}
		}
	}
	for _, f := range []func() (*text.Blocks, error){
		func() (*text.Blocks, error) { return text.NewBlocks(ids, 23, 0) },
		func() (*text.Blocks, error) { return text.NewBlocks(ids, 0, 0) },
		func() (*text.Blocks, error) { return text.NewBlocks(ids, 2, -1) },
		func() (*text.Blocks, error) { return text.NewBlocks([]int{1, -2, 3}, 2, 0) },
	} {
		if _, err := f(); err == nil {
			t.Error("taken")
		}
	}
	b, _ := text.NewBlocks(ids, 5, 1)
	l, err := data.NewLoader(b, data.Config{Batch: 4, Shuffle: true, Seed: 1, Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for batch, err := range l.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		n += batch.X.Dim(0)
	}
	if n != 18 {
		t.Errorf("%d blocks came", n)
	}
}

func TestPad(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		ids, mask, err := text.Pad(s, [][]int{{1, 2}, {}, {3, 4, 5}}, 9)
		if err != nil || fmt.Sprint(ids.Floats(), mask.Floats()) != "[1 2 9 9 9 9 3 4 5] [1 1 0 0 0 0 1 1 1]" || ids.Scope() != s {
			t.Error(ids, mask, err)
		}
		if _, _, err := text.Pad(s, [][]int{{}}, 0); err == nil {
			t.Error("no tokens")
		}
	})
}

// FuzzBPE checks Encode and Decode for any bytes. Encode does not fail and returns tokens less than
// Vocab, and Decode returns the bytes.
func FuzzBPE(f *testing.F) {
	r := load(f)
	b := bpe(f, r)
	for _, s := range r.Texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, ids := range [][]int{encode(t, b, s), b.EncodeOrdinary(s)} {
			if back, err := b.Decode(ids); err != nil || back != s || len(ids) > len(s) {
				t.Fatalf("%q: %v, back %q, %v", s, ids, back, err)
			}
		}
	})
}

// FuzzWordPiece checks that Encode accepts any bytes, and that the decoded text has the same
// tokens.
func FuzzWordPiece(f *testing.F) {
	r := load(f)
	for _, s := range r.Texts {
		f.Add(s, uint8(0))
	}
	f.Fuzz(func(t *testing.T, s string, kind uint8) {
		w, err := text.NewWordPiece(r.Vocab, text.WordPieceOptions{Cased: kind&1 != 0, KeepAccents: kind&2 != 0, StripCased: kind&4 != 0, NoChinese: kind&8 != 0, MaxChars: int(kind >> 4)})
		if err != nil {
			t.Fatal(err)
		}
		ids := encode(t, w, s)
		back, err := w.Decode(ids)
		if err != nil {
			t.Fatal(err)
		}
		if unk, _ := w.Token("[UNK]"); !slices.Contains(ids, unk) && len(ids) > 0 {
			if again := encode(t, w, back); !slices.Equal(again, ids) {
				t.Fatalf("%q is %v, and decoded to %q %v", s, ids, back, again)
			}
		}
	})
}

// FuzzTokenizerFile checks that loading any file returns a working tokenizer or an error.
func FuzzTokenizerFile(f *testing.F) {
	f.Add(load(f).JSON)
	f.Add(`{"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel"}}`)
	dir := f.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	f.Fuzz(func(t *testing.T, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := text.LoadTokenizerJSON(path)
		if err != nil {
			return
		}
		if _, err := b.Decode(encode(t, b, "the lamp\xff")); err != nil {
			t.Fatal(err)
		}
	})
}
