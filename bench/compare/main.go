// Command compare measures the same cases on each of the given devices in one run and prints a line of JSON for each: training steps of
// perceptrons, a CNN and a small GPT, with their peak of memory, eager and as graphs; matrix products; elementwise operations, reductions and
// copies. bench/compare/torch_compare.py measures them in PyTorch. Single numbers of a shared machine mean little; ratios within one run are
// what is quoted.
//
//	go run ./bench/compare [-trial] [-only REGEXP] [-seconds 1.5] cpu cuda:0
//	go run ./bench/compare report tests|bench|sweep|sanitizer WORK OUT
//
// -trial shrinks everything, to see on an emulated GPU that all of it runs. report puts together what scripts/gpu-run.sh has left in WORK:
// results and log into OUT, the verdict on what is promised and each failure to the terminal.
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

// A row is one case on one device. Times are of one step; of a GPU they are the GPU's, between two events, where the case has no host part.
type row struct {
	Device   string  `json:"device"`
	Name     string  `json:"device_name"`
	Emulated bool    `json:"emulated"`
	Case     string  `json:"case"`
	Median   float64 `json:"median_seconds"`
	Least    float64 `json:"min_seconds"`
	Wall     float64 `json:"wall_seconds"` // median by the host's clock
	Samples  int     `json:"samples"`
	Rate     float64 `json:"rate"`
	Unit     string  `json:"unit"`
	Peak     int     `json:"peak_bytes"`              // of memory in use by the case, in a step after the first ones
	Planned  int     `json:"planned_bytes,omitempty"` // that peak as train.Plan tells it
	Context  int     `json:"context_bytes,omitempty"` // of the GPU's memory that is in use and not the pool's
	Error    string  `json:"error,omitempty"`
}

// run is a case being measured.
type run struct {
	dev    device.Device
	budget time.Duration
	trial  bool
	base   int // bytes in use before the case
	*row
}

// n is a size, a small one in a trial.
func (r *run) n(size, small int) int {
	if r.trial {
		return small
	}
	return size
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == "report" {
		os.Exit(report(os.Args[2:]))
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
		for _, c := range cases {
			if !pattern.MatchString(c.name) || c.gpu && dev.Info().Kind != "cuda" {
				continue
			}
			measured++
			r := run{dev: dev, budget: time.Duration(*seconds * float64(time.Second)), trial: *trial,
				row: &row{Device: dev.Name(), Name: dev.Info().Name, Emulated: dev.Info().Emulated, Case: c.name, Unit: c.unit}}
			runtime.GC() // what the case before has left
			r.base = dev.Stats().Allocated
			if err := tensor.Try(func() { c.run(&r) }); err != nil {
				r.Error = err.Error()
				failed = append(failed, c.name+" on "+r.Device)
				fmt.Fprintf(os.Stderr, "%-8s %-28s %v\n", r.Device, r.Case, err)
			} else {
				fmt.Fprintf(os.Stderr, "%-8s %-28s %12.1f %s\n", r.Device, r.Case, r.Rate, r.Unit)
			}
			if err := out.Encode(r.row); err != nil {
				log.Fatal(err)
			}
		}
	}
	if measured == 0 {
		list := []string{}
		for _, c := range cases {
			list = append(list, c.name)
		}
		log.Fatalf("no case on %s matches -only %q; there are, some for GPUs alone: %s", strings.Join(names, ", "), *only, strings.Join(list, " "))
	}
	if len(failed) > 0 {
		log.Fatalf("%d cases failed: %s", len(failed), strings.Join(failed, ", "))
	}
}

// measure times inner calls of step together, until the budget is used up, after a warm-up that compiles the kernels and brings the clocks up.
// The GPU's time counts where it is asked for, otherwise the host's, the wait at the end included.
func (r *run) measure(inner int, gpuTime bool, step func()) {
	gpu, _ := r.dev.(*cuda.Device)
	least, most := 5, 1000
	if r.trial {
		inner, least, most = 1, 1, 1
	}
	wait := func() { must(r.dev.Synchronize()) }
	for start := time.Now(); ; {
		step()
		wait()
		if time.Since(start) > r.budget/4 || r.trial {
			break
		}
	}
	runtime.GC()
	r.dev.ResetPeak()
	var start, end *cuda.Event
	if gpu != nil {
		start, end = timer(gpu), timer(gpu)
	}
	var host, device []float64
	for began := time.Now(); len(host) < least || time.Since(began) < r.budget && len(host) < most; {
		t := time.Now()
		if gpu != nil {
			must(start.Record(nil))
		}
		for range inner {
			step()
		}
		if gpu != nil {
			must(end.Record(nil))
		}
		wait()
		host = append(host, time.Since(t).Seconds()/float64(inner))
		if gpu != nil {
			d, err := start.Elapsed(end)
			must(err)
			device = append(device, d.Seconds()/float64(inner))
		}
		if time.Since(began) > 4*r.budget {
			break
		}
	}
	slices.Sort(host)
	slices.Sort(device)
	r.Wall, r.Samples, r.Peak = host[len(host)/2], len(host), r.dev.Stats().AllocatedPeak-r.base
	r.Median, r.Least = r.Wall, host[0]
	if gpuTime && gpu != nil {
		r.Median, r.Least = device[len(device)/2], device[0]
	}
}

func timer(d *cuda.Device) *cuda.Event {
	e, err := cuda.NewEvent(d, cuda.EnableTiming())
	must(err)
	return e
}

// must panics with what comes out of tensor.Try.
func must(err error) {
	if err != nil {
		panic(tensor.NewError("compare", tensor.ErrValue, strings.TrimSpace(err.Error())))
	}
}
