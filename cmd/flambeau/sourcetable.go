package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/tensor"
)

func openTable(f *detect.Found, q request) (*source, error) {
	c := table.Config{Target: q.target}
	if k := q.known; k != nil {
		c.Columns, c.Target, c.Classes = k.Columns, k.Target, k.Classes
	}
	t, err := f.Table(true, c)
	if err != nil {
		return nil, err
	}
	all, err := t.Dataset()
	if err != nil {
		return nil, err
	}
	s := &source{train: all, parts: f.Test != "", noun: "rows", content: rowsOf(t),
		card: card{Input: []int{len(t.Columns)}, Classes: t.Classes, Columns: t.Columns, Target: t.Target}}
	if s.parts {
		c.Columns, c.Target, c.Classes = t.Columns, t.Target, t.Classes
		held, err := f.Table(false, c)
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
	s.rows = t.X
	return s, nil
}

// measureRows is measure for tables.
func (s *source) measureRows() error {
	x := s.rows
	if sub, ok := s.train.(data.Subset); ok {
		index := make([]int64, len(sub.Index))
		for i, v := range sub.Index {
			index[i] = int64(v)
		}
		x = x.IndexSelect(0, tensor.From(index))
	}
	for i, m := range x.Mean(0).Floats() {
		std := float32(x.Select(1, i).Std(0).Item())
		if !(std > 1e-12) {
			std = 1
		}
		s.card.Mean, s.card.Std = append(s.card.Mean, float32(m)), append(s.card.Std, std)
	}
	return nil
}
