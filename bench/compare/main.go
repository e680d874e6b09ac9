// Command compare measures the same cases on each of the given devices in one run. It prints a line
// of JSON for each case and device. Some cases are training steps of perceptrons, a CNN and a small
// GPT, eager and as graphs, with their peak memory. Other cases are matrix products, elementwise
// operations, reductions and copies. bench/compare/torch_compare.py measures the cases in PyTorch.
// On a shared machine the times themselves are not reliable, so quote only ratios of times from one
// run.
//
//	go run ./bench/compare [-trial] [-only REGEXP] [-seconds 1.5] cpu cuda:0
//	go run ./bench/compare against [-trial] [-only REGEXP] [-rounds 5] DEVICE [COMMAND …]
//	go run ./bench/compare report tests|bench|against|sweep|sanitizer WORK OUT
//
// -trial makes all sizes small, for a check on an emulated GPU that everything runs.
//
// "compare against" measures the parts of a transformer and GPT-2's whole step, alternately with
// COMMAND, which runs PyTorch: "python3 torch_against.py cuda:0". Each round gives a ratio. The
// output contains the median of the ratios, and the minimum time that the GPU's published rates
// allow. On the CPU it measures the same cases as "compare" without "against", and COMMAND is
// "python3 torch_compare.py --peer cpu". The option -load starts processes that keep processors
// busy during the run. With -graphs our training steps are captured.
//
// "compare report" collects the files that scripts/gpu-run.sh has left in WORK, and writes results
// and log to OUT. It prints each failure, and says which of the promised results (report.go) were
// reached.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A row is one case on one device. Times are per step. On a GPU they are the GPU's time between two
// events, unless the case includes work of the host.
type row struct {
	Device   string  `json:"device"`
	Name     string  `json:"device_name"`
	Emulated bool    `json:"emulated"`
	Case     string  `json:"case"`
	Median   float64 `json:"median_seconds"`
	Least    float64 `json:"min_seconds"`
	Wall     float64 `json:"wall_seconds"` // median of the seconds on the host's clock
	Samples  int     `json:"samples"`
	Rate     float64 `json:"rate"`
	Unit     string  `json:"unit"`
	// Peak is the peak memory of a step, measured after the first steps.
	Peak    int `json:"peak_bytes"`
	Planned int `json:"planned_bytes,omitempty"` // peak memory that train.Plan computes
	// Context is the memory of the GPU in use outside of the library's pool.
	Context int    `json:"context_bytes,omitempty"`
	Error   string `json:"error,omitempty"`

	// Parameters is the number of parameters, and Loss the loss after all steps. Both are only for
	// the CPU.
	Parameters int     `json:"parameters,omitempty"`
	Loss       float64 `json:"loss,omitempty"`
	// FMAs is the rate of float32 FMAs that all threads together reach in this run.
	FMAs float64 `json:"fma_gflops,omitempty"`
	// Share is the rate of a product divided by the FMAs' rate. The two are measured in turns.
	Share float64 `json:"fma_share,omitempty"`

	// Bound is the minimum time that the GPU's published rates allow.
	Bound float64 `json:"bound_seconds,omitempty"`
	// Rounds are the medians of each round, in seconds.
	Rounds []float64 `json:"rounds,omitempty"`
	// Theirs are the peer's results, by variant.
	Theirs map[string]*peerResult `json:"theirs,omitempty"`
}

// run is a measurement of a case.
type run struct {
	dev    device.Device
	budget time.Duration
	trial  bool
	base   int  // number of bytes in use before the case
	graphs bool // whether training steps are captured and replayed, as in train.Fit
	rounds int  // number of rounds; 0 means 1. The peer measures after each round
	peer   *peer
	*row
}

// n returns size, or small in a trial.
func (r *run) n(size, small int) int {
	if r.trial {
		return small
	}
	return size
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "report":
			os.Exit(report(os.Args[2:]))
		case "against":
			runAgainst(os.Args[2:])
			return
		case "spin":
			spin()
		}
	}
	trial := flag.Bool("trial", false, "small sizes, few repetitions")
	only := flag.String("only", "", "the cases whose names this expression matches")
	seconds := flag.Float64("seconds", 1.5, "of measuring, for each case")
	flag.Parse()
	names := flag.Args()
	if len(names) == 0 {
		names = []string{"cpu"}
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		log.Fatalf("-only: %v", err)
	}
	out := json.NewEncoder(os.Stdout)
	var failed []string
	measured := 0
	for _, name := range names {
		dev, err := device.Open(name)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range casesOn(dev) {
			if !pattern.MatchString(c.name) {
				continue
			}
			measured++
			r := newRun(dev, c, *seconds, *trial)
			if r.measureCase(c) != nil {
				failed = append(failed, c.name+" on "+r.Device)
			}
			if err := out.Encode(r.row); err != nil {
				log.Fatal(err)
			}
		}
	}
	if measured == 0 {
		list := []string{}
		for _, c := range append(slices.Clone(cases), cpuCases...) {
			list = append(list, c.name)
		}
		log.Fatalf("no case on %s matches -only %q; there are, some for one kind of device: %s", strings.Join(names, ", "), *only, strings.Join(list, " "))
	}
	if len(failed) > 0 {
		log.Fatalf("%d cases failed: %s", len(failed), strings.Join(failed, ", "))
	}
}

func newRun(dev device.Device, c benchCase, seconds float64, trial bool) *run {
	info := dev.Info()
	return &run{dev: dev, budget: time.Duration(seconds * float64(time.Second)), trial: trial,
		row: &row{Device: dev.Name(), Name: info.Name, Emulated: info.Emulated, Case: c.name, Unit: c.unit}}
}

// measureCase measures a case, stores the result in the row, and prints it.
func (r *run) measureCase(c benchCase) error {
	runtime.GC() // frees the memory of the previous case
	r.base = r.dev.Stats().Allocated
	err := tensor.Try(func() { c.run(r) })
	if err != nil {
		r.Error = err.Error()
		fmt.Fprintf(os.Stderr, "%-8s %-28s %v\n", r.Device, r.Case, err)
		return err
	}
	share := ""
	if r.FMAs > 0 {
		share = fmt.Sprintf(", %.0f %% of the peak of FMAs", 100*r.Share)
	}
	fmt.Fprintf(os.Stderr, "%-8s %-28s %12.1f %s%s\n", r.Device, r.Case, r.Rate, r.Unit, share)
	return nil
}

// measure calls step until the time budget of each round is used up. One measurement covers the
// given number of calls. The first steps are not measured, because they compile kernels and raise
// clock rates. If gpuTime is true, measure takes the GPU's time, otherwise the host's time
// including the final wait. After each round, the peer measures its side.
func (r *run) measure(calls int, gpuTime bool, step func()) {
	gpu, _ := r.dev.(*cuda.Device)
	if r.trial {
		calls = 1
	}
	for start := time.Now(); ; {
		step()
		must(r.dev.Synchronize())
		if time.Since(start) > r.budget/4 || r.trial {
			break
		}
	}
	runtime.GC()
	r.dev.ResetPeak()
	var host, device []float64
	for range max(1, r.rounds) {
		h, d := r.sample(gpu, calls, step)
		counted := h
		if gpuTime && gpu != nil {
			counted = d
		}
		if r.rounds > 0 {
			r.Rounds = append(r.Rounds, median(counted))
			r.peerRound()
		}
		host, device = append(host, h...), append(device, d...)
	}
	r.Wall, r.Samples, r.Peak = median(host), len(host), r.dev.Stats().AllocatedPeak-r.base
	r.Median, r.Least = r.Wall, slices.Min(host)
	if gpuTime && gpu != nil {
		r.Median, r.Least = median(device), slices.Min(device)
	}
}

// sample calls step until the time budget is used up. Each measurement covers the given number of
// calls. It returns the seconds per step on the host's clock and, for a GPU, between two events.
func (r *run) sample(gpu *cuda.Device, calls int, step func()) (host, device []float64) {
	least, most := 5, 1000
	if r.trial {
		least, most = 1, 1
	}
	var start, end *cuda.Event
	if gpu != nil {
		start, end = timer(gpu), timer(gpu)
	}
	for began := time.Now(); len(host) < least || time.Since(began) < r.budget && len(host) < most; {
		t := time.Now()
		if gpu != nil {
			must(start.Record(nil))
		}
		for range calls {
			step()
		}
		if gpu != nil {
			must(end.Record(nil))
		}
		must(r.dev.Synchronize())
		host = append(host, time.Since(t).Seconds()/float64(calls))
		if gpu != nil {
			d, err := start.Elapsed(end)
			must(err)
			device = append(device, d.Seconds()/float64(calls))
		}
		if time.Since(began) > 4*r.budget {
			break
		}
	}
	return host, device
}

// median returns the median of a list. For an even number of elements it is the greater of the two
// in the middle.
func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

func timer(d *cuda.Device) *cuda.Event {
	e, err := cuda.NewEvent(d, cuda.EnableTiming())
	must(err)
	return e
}

func must(err error) {
	if err != nil {
		panic(tensor.NewError("compare", tensor.ErrValue, strings.TrimSpace(err.Error())))
	}
}
