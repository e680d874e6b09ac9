package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/tensor"
)

// tableFlags holds the flags for reading a table.
type tableFlags struct {
	Target     string   `help:"Column of a table with the target: a class or a number." default:"-1"`
	Columns    []string `help:"Columns of a table to use as inputs, by name. Default: all columns but the target. A column of words becomes one input for each word." placeholder:"NAME,..."`
	Missing    string   `help:"How to treat a missing value of a table: error, drop (leave the row out), mean (of the column), zero. With mean and zero, a missing word counts as none of the column's words." placeholder:"WHAT" default:"error"`
	Regression *bool    `help:"Learn the target as a number, not as a class. This is the default for a target with many different numbers. --no-regression makes classes of such a target." negatable:""`
}

var missingKinds = map[string]table.Missing{"error": table.Refuse, "drop": table.Drop, "mean": table.Mean, "zero": table.Zero}

func (f *tableFlags) check() error {
	if _, ok := missingKinds[f.Missing]; !ok && f.Missing != "" {
		return fmt.Errorf("--missing %s: known are drop, error, mean, zero", f.Missing)
	}
	return nil
}

// setFlag returns the name of a flag that is set but applies only to tables, or "".
func (f *tableFlags) setFlag() string {
	switch {
	case len(f.Columns) > 0:
		return "--columns"
	case f.Missing != "" && f.Missing != "error":
		return "--missing"
	case f.Regression != nil:
		return "--regression"
	}
	return ""
}

// A regression describes a numeric target. The model learns (y − Mean)/Std.
type regression struct {
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
}

// table returns the settings for reading the inputs of the card's model from a table. The settings
// name no target.
func (c *card) table() table.Config {
	return table.Config{Columns: c.Columns, Categories: c.Words, Missing: missingKinds[c.Missing], Fill: c.Fill}
}

// tellUnknown prints the words that do not occur in the training data.
func tellUnknown(e *env, path string, list []table.Unknown) {
	const most = 10
	for _, u := range list[:min(len(list), most)] {
		fmt.Fprintf(e.err, "%s:%d: column %q: the word %.50q was not there in training; it counts as none of the column's words\n", path, u.Line, u.Column, u.Word)
	}
	if n := len(list) - most; n > 0 {
		fmt.Fprintf(e.err, "%s: %d more words were not there in training\n", path, n)
	}
}

func openTable(e *env, f *detect.Found, q request) (*source, error) {
	var about []string
	var c table.Config
	if k := q.known; k != nil {
		c = k.table()
		c.Target, c.Classes, c.Number = k.Target, k.Classes, k.Regression != nil
	} else {
		var err error
		if c, about, err = q.config(f); err != nil {
			return nil, err
		}
	}
	t, err := readPart(e, f, true, c)
	if err != nil {
		return nil, err
	}
	all, err := t.Dataset()
	if err != nil {
		return nil, err
	}
	s := &source{train: all, parts: f.Test != "", noun: "rows", content: rowsOf(t), rows: t, about: about, card: card{Input: []int{len(t.Features)},
		Classes: t.Classes, Columns: t.Columns, Words: c.Categories, Target: t.Target}}
	switch {
	case q.known != nil:
		s.card.Regression = q.known.Regression
	case c.Number:
		s.card.Regression = &regression{}
	}
	if c.Missing != table.Refuse {
		for name, kind := range missingKinds {
			if kind == c.Missing {
				s.card.Missing = name
			}
		}
	}
	if c.Missing == table.Mean {
		s.card.Fill = t.Means
	}
	if s.parts {
		c.Columns, c.Target, c.Classes = t.Columns, t.Target, t.Classes
		if c.Fill == nil {
			c.Fill = t.Means
		}
		held, err := readPart(e, f, false, c)
		if err != nil {
			return nil, err
		}
		if s.test, err = held.Dataset(); err != nil {
			return nil, err
		}
	}
	if all.Len() == 0 {
		return nil, fmt.Errorf("%s: the table has no rows", f.Train)
	}
	if !slices.ContainsFunc(t.Columns, func(name string) bool { _, err := strconv.ParseFloat(name, 64); return err != nil }) {
		s.about = append(s.about, fmt.Sprintf("the first line is taken for the names of the columns, though they are %q: a table without such a line needs one", t.Columns[:min(len(t.Columns), 5)]))
	}
	return s, nil
}

// readPart reads the training or the test part of a table. It prints a message about what it leaves
// out.
func readPart(e *env, f *detect.Found, train bool, c table.Config) (*table.Table, error) {
	path := f.Train
	if !train {
		path = f.Test
	}
	t, err := f.Table(train, c)
	if errors.Is(err, table.ErrMissing) {
		return nil, fmt.Errorf("%w (flambeau train --missing drop leaves such rows out, and --missing mean takes the mean of the column for an input)", err)
	}
	if err != nil {
		return nil, err
	}
	if t.Dropped > 0 {
		fmt.Fprintf(e.err, "%s: %d of %d rows are left out, in which values are missing\n", path, t.Dropped, t.Dropped+t.X.Dim(0))
	}
	tellUnknown(e, path, t.Unknown)
	return t, nil
}

// config chooses how to read a table for training. about has lines for the user that explain the
// choice.
func (q request) config(f *detect.Found) (c table.Config, about []string, err error) {
	d, err := table.Describe(f.Train, table.Config{Comma: f.Comma})
	if err != nil {
		return c, nil, err
	}
	c = table.Config{Target: q.Target, Columns: q.Columns, Missing: missingKinds[q.Missing], Categories: map[string][]string{}}
	target, err := d.Column(c.Target)
	if err != nil {
		return c, nil, err
	}
	var inputs []*table.Column
	for _, name := range q.Columns {
		k, err := d.Column(name)
		if err != nil {
			return c, nil, err
		}
		inputs = append(inputs, k)
	}
	if len(q.Columns) == 0 {
		for i := range d.Columns {
			if k := &d.Columns[i]; k.Name != target.Name {
				inputs = append(inputs, k)
			}
		}
	}
	var useful, names []string // columns that can be inputs, and columns that only identify a row
	for _, k := range inputs {
		switch {
		case k.Numbers || k.Distinct == 0:
		case k.Words == nil || len(q.Columns) == 0 && k.Distinct > 20 && 2*k.Distinct > d.Rows:
			names = append(names, fmt.Sprintf("%q with %d different words in %d rows", k.Name, k.Distinct, d.Rows))
			continue
		default:
			c.Categories[k.Name] = k.Words
		}
		useful = append(useful, k.Name)
	}
	if len(names) > 0 {
		text := "; choose the inputs by --columns"
		if len(useful) > 0 {
			text = "; without: --columns '" + strings.Join(useful, ",") + "'"
		}
		return c, nil, fmt.Errorf("%s: too many words to learn from: column %s%s", f.Train, strings.Join(names, ", "), text)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Categories)) {
		about = append(about, fmt.Sprintf("column %q holds words: one input for each of %d", name, len(c.Categories[name])))
	}
	// A target with more than fewWhole different values is a quantity. If some of the values are
	// not whole numbers, more than fewFractions different values suffice. The values of any other
	// target are classes, as digits are.
	const fewFractions, fewWhole = 10, 50
	c.Number = target.Numbers && (!target.Whole && target.Distinct > fewFractions || target.Distinct > fewWhole)
	switch {
	case q.Regression != nil:
		c.Number = *q.Regression
	case c.Number:
		about = append(about, fmt.Sprintf("column %q has %d different numbers: they are learned as numbers (--no-regression makes classes of them)", target.Name, target.Distinct))
	}
	return c, about, nil
}

// measureRows computes the mean and the standard deviation of each column of a table. It also
// computes the scale of a numeric target.
func (s *source) measureRows() error {
	pick := func(x *tensor.Tensor) *tensor.Tensor { return x }
	if sub, ok := s.train.(data.Subset); ok {
		index := make([]int64, len(sub.Index))
		for i, v := range sub.Index {
			index[i] = int64(v)
		}
		pick = func(x *tensor.Tensor) *tensor.Tensor { return x.IndexSelect(0, tensor.From(index)) }
	}
	x := pick(s.rows.X)
	for i, m := range x.Mean(0).Floats() {
		if math.IsInf(m, 0) || math.IsNaN(m) {
			return infinite(s.rows.Features[i])
		}
		std := float32(x.Select(1, i).Std(0).Item())
		if !(std > 1e-12) {
			std = 1
		}
		s.card.Mean, s.card.Std = append(s.card.Mean, float32(m)), append(s.card.Std, std)
	}
	if r := s.card.Regression; r != nil {
		y := pick(s.rows.Y).Double()
		r.Mean, r.Std = y.Mean().Item(), y.Std(0).Item()
		if math.IsInf(r.Mean, 0) || math.IsNaN(r.Mean) {
			return infinite(s.card.Target)
		}
		if !(r.Std > 0) {
			return fmt.Errorf("column %q is %v in all rows for training: there is nothing to learn", s.card.Target, r.Mean)
		}
	}
	return nil
}

// infinite returns the error for a column whose mean is infinite or NaN.
func infinite(column string) error {
	return fmt.Errorf("column %q holds an infinite number: correct it, or leave it empty and choose --missing", column)
}
