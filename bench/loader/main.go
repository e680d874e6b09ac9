// Command loader measures the overhead of data.Loader. It runs an empty loop over samples that are
// already in memory, and prints the seconds per batch. With -python it also measures PyTorch's
// DataLoader, case by case, and prints ratios. On a shared machine only the ratios are reliable.
//
//	go run ./bench/loader -python python3
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os/exec"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// A benchCase is a dataset with a loader for it. The script torch_loader.py has cases with the same
// names.
type benchCase struct {
	name    string
	tensors bool // whether samples are tensors instead of slices
	bytes   bool // whether samples are uint8 instead of float32
	size    int  // number of elements in a sample
	batch   int
	workers int
	torch   string // number of PyTorch's workers, as text
}

const samples = 8192

var cases = []benchCase{
	{"tensors_16_b64", true, false, 16, 64, 1, "0 workers: in the loop's process"},
	{"tensors_16_b64", true, false, 16, 64, 2, "2 worker processes"},
	{"samples_64_b64", false, false, 64, 64, 1, "0 workers: in the loop's process"},
	{"samples_64_b64", false, false, 64, 64, 2, "2 worker processes"},
	{"samples_64_b1", false, false, 64, 1, 1, "0 workers: in the loop's process"},
	{"images_3072_b64", false, true, 3072, 64, 1, "0 workers: in the loop's process"},
	{"images_3072_b64", false, true, 3072, 64, 2, "2 worker processes"},
}

// inMemory is a dataset whose samples are already in memory.
type inMemory struct{ x []any }

func (d inMemory) Len() int                       { return len(d.x) }
func (d inMemory) Get(i int) (data.Sample, error) { return data.Sample{X: d.x[i], Y: i}, nil }

func (c benchCase) dataset() (data.Dataset, error) {
	if c.tensors {
		return data.NewTensorDataset(tensor.Root().Rand(samples, c.size), tensor.Root().Arange(samples))
	}
	d := inMemory{make([]any, samples)}
	for i := range d.x {
		if c.bytes {
			d.x[i] = make([]uint8, c.size)
		} else {
			d.x[i] = make([]float32, c.size)
		}
	}
	return d, nil
}

// run returns the seconds per batch, as the median over the epochs.
func (c benchCase) run(epochs int) (float64, error) {
	ds, err := c.dataset()
	if err != nil {
		return 0, err
	}
	l, err := data.NewLoader(ds, data.Config{Batch: c.batch, Shuffle: true, Workers: c.workers})
	if err != nil {
		return 0, err
	}
	var times []float64
	for e := range epochs + 1 {
		start, n := time.Now(), 0
		for b, err := range l.Batches() {
			if err != nil {
				return 0, err
			}
			b.Free()
			n++
		}
		if e > 0 {
			times = append(times, time.Since(start).Seconds()/float64(n))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func main() {
	log.SetFlags(0)
	python := flag.String("python", "", "a Python with torch, to measure PyTorch too")
	script := flag.String("script", "bench/loader/torch_loader.py", "the other side")
	epochs := flag.Int("epochs", 9, "of each case; the median counts")
	flag.Parse()
	fmt.Println("| case | workers | µs a batch | PyTorch, µs a batch | ratio |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, c := range cases {
		ours, err := c.run(*epochs)
		if err != nil {
			log.Fatalf("%s: %v", c.name, err)
		}
		theirs, ratio := "", ""
		if *python != "" {
			workers := c.workers
			if workers == 1 {
				workers = 0
			}
			out, err := exec.Command(*python, *script, c.name, fmt.Sprint(samples), fmt.Sprint(workers), fmt.Sprint(*epochs)).Output()
			var t float64
			if err == nil {
				err = json.Unmarshal(out, &t)
			}
			if err != nil {
				log.Fatalf("%s in PyTorch: %v", c.name, err)
			}
			theirs, ratio = fmt.Sprintf("%.1f (%s)", t*1e6, c.torch), fmt.Sprintf("%.2f", ours/t)
		}
		fmt.Printf("| %s | %d | %.1f | %s | %s |\n", c.name, c.workers, ours*1e6, theirs, ratio)
	}
}
