package main

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/train"
)

type evalCmd struct {
	Weights string `arg:"" help:"Weights that flambeau train --out has written, or a directory of its checkpoints." type:"path"`
	Data    string `help:"What to measure on, in the forms that train takes; its part for testing if it has one. Without it: the embedded digits." placeholder:"PATH"`
	Device  string `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
	All     bool   `help:"Measure on the part for training too, where the data comes in parts."`
	JSON    bool   `help:"Print one JSON object." name:"json"`
}

type classReport struct {
	Class     string  `json:"class"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	Samples   int64   `json:"samples"`
}

type evalReport struct {
	Device     string        `json:"device"`
	Model      string        `json:"model"`
	Samples    int           `json:"samples"`
	Loss       number        `json:"loss"`
	Accuracy   *number       `json:"accuracy,omitempty"` // of classes
	MacroF1    *number       `json:"macro_f1,omitempty"`
	Perplexity *number       `json:"perplexity,omitempty"` // of text
	Classes    []classReport `json:"classes,omitempty"`
	Confusion  [][]int64     `json:"confusion,omitempty"`
}

// Run measures.
func (c *evalCmd) Run(e *env) error {
	dev, why, err := openDevice(c.Device)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.err, why)
	n, err := open(c.Weights, dev)
	if err != nil {
		return err
	}
	src, err := openSource(e.ctx, e, c.Data, "", n.card)
	if err != nil {
		return err
	}
	if err := n.fits(src); err != nil {
		if c.Data == "" {
			err = fmt.Errorf("%w; --data says what to measure on", err)
		}
		return err
	}
	r := &evalReport{Device: dev.Name(), Model: n.card.Model}
	cfg := train.Config{Model: n.model, Device: dev}
	n.measure(&cfg)
	var matrix *train.Confusion
	if n.gpt == nil {
		matrix = train.NewConfusion(len(n.card.Classes))
		cfg.Metrics = append(cfg.Metrics, matrix)
	}
	sets := []data.Dataset{src.test}
	if c.All {
		sets = append(sets, src.train)
	}
	all := data.Dataset(concat(sets))
	loader, err := data.NewLoader(all, data.Config{Batch: 64})
	if err != nil {
		return err
	}
	m, err := train.Evaluate(e.ctx, cfg, loader)
	if err != nil {
		if e.ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	r.Samples, r.Loss = all.Len(), number(m["loss"])
	if matrix == nil {
		r.Perplexity = new(number(math.Exp(m["loss"])))
		fmt.Fprintf(e.err, "loss %.4f nats, perplexity %.3f, on %d pieces of text\n", r.Loss, *r.Perplexity, r.Samples)
	} else {
		r.Accuracy, r.MacroF1, r.Confusion = measured(m, "accuracy"), new(number(matrix.Average(train.Macro).F1)), matrix.Matrix()
		fmt.Fprintf(e.err, "loss %.4f, accuracy %.4f, macro F1 %.4f, on %d samples\n", r.Loss, *r.Accuracy, *r.MacroF1, r.Samples)
		for i, s := range matrix.PerClass() {
			r.Classes = append(r.Classes, classReport{n.card.Classes[i], s.Precision, s.Recall, s.F1, s.Support})
			fmt.Fprintf(e.err, "  %-16s precision %.4f  recall %.4f  F1 %.4f  of %d\n", n.card.Classes[i], s.Precision, s.Recall, s.F1, s.Support)
		}
	}
	if c.JSON {
		return printJSON(e, r)
	}
	return nil
}

// fits reports whether data has the form that the model was trained on.
func (n *network) fits(src *source) error {
	a, b := n.card, &src.card
	if fmt.Sprint(a.Input) != fmt.Sprint(b.Input) || fmt.Sprintf("%q", a.Classes) != fmt.Sprintf("%q", b.Classes) || (a.Chars == "") != (b.Chars == "") {
		return fmt.Errorf("the model is a %s for samples of shape %v and %d classes, the data (%s) has samples of shape %v and %d classes",
			a.Model, a.Input, len(a.Classes), b.Data, b.Input, len(b.Classes))
	}
	return nil
}

// joined is data sets one behind the other.
type joined []data.Dataset

func concat(sets []data.Dataset) data.Dataset {
	if len(sets) == 1 {
		return sets[0]
	}
	return joined(sets)
}

// Len returns the number of samples.
func (j joined) Len() (n int) {
	for _, d := range j {
		n += d.Len()
	}
	return n
}

// Get returns sample i of them all.
func (j joined) Get(i int) (data.Sample, error) {
	for _, d := range j {
		if i < d.Len() {
			return d.Get(i)
		}
		i -= d.Len()
	}
	return data.Sample{}, fmt.Errorf("sample %d is beyond the end", i)
}
