package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/train"
)

var writeGates = flag.Bool("write", false, "TestStepGates writes "+stepGates+" and "+stepPage)

const (
	stepGates = "testdata/stepgates.json"
	stepPage  = "../../bench/results/steps.md"
)

// A gatedStep is a training step whose cost must not exceed a limit.
type gatedStep struct {
	name   string // name of a model of "flambeau plan", or "gpt2-long"
	batch  int
	seq    int
	pixels bool
}

var gatedSteps = []gatedStep{
	{name: "mlp", batch: 128, pixels: true}, {name: "cnn", batch: 256, pixels: true},
	{name: "resnet18", batch: 32, pixels: true}, {name: "resnet50", batch: 32, pixels: true},
	{name: "gpt2", batch: 8, seq: 1024}, {name: "gpt2-long", batch: 2, seq: 2048},
	{name: "bert-base", batch: 16, seq: 512}, {name: "lstm", batch: 32, seq: 128},
}

// gatedGPUs are the GPUs on the page of costs, by their names in train.GPUs.
var gatedGPUs = []string{"a100", "h100", "h200", "4090"}

func (g gatedStep) title(amp string) string {
	size := fmt.Sprint(g.batch)
	if !g.pixels {
		size = fmt.Sprintf("%d×%d", g.batch, g.seq)
	}
	return fmt.Sprintf("%s, %s, %s", g.name, size, strings.Replace(amp, "none", "float32", 1))
}

// A stepCost is the cost of a step, or the greatest cost that is allowed.
type stepCost struct {
	Name          string             `json:"name"`
	Launches      int                `json:"launches"`
	Modules       int                `json:"modules"`
	Bytes         int                `json:"bytes"`
	TensorFLOPs   int                `json:"tensor_core_flops"`
	TensorIssued  int                `json:"tensor_core_issued_flops"`
	OtherFLOPs    int                `json:"other_flops"`
	OtherProducts int                `json:"other_product_flops"`
	Peak          int                `json:"peak_bytes"`
	Least         map[string]float64 `json:"least_seconds"`
}

// cost returns the planned cost of the step with AdamW on an H100.
func (g gatedStep) cost(t *testing.T, amp string) stepCost {
	t.Helper()
	c := &planCmd{Model: g.name, Batch: g.batch, Seq: g.seq, Optimizer: "adamw", Amp: amp, Device: "h100"}
	make := planModels[g.name]
	if g.name == "gpt2-long" { // a GPT-2 with as many positions as the text has tokens
		make = planGPT(func() models.GPTConfig {
			c := models.GPT2()
			c.Context = g.seq
			return c
		})
	}
	m, err := c.machine()
	if err != nil {
		t.Fatal(err)
	}
	r, err := train.Plan(make(c).step(c), train.PlanConfig{Machine: m, Batch: g.batch})
	if err != nil {
		t.Fatalf("%s: %v", g.title(amp), err)
	}
	n := countsOf(r)
	s := stepCost{g.title(amp), n.Launches, n.Modules, n.Bytes, n.TensorFLOPs, n.TensorIssued, n.OtherFLOPs, n.OtherProducts, r.Peak, map[string]float64{}}
	for _, name := range gatedGPUs {
		s.Least[name] = n.LeastSeconds[name]
	}
	return s
}

// exceeds lists the costs that are above the limits. Launches, modules, and operations of products
// outside the tensor cores must not rise at all. Every other cost that is checked may rise
// by one percent.
func (s stepCost) exceeds(limit stepCost) (what []string) {
	check := func(name string, got, most, slack int) {
		if got > most+slack {
			what = append(what, fmt.Sprintf("%s: %s are %d, the gate is %d", s.Name, name, got, most))
		}
	}
	check("launches", s.Launches, limit.Launches, 0)
	check("modules", s.Modules, limit.Modules, 0)
	check("bytes", s.Bytes, limit.Bytes, limit.Bytes/100)
	check("operations of products beside the tensor cores", s.OtherProducts, limit.OtherProducts, 0)
	check("operations beside the tensor cores", s.OtherFLOPs, limit.OtherFLOPs, limit.OtherFLOPs/100)
	check("operations that the tensor cores do, with padding,", s.TensorIssued, limit.TensorIssued, limit.TensorIssued/100)
	check("bytes at the peak", s.Peak, limit.Peak, limit.Peak/100)
	return what
}

// The cost of each step in gatedSteps is counted without running the step. It must be at most the
// limit in testdata/stepgates.json. The page bench/results/steps.md must show it. After an intended
// change of a cost, this command writes both files:
//
//	go test ./cmd/flambeau -run TestStepGates -args -write
//
// The diff of the files then shows the old numbers.
func TestStepGates(t *testing.T) {
	var now []stepCost
	for _, amp := range []string{"none", "bf16"} {
		for _, g := range gatedSteps {
			now = append(now, g.cost(t, amp))
		}
	}
	if *writeGates {
		text, err := json.MarshalIndent(now, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(stepGates, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(stepPage, pageOf(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(stepGates)
	if err != nil {
		t.Fatal(err)
	}
	var limits []stepCost
	if err := json.Unmarshal(text, &limits); err != nil {
		t.Fatal(err)
	}
	if len(limits) != len(now) {
		t.Fatalf("%d steps have gates, %d are counted", len(limits), len(now))
	}
	for i, s := range now {
		if s.Name != limits[i].Name {
			t.Fatalf("step %d is %s, the gates have %s", i, s.Name, limits[i].Name)
		}
		for _, what := range s.exceeds(limits[i]) {
			t.Error(what)
		}
		if s.Launches < limits[i].Launches || s.Modules < limits[i].Modules || s.Bytes < limits[i].Bytes || s.OtherProducts < limits[i].OtherProducts {
			t.Logf("%s costs less than its gate: -write lowers it", s.Name)
		}
	}
	page, err := os.ReadFile(stepPage)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page, pageOf(limits)) {
		t.Errorf("%s does not say what %s does: -write writes both", stepPage, stepGates)
	}
}

// Each limit rejects a higher cost of its own kind, and nothing else.
func TestStepGatesStop(t *testing.T) {
	limit := stepCost{Launches: 100, Modules: 10, Bytes: 1000, OtherProducts: 5, OtherFLOPs: 1000, TensorIssued: 1000, Peak: 1000}
	if what := limit.exceeds(limit); what != nil {
		t.Errorf("what it costs now is above its gate: %v", what)
	}
	for name, change := range map[string]func(s *stepCost){
		"launches": func(s *stepCost) { s.Launches++ }, "modules": func(s *stepCost) { s.Modules++ },
		"bytes are": func(s *stepCost) { s.Bytes += 11 }, "of products": func(s *stepCost) { s.OtherProducts++ },
		"operations beside": func(s *stepCost) { s.OtherFLOPs += 11 }, "padding": func(s *stepCost) { s.TensorIssued += 11 },
		"at the peak": func(s *stepCost) { s.Peak += 11 },
	} {
		s := limit
		change(&s)
		if what := s.exceeds(limit); len(what) != 1 || !strings.Contains(what[0], name) {
			t.Errorf("more %s: %v", name, what)
		}
	}
	s := limit
	s.Bytes += 10
	s.Launches--
	if what := s.exceeds(limit); what != nil {
		t.Errorf("within the gates: %v", what)
	}
}

// pageOf returns the text of the page that shows the costs.
func pageOf(list []stepCost) []byte {
	var b bytes.Buffer
	b.WriteString(`# Training steps on a GPU: counted, not run

Nothing on this page was measured on a GPU. The second of two training steps with AdamW is run on
a device without memory, where launches are counted and kernels are not run.

    go test ./cmd/flambeau -run TestStepGates -args -write

writes this page, and the same test without the flag fails where a step has become more expensive.
` + "`flambeau plan`" + ` counts any other step.

- Launches are kernels. Modules are different kernels, each of which the driver loads and at first
  compiles.
- GB is what the kernels at least read and write, each operand of a primitive once.
- TFLOP are operations: those of products on the tensor cores, the same as issued with the padding
  of tiles, and all others. The last of the four is, of the others, those of matrix products.
- The peak is of the memory in use, in GiB.
- Milliseconds are the least that the kernels allow on a GPU of that name: of each primitive the
  longer of its operations at the peak rate of their unit, and its bytes at the full bandwidth. The
  rates are those of NVIDIA's datasheets, which ` + "`train/machine.go`" + ` cites.
- The last column is what the launches alone take outside of a graph, at 3.8 µs each.

| step | launches | modules | GB | tensor cores | issued | others | products | peak | `)
	for _, g := range gatedGPUs {
		fmt.Fprintf(&b, "%s | ", strings.ToUpper(g))
	}
	b.WriteString("launches |\n|" + " --- |")
	b.WriteString(strings.Repeat(" ---: |", 9+len(gatedGPUs)) + "\n")
	for _, s := range list {
		tera := func(n int) float64 { return float64(n) / 1e12 }
		fmt.Fprintf(&b, "| %s | %d | %d | %.3g | %.4g | %.4g | %.3g | %.3g | %.2f | ", s.Name, s.Launches, s.Modules, float64(s.Bytes)/1e9,
			tera(s.TensorFLOPs), tera(s.TensorIssued), tera(s.OtherFLOPs), tera(s.OtherProducts), float64(s.Peak)/(1<<30))
		for _, g := range gatedGPUs {
			fmt.Fprintf(&b, "%.3g | ", 1e3*s.Least[g])
		}
		fmt.Fprintf(&b, "%.2f |\n", 1e3*train.LaunchSeconds(s.Launches))
	}
	return b.Bytes()
}
