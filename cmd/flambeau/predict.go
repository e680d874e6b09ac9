package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/tensor"
)

type predictCmd struct {
	Weights string   `arg:"" help:"Weights written by flambeau train --out, or a directory of its checkpoints." type:"path"`
	Inputs  []string `arg:"" help:"Pictures, directories of pictures, IDX files of images, CSV tables."`
	Device  string   `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
	Top     int      `help:"How many classes to print for each sample." default:"3"`
	Batch   int      `help:"Samples in a batch." default:"64"`
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *predictCmd) Validate() error {
	if c.Top < 1 || c.Batch < 1 {
		return fmt.Errorf("--top %d, --batch %d: at least 1", c.Top, c.Batch)
	}
	return nil
}

type guess struct {
	Class       string  `json:"class"`
	Probability float64 `json:"probability"`
}

// A prediction is the result for one sample: one line of JSON in the output.
type prediction struct {
	Path    string  `json:"path"`
	Index   int     `json:"index"` // index of the sample in the file; 0 for an image file
	Class   string  `json:"class,omitempty"`
	Guesses []guess `json:"guesses,omitempty"`
	// Value is what a regression model predicts, in the unit of the target.
	Value *number `json:"value,omitempty"`
}

// Run prints a line of JSON for each sample.
func (c *predictCmd) Run(e *env) error {
	dev, why, err := openDevice(c.Device)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.err, why)
	n, err := open(c.Weights, dev)
	if err != nil {
		return err
	}
	if n.gpt != nil {
		return fmt.Errorf("%s: a gpt classifies nothing; see flambeau generate", c.Weights)
	}
	enc := json.NewEncoder(e.out)
	var failed error
	err = tensor.Try(func() {
		for _, path := range c.Inputs {
			if failed = n.predictPath(e, enc, path, c); failed != nil {
				return
			}
		}
	})
	return cmp.Or(failed, err)
}

// predictPath predicts the samples in the file or directory path.
func (n *network) predictPath(e *env, enc *json.Encoder, path string, c *predictCmd) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		var files []string
		err := filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && vision.IsPicture(p) && !strings.HasPrefix(d.Name(), ".") {
				files = append(files, p)
			}
			return err
		})
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%s: there are no pictures in this directory", path)
		}
		unread := 0
		for part := range slices.Chunk(files, c.Batch) {
			if e.ctx.Err() != nil {
				return errInterrupted
			}
			bad, err := n.predictPictures(enc, part, c.Top)
			if err != nil {
				return err
			}
			for _, err := range bad {
				fmt.Fprintln(e.err, err)
			}
			unread += len(bad)
		}
		if unread > 0 {
			return fmt.Errorf("%s: %d of %d pictures could not be used", path, unread, len(files))
		}
		return nil
	case vision.IsPicture(path):
		bad, err := n.predictPictures(enc, []string{path}, c.Top)
		return errors.Join(append(bad, err)...)
	case len(n.card.Columns) > 0:
		found, err := detect.Path(path)
		if err != nil {
			return err
		}
		// The file's name is not that of a table, but its content may be one.
		if found.Kind != detect.CSV {
			found = &detect.Found{Kind: detect.CSV, Train: path}
		}
		t, err := readPart(e, found, true, n.card.table())
		if err != nil {
			return err
		}
		return n.predictRows(e, enc, path, t.X, t.Rows, c)
	}
	x, err := vision.LoadIDX(path)
	if err != nil {
		return fmt.Errorf("%s is neither a picture nor an IDX file: %w", path, err)
	}
	want := n.card.Input
	if len(want) == 3 && x.Rank() == 3 { // the images have no dimension of channels
		x = x.Unsqueeze(1)
	}
	return n.predictRows(e, enc, path, x.Float().DivScalar(255), nil, c)
}

// predictPictures classifies image files. It returns an error for each file that cannot be read or
// has an unsuitable size, and still classifies the others.
func (n *network) predictPictures(enc *json.Encoder, paths []string, top int) (bad []error, err error) {
	in := n.card.Input
	if len(in) != 3 {
		return nil, fmt.Errorf("%s: the model wants %d numbers and no pictures", paths[0], in[0])
	}
	var pixels []uint8
	var good []string
	for _, p := range paths {
		m, err := n.picture(p)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		good, pixels = append(good, p), append(pixels, m.U8...)
	}
	if len(good) == 0 {
		return bad, nil
	}
	var probs []float64
	tensor.Do(func(s *tensor.Scope) {
		x := s.From(pixels, append([]int{len(good)}, in...)...).Float().DivScalar(255)
		probs = n.probabilities(x)
	}, tensor.NoGrad())
	for i, p := range good {
		if err := n.print(enc, p, 0, probs[i*n.card.width():], top); err != nil {
			return bad, err
		}
	}
	return bad, nil
}

// picture reads an image file and converts the image to the form that the model expects.
func (n *network) picture(path string) (*vision.Image, error) {
	in := n.card.Input
	m, err := vision.Decode{Gray: in[0] == 1, Size: n.card.Size}.Load(path)
	if err != nil {
		return nil, err
	}
	if n.card.Size > 0 {
		if m, err = vision.Compose(sized(n.card.Size)[:2]...)(m, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if m.C != in[0] || m.H != in[1] || m.W != in[2] {
		return nil, fmt.Errorf("%s: the picture has %d×%d pixels, the model wants %d×%d", path, m.W, m.H, in[2], in[1])
	}
	return m, nil
}

// predictRows predicts the samples along dimension 0 of x. rows has their indices in the file. If
// rows is nil, these are 0, 1, …
func (n *network) predictRows(e *env, enc *json.Encoder, path string, x *tensor.Tensor, rows []int, c *predictCmd) error {
	if x.Rank() != len(n.card.Input)+1 || !slices.Equal(x.Shape().Slice()[1:], n.card.Input) {
		return fmt.Errorf("%s: it holds data of shape %v, the model wants samples of shape %v", path, x.Shape(), n.card.Input)
	}
	for at := 0; at < x.Dim(0); at += c.Batch {
		if e.ctx.Err() != nil {
			return errInterrupted
		}
		size := min(c.Batch, x.Dim(0)-at)
		var probs []float64
		tensor.Do(func(s *tensor.Scope) { probs = n.probabilities(x.In(s).Narrow(0, at, size)) }, tensor.NoGrad())
		for i := range size {
			index := at + i
			if rows != nil {
				index = rows[index]
			}
			if err := n.print(enc, path, index, probs[i*n.card.width():], c.Top); err != nil {
				return err
			}
		}
	}
	return nil
}

// probabilities returns the probabilities of all classes for the first sample, then those for the
// next sample, and so on. For a regression model it returns the predicted values.
func (n *network) probabilities(x *tensor.Tensor) []float64 {
	if n.card.Regression != nil {
		return n.unscaled(n.forward(x.To(n.dev))).Floats()
	}
	return n.forward(x.To(n.dev)).Softmax(-1).Floats()
}

func (n *network) print(enc *json.Encoder, path string, index int, probs []float64, top int) error {
	p, err := n.prediction(path, index, probs, top)
	if err != nil {
		return err
	}
	return enc.Encode(p)
}

func (n *network) prediction(path string, index int, probs []float64, top int) (prediction, error) {
	p := prediction{Path: path, Index: index}
	if n.card.Regression != nil {
		if math.IsNaN(probs[0]) {
			return p, fmt.Errorf("%s: the model gives NaN for sample %d: the weights, or the sample, hold what is no number", path, index)
		}
		p.Value = new(number(probs[0]))
		return p, nil
	}
	for i, class := range n.card.Classes {
		if math.IsNaN(probs[i]) {
			return p, fmt.Errorf("%s: the model gives NaN for sample %d: the weights, or the sample, hold what is no number", path, index)
		}
		p.Guesses = append(p.Guesses, guess{class, probs[i]})
	}
	slices.SortStableFunc(p.Guesses, func(a, b guess) int { return cmp.Compare(b.Probability, a.Probability) })
	p.Guesses = p.Guesses[:min(top, len(p.Guesses))]
	p.Class = p.Guesses[0].Class
	return p, nil
}
