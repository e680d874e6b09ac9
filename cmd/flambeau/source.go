package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/tensor"
)

// A source is what --data names, as samples, and what a card says of them.
type source struct {
	train, test data.Dataset
	card        card
	about       string // for people
}

// heldOut is one in how many samples is held back where the data has no part for testing.
const heldOut = 5

// openSource reads the data of a path, of the name of a published set, or for "" the embedded digits. known is the card of weights that
// are to be used on it; of a card without a model only Size counts, and, of the digits, Input: three numbers ask for pictures.
func openSource(ctx context.Context, e *env, path, target string, known *card) (*source, error) {
	if path == "" {
		if known.Model == "" && known.Size > 0 {
			return nil, errors.New("--size is for pictures of --data; the embedded digits have 8×8 pixels")
		}
		return openDigits(len(known.Input) == 3)
	}
	if slices.Contains(vision.Published(), path) && !exists(path) {
		dir, err := vision.Download(ctx, path, "", func(file string, done, total int64) {
			if done == total {
				fmt.Fprintf(e.err, "%s: %d bytes\n", file, done)
			}
		})
		if err != nil {
			return nil, err
		}
		path = dir
	}
	found, err := detect.Path(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) == path {
		return nil, fmt.Errorf("%w; nor is it the name of a published set: %s", err, strings.Join(vision.Published(), ", "))
	}
	if err != nil {
		return nil, err
	}
	if known.Model == "" {
		if known.Size > 0 && (found.Kind == detect.CSV || found.Kind == detect.Text) {
			return nil, fmt.Errorf("--size is for pictures; %s is %s", path, map[detect.Kind]string{detect.CSV: "a table", detect.Text: "a text"}[found.Kind])
		}
		known = &card{Size: known.Size}
	}
	s := &source{}
	switch found.Kind {
	case detect.CSV:
		s, err = openTable(found, target, known)
	case detect.Text:
		s, err = openText(found.Train, known)
	default:
		s, err = openImages(found, known.Size)
	}
	if err != nil {
		return nil, err
	}
	s.card.Data = string(found.Kind)
	return s, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// side is that of a digit.
const side = 8

// openDigits returns the embedded digits, as rows of pixels or as pictures.
func openDigits(pictures bool) (*source, error) {
	set, err := digits.Load()
	if err != nil {
		return nil, err
	}
	train, test := set.Split()
	s := &source{train: train, test: test, card: card{Data: "digits", Input: []int{digits.Pixels}}}
	for i := range digits.Classes {
		s.card.Classes = append(s.card.Classes, fmt.Sprint(i))
	}
	if !pictures {
		return s, nil
	}
	square := func(set data.Dataset) data.Dataset {
		return data.Map(set, func(d data.Sample, _ *rand.Rand) (data.Sample, error) {
			row, ok := d.X.([]float32)
			if !ok {
				return d, fmt.Errorf("a digit is a %T", d.X)
			}
			d.X = tensor.From(row, 1, side, side)
			return d, nil
		})
	}
	s.train, s.test = square(train), square(test)
	return s, s.measure()
}

// split holds samples back for testing, always the same ones.
func split(d data.Dataset) (train, test data.Dataset, err error) {
	n := d.Len()
	if n < heldOut {
		return nil, nil, fmt.Errorf("%d samples are too few to hold one in %d back for testing", n, heldOut)
	}
	const seed = 20240229 // any fixed number: results are comparable only if it never changes
	order := rand.New(rand.NewPCG(seed, 0)).Perm(n)
	held := order[:n/heldOut]
	rest := order[n/heldOut:]
	slices.Sort(held)
	slices.Sort(rest)
	return data.Subset{Of: d, Index: rest}, data.Subset{Of: d, Index: held}, nil
}

// sized are the transforms that bring pictures to squares of a size; none for 0.
func sized(size int) []vision.Transform {
	if size == 0 {
		return nil
	}
	return []vision.Transform{vision.Resize(size), vision.CenterCrop(size), vision.ToTensor()}
}

func openImages(f *detect.Found, size int) (*source, error) {
	part := func(train bool) (data.Dataset, []string, error) {
		images, err := f.Images(train)
		if err != nil || size == 0 {
			return images, classesOf(images), err
		}
		return vision.Apply(images, sized(size)...), images.Classes(), nil
	}
	images, classes, err := part(true)
	if err != nil {
		return nil, err
	}
	s := &source{train: images, card: card{Classes: classes, Size: size}}
	if f.Test != "" {
		test, others, err := part(false)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(others, classes) {
			return nil, fmt.Errorf("the classes in %s are %q, those in %s are %q", f.Test, others, f.Train, classes)
		}
		s.test = test
	} else if s.train, s.test, err = split(images); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Train, err)
	}
	if s.train.Len() == 0 || s.test.Len() == 0 {
		return nil, fmt.Errorf("%s: %d images for training and %d for testing", f.Train, s.train.Len(), s.test.Len())
	}
	return s, s.measure()
}

func classesOf(images vision.Images) []string {
	if images == nil {
		return nil
	}
	return images.Classes()
}

// measure finds the shape of the samples, and mean and deviation of their channels from up to a thousand of them.
func (s *source) measure() error {
	n := s.train.Len()
	step := max(1, n/1000)
	var sum, squares []float64
	count := 0.0
	for i := 0; i < n; i += step {
		sample, err := s.train.Get(i)
		if err != nil {
			return err
		}
		x, ok := sample.X.(*tensor.Tensor)
		if !ok || x.Rank() != 3 {
			return fmt.Errorf("sample %d is a %T and not an image", i, sample.X)
		}
		shape := x.Shape().Slice()
		if i == 0 {
			s.card.Input = slices.Clone(shape)
			sum, squares = make([]float64, shape[0]), make([]float64, shape[0])
		} else if !slices.Equal(shape, s.card.Input) {
			return fmt.Errorf("the images have different sizes: %v and %v; --size N brings them to one", s.card.Input, shape)
		}
		pixels := shape[1] * shape[2]
		for k, v := range x.Floats() {
			sum[k/pixels] += v
			squares[k/pixels] += float64(v * v)
		}
		count += float64(pixels)
		x.Free()
	}
	for c := range sum {
		mean := sum[c] / count
		std := math.Sqrt(max(squares[c]/count-float64(mean*mean), 0))
		if std < 1e-4 { // all of one colour
			std = 1
		}
		s.card.Mean, s.card.Std = append(s.card.Mean, float32(mean)), append(s.card.Std, float32(std))
	}
	return nil
}

func openTable(f *detect.Found, target string, known *card) (*source, error) {
	c := table.Config{Target: target}
	if known.Model != "" {
		c.Columns, c.Target, c.Classes = known.Columns, known.Target, known.Classes
	}
	t, err := f.Table(true, c)
	if err != nil {
		return nil, err
	}
	all, err := t.Dataset()
	if err != nil {
		return nil, err
	}
	s := &source{train: all, card: card{Input: []int{len(t.Columns)}, Classes: t.Classes, Columns: t.Columns, Target: t.Target}}
	if f.Test != "" {
		c.Columns, c.Target, c.Classes = t.Columns, t.Target, t.Classes
		held, err := f.Table(false, c)
		if err != nil {
			return nil, err
		}
		if s.test, err = held.Dataset(); err != nil {
			return nil, err
		}
	} else if s.train, s.test, err = split(all); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Train, err)
	}
	if all.Len() == 0 {
		return nil, fmt.Errorf("%s: the table has no rows", f.Train)
	}
	if !slices.ContainsFunc(t.Columns, func(name string) bool { _, err := strconv.ParseFloat(name, 64); return err != nil }) {
		s.about = fmt.Sprintf("the first line is taken for the names of the columns, though they are %q: a table without such a line needs one", t.Columns[:min(len(t.Columns), 5)])
	}
	x := t.X
	if sub, ok := s.train.(data.Subset); ok {
		index := make([]int64, len(sub.Index))
		for i, v := range sub.Index {
			index[i] = int64(v)
		}
		x = t.X.IndexSelect(0, tensor.From(index))
	}
	for i, m := range x.Mean(0).Floats() {
		std := float32(x.Select(1, i).Std(0).Item())
		if !(std > 1e-12) {
			std = 1
		}
		s.card.Mean, s.card.Std = append(s.card.Mean, float32(m)), append(s.card.Std, std)
	}
	return s, nil
}

// maxText bounds a text that is read into memory.
const maxText = 1 << 30

// openText makes the last tenth of a text the part for testing.
func openText(path string, known *card) (*source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxText {
		return nil, fmt.Errorf("%s: %d bytes; texts of up to %d are read", path, info.Size(), maxText)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%s: the text is not UTF-8", path)
	}
	corpus := string(b)
	if known.Chars != "" {
		corpus = known.Chars
	}
	chars, err := text.NewChars(corpus)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	ids, err := chars.Encode(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	context := models.CharGPTDefaults().Config.Context
	if known.GPT != nil {
		context = known.GPT.Context
	}
	cut := len(ids) - len(ids)/10
	if len(ids)-cut < context+1 {
		return nil, fmt.Errorf("%s: %d characters are too few; at least %d are needed", path, len(ids), 10*(context+1))
	}
	train, err := text.NewBlocks(ids[:cut], context, context/4)
	if err != nil {
		return nil, err
	}
	test, err := text.NewBlocks(ids[cut:], context, 0)
	if err != nil {
		return nil, err
	}
	return &source{train: train, test: test, card: card{Chars: chars.String()}, about: fmt.Sprintf(
		"%d characters, %d different ones; a letter by its frequency alone costs %.3f nats", len(ids), chars.Vocab(), entropy(ids[cut:], ids[:cut], chars.Vocab()))}, nil
}

// entropy is the mean cost, in nats, of tokens by their frequencies in a training part, with one added to each count.
func entropy(test, train []int, vocab int) float64 {
	count := make([]float64, vocab)
	for i := range count {
		count[i] = 1
	}
	for _, id := range train {
		count[id]++
	}
	sum := 0.0
	for _, id := range test {
		sum -= math.Log(count[id] / float64(len(train)+vocab))
	}
	return sum / float64(len(test))
}

var errNoClasses = errors.New("the data has no classes")
