package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// A card says how to rebuild a model and how to use it. It is stored in the metadata of a weights
// file, and in checkpoints.
type card struct {
	Model string `json:"model"`
	Data  string `json:"data"` // kind of data that the model was trained on, such as "csv"
	// Input is the shape of a sample: [channels, rows, columns] or [features].
	Input   []int    `json:"input,omitempty"`
	Classes []string `json:"classes,omitempty"` // names of the outputs
	// Mean is the mean of each channel or feature, which is subtracted from the input.
	Mean []float32 `json:"mean,omitempty"`
	// Std is the standard deviation of each channel or feature. After the mean is subtracted, the
	// input is divided by it.
	Std []float32 `json:"std,omitempty"`
	// Columns are the names of a table's inputs, in the order of the features.
	Columns []string `json:"columns,omitempty"`
	Target  string   `json:"target,omitempty"` // name of a table's target column

	// Words has, for each column of words, the words that occur in the table.
	Words map[string][]string `json:"words,omitempty"`
	// Missing says how missing values are treated. "" means that they are an error.
	Missing string `json:"missing,omitempty"`
	// Fill has, for each column, the value that replaces a missing value.
	Fill map[string]float64 `json:"fill,omitempty"`
	// Regression is the scale of a numeric target. It is nil if the model predicts classes.
	Regression *regression `json:"regression,omitempty"`

	// Size is the side in pixels of the squares to which images were resized. 0 means that they
	// were not resized.
	Size int `json:"size,omitempty"`
	// Hidden is the width of the hidden layer of an mlp or cnn.
	Hidden  int               `json:"hidden,omitempty"`
	Dropout float64           `json:"dropout,omitempty"`
	GPT     *models.GPTConfig `json:"gpt,omitempty"`
	// Chars has the characters that a gpt uses as tokens.
	Chars   string   `json:"characters,omitempty"`
	Trained *trained `json:"trained,omitempty"` // what the model was trained on; nil if unknown
}

// cardKey is the key of the card in a file's metadata.
const cardKey = "flambeau.model"

// modelNames are the values of --model.
var modelNames = []string{"mlp", "cnn", "resnet18", "resnet34", "resnet50", "vit", "gpt"}

// check returns an error if the card does not describe a model that can be built.
func (c *card) check() error {
	const most = 1 << 30
	size := 1
	for _, d := range c.Input {
		if d < 1 || d > most/size {
			return fmt.Errorf("samples of shape %v", c.Input)
		}
		size *= d
	}
	switch c.Model {
	case "mlp", "cnn", "resnet18", "resnet34", "resnet50", "vit":
		if len(c.Input) == 0 || (len(c.Classes) == 0) != (c.Regression != nil) || c.Size < 0 || c.Size > 1<<14 {
			return fmt.Errorf("samples of shape %v, %d classes, pictures of %d pixels", c.Input, len(c.Classes), c.Size)
		}
		if r := c.Regression; r != nil && !(r.Std > 0) {
			return fmt.Errorf("numbers with a deviation of %v", r.Std)
		}
		if (c.Model == "mlp" || c.Model == "cnn") && (c.Hidden < 1 || c.Hidden > 1<<20 || !(c.Dropout >= 0 && c.Dropout < 1)) {
			return fmt.Errorf("%d hidden units, dropout %v", c.Hidden, c.Dropout)
		}
		if c.Model != "mlp" && (len(c.Input) != 3 || c.Input[1] < 4 || c.Input[2] < 4) {
			return fmt.Errorf("a %s wants images of at least 4×4 pixels, not samples of shape %v; --model mlp takes them", c.Model, c.Input)
		}
		if c.Model == "vit" && (c.Input[0] != 3 || c.Input[1] != c.Input[2] || patch(c.Input[1]) == 0) {
			return fmt.Errorf("a vit wants square images of three channels whose side is a multiple of 4 pixels, not samples of shape %v; --size makes the pictures of --data so", c.Input)
		}
		if len(c.Mean) != len(c.Std) || len(c.Mean) != 0 && len(c.Mean) != c.Input[0] {
			return fmt.Errorf("%d means and %d deviations for samples of shape %v", len(c.Mean), len(c.Std), c.Input)
		}
	case "gpt":
		if c.GPT == nil {
			return errors.New("the size of the gpt is missing")
		}
		return c.GPT.Check()
	default:
		return fmt.Errorf("unknown model %q; known are %s", c.Model, strings.Join(modelNames, ", "))
	}
	return nil
}

// width returns the number of the model's outputs for a sample.
func (c *card) width() int {
	if c.Regression != nil {
		return 1
	}
	return len(c.Classes)
}

// A network is a model that first normalises its inputs.
type network struct {
	card      *card
	model     any
	module    nn.Module
	gpt       *models.GPT
	dev       device.Device
	mean, std *tensor.Tensor
	held      []*nn.BatchNorm2d // batch norms that stay in evaluation mode
}

// build makes a model on a device. If weights is nil, the parameters get initial values. Otherwise
// build loads the weights into the model and frees them.
func (c *card) build(dev device.Device, weights map[string]*tensor.Tensor) (*network, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var opts []nn.Option
	if weights != nil {
		opts = append(opts, nn.SkipInit())
	}
	n := &network{card: c, dev: dev}
	switch c.Model {
	case "mlp":
		in := 1
		for _, d := range c.Input {
			in *= d
		}
		n.module = nn.NewSequential(
			nn.NewLinear(in, c.Hidden, opts...), nn.ReLU{}, nn.NewDropout(c.Dropout),
			nn.NewLinear(c.Hidden, c.width(), opts...))
	case "cnn":
		conv, half := append(slices.Clone(opts), nn.Padding(1)), nn.NewMaxPool2d(2)
		n.module = nn.NewSequential(
			nn.NewConv2d(c.Input[0], 16, 3, conv...), nn.ReLU{}, half,
			nn.NewConv2d(16, 32, 3, conv...), nn.ReLU{}, half,
			nn.Flatten{}, nn.NewLinear(32*(c.Input[1]/4)*(c.Input[2]/4), c.Hidden, opts...), nn.ReLU{}, nn.NewDropout(c.Dropout),
			nn.NewLinear(c.Hidden, c.width(), opts...))
	case "resnet18":
		n.module = models.ResNet18(c.width(), c.Input[0], opts...)
	case "resnet34":
		n.module = models.ResNet34(c.width(), c.Input[0], opts...)
	case "resnet50":
		n.module = models.ResNet50(c.width(), c.Input[0], opts...)
	case "vit": // torchvision's ViT-B/16, or a smaller model for small images
		v := models.ViTB16()
		if v.Classes = c.width(); c.Input[1] < 128 {
			v = models.ViTConfig{Layers: 6, Heads: 4, Width: 128, Hidden: 256, Classes: c.width()}
		}
		v.Image, v.Patch = c.Input[1], patch(c.Input[1])
		n.module = models.NewViT(v, opts...)
	case "gpt":
		n.gpt = models.NewGPT(*c.GPT, opts...)
		n.module = n.gpt
	}
	n.model = n.module
	if weights != nil {
		if err := n.fill(weights, nn.Assign()); err != nil {
			return nil, err
		}
	}
	nn.To(n.model, dev)
	if len(c.Mean) > 0 {
		ones := make([]int, len(c.Input))
		for i := range ones {
			ones[i] = 1
		}
		ones[0] = len(c.Mean)
		n.mean, n.std = tensor.Root().On(dev).From(c.Mean).Reshape(ones...), tensor.Root().On(dev).From(c.Std).Reshape(ones...)
	}
	return n, nil
}

// fill loads the weights into the model, and then frees them.
func (n *network) fill(weights map[string]*tensor.Tensor, opts ...nn.LoadOption) (err error) {
	if n.gpt != nil {
		err = n.gpt.LoadStateDict(weights, opts...)
	} else {
		err = nn.LoadStateDict(n.model, weights, opts...)
	}
	for _, x := range weights {
		x.Free()
	}
	return err
}

// patch returns the side of a ViT's patches for images with the given side, or 0 if no size is
// suitable.
func patch(side int) int {
	for _, p := range []int{16, 8, 4} {
		if side%p == 0 && side/p >= 4 {
			return p
		}
	}
	return 0
}

// forward normalises a batch of samples and runs the model.
func (n *network) forward(x *tensor.Tensor) *tensor.Tensor {
	if n.mean != nil {
		x = x.Sub(n.mean).Div(n.std)
	}
	if n.card.Model == "mlp" && x.Rank() > 2 {
		x = x.Flatten(1, -1)
	}
	for _, l := range n.held {
		nn.Eval(l)
	}
	return n.module.Forward(x)
}

// tokenizer returns the tokenizer of a gpt whose tokens are characters.
func (c *card) tokenizer() (*text.Chars, error) {
	if c.Chars == "" {
		return nil, errors.New("the file does not say what its tokens are; give --vocab and --merges")
	}
	return text.NewChars(c.Chars)
}

// save writes a weights file with the card.
func (n *network) save(path string) error {
	about, err := json.Marshal(n.card)
	if err != nil {
		return err
	}
	return safetensors.Save(path, nn.StateDict(n.model), map[string]string{"format": "pt", cardKey: string(about)}, safetensors.Checksums())
}

// cardPart is the card as a part of a checkpoint. A training can resume only from a checkpoint of
// the same model.
type cardPart struct{ *card }

// StateDict returns the card.
func (p cardPart) StateDict() map[string]any {
	about, err := json.Marshal(p.card)
	if err != nil { // cannot fail, because JSON can represent every value of a card
		panic(err)
	}
	return map[string]any{"json": string(about)}
}

// LoadStateDict returns an error if the card in sd belongs to another model.
func (p cardPart) LoadStateDict(sd map[string]any) error {
	was, _ := sd["json"].(string)
	now, err := json.Marshal(p.card)
	if err != nil {
		return err
	}
	if text := differences(was, string(now)); text != "" {
		return fmt.Errorf("model, data and their settings must be those it was begun with; %s", text)
	}
	return nil
}

// differences returns the keys in which two descriptions of models differ, with their values if
// these are short. It ignores Trained, which earlier versions did not store. A change of the
// training data is noticed nevertheless, because it changes Mean, Std and the state of the loader.
func differences(was, now string) string {
	var a, b map[string]json.RawMessage
	if json.Unmarshal([]byte(was), &a) != nil || json.Unmarshal([]byte(now), &b) != nil {
		return "what the checkpoint says of its model cannot be read"
	}
	all := maps.Clone(b)
	maps.Copy(all, a)
	show := func(v json.RawMessage) string {
		const most = 60
		switch {
		case v == nil:
			return "nothing"
		case len(v) > most:
			return string(v[:most]) + "…"
		}
		return string(v)
	}
	var list []string
	delete(all, "trained")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if string(a[key]) != string(b[key]) {
			list = append(list, fmt.Sprintf("%q was %s and is %s", key, show(a[key]), show(b[key])))
		}
	}
	return strings.Join(list, ", ")
}

// loadWeights reads the weights in a safetensors or .pt file, or in the newest checkpoint of a
// directory. It also returns the card in the file, if there is one.
func loadWeights(path string) (sd map[string]*tensor.Tensor, c *card, err error) {
	if dir, err := checkpoint.Load(path); err == nil {
		return fromTree(dir.Tree)
	} else if isDir(path) {
		return nil, nil, err
	}
	f, err := safetensors.Open(path)
	if err == nil {
		defer f.Close()
		return fromFile(path, f)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safetensors.ErrChecksum) {
		return nil, nil, err
	}
	tree, err2 := torchfile.Load(path, torchfile.Mapped(), torchfile.Checked())
	if errors.Is(err2, zip.ErrChecksum) {
		return nil, nil, err2
	}
	if err2 != nil {
		// For a file whose name ends in ".safetensors", the error of the .pt reader would not help.
		if strings.HasSuffix(path, ".safetensors") {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("%s is neither a safetensors nor a .pt file: %w; %w", path, err, err2)
	}
	sd, err = torchfile.StateDict(tree)
	return sd, nil, err
}

// fromFile maps the weights of a safetensors file, which may be a checkpoint.
func fromFile(path string, f *safetensors.File) (map[string]*tensor.Tensor, *card, error) {
	tree, _, err := checkpoint.Read(path)
	if err == nil {
		return fromTree(tree)
	}
	if !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil, nil, err
	}
	if _, err := f.Verify(); err != nil {
		return nil, nil, err
	}
	sd, err := f.Tensors()
	if err != nil {
		return nil, nil, err
	}
	var c *card
	if about, ok := f.Metadata()[cardKey]; ok {
		c, err = parseCard(about)
	}
	return sd, c, err
}

func parseCard(about string) (*card, error) {
	var c card
	if err := json.Unmarshal([]byte(about), &c); err != nil {
		return nil, fmt.Errorf("the description of the model: %w", err)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("the description of the model: %w", err)
	}
	return &c, nil
}

func fromTree(tree map[string]any) (map[string]*tensor.Tensor, *card, error) {
	model, _ := tree["model"].(map[string]any)
	about, _ := tree["card"].(map[string]any)
	text, ok := about["json"].(string)
	if !ok || len(model) == 0 {
		return nil, nil, fmt.Errorf("the checkpoint was not made by flambeau train: it has %q", slices.Sorted(maps.Keys(tree)))
	}
	sd := map[string]*tensor.Tensor{}
	for name, v := range model {
		if t, ok := v.(*tensor.Tensor); ok {
			sd[name] = t
		}
	}
	c, err := parseCard(text)
	return sd, c, err
}

// open builds the model of a weights file and loads the weights.
func open(path string, dev device.Device) (*network, error) {
	sd, c, err := loadWeights(path)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, fmt.Errorf("%s: the file does not say what model its weights are of; files written by flambeau train --out do", path)
	}
	n, err := c.build(dev, sd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	nn.Eval(n.model)
	return n, nil
}
