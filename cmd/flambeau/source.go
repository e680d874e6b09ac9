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
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/tensor"
)

// A source is the data of --data as samples, with their description for the card.
type source struct {
	train data.Dataset // training part, or all samples before prepare
	test  data.Dataset // test part; nil before prepare if the data has none
	parts bool         // whether the data itself has a training and a test part
	noun  string       // word for the samples in messages
	card  card         // description of the data; its Mean and Std are set by prepare
	about []string     // lines of output that describe the data
	rows  *table.Table // contents of a table; nil for other data
	// text is the data if the data is a text, otherwise nil. For a text, prepare sets train and
	// test.
	text *corpus

	// content returns the bytes of sample i of train. A value of type trained identifies the sample
	// by the hash of these bytes. content must be called before prepare changes train.
	content func(i int) ([]byte, error)
}

// heldOut determines the size of the test part if the data itself has no such part: one of every
// heldOut samples is held out.
const heldOut = 5

// A request describes the data that a command needs.
type request struct {
	path  string
	known *card // card of the weights that are used with the data; nil in a training
	model string
	size  int
	tableFlags
}

// openSource opens the data at a path, or a published data set. The path "" means the embedded
// digits.
func openSource(ctx context.Context, e *env, q request) (*source, error) {
	path, known := q.path, q.known
	if path == "" {
		if known == nil && q.size > 0 {
			return nil, errors.New("--size is for pictures of --data; the embedded digits have 8×8 pixels")
		}
		if flag := q.setFlag(); flag != "" {
			return nil, errors.New(flag + " is for tables of --data; the embedded digits are none")
		}
		return openDigits(known != nil && len(known.Input) == 3 || known == nil && pictorial(q.model))
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
	if form := formOf(found.Kind); q.size > 0 && form != "pictures" {
		return nil, fmt.Errorf("--size is for pictures; %s holds %s", path, form)
	}
	if flag := q.setFlag(); flag != "" && found.Kind != detect.CSV {
		return nil, fmt.Errorf("%s is for tables; %s is none", flag, path)
	}
	if wants := known.form(); wants != "" && wants != formOf(found.Kind) {
		return nil, fmt.Errorf("the model was trained on %s; %s holds %s", wants, path, formOf(found.Kind))
	}
	var s *source
	switch found.Kind {
	case detect.CSV:
		s, err = openTable(e, found, q)
	case detect.Text:
		s, err = openText(found.Train, known)
	default:
		s, err = openImages(found, q)
	}
	if err != nil {
		return nil, err
	}
	s.card.Data = string(found.Kind)
	return s, nil
}

// formOf returns a word for a kind of data.
func formOf(kind detect.Kind) string {
	switch kind {
	case detect.CSV:
		return "a table"
	case detect.Text:
		return "a text"
	}
	return "pictures"
}

// form returns formOf's word for the model's training data, or "" if the card does not describe the
// data or is nil.
func (c *card) form() string {
	switch {
	case c == nil:
		return ""
	case c.Chars != "":
		return "a text"
	case len(c.Columns) > 0:
		return "a table"
	case len(c.Input) == 3:
		return "pictures"
	}
	return ""
}

// pictorial reports whether a model accepts only images.
func pictorial(model string) bool { return model != "" && model != "mlp" && model != "gpt" }

// prepare splits the data into a training and a test part. It also computes the mean and the
// standard deviation of the training samples.
func (s *source) prepare() error {
	if s.text != nil {
		return s.text.split(s)
	}
	if !s.parts {
		train, test, err := split(s.train)
		if err != nil {
			return err
		}
		s.train, s.test = train, test
	}
	if s.train.Len() == 0 || s.test.Len() == 0 {
		return fmt.Errorf("%d %s for training and %d for testing", s.train.Len(), s.noun, s.test.Len())
	}
	return s.measure()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// side is the width and the height of a digit in pixels.
const side = 8

// openDigits returns the embedded digits, either as rows of numbers or as images.
func openDigits(pictures bool) (*source, error) {
	set, err := digits.Load()
	if err != nil {
		return nil, err
	}
	train, test := set.Split()
	s := &source{train: train, test: test, parts: true, noun: "digits", card: card{Data: "digits", Input: []int{digits.Pixels}}}
	for i := range digits.Classes {
		s.card.Classes = append(s.card.Classes, fmt.Sprint(i))
	}
	if !pictures {
		return s, nil
	}
	s.card.Input = []int{1, side, side}
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
	return s, nil
}

// split divides samples into a training and a test part. The same data is always divided in the
// same way.
func split(d data.Dataset) (train, test data.Dataset, err error) {
	n := d.Len()
	if n < heldOut {
		return nil, nil, fmt.Errorf("%d samples are too few to hold one in %d back for testing", n, heldOut)
	}
	// This number must never change, or results of different versions could not be compared.
	const seed = 20240229
	order := rand.New(rand.NewPCG(seed, 0)).Perm(n)
	held := order[:n/heldOut]
	rest := order[n/heldOut:]
	slices.Sort(held)
	slices.Sort(rest)
	return data.Subset{Of: d, Index: rest}, data.Subset{Of: d, Index: held}, nil
}

// sized returns the transforms that resize images to squares of the given side, or none if the side
// is 0.
func sized(size int) []vision.Transform {
	if size == 0 {
		return nil
	}
	return []vision.Transform{vision.Resize(size), vision.CenterCrop(size), vision.ToTensor()}
}

func openImages(f *detect.Found, q request) (*source, error) {
	size, note := q.size, ""
	if q.known != nil {
		size = q.known.Size
	}
	part := func(train bool) (vision.Images, error) {
		images, err := f.Images(train, vision.Decode{Size: size})
		if folder, ok := images.(*vision.Folder); ok && train && size == 0 && q.known == nil {
			if size, note, err = commonSize(folder, q.model); err == nil && size > 0 {
				images, err = f.Images(train, vision.Decode{Size: size})
			}
		}
		if err != nil || size == 0 {
			return images, err
		}
		return vision.Apply(images, sized(size)...), nil
	}
	images, err := part(true)
	if err != nil {
		return nil, err
	}
	s := &source{train: images, parts: f.Test != "", noun: "pictures", card: card{Classes: images.Classes(), Size: size}}
	if note != "" {
		s.about = append(s.about, note)
	}
	s.content = pixelsOf(images)
	if s.parts {
		test, err := part(false)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(test.Classes(), images.Classes()) {
			return nil, fmt.Errorf("the classes in %s are %q, those in %s are %q", f.Test, test.Classes(), f.Train, images.Classes())
		}
		s.test = test
	}
	if q.known != nil && len(q.known.Classes) > 0 {
		if err := s.relabel(q.known.Classes); err != nil {
			return nil, err
		}
	}
	if images.Len() > 0 {
		m, _, err := images.Image(0)
		if err != nil {
			return nil, err
		}
		s.card.Input = []int{m.C, m.H, m.W}
	}
	return s, nil
}

// relabel gives the classes of images the numbers that they have in a model, which may have more
// classes.
func (s *source) relabel(classes []string) error {
	if slices.Equal(s.card.Classes, classes) {
		return nil
	}
	number := make([]int64, len(s.card.Classes))
	for i, class := range s.card.Classes {
		k := slices.Index(classes, class)
		if k < 0 {
			return fmt.Errorf("the class %q of the pictures is none of the %d that the model knows: %q", class, len(classes), classes[:min(len(classes), 20)])
		}
		number[i] = int64(k)
	}
	renumber := func(d data.Dataset) data.Dataset {
		return data.Map(d, func(x data.Sample, _ *rand.Rand) (data.Sample, error) {
			class, ok := x.Y.(int64)
			if !ok {
				return x, fmt.Errorf("the class of a picture is a %T", x.Y)
			}
			x.Y = number[class]
			return x, nil
		})
	}
	if s.train = renumber(s.train); s.parts {
		s.test = renumber(s.test)
	}
	s.card.Classes = classes
	return nil
}

// measure computes the mean and the standard deviation of each channel or column. It uses at most a
// thousand images.
func (s *source) measure() error {
	if s.card.Data == "digits" && len(s.card.Input) == 1 {
		return nil
	}
	if s.card.Data == string(detect.CSV) {
		return s.measureRows()
	}
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
			sum, squares = make([]float64, shape[0]), make([]float64, shape[0])
		}
		if !slices.Equal(shape, s.card.Input) {
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
		if std < 1e-4 { // all values are equal
			std = 1
		}
		s.card.Mean, s.card.Std = append(s.card.Mean, float32(mean)), append(s.card.Std, float32(std))
	}
	return nil
}

var errNoClasses = errors.New("the data has no classes")
