// Command browser is a web page for handwritten digits. The page trains a classifier, recognises
// the visitor's drawings, and lists the tensors of a file. All of this runs on the visitor's
// machine. Started outside of a browser, the command serves the page.
package main

import (
	"math"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A classifier classifies digits. It has a training set and a test set.
type classifier struct {
	model       *nn.Sequential
	opt         *optim.Adam
	train, test *digits.Set
	known, held *data.Loader // loaders of the training set and of the test set
}

func newClassifier() (*classifier, error) {
	set, err := digits.Load()
	if err != nil {
		return nil, err
	}
	train, test := set.Split()
	model := nn.NewSequential(nn.NewLinear(64, 128), nn.ReLU{}, nn.NewLinear(128, 10))
	c := &classifier{model: model, opt: optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3}), train: train, test: test}
	if c.known, err = data.NewLoader(train, data.Config{Batch: 32, Shuffle: true}); err != nil {
		return nil, err
	}
	c.held, err = data.NewLoader(test, data.Config{Batch: 256})
	return c, err
}

// epoch trains once on every digit of the training set. It calls report with the loss of each step.
func (c *classifier) epoch(report func(loss float64)) error {
	for step, err := range c.known.Steps() {
		if err != nil {
			return err
		}
		loss := nn.CrossEntropy(c.model.Forward(step.X), step.Y)
		loss.Backward()
		c.opt.Step()
		c.opt.ZeroGrad()
		report(loss.Item())
	}
	return nil
}

// accuracy returns the fraction of the test set that is classified correctly.
func (c *classifier) accuracy() (float64, error) {
	right := 0.0
	for step, err := range c.held.Steps(tensor.NoGrad()) {
		if err != nil {
			return 0, err
		}
		right += c.model.Forward(step.X).Argmax(-1).Eq(step.Y).Sum().Item()
	}
	return right / float64(c.test.Len()), nil
}

// classify returns the probabilities of the ten classes.
func (c *classifier) classify(pixels []float32) (p []float64) {
	tensor.Do(func(s *tensor.Scope) {
		p = c.model.Forward(s.From([][]float32{pixels})).Softmax(-1).Floats()
	}, tensor.NoGrad())
	return p
}

// shrink converts a drawing to the form of the training digits, or returns nil if there is no ink.
// ink has one byte per pixel, row by row. shrink scales the inked part to fill a bitmap of 32×32
// pixels, and then counts the inked pixels in each of 8×8 blocks.
func shrink(ink []byte, width int) []float32 {
	left, top, right, bottom := width, len(ink)/width, -1, -1
	for i, v := range ink {
		if v > 127 {
			left, right = min(left, i%width), max(right, i%width)
			top, bottom = min(top, i/width), max(bottom, i/width)
		}
	}
	if right < 0 {
		return nil
	}
	const side, cell = 32, 4
	w, h := right-left+1, bottom-top+1
	size := max(w, h)
	// source returns, along one axis, the coordinate in ink of the centre of pixel i of the bitmap.
	// The shorter side of the drawing is centred.
	source := func(from, long, i int) int {
		return from + int(math.Floor(float64(long-size)/2+(float64(i)+0.5)*float64(size)/side))
	}
	pixels := make([]float32, digits.Pixels)
	for i := range side * side {
		x, y := source(left, w, i%side), source(top, h, i/side)
		if x >= left && x <= right && y >= top && y <= bottom && ink[y*width+x] > 127 {
			pixels[i/side/cell*8+i%side/cell] += 1. / (cell * cell)
		}
	}
	return pixels
}
