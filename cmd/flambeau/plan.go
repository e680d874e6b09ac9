package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/flambeau-go/flambeau/train"
)

// errTooLarge says that the step needs more memory than the device has. The report gives details.
var errTooLarge = errors.New("the step does not fit")

type planCmd struct {
	Model         string `help:"Model: ${planmodels}." required:"" placeholder:"NAME"`
	Batch         int    `help:"Samples in a batch." default:"8"`
	Seq           int    `help:"Tokens in a sample of text. 0 stands for the model's maximum." default:"0"`
	Image         int    `help:"Height and width of pictures. 0 stands for the model's own size." default:"0"`
	Classes       int    `help:"Number of classes. 0 stands for the model's own number." default:"0"`
	Optimizer     string `help:"Optimizer: ${optims}, or none for evaluation." default:"adamw"`
	Amp           string `help:"Mixed precision: bf16 or fp16, or none." default:"none" enum:"none,bf16,fp16" placeholder:"TYPE"`
	TF32          bool   `help:"Let float32 products round their factors to TF32 on the tensor cores." name:"tf32"`
	Checkpointing bool   `help:"Compute activations again in the backward pass instead of keeping them."`
	Device        string `help:"Device to plan for: ${gpus}, in any common spelling such as rtx4090 or A100-SXM4-80GB. cpu is this machine's, and its speed is measured. gpu is one of unknown memory and speed. Default: h100." default:"h100" placeholder:"NAME"`
	DeviceMemory  string `help:"Memory of the device, such as 24GiB, if it differs from that of the named device." name:"device-memory" placeholder:"SIZE"`
	MaxBatch      int    `help:"Upper end of the search for the largest batch that fits. The search takes about ten runs. 0 stands for no search." name:"max-batch" default:"65536"`
	JSON          bool   `help:"Print one JSON object as the last line." name:"json"`
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *planCmd) Validate() error {
	switch {
	case c.Model == "":
		return fmt.Errorf("--model: which one is missing; known are %s", planModelNames())
	case planModels[c.Model] == nil:
		return fmt.Errorf("--model %s: known are %s", c.Model, planModelNames())
	case c.Batch < 1 || c.Batch > 1<<24:
		return fmt.Errorf("--batch %d: 1 to %d samples", c.Batch, 1<<24)
	case c.Seq < 0 || c.Image < 0 || c.Classes < 0 || c.MaxBatch < 0:
		return errors.New("--seq, --image, --classes and --max-batch cannot be negative")
	case c.MaxBatch > 1<<24:
		return fmt.Errorf("--max-batch %d: at most %d samples", c.MaxBatch, 1<<24)
	case c.Optimizer != "none" && optims[c.Optimizer] == nil:
		return fmt.Errorf("--optimizer %s: known are %s, none", c.Optimizer, namesOf(optims))
	}
	if err := planModels[c.Model](c).check(c); err != nil {
		return err
	}
	_, err := c.memory()
	if err == nil && c.Device != "cpu" && c.Device != "gpu" {
		_, err = c.machine()
	}
	return err
}

// memory returns the bytes of --device-memory, or 0 if it is not set.
func (c *planCmd) memory() (int, error) {
	if c.DeviceMemory == "" {
		return 0, nil
	}
	n, err := parseSize(c.DeviceMemory)
	if err != nil || n < 1<<20 || n > 1<<42 {
		return 0, fmt.Errorf("--device-memory %s: a size from 1MiB to 4TiB is wanted, such as 24GiB or 24GB", c.DeviceMemory)
	}
	return int(n), nil
}

// machine returns the machine that --device describes.
func (c *planCmd) machine() (train.Machine, error) {
	switch c.Device {
	case "cpu":
		return train.MeasureCPU()
	case "gpu":
		return train.Machine{Kind: "cuda"}, nil
	}
	m, err := train.FindGPU(c.Device)
	var e *train.Error
	if errors.As(err, &e) {
		err = fmt.Errorf("--device: %s, cpu, gpu", e.Msg)
	}
	return m, err
}

func gpuNames() string {
	var names []string
	for _, m := range train.GPUs() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// planReport is the output of plan as JSON.
type planReport struct {
	Model         string        `json:"model"`
	Device        string        `json:"device"`
	Memory        int           `json:"device_memory_bytes,omitempty"`
	Batch         int           `json:"batch"`
	Seq           int           `json:"seq,omitempty"`
	Image         int           `json:"image,omitempty"`
	Optimizer     string        `json:"optimizer"`
	Amp           string        `json:"amp"`
	TF32          bool          `json:"tf32"`
	Checkpointing bool          `json:"checkpointing"`
	Peak          int           `json:"peak_bytes"`
	Reserved      int           `json:"reserved_bytes"`
	PeakAt        string        `json:"peak_at"`
	Breakdown     planBreakdown `json:"breakdown"`
	Parameters    int           `json:"parameters"`
	FLOPs         planFLOPs     `json:"flops"`
	Kernels       int           `json:"kernels"`
	planCounts                  // counts of a GPU's work
	Fits          *bool         `json:"fits"` // null if the memory is unknown
	// MaxBatch is the largest batch that fits, or null if no search for it was requested.
	MaxBatch *int     `json:"max_batch"`
	Seconds  *float64 `json:"seconds_estimate"` // null if the speed is unknown
}

// planCounts counts the work of a GPU. For a CPU all fields are null or zero.
type planCounts struct {
	Launches    int `json:"launches"`
	Modules     int `json:"modules"` // number of different kernels
	Bytes       int `json:"bytes"`   // bytes that kernels read and write
	TensorFLOPs int `json:"tensor_core_flops"`
	// TensorIssued is the number of operations on tensor cores, including operations on padding.
	TensorIssued int `json:"tensor_core_issued_flops"`
	OtherFLOPs   int `json:"other_flops"` // operations outside of tensor cores
	// OtherProducts is the part of other_flops that belongs to matrix products.
	OtherProducts int     `json:"other_product_flops"`
	Float64FLOPs  int     `json:"float64_flops"` // the part of other_flops in float64
	LaunchSeconds float64 `json:"launch_seconds"`
	// LeastSeconds is the least possible time on each kind of GPU, without the time of launches.
	LeastSeconds map[string]float64 `json:"least_seconds"`
}

func countsOf(r *train.Report) planCounts {
	u := r.Units
	return planCounts{Launches: r.Launches, Modules: r.Modules, Bytes: r.Bytes, TensorFLOPs: u.Tensor, TensorIssued: u.Issued,
		OtherFLOPs: u.Float64 + u.Other, OtherProducts: u.Products, Float64FLOPs: u.Float64,
		LaunchSeconds: train.LaunchSeconds(r.Launches), LeastSeconds: r.Least}
}

type planBreakdown struct {
	Weights     int `json:"weights"`
	Gradients   int `json:"gradients"`
	Optimizer   int `json:"optimizer"`
	Activations int `json:"activations"`
	Workspace   int `json:"workspace"`
	Other       int `json:"other"`
	Rounding    int `json:"rounding"`
}

type planFLOPs struct {
	Forward   int `json:"forward"`
	Backward  int `json:"backward"`
	Optimizer int `json:"optimizer"`
	Total     int `json:"total"`
	MatMul    int `json:"matmul"`
}

func (c *planCmd) Run(e *env) error {
	m, err := c.machine()
	if err != nil {
		return err
	}
	memory, err := c.memory()
	if err != nil {
		return err
	}
	p := planModels[c.Model](c)
	cfg := train.PlanConfig{Machine: m, Memory: memory, Batch: c.Batch}
	if memory > 0 || m.Memory > 0 {
		if cfg.MaxBatch = c.MaxBatch; c.MaxBatch > 0 {
			cfg.MaxBatch = max(c.MaxBatch, c.Batch)
		}
	}
	r, err := train.Plan(p.step(c), cfg)
	switch {
	case p.whole:
		return fmt.Errorf("--checkpointing: %s has no part that can compute its activations again", c.Model)
	case err != nil:
		return err
	}
	if err := c.print(e, p, m, r); err != nil && !c.JSON {
		return err
	}
	if c.JSON {
		b := r.Breakdown
		o := planReport{Model: c.Model, Device: cmp.Or(m.Name, c.Device), Memory: r.Memory, Batch: r.Batch, Seq: p.seq, Image: p.image, Optimizer: c.Optimizer, Amp: c.Amp, TF32: c.TF32, Checkpointing: c.Checkpointing,
			Peak: r.Peak, Reserved: r.Reserved, PeakAt: r.At, Parameters: r.Parameters, Kernels: r.Kernels, planCounts: countsOf(r),
			Breakdown: planBreakdown{b.Weights, b.Gradients, b.Optimizer, b.Activations, b.Workspace, b.Other, b.Rounding},
			FLOPs:     planFLOPs{r.FLOPs.Forward, r.FLOPs.Backward, r.FLOPs.Optimizer, r.FLOPs.Total(), r.FLOPs.MatMul}}
		if r.Memory > 0 {
			o.Fits = &r.Fits
			if c.MaxBatch > 0 {
				o.MaxBatch = &r.MaxBatch
			}
		}
		if r.Seconds > 0 {
			o.Seconds = &r.Seconds
		}
		if err := json.NewEncoder(e.out).Encode(o); err != nil {
			return err
		}
	}
	if !r.Fits {
		return errTooLarge
	}
	return nil
}

// print writes the report as text. With --json the text goes to standard error.
func (c *planCmd) print(e *env, p *planned, m train.Machine, r *train.Report) error {
	to := e.out
	if c.JSON {
		to = e.err
	}
	out := bufio.NewWriter(to) // remembers the first error
	fmt.Fprintf(out, "%s, %s", c.Model, p.batchText(c.Batch))
	if c.Optimizer == "none" {
		fmt.Fprint(out, ", evaluation")
	} else {
		fmt.Fprint(out, ", trained by "+c.Optimizer)
	}
	if c.Amp != "none" {
		fmt.Fprint(out, ", in "+c.Amp+" where that is safe")
	}
	if c.TF32 {
		fmt.Fprint(out, ", products of float32 in TF32 where a GPU gains by it")
	}
	if c.Checkpointing {
		fmt.Fprint(out, ", activations computed again")
	}
	fmt.Fprint(out, "\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int) {
		fmt.Fprintf(w, "%s\t%s\t%.1f %%\t\n", name, byteCount(n), 100*float64(n)/float64(max(r.Peak, 1)))
	}
	fmt.Fprintf(w, "memory at the peak\t%s\t\t\n", byteCount(r.Peak))
	b := r.Breakdown
	row("weights", b.Weights)
	row("gradients", b.Gradients)
	row("optimizer", b.Optimizer)
	row("activations", b.Activations)
	row("workspace", b.Workspace)
	row("other", b.Other)
	row("rounding", b.Rounding)
	w.Flush()
	at := r.At
	if at == "" { // the peak has only memory that is always in use
		at = "the weights alone"
	}
	fmt.Fprintf(out, "\nthe peak is in %s; the allocator holds %s for it\n", at, byteCount(r.Reserved))
	fmt.Fprintf(out, "parameters   %s\n", count(float64(r.Parameters), ""))
	f := r.FLOPs
	fmt.Fprintf(out, "operations   %s forward, %s backward, %s optimizer; %s of them in matrix products; %d kernels\n",
		count(float64(f.Forward), ""), count(float64(f.Backward), ""), count(float64(f.Optimizer), ""), count(float64(f.MatMul), ""), r.Kernels)
	if u := r.Units; r.Launches > 0 {
		fmt.Fprintf(out, "units        %s on tensor cores (%s with padding), %s elsewhere, %s of these in matrix products\n",
			count(float64(u.Tensor), ""), count(float64(u.Issued), ""), count(float64(u.Float64+u.Other), ""), count(float64(u.Products), ""))
		fmt.Fprintf(out, "launches     %d of %d kernels, %s moved; launches alone %s outside of a graph\n",
			r.Launches, r.Modules, count(float64(r.Bytes), "B"), seconds(train.LaunchSeconds(r.Launches)))
		var least []string
		for _, g := range train.GPUs() {
			least = append(least, fmt.Sprintf("%s %s", g.Name, seconds(r.Least[g.Name])))
		}
		fmt.Fprintf(out, "at least     %s, by the rooflines of the kernels without launches\n", strings.Join(least, ", "))
	}
	if r.Seconds > 0 {
		kind := "at least, by the roofline of " + m.Product + " and a launch for each kernel"
		if m.Kind == "cpu" {
			kind = "about, by the rates measured of " + m.Product
		}
		fmt.Fprintf(out, "time         %s a step %s\n", seconds(r.Seconds), kind)
	}
	switch {
	case r.Memory == 0:
		fmt.Fprintln(out, "whether it fits is not known: --device with the name of a GPU, or --device-memory, says how much there is")
	case r.Fits:
		fmt.Fprintf(out, "it fits      in %s%s\n", byteCount(r.Memory), largest(c, r))
	default:
		fmt.Fprintf(out, "IT DOES NOT FIT in %s%s\n", byteCount(r.Memory), largest(c, r))
	}
	if m.Kind == "cuda" {
		fmt.Fprintln(out, "not counted  what NVIDIA's driver keeps on the GPU for itself, and other programs")
	} else {
		fmt.Fprintln(out, "not counted  buffers below 8 KiB, the data set, the program itself")
	}
	return out.Flush()
}

// largest describes the largest batch that fits, in words.
func largest(c *planCmd, r *train.Report) string {
	switch {
	case c.MaxBatch == 0:
		return ""
	case r.MaxBatch == 0:
		return "; no batch does"
	case r.MaxBatch == max(c.MaxBatch, c.Batch):
		return fmt.Sprintf("; a batch of %d does, larger ones were not tried (--max-batch)", r.MaxBatch)
	}
	return fmt.Sprintf("; the largest batch that does is %d", r.MaxBatch)
}

// count formats a large number with a unit.
func count(x float64, unit string) string {
	k := 0
	for x >= 1000 && k < 5 {
		x /= 1000
		k++
	}
	return strings.TrimSpace(fmt.Sprintf("%.4g %s%s", x, []string{"", "k", "M", "G", "T", "P"}[k], unit))
}

// seconds formats a number of seconds.
func seconds(s float64) string {
	switch {
	case s < 1e-3:
		return fmt.Sprintf("%.3g µs", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g s", s)
}

func planModelNames() string {
	var names []string
	for name := range planModels {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
