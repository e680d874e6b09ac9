package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// cars writes a table in which price and class depend on a word and a number. If gaps is not 0, the
// number is missing in one of every gaps rows.
func cars(t *testing.T, path string, rows, gaps int) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	b.WriteString("plate;color;weight;class;price\n")
	worth := map[string]float64{"red": 3, "blue": 0, "dark, green": -3}
	for i := range rows {
		color := []string{"red", "blue", "dark, green"}[rng.IntN(3)]
		weight := 1 + rng.Float64()
		class := "cheap"
		if worth[color]+weight > 1.5 {
			class = "dear"
		}
		number := fmt.Sprintf("%.4f", weight)
		if gaps > 0 && i%gaps == 2 {
			number = "NA"
		}
		fmt.Fprintf(&b, "P%d;%s;%s;%s;%.3f\n", i, color, number, class, 20000+1000*(worth[color]+2*weight))
	}
	return write(t, path, b.String())
}

func predicted(t *testing.T, out string) (list []prediction) {
	t.Helper()
	for line := range strings.Lines(out) {
		var p prediction
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(line, err)
		}
		list = append(list, p)
	}
	return list
}

// Columns of words become inputs. The commands predict and eval encode words as train does, and a
// message names new words. The flag --columns selects the inputs.
func TestTableOfWords(t *testing.T) {
	dir := t.TempDir()
	set, weights := cars(t, filepath.Join(dir, "cars.csv"), 200, 0), filepath.Join(dir, "w.safetensors")
	train := []string{"train", "--data", set, "--target", "class", "--out", weights}
	fails(t, `column "plate" with 200 different words in 200 rows; without: --columns 'color,weight,price'`, train...)
	fails(t, set+`:1: column "colour": there is none of this name`, append(train, "--columns", "colour")...)
	train = append(train, "--columns", "color,weight", "--device", "cpu", "--json", "--lr", "0.01")
	out, errOut := must(t, train...)
	if r := lastLine(t, out); float64(*r.TestAccuracy) < 0.9 || !strings.Contains(errOut, `column "color" holds words: one input for each of 3`) {
		t.Errorf("%s%s", out, errOut)
	}
	measures(t, "40 of 200 rows, held out: the other 160 were trained on", weights, "--data", set)
	// This table has more columns, in another order, and a new word.
	more := write(t, filepath.Join(dir, "more.csv"), "weight,owner,color\n1.5,x,\"dark, green\"\n1.5,y,red\n1.5,z,violet\n1.5,z,violet\n")
	out, errOut = must(t, "predict", weights, more, "--device", "cpu")
	p := predicted(t, out)
	if len(p) != 4 || p[0].Class != "cheap" || p[1].Class != "dear" || p[2].Guesses[0].Probability > p[1].Guesses[0].Probability {
		t.Error(out)
	}
	if strings.Count(errOut, "violet") != 1 || !strings.Contains(errOut, more+`:4: column "color": the word "violet" was not there in training; it counts as none of the column's words`) {
		t.Error(errOut)
	}
	fails(t, `column "color": there is none of this name`, "predict", weights, write(t, filepath.Join(dir, "less.csv"), "weight\n1\n"))
	fails(t, "there is none of this name", append(train, "--columns", "colour")...)
	fails(t, "--columns is for tables", "train", "--columns", "x")
}

// A flag chooses how missing values are treated, and the other commands treat them in the same way.
func TestTableWithMissingValues(t *testing.T) {
	dir := t.TempDir()
	set, weights := cars(t, filepath.Join(dir, "cars.csv"), 100, 10), filepath.Join(dir, "w.safetensors")
	train := []string{"train", "--data", set, "--target", "class", "--columns", "color,weight", "--steps", "20", "--out", weights}
	fails(t, ":4:", train...)
	fails(t, "--missing drop leaves such rows out", train...)
	more := write(t, filepath.Join(dir, "more.csv"), "weight,color\n,red\n1.5,red\n?,red\n")
	for missing, want := range map[string]int{"mean": 3, "zero": 3, "drop": 1} {
		_, errOut := must(t, append(train, "--missing", missing, "--device", "cpu")...)
		rows, held, of := 100, 20, ""
		if missing == "drop" {
			rows, held, of = 90, 18, ": 10 of 100 rows are left out, in which values are missing"
		}
		if !strings.Contains(errOut, of) {
			t.Error(errOut)
		}
		measures(t, fmt.Sprintf("%d of %d rows, held out: the other %d were trained on", held, rows, rows-held), weights, "--data", set)
		out, _ := must(t, "predict", weights, more, "--device", "cpu")
		p := predicted(t, out)
		if len(p) != want || want == 3 && p[2].Index != 2 || want == 1 && p[0].Index != 1 {
			t.Errorf("%s: %s", missing, out)
		}
		if want == 3 && (p[0].Guesses[0] != p[2].Guesses[0] || p[0].Guesses[0] == p[1].Guesses[0]) {
			t.Errorf("%s: %s", missing, out)
		}
	}
	if status, _, errOut := command(t, append(train, "--missing", "ignore")...); status != 2 || !strings.Contains(errOut, "--missing ignore: known are drop, error, mean, zero") {
		t.Error(status, errOut)
	}
}

// A target with many different numbers is learned as a number. The command eval prints RMSE, MAE
// and R², and predict prints values in the unit of the target.
func TestRegression(t *testing.T) {
	dir := t.TempDir()
	set, weights := cars(t, filepath.Join(dir, "cars.csv"), 300, 0), filepath.Join(dir, "w.safetensors")
	train := []string{"train", "--data", set, "--columns", "color,weight", "--lr", "0.01", "--dropout", "0", "--device", "cpu", "--json", "--out", weights}
	out, errOut := must(t, train...)
	r := lastLine(t, out)
	if !strings.Contains(errOut, "different numbers: they are learned as numbers") {
		t.Error(errOut)
	}
	if r.TestAccuracy != nil || float64(*r.TestR2) < 0.95 || float64(*r.TestRMSE) > 600 || *r.TestMAE > *r.TestRMSE || !strings.Contains(errOut, ", test RMSE ") {
		t.Fatalf("%s%s", out, errOut)
	}
	measures(t, "60 of 300 rows, held out: the other 240 were trained on", weights, "--data", set)
	out, _ = must(t, "eval", weights, "--data", set, "--json", "--device", "cpu")
	var e evalReport
	if err := json.Unmarshal([]byte(out), &e); err != nil || *e.RMSE != *r.TestRMSE || *e.R2 != *r.TestR2 || *e.MAE != *r.TestMAE || e.Accuracy != nil || e.Perplexity != nil {
		t.Error(out, err)
	}
	if out, _ = must(t, "eval", weights, "--data", set, "--device", "cpu"); !strings.Contains(out, ", RMSE ") || !strings.Contains(out, ", MAE ") || !strings.Contains(out, ", R² ") {
		t.Error(out)
	}
	out, _ = must(t, "predict", weights, write(t, filepath.Join(dir, "more.csv"), "weight,color\n1.5,red\n1.5,blue\n"), "--device", "cpu")
	p := predicted(t, out)
	if len(p) != 2 || p[0].Value == nil || math.Abs(float64(*p[0].Value)-26000) > 1500 || math.Abs(float64(*p[1].Value)-23000) > 1500 || strings.Contains(out, "class") {
		t.Error(out)
	}
	// A target with a few different whole numbers has classes, unless a flag says otherwise. Class
	// names cannot be learned as numbers.
	digits := tableFile(t, filepath.Join(dir, "digits.csv"), 60, func(i int) string { return fmt.Sprint(i % 3) })
	if out, _ := must(t, "train", "--data", digits, "--steps", "2", "--device", "cpu", "--json"); lastLine(t, out).TestAccuracy == nil {
		t.Error(out)
	}
	if out, _ := must(t, "train", "--data", digits, "--steps", "2", "--device", "cpu", "--json", "--regression"); lastLine(t, out).TestRMSE == nil {
		t.Error(out)
	}
	fails(t, "is not a number", "train", "--data", set, "--target", "class", "--columns", "weight", "--regression")
	fails(t, "these are numbers and no classes; --regression learns them", append(train, "--no-regression")...)
	infinite := func(i int) string { return []string{"inf", "2.5"}[min(i, 1)] }
	fails(t, "\"c\" holds an infinite number", "train", "--regression", "--data", tableFile(t, filepath.Join(dir, "inf.csv"), 20, infinite))
	fails(t, "is 1 in all rows for training: there is nothing to learn", "train", "--regression", "--data", tableFile(t, filepath.Join(dir, "same.csv"), 20, func(int) string { return "1" }))
}
