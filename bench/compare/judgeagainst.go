package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// stepsAhead lists the cases that must be faster than PyTorch's eager variants.
var stepsAhead = []string{"gpt2_8x1024_bf16"}

// judgeAgainst reports these numbers for each case: the minimum time divided by our time, and the
// median ratio to each of PyTorch's variants. It also judges the promise that GPT-2's step is
// faster than the fastest eager variant.
func judgeAgainst(work string) (list []verdict) {
	ours := rows(filepath.Join(work, "against.json"), "")
	for _, c := range pairs() {
		r, ok := ours[c.name]
		v := verdict{c.name, "", none, noPromise}
		least := 0.0
		if ok {
			said := []string{seconds(r.Median)}
			for _, name := range slices.Sorted(maps.Keys(r.Theirs)) {
				t := r.Theirs[name]
				switch {
				case t.Error != "":
					said = append(said, name+" failed")
				case t.Ratio > 0:
					said = append(said, fmt.Sprintf("%s %.2f", name, t.Ratio))
					if eager := name == "eager" || name == "flash"; eager && (least == 0 || t.Ratio < least) {
						least = t.Ratio
					}
				}
			}
			v.Measured = strings.Join(said, ", ")
			if r.Bound > 0 {
				v.Bound = fmt.Sprintf("%.2f", r.Bound/r.Median)
			}
		}
		list = append(list, v)
		if slices.Contains(stepsAhead, c.name) {
			p := verdict{c.name + ": speed over eager PyTorch's", ">= 1", none, fails}
			if least > 0 {
				p.Measured = fmt.Sprintf("%.3f", least)
			}
			if least >= 1 {
				p.Word = holds
			}
			list = append(list, p)
		}
	}
	return list
}

func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.1f µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}
