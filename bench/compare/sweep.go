package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// sweepLine is a line of the output of TestSweep in package cuda: a case, and the rate of each
// variant. The first variant is the planner's choice.
type sweepLine struct {
	Case     string `json:"case"`
	Unit     string `json:"unit"`
	Variants []struct {
		Name  string  `json:"name"`
		Rate  float64 `json:"rate"`
		Error string  `json:"error"`
	} `json:"variants"`
}

// judgeSweep reports, for each case, the rate of the planner's choice and of the best variant. It
// compares both rates with a limit: the rate of the driver's copy for ops that move memory, and
// PyTorch's rate for products. None of the verdicts is about a promise.
func judgeSweep(work string) []verdict {
	list, limit, theirs := []verdict{}, 0.0, rows(filepath.Join(work, "torch.json"), "cuda")
	f, err := os.Open(filepath.Join(work, "sweep.json"))
	if err != nil {
		return append(list, verdict{"variants", "", none, fails})
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var s sweepLine
		if d.Decode(&s) != nil || len(s.Variants) == 0 {
			break // the end of the file is missing
		}
		chosen, best := s.Variants[0], s.Variants[0]
		if chosen.Error != "" {
			chosen.Rate, best.Rate = 0, 0
		}
		for _, v := range s.Variants {
			if v.Error == "" && v.Rate > best.Rate {
				best = v
			}
		}
		if s.Case == "copy" {
			limit = chosen.Rate
		}
		of, name := limit, "copy"
		if s.Unit != "GB/s" {
			of, name = theirs[s.Case].Rate, "PyTorch"
		}
		v := verdict{What: s.Case, Bound: fmt.Sprintf("%.0f", chosen.Rate), Word: noPromise}
		if chosen.Error != "" {
			v.Bound = "failed"
		} else if of > 0 {
			v.Bound += fmt.Sprintf(" %.2f", chosen.Rate/of)
		}
		if best.Rate > chosen.Rate {
			v.Measured = fmt.Sprintf("%s: %.0f", best.Name, best.Rate)
			if chosen.Error == "" {
				v.Measured += fmt.Sprintf(", +%.1f %%", 100*(best.Rate/chosen.Rate-1))
			}
			if of > 0 {
				v.Measured += fmt.Sprintf(", %.2f of %s", best.Rate/of, name)
			}
		}
		list = append(list, v)
	}
	return list
}
