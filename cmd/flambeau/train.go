package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

var errInterrupted = errors.New("interrupted")

type trainCmd struct {
	Data   string `help:"Data to train on: a directory of IDX files (MNIST), CIFAR's files, a directory of directories of pictures, a CSV table or a text file. Or the name of a published set, such as mnist, to download. Default: embedded digits of 8×8 pixels." placeholder:"PATH"`
	Model  string `help:"Model: ${models}. Default: one that suits the data." placeholder:"NAME"`
	Hidden int    `help:"Width of the hidden layer of an mlp or cnn, or of a gpt." placeholder:"N"`
	Size   int    `help:"Resize pictures to squares of this many pixels. By default, pictures of several sizes are resized to the median of their shorter sides, at most 224." placeholder:"N"`
	Init   string `help:"Begin with the weights of this file: safetensors, .pt, or a directory of checkpoints. If the weights are for other classes, a new last layer replaces theirs, and the command says so." type:"path" placeholder:"FILE"`
	Freeze bool   `help:"With --init: only the last layer learns, and all others keep the weights of the file. Batch normalisation keeps and uses its running statistics."`

	Device  string   `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
	Devices []string `help:"Train on several devices at once: cuda:0,cuda:1, or all for all GPUs. cpu,cpu gives two shares of the processor. Each device computes a part of every batch, and the step is that of the whole batch." placeholder:"LIST"`
	Epochs  *int     `help:"How many times to go over the training set." placeholder:"N"`
	Steps   int      `help:"Stop after this many steps. 0 stands for no limit." default:"0"`
	Batch   *int     `help:"Samples in a batch." placeholder:"N"`
	LR      *float64 `help:"Greatest learning rate." name:"lr" placeholder:"X"`
	Optim   string   `help:"Optimizer: ${optims}." default:"adamw"`
	Decay   *float64 `help:"Weight decay." name:"weight-decay" placeholder:"X"`
	Sched   string   `help:"Learning rate over time: ${scheds}." default:"cosine"`
	Warmup  *int     `help:"Steps in which the learning rate rises to its greatest value." placeholder:"N"`
	Clip    *float64 `help:"Greatest norm of the gradients. 0 stands for no limit." placeholder:"X"`
	Gather  int      `help:"Batches that make one step." name:"accumulate" default:"1"`
	Dropout *float64 `help:"Fraction of the hidden units to drop in training." placeholder:"X"`
	Seed    seedFlag `help:"Seed of weights, dropout and order: a number, or random, which draws a seed and prints it." default:"1"`
	Workers int      `help:"Goroutines that prepare batches." default:"1"`

	Rehearse string `help:"When to compile the kernels of a step before the first step, several at once: gpu (not on emulated GPUs), always or never." default:"gpu" enum:"gpu,always,never" placeholder:"WHEN"`

	modeFlags
	tableFlags

	Patience    int    `help:"Stop after this many evaluations in a row without a smaller loss. 0 stands for never." default:"0"`
	Checkpoint  string `help:"Keep checkpoints in this directory." type:"path" placeholder:"DIR"`
	Every       int    `help:"Steps between checkpoints. 0 stands for one checkpoint per epoch." default:"0"`
	Keep        int    `help:"How many of the newest checkpoints to keep." default:"3"`
	KeepBest    bool   `help:"Keep the checkpoint with the smallest loss too."`
	Resume      bool   `help:"Go on from the newest checkpoint of the directory."`
	TensorBoard string `help:"Write event files for TensorBoard to this directory." name:"tensorboard" type:"path" placeholder:"DIR"`

	Out         string `help:"Write the trained weights to this safetensors file." type:"path" placeholder:"FILE"`
	Fingerprint bool   `help:"Store hashes of the training samples in --out, so that eval leaves these samples out. --no-fingerprint stores none: with the hashes, a holder of the file can test whether a guessed row was among the samples." default:"true" negatable:""`
	JSON        bool   `help:"Print one JSON object as the last line." name:"json"`
	Losses      bool   `help:"With --json: include the loss of every step."`
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *trainCmd) Validate() error {
	switch {
	case c.Epochs != nil && (*c.Epochs < 1 || *c.Epochs > 1e9):
		return fmt.Errorf("--epochs %d: 1 to a billion", *c.Epochs)
	case c.Steps < 0:
		return fmt.Errorf("--steps %d: a number of steps cannot be negative", c.Steps)
	case c.Batch != nil && *c.Batch < 1:
		return fmt.Errorf("--batch %d: at least 1 sample is needed", *c.Batch)
	case c.LR != nil && (!(*c.LR > 0) || math.IsInf(*c.LR, 1)):
		return fmt.Errorf("--lr %v: a learning rate is a positive number", *c.LR)
	case c.Decay != nil && (!(*c.Decay >= 0) || math.IsInf(*c.Decay, 1)):
		return fmt.Errorf("--weight-decay %v: a number from 0 up is needed", *c.Decay)
	case c.Dropout != nil && !(*c.Dropout >= 0 && *c.Dropout < 1):
		return fmt.Errorf("--dropout %v: a number from 0 to below 1 is needed", *c.Dropout)
	case c.Hidden < 0 || c.Hidden > 1<<20:
		return fmt.Errorf("--hidden %d: 1 to a million", c.Hidden)
	case c.Gather < 1:
		return fmt.Errorf("--accumulate %d: at least 1 batch is needed", c.Gather)
	case c.Clip != nil && (!(*c.Clip >= 0) || math.IsInf(*c.Clip, 1)):
		return fmt.Errorf("--clip %v: a number from 0 up is needed", *c.Clip)
	case c.Size < 0 || c.Size > 1<<14:
		return fmt.Errorf("--size %d: 1 to %d pixels", c.Size, 1<<14)
	case c.Keep < 1:
		return fmt.Errorf("--keep %d: at least 1 checkpoint is kept", c.Keep)
	case c.Warmup != nil && *c.Warmup < 0 || c.Every < 0 || c.Patience < 0 || c.Workers < 0:
		return errors.New("--warmup, --every, --patience and --workers cannot be negative")
	case c.Model != "" && !slices.Contains(modelNames, c.Model):
		return fmt.Errorf("--model %s: known are %s", c.Model, strings.Join(modelNames, ", "))
	case c.Freeze && c.Init == "":
		return errors.New("--freeze: weights that were drawn at random are not worth keeping; add --init FILE")
	case c.Losses && !c.JSON:
		return errors.New("--losses: the losses are part of the JSON object; add --json")
	case c.Resume && c.Checkpoint == "":
		return errors.New("--resume: --checkpoint says from which directory")
	case c.Checkpoint == "" && (c.Every > 0 || c.KeepBest):
		return errors.New("--every and --keep-best are about checkpoints; add --checkpoint DIR")
	}
	if err := c.checkDevices(); err != nil {
		return err
	}
	if err := knownOptim(c.Optim); err != nil {
		return err
	}
	if err := cmp.Or(c.checkModes(), c.tableFlags.check()); err != nil {
		return err
	}
	return knownSched(c.Sched)
}

// result is the output of train as JSON.
type result struct {
	Device     string   `json:"device"`
	Devices    []string `json:"devices,omitempty"` // names of the devices, if there are several
	DeviceName string   `json:"device_name"`
	Emulated   bool     `json:"emulated"`
	Data       string   `json:"data"`
	Model      string   `json:"model"`
	Parameters int      `json:"parameters"`
	Steps      int      `json:"steps"`
	Epochs     int      `json:"epochs"`
	Resumed    string   `json:"resumed_from,omitempty"`
	TrainLoss  number   `json:"train_loss"`
	// TestLoss is the loss on the test part. It is absent if the test part was not measured.
	TestLoss     *number `json:"test_loss,omitempty"`
	TestAccuracy *number `json:"test_accuracy,omitempty"`
	// These are errors of a regression, in the unit of the target. The losses, in contrast, are of
	// targets scaled to a standard deviation of 1.
	TestRMSE         *number   `json:"test_rmse,omitempty"`
	TestMAE          *number   `json:"test_mae,omitempty"`
	TestR2           *number   `json:"test_r2,omitempty"`
	Seconds          float64   `json:"seconds"`
	SamplesPerSecond float64   `json:"samples_per_second"`
	PeakDeviceBytes  int       `json:"peak_device_bytes"`
	Losses           []float64 `json:"losses,omitempty"`
}

func (c *trainCmd) Run(e *env) error {
	outlivePipes()
	if err := c.checkOut(); err != nil {
		return err
	}
	if err := c.checkCheckpoint(); err != nil {
		return err
	}
	dev, all, why, err := c.open()
	if err != nil {
		return err
	}
	fmt.Fprintln(e.err, why)
	var r *result
	var ended error
	if err := tensor.Try(func() { r, ended = c.train(e, dev, all) }); err != nil {
		return err
	}
	if r == nil {
		return ended
	}
	text := fmt.Sprintf("%d steps in %.1f s (%.0f samples/s), training loss %.4f", r.Steps, r.Seconds, r.SamplesPerSecond, r.TrainLoss)
	switch {
	case r.TestAccuracy != nil:
		text += fmt.Sprintf(", test accuracy %.4f", *r.TestAccuracy)
	case r.TestRMSE != nil:
		text += fmt.Sprintf(", test RMSE %.5g, MAE %.5g, R² %.4f", *r.TestRMSE, *r.TestMAE, *r.TestR2)
	case r.TestLoss != nil:
		text += fmt.Sprintf(", test loss %.4f (perplexity %.2f)", *r.TestLoss, math.Exp(float64(*r.TestLoss)))
	}
	fmt.Fprintln(e.err, text)
	if c.JSON {
		if !c.Losses {
			r.Losses = nil
		}
		if err := printJSON(e, r); err != nil {
			return err
		}
	}
	return ended
}

func printJSON(e *env, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.out, string(text))
	return err
}

// checkOut returns an error if a file for the weights, the profile or the memory snapshot cannot be
// written. It runs before the training, which would otherwise be lost.
func (c *trainCmd) checkOut() error {
	if format, err := formatOf(c.Out); c.Out != "" && !isDir(c.Out) && err == nil && format != formatSafetensors {
		return fmt.Errorf("--out %s: what is written is a safetensors file; name it so, and flambeau convert makes another format of it", c.Out)
	}
	for _, f := range []struct{ flag, path string }{{"--out", c.Out}, {"--profile", c.Profile}, {"--memory-snapshot", c.MemorySnapshot}} {
		if err := writable(f.flag, f.path); err != nil {
			return err
		}
	}
	return nil
}

func (c *trainCmd) checkCheckpoint() error {
	if c.Checkpoint == "" || c.Resume {
		return nil
	}
	if there, err := checkpoint.Latest(c.Checkpoint); err == nil {
		return fmt.Errorf("--checkpoint %s: there is %s of an earlier training; add --resume to go on from it, or name another directory",
			c.Checkpoint, filepath.Base(there))
	}
	return nil
}

// checkCard compares k with the card in the checkpoint from which the training resumes, because the
// names and shapes of weights alone do not tell all models apart. It also prints a message if the
// seed differs.
func (c *trainCmd) checkCard(e *env, k *card) error {
	if !c.Resume {
		return nil
	}
	l, err := checkpoint.Load(c.Checkpoint)
	if err != nil {
		return nil // there is no checkpoint yet, or train.Fit will report the error
	}
	defer checkpoint.Free(l.Tree)
	if g, ok := l.Tree["generator"].(map[string]any); ok && g["seed"] != int64(c.Seed.n) {
		fmt.Fprintf(e.err, "--seed %v: the training was begun with %d, and goes on with that\n", c.Seed, g["seed"])
	}
	if sd, ok := l.Tree["card"].(map[string]any); ok {
		if err := (cardPart{k}).LoadStateDict(sd); err != nil {
			return fmt.Errorf("--resume: %s: %w", l.Path, err)
		}
	}
	return nil
}

// openDevice opens a device and returns the reason for choosing it.
func openDevice(name string) (device.Device, string, error) {
	if name == "auto" {
		d, why := device.Best()
		if strings.HasPrefix(why, "no ") && !strings.Contains(why, "FLAMBEAU_CUDA") {
			why += " (flambeau doctor says more)"
		}
		return d, announce(d, why), nil
	}
	d, err := device.Open(name)
	if err != nil {
		var u *device.UnavailableError
		if errors.As(err, &u) && strings.HasPrefix(name, "cuda") {
			return nil, "", fmt.Errorf("%w; --device cpu works without it", err)
		}
		return nil, "", err
	}
	return d, announce(d, "using "+d.Name()+" ("+d.Info().Name+")"), nil
}

// announce returns why device d was chosen, with a warning if d is emulated.
func announce(d device.Device, why string) string {
	if d.Info().Emulated {
		why += ": EMULATED, results are real, times are not"
	}
	return why
}

// A recipe holds the settings of a training that no flag sets. Sizes, dropout and learning rates
// were chosen by validation within training sets.
type recipe struct {
	epochs, steps, batch, hidden int
	lr, least, decay, dropout    float64
	beta2                        float64
	warmup                       int
	clip                         float64
}

func recipeFor(model, kind string) recipe {
	switch {
	case kind == "digits" && model == "mlp":
		return recipe{epochs: 60, batch: 32, hidden: 256, lr: 0.003, decay: 0.1, dropout: 0.4}
	case model == "gpt":
		g := models.CharGPTDefaults()
		return recipe{epochs: 1 << 20, steps: g.Steps, batch: g.Batch, hidden: g.Config.Width, lr: g.LR, least: g.MinLR, decay: g.WeightDecay,
			dropout: g.Config.Dropout, beta2: g.Beta2, warmup: g.Warmup, clip: g.Clip}
	case model == "cnn":
		return recipe{epochs: 4, batch: 32, hidden: 64, lr: 2e-3, decay: 0.01, dropout: 0.2}
	case model == "mlp":
		return recipe{epochs: 20, batch: 32, hidden: 128, lr: 1e-3, decay: 0.01, dropout: 0.2}
	}
	return recipe{epochs: 10, batch: 32, lr: 1e-3, decay: 0.05, clip: 1}
}

// settle completes the recipe and the card.
func (c *trainCmd) settle(src *source) (*card, recipe, error) {
	k := src.card
	if k.Model = c.Model; k.Model == "" {
		switch {
		case k.Chars != "":
			k.Model = "gpt"
		case len(k.Input) == 3:
			k.Model = "cnn"
		default:
			k.Model = "mlp"
		}
	}
	if (k.Model == "gpt") != (k.Chars != "") {
		return nil, recipe{}, fmt.Errorf("--model %s does not go with %s", k.Model, k.Data)
	}
	r := recipeFor(k.Model, k.Data)
	set := func(to *float64, from *float64) {
		if from != nil {
			*to = *from
		}
	}
	set(&r.lr, c.LR)
	set(&r.decay, c.Decay)
	set(&r.dropout, c.Dropout)
	set(&r.clip, c.Clip)
	if c.Epochs != nil {
		r.epochs, r.steps = *c.Epochs, 0
	}
	if c.Steps > 0 {
		r.steps = c.Steps
	}
	if c.Warmup != nil {
		r.warmup = *c.Warmup
	}
	if c.Batch != nil {
		r.batch = *c.Batch
	}
	if c.Hidden > 0 {
		r.hidden = c.Hidden
	}
	switch k.Model {
	case "gpt":
		g := models.CharGPTDefaults().Config
		g.Width, g.Dropout = r.hidden, r.dropout
		for g.Heads > 1 && g.Width%g.Heads != 0 {
			g.Heads /= 2
		}
		vocab, err := k.tokenizer()
		if err != nil {
			return nil, r, err
		}
		g.Vocab = vocab.Vocab()
		k.GPT = &g
	case "mlp", "cnn":
		k.Hidden, k.Dropout = r.hidden, r.dropout
	}
	switch {
	case k.Model == "gpt", k.Regression != nil:
	case len(k.Classes) == 0:
		return nil, r, errNoClasses
	case len(k.Classes) == 1:
		return nil, r, fmt.Errorf("all samples are of one class, %q: there is nothing to tell apart", k.Classes[0])
	case k.Target != "" && 2*len(k.Classes) > src.train.Len() && slices.ContainsFunc(k.Classes, fraction):
		return nil, r, fmt.Errorf("column %q has %d different values, and %d rows are for training: these are numbers and no classes; --regression learns them, "+
			"and --target names another column", k.Target, len(k.Classes), src.train.Len())
	}
	return &k, r, k.check()
}

// fraction reports whether the name of a class is a number that is not whole.
func fraction(class string) bool {
	v, err := strconv.ParseFloat(class, 64)
	return err == nil && v != math.Trunc(v)
}

func (c *trainCmd) train(e *env, dev device.Device, all dist.DeviceList) (*result, error) {
	src, err := openSource(e.ctx, e, request{path: c.Data, model: c.Model, size: c.Size, tableFlags: c.tableFlags})
	if err != nil {
		return nil, err
	}
	if err := src.prepare(); err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(c.Data, "the embedded digits"), err)
	}
	k, rec, err := c.settle(src)
	if err != nil {
		return nil, err
	}
	c.Seed.print(e, c.Resume && c.begun())
	tensor.Root().Generator().SetState(c.Seed.n, 0)
	n, err := k.build(dev, nil)
	if err != nil {
		return nil, err
	}
	if err := c.begin(e, n); err != nil {
		return nil, err
	}
	r := &result{Device: dev.Name(), DeviceName: dev.Info().Name, Emulated: dev.Info().Emulated, Data: k.Data, Model: k.Model, Parameters: nn.Count(n.model)}
	if c.Data != "" {
		fmt.Fprintf(e.err, "%s: %d samples for training, %d for testing; %s with %d parameters\n", k.Data, src.train.Len(), src.test.Len(), k.Model, r.Parameters)
		for _, text := range src.about {
			fmt.Fprintln(e.err, text)
		}
	}
	if c.Fingerprint && (c.Out != "" || c.Checkpoint != "") {
		if k.Trained, err = src.trained(e); err != nil {
			return nil, err
		}
	}
	// Batch normalisation cannot learn from a single sample, so a last batch of one sample is
	// dropped. The dropped sample differs from epoch to epoch.
	lone := strings.HasPrefix(k.Model, "resnet") && src.train.Len() > rec.batch && src.train.Len()%rec.batch == 1
	loader, err := data.NewLoader(src.train, data.Config{Batch: rec.batch, Shuffle: true, Seed: c.Seed.n, Workers: c.Workers, DropLast: lone && rec.batch > 1})
	if err != nil {
		return nil, err
	}
	test, err := data.NewLoader(src.test, data.Config{Batch: 256, Workers: c.Workers})
	if err != nil {
		return nil, err
	}
	total := rec.epochs * ((loader.Len() + max(c.Gather, 1) - 1) / max(c.Gather, 1))
	if rec.steps > 0 {
		total = min(total, rec.steps)
	}
	learns := slices.DeleteFunc(nn.Parameters(n.model), func(p *tensor.Tensor) bool { return !p.NeedsGrad() })
	opt := newOptimizer(c.Optim, learns, rec)
	cfg := train.Config{
		Model: n.model, Optimizer: opt, Train: loader, Device: dev, Devices: all, Epochs: rec.epochs, Steps: rec.steps, Accumulate: c.Gather, ClipNorm: rec.clip,
		Schedule:    newSchedule(c.Sched, opt, total, rec),
		Checkpoints: c.Checkpoint, Every: c.Every, Keep: c.Keep, KeepBest: c.KeepBest, Resume: c.Resume, Parts: checkpoint.Parts{"card": cardPart{k}},
		Patience: c.Patience, TensorBoard: c.TensorBoard, Log: e.err,
		OnLoss: func(_ int, loss float64) { r.Losses = append(r.Losses, loss) },
	}
	cfg.Rehearse = map[string]train.Rehearsing{"gpu": train.RehearseOnGPU, "always": train.RehearseAlways, "never": train.RehearseNever}[c.Rehearse]
	// The command's own functions compute the same in each step. With NCCL, captured steps would
	// add up gradients in another order, so a resumed training would have other bits.
	if several, _ := deviceNames(dev, all); several == nil || r.Emulated || dev.Info().Kind == "cpu" {
		cfg.Capture = train.CaptureAlways
	}
	n.measure(&cfg)
	c.modes(&cfg)
	if k.Data != "digits" || c.Patience > 0 || c.KeepBest || c.Sched == "plateau" {
		cfg.Valid = test
	}
	if err := c.checkCard(e, k); err != nil {
		return nil, err
	}
	stop, err := c.profiled(e, &cfg, total)
	if err != nil {
		return nil, err
	}
	done, err := train.Fit(e.ctx, cfg)
	// An error of the profile is reported, unless Fit has returned it.
	if failed := stop(); !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	var diverged *train.DivergedError
	var misfit *checkpoint.Error
	switch {
	case done == nil && c.Resume && errors.As(err, &misfit) && slices.Contains([]string{"optimizer", "schedule", "loader"}, misfit.Part):
		return nil, fmt.Errorf("%w; --resume wants the data and the --optim, --sched, --warmup and --batch that the training was begun with", err)
	case errors.As(err, &diverged):
		switch {
		case diverged.Param != "":
			return nil, fmt.Errorf("step %d has brought the parameter %s to values that are no numbers; try a smaller --lr than %v, or --clip", diverged.Step, diverged.Param, rec.lr)
		case diverged.Step == 1:
			return nil, fmt.Errorf("the loss is %v at step 1, before any weight was changed: look for such numbers in the data, or in the weights of --init", diverged.Loss)
		}
		return nil, fmt.Errorf("the loss is %v at step %d; try a smaller --lr than %v", diverged.Loss, diverged.Step, rec.lr)
	case done == nil || done.Reason == train.Failed:
		return nil, err
	case done.Reason == train.Interrupted:
		fmt.Fprintln(e.err, "interrupted: "+c.remainder())
		err = errInterrupted
	}
	r.Steps, r.Epochs, r.Resumed, r.Seconds = done.Step, done.Epoch, done.Resumed, done.Seconds
	r.SamplesPerSecond = float64(done.Fresh) / max(done.Seconds, 1e-9)
	r.TrainLoss = number(done.Loss)
	metrics := done.Metrics
	if metrics == nil && done.Reason != train.Interrupted {
		var failed error
		if metrics, failed = train.Evaluate(e.ctx, cfg, test); failed != nil {
			return nil, failed
		}
	}
	r.TestLoss, r.TestAccuracy, r.TestRMSE = measured(metrics, "loss"), measured(metrics, "accuracy"), measured(metrics, "rmse")
	if r.TestRMSE != nil {
		errs := cfg.Metrics[0].(*train.RegressionMetric)
		r.TestMAE, r.TestR2 = new(number(errs.MAE())), new(number(errs.R2()))
	}
	r.Devices, r.PeakDeviceBytes = deviceNames(dev, all)
	if c.Out != "" {
		if failed := n.save(c.Out); failed != nil { // reported after the results
			if err == errInterrupted {
				err = nil // the interruption has been reported already
			}
			return r, errors.Join(fmt.Errorf("--out: %w; %s", failed, c.rescue(n)), err)
		}
		fmt.Fprintln(e.err, "weights written to "+c.Out)
	}
	return r, err
}

// remainder describes the files that an interrupted training leaves behind.
func (c *trainCmd) remainder() string {
	switch {
	case c.Checkpoint != "":
		return "the same command with --resume goes on from here"
	case c.Out != "":
		return "the model is kept as it is"
	}
	return "the model is lost, for want of --out or --checkpoint"
}

// measure sets up in cfg how the model is evaluated, and with which metrics.
func (n *network) measure(cfg *train.Config) {
	own := n.computation()
	cfg.Forward, cfg.Compute = own.Forward, own.Compute
	cfg.Replica = func(model any, dev device.Device) train.Computation { return n.replica(model, dev).computation() }
	switch {
	case n.gpt != nil:
	case n.card.Regression != nil:
		cfg.Metrics = []train.Metric{train.NewRegression()}
	default:
		cfg.Metrics = []train.Metric{train.NewAccuracy()}
	}
}

// unscaled converts the outputs of a regression model to the unit of the target, as float64.
func (n *network) unscaled(y *tensor.Tensor) *tensor.Tensor {
	return y.Double().MulScalar(n.card.Regression.Std).AddScalar(n.card.Regression.Mean)
}
