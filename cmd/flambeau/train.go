package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

var errInterrupted = errors.New("interrupted")

type trainCmd struct {
	Device string  `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
	Epochs int     `help:"Times to go over the training set." default:"60"`
	Steps  int     `help:"Stop after this many steps, 0 for no such limit." default:"0"`
	Batch  int     `help:"Samples a step." default:"32"`
	LR     float64 `help:"Learning rate at the start; it falls to zero along a cosine." name:"lr" default:"0.003"`
	Seed   uint64  `help:"Seed of weights, dropout and order." default:"1"`
	Out    string  `help:"Write the trained weights to this safetensors file." type:"path" placeholder:"FILE"`
	JSON   bool    `help:"Print one JSON object as the last line." name:"json"`
	Losses bool    `help:"With --json: include the loss of every step."`
}

// Validate is called by kong.
func (c *trainCmd) Validate() error {
	switch {
	case c.Epochs < 1 || c.Epochs > 1e9:
		return fmt.Errorf("--epochs %d: 1 to a billion", c.Epochs)
	case c.Steps < 0:
		return fmt.Errorf("--steps %d: a number of steps cannot be negative", c.Steps)
	case c.Batch < 1:
		return fmt.Errorf("--batch %d: at least 1 sample is needed", c.Batch)
	case !(c.LR > 0) || math.IsInf(c.LR, 1):
		return fmt.Errorf("--lr %v: a learning rate is a positive number", c.LR)
	case c.Losses && !c.JSON:
		return errors.New("--losses: the losses are part of the JSON object; add --json")
	}
	return nil
}

// result is the JSON object that --json prints.
type result struct {
	Device           string    `json:"device"`
	DeviceName       string    `json:"device_name"`
	Emulated         bool      `json:"emulated"`
	Steps            int       `json:"steps"`
	TrainLoss        float64   `json:"train_loss"`
	TestAccuracy     float64   `json:"test_accuracy"`
	Seconds          float64   `json:"seconds"`
	SamplesPerSecond float64   `json:"samples_per_second"`
	PeakDeviceBytes  int       `json:"peak_device_bytes"`
	Losses           []float64 `json:"losses,omitempty"`
}

// Run trains.
func (c *trainCmd) Run(e *env) error {
	if err := c.checkOut(); err != nil {
		return err
	}
	dev, why, err := c.open()
	if err != nil {
		return err
	}
	fmt.Fprintln(e.err, why)
	set, err := digits.Load()
	if err != nil {
		return err
	}
	train, test := set.Split()
	var r *result
	var stopped error
	if err := tensor.Try(func() { r, stopped = c.train(e, dev, train, test) }); err != nil {
		return err
	}
	if stopped != nil && !errors.Is(stopped, errInterrupted) {
		return stopped
	}
	fmt.Fprintf(e.err, "%d steps in %.1f s (%.0f samples/s), training loss %.4f, test accuracy %.4f\n",
		r.Steps, r.Seconds, r.SamplesPerSecond, r.TrainLoss, r.TestAccuracy)
	if c.JSON {
		if !c.Losses {
			r.Losses = nil
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(e.out, string(text)); err != nil {
			return err
		}
	}
	return stopped
}

// checkOut finds what would keep the weights from being written, before the work and not after it.
func (c *trainCmd) checkOut() error {
	if c.Out == "" {
		return nil
	}
	if info, err := os.Stat(c.Out); err == nil && info.IsDir() {
		return fmt.Errorf("--out %s is a folder; name a file in it", c.Out)
	}
	if info, err := os.Stat(filepath.Dir(c.Out)); err != nil {
		return fmt.Errorf("--out %s: %w", c.Out, err)
	} else if !info.IsDir() {
		return fmt.Errorf("--out %s: %s is not a folder", c.Out, filepath.Dir(c.Out))
	}
	return nil
}

// open finds the device and the reason for it.
func (c *trainCmd) open() (device.Device, string, error) {
	if c.Device == "auto" {
		d, why := device.Best()
		return d, announce(d, why), nil
	}
	d, err := device.Open(c.Device)
	if err != nil {
		var u *device.UnavailableError
		if errors.As(err, &u) && strings.HasPrefix(c.Device, "cuda") {
			return nil, "", fmt.Errorf("%w; --device cpu works without it", err)
		}
		return nil, "", err
	}
	return d, announce(d, "using "+d.Name()+" ("+d.Info().Name+")"), nil
}

// announce adds to why that a device is emulated.
func announce(d device.Device, why string) string {
	if d.Info().Emulated {
		why += ": EMULATED, results are real, times are not"
	}
	return why
}

// model returns the classifier. Its size and dropout were chosen by four-fold validation inside the training set.
func model() *nn.Sequential {
	const hidden, dropout = 256, 0.4
	return nn.NewSequential(
		nn.NewLinear(digits.Pixels, hidden), nn.ReLU{}, nn.NewDropout(dropout),
		nn.NewLinear(hidden, digits.Classes))
}

// lossChunk is how many losses are collected on the device before they are read.
const lossChunk = 32

func (c *trainCmd) train(e *env, dev device.Device, train, test *digits.Set) (*result, error) {
	tensor.Root().Generator().SetState(c.Seed, 0)
	m := nn.To(model(), dev)
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: c.LR, WeightDecay: 0.1})
	loader, err := data.NewLoader(train, data.Config{Batch: c.Batch, Shuffle: true, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	total := c.Epochs * loader.Len()
	if c.Steps > 0 {
		total = min(total, c.Steps)
	}
	r := &result{Device: dev.Name(), DeviceName: dev.Info().Name, Emulated: dev.Info().Emulated}
	log := tensor.Root().On(dev).Zeros(lossChunk)
	bar := newProgress(e.err, e.terminal, total)
	samples := 0
	start := time.Now()
	var stopped error
	// read fetches the collected losses and stops at one that is no number.
	read := func() error {
		for _, v := range tensor.Data[float32](log)[:r.Steps-len(r.Losses)] {
			if v != v || math.IsInf(float64(v), 0) {
				return fmt.Errorf("the loss is %v at step %d; try a smaller --lr than %v", v, len(r.Losses)+1, c.LR)
			}
			r.Losses = append(r.Losses, float64(v))
			r.TrainLoss = float64(v)
		}
		return nil
	}
epochs:
	for epoch := 0; r.Steps < total; epoch++ {
		for batch, err := range loader.Batches() {
			if err != nil {
				return nil, err
			}
			if e.ctx.Err() != nil {
				stopped = errInterrupted
				break epochs
			}
			opt.SetLR(c.LR * 0.5 * (1 + math.Cos(math.Pi*float64(r.Steps)/float64(total))))
			samples += len(batch.Index)
			tensor.Do(func(s *tensor.Scope) {
				loss := nn.CrossEntropy(m.Forward(s.From(batch.X)), s.From(batch.Y))
				loss.Backward()
				opt.Step()
				opt.ZeroGrad()
				log.Select(0, r.Steps%lossChunk).Copy(loss.Detach())
			}, tensor.On(dev))
			r.Steps++
			if r.Steps%lossChunk == 0 || r.Steps == total {
				if err := read(); err != nil {
					return nil, err
				}
			}
			text := ""
			if len(r.Losses) > 0 {
				text = fmt.Sprintf("loss %.4f", r.TrainLoss)
			}
			bar.step(r.Steps, text)
			if r.Steps == total {
				break
			}
		}
		if (epoch+1)%10 == 0 {
			bar.line(fmt.Sprintf("epoch %d: loss %.4f", epoch+1, r.TrainLoss))
		}
	}
	if r.Steps > len(r.Losses) {
		if err := read(); err != nil {
			return nil, err
		}
	}
	bar.done()
	r.Seconds = time.Since(start).Seconds()
	r.SamplesPerSecond = float64(samples) / r.Seconds
	if r.TestAccuracy, err = accuracy(m, dev, test); err != nil {
		return nil, err
	}
	r.PeakDeviceBytes = dev.Stats().AllocatedPeak
	if stopped != nil {
		bar.line("interrupted: the model is kept as it is")
	}
	if c.Out != "" {
		if err := c.save(m); err != nil {
			return nil, err
		}
		bar.line("weights written to " + c.Out)
	}
	return r, stopped
}

// save writes the parameters under their names.
func (c *trainCmd) save(m any) error {
	named := map[string]*tensor.Tensor{}
	for _, p := range nn.Named(m) {
		named[p.Name] = p.Tensor
	}
	return safetensors.Save(c.Out, named, nil)
}

// accuracy returns the fraction of a set that the model classifies rightly.
func accuracy(m *nn.Sequential, dev device.Device, set *digits.Set) (float64, error) {
	nn.Eval(m)
	defer nn.Train(m)
	loader, err := data.NewLoader(set, data.Config{Batch: 256})
	if err != nil {
		return 0, err
	}
	right := 0.0
	for batch, err := range loader.Batches() {
		if err != nil {
			return 0, err
		}
		tensor.Do(func(s *tensor.Scope) {
			guess := m.Forward(s.From(batch.X)).Argmax(-1)
			right += guess.Eq(s.From(batch.Y)).Sum().Item()
		}, tensor.On(dev), tensor.NoGrad())
	}
	return right / float64(set.Len()), nil
}
