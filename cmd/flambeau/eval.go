package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/train"
)

type evalCmd struct {
	Weights string `arg:"" help:"Weights written by flambeau train --out, or a directory of its checkpoints." type:"path"`
	Data    string `help:"Data to measure on, in the forms that train takes. All samples are measured, with two exceptions. Of the data that the model was trained on, the held-out samples are measured. Of data in parts, such as MNIST, the test part is measured. Default: the embedded digits." placeholder:"PATH"`
	Device  string `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
	All     bool   `help:"Measure on every sample, also on those of the training."`
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
	Device   string `json:"device"`
	Model    string `json:"model"`
	Samples  int    `json:"samples"`
	Measured string `json:"measured"` // the measured samples, in words
	Loss     number `json:"loss"`
	// Accuracy is the fraction of correctly predicted classes. It is absent for data without
	// classes.
	Accuracy   *number `json:"accuracy,omitempty"`
	MacroF1    *number `json:"macro_f1,omitempty"`
	Perplexity *number `json:"perplexity,omitempty"` // absent unless the data is text
	// RMSE and MAE are errors in the unit of the target. They are absent unless the target is
	// numeric.
	RMSE      *number       `json:"rmse,omitempty"`
	MAE       *number       `json:"mae,omitempty"`
	R2        *number       `json:"r2,omitempty"`
	Classes   []classReport `json:"classes,omitempty"`
	Confusion [][]int64     `json:"confusion,omitempty"`
}

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
	src, err := openSource(e.ctx, e, request{path: c.Data, known: n.card})
	if err != nil {
		return err
	}
	if err := n.fits(src); err != nil {
		if c.Data == "" {
			err = fmt.Errorf("%w; --data says what to measure on", err)
		}
		return err
	}
	all, words, err := src.measurable(e, n.card.Trained, c.All)
	if err != nil {
		return err
	}
	r := &evalReport{Device: dev.Name(), Model: n.card.Model, Samples: all.Len(), Measured: words}
	cfg := train.Config{Model: n.model, Device: dev, Log: e.err}
	n.measure(&cfg)
	var matrix *train.Confusion
	if n.gpt == nil && n.card.Regression == nil {
		matrix = train.NewConfusion(len(n.card.Classes))
		cfg.Metrics = append(cfg.Metrics, matrix)
	}
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
	r.Loss = number(m["loss"])
	to := e.out
	if c.JSON {
		to = e.err
	}
	out := bufio.NewWriter(to) // remembers the first error
	fmt.Fprintln(out, "measured on "+words)
	switch {
	case n.card.Regression != nil:
		errs := cfg.Metrics[0].(*train.RegressionMetric)
		r.RMSE, r.MAE, r.R2 = measured(m, "rmse"), new(number(errs.MAE())), new(number(errs.R2()))
		fmt.Fprintf(out, "loss %.4f, RMSE %.5g, MAE %.5g, R² %.4f\n", r.Loss, *r.RMSE, *r.MAE, *r.R2)
	case matrix == nil:
		r.Perplexity = new(number(math.Exp(m["loss"])))
		fmt.Fprintf(out, "loss %.4f nats, perplexity %.3f, in %d pieces of text\n", r.Loss, *r.Perplexity, r.Samples)
	default:
		r.Accuracy, r.MacroF1, r.Confusion = measured(m, "accuracy"), new(number(matrix.Average(train.Macro).F1)), matrix.Matrix()
		fmt.Fprintf(out, "loss %.4f, accuracy %.4f, macro F1 %.4f\n", r.Loss, *r.Accuracy, *r.MacroF1)
		for i, s := range matrix.PerClass() {
			r.Classes = append(r.Classes, classReport{n.card.Classes[i], s.Precision, s.Recall, s.F1, s.Support})
			fmt.Fprintf(out, "  %-16s precision %.4f  recall %.4f  F1 %.4f  of %d\n", n.card.Classes[i], s.Precision, s.Recall, s.F1, s.Support)
		}
	}
	if err := out.Flush(); err != nil && !c.JSON {
		return err
	}
	if c.JSON {
		return printJSON(e, r)
	}
	return nil
}

// fits returns an error if the data does not have the form of the model's training data.
func (n *network) fits(src *source) error {
	a, b := n.card, &src.card
	if (a.Regression == nil) != (b.Regression == nil) || fmt.Sprint(a.Input) != fmt.Sprint(b.Input) || fmt.Sprintf("%q", a.Classes) != fmt.Sprintf("%q", b.Classes) || (a.Chars == "") != (b.Chars == "") {
		return fmt.Errorf("the model is a %s for samples of shape %v and %d classes, the data (%s) has samples of shape %v and %d classes",
			a.Model, a.Input, len(a.Classes), b.Data, b.Input, len(b.Classes))
	}
	return nil
}

// A number is a float64 that becomes null in JSON if it is NaN or infinite, because JSON cannot
// represent these.
type number float64

// MarshalJSON returns the JSON form of n.
func (n number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// measured returns the measured value with the given name, or nil.
func measured(m map[string]float64, name string) *number {
	v, ok := m[name]
	if !ok {
		return nil
	}
	return new(number(v))
}
