package main

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type kernelsCmd struct {
	Pack  packCmd  `cmd:"" help:"Write the kernels of models' training steps into a file that a program ships. The program's first step then compiles none of them. FLAMBEAU_KERNELS names the file, or cuda.OpenPack reads it."`
	Tuned tunedCmd `cmd:"" help:"List the matrix products that programs with FLAMBEAU_TUNE=1 have measured on this kind of GPU: the form that the cost model chose, the form that measurements chose, and their times."`
}

type packCmd struct {
	Models    []string `arg:"" name:"model" help:"Models: ${planmodels}."`
	Out       string   `help:"The file to write." short:"o" required:"" type:"path" placeholder:"FILE"`
	Batch     int      `help:"Samples in a batch." default:"8"`
	Seq       int      `help:"Tokens in a sample of text. 0 stands for the model's maximum." default:"0"`
	Image     int      `help:"Height and width of pictures. 0 stands for the model's own size." default:"0"`
	Classes   int      `help:"Number of classes. 0 stands for the model's own number." default:"0"`
	Optimizer string   `help:"Optimizer: ${optims}, or none for evaluation." default:"adamw"`
	Amp       string   `help:"Mixed precision: bf16 or fp16, or none." default:"none" enum:"none,bf16,fp16" placeholder:"TYPE"`
	TF32      bool     `help:"Let float32 products round their factors to TF32 on the tensor cores." name:"tf32"`
	Device    string   `help:"A GPU of this machine, cuda or cuda:N, whose driver compiles the kernels. Or the name of a GPU that this machine does not have: ${gpus}. For such a GPU the file gets PTX without machine code." default:"cuda" placeholder:"NAME"`
}

// plan returns the flags of the command plan for the given model.
func (c *packCmd) plan(model string) *planCmd {
	return &planCmd{Model: model, Batch: c.Batch, Seq: c.Seq, Image: c.Image, Classes: c.Classes, Optimizer: c.Optimizer, Amp: c.Amp, TF32: c.TF32, Device: "gpu"}
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *packCmd) Validate() error {
	for _, model := range c.Models {
		if err := c.plan(model).Validate(); err != nil {
			return err
		}
	}
	return writable("--out", c.Out)
}

// open opens the GPU. If there is none, it opens a device without memory that has the requested
// capability.
func (c *packCmd) open() (*cuda.Device, error) {
	dev, err := device.Open(c.Device)
	if err != nil {
		m, unknown := (&planCmd{Device: c.Device}).machine()
		if unknown != nil || c.Device == "gpu" {
			return nil, err
		}
		if dev, err = device.OpenMeta("cuda", device.MetaConfig{Capability: m.Capability}); err != nil {
			return nil, err
		}
	}
	if d, ok := dev.(*cuda.Device); ok {
		return d, nil
	}
	return nil, fmt.Errorf("--device %s: it has no kernels to pack", c.Device)
}

func (c *packCmd) Run(e *env) (err error) {
	d, err := c.open()
	if err != nil {
		return err
	}
	var stages []device.Device
	for _, model := range c.Models {
		stage, err := d.Rehearsal()
		if err != nil {
			return err
		}
		if err := tensor.Try(func() { tensor.Do(c.step(model), tensor.On(stage), tensor.Seed(0)) }); err != nil {
			return fmt.Errorf("%s: %w", model, err)
		}
		stages = append(stages, stage)
	}
	p, err := d.Pack(e.ctx, stages...)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(c.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := p.WriteTo(f)
	if err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	all, ready := p.Kernels(d)
	what := fmt.Sprintf("with machine code for %v and its driver, CUDA %s", d, d.Info().Driver)
	if ready == 0 {
		what = "as PTX; a GPU compiles them once it has the file (cuda.Device.Compile)"
	}
	_, err = fmt.Fprintf(e.out, "%d kernels, %s, in %s: %.1f MB\n", all, what, c.Out, float64(n)/1e6)
	return err
}

// step returns a function that runs a model's training step twice. The second step runs kernels
// that accumulate into the results of the first.
func (c *packCmd) step(model string) func(s *tensor.Scope) {
	plan := c.plan(model)
	return func(s *tensor.Scope) {
		p := planModels[model](plan).step(plan)(s, c.Batch)
		for range 2 {
			if p.Optimizer == nil {
				s.Do(func(s *tensor.Scope) { p.Loss(s) }, tensor.NoGrad())
				continue
			}
			nn.Train(p.Model)
			s.Do(func(s *tensor.Scope) { p.Loss(s).Backward() })
			p.Optimizer.Step()
		}
	}
}
