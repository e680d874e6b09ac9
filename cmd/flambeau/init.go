package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// begin loads the weights of --init and, if --freeze is set, freezes all layers except the last.
func (c *trainCmd) begin(e *env, n *network) error {
	if c.Init == "" {
		return nil
	}
	text, err := n.load(c.Init)
	if err != nil {
		return fmt.Errorf("--init %w", err)
	}
	if text != "" {
		fmt.Fprintln(e.err, "--init "+text)
	}
	if c.Freeze {
		text, err := n.freeze()
		if err != nil {
			return err
		}
		fmt.Fprintln(e.err, "--freeze: "+text)
	}
	return nil
}

// load loads the weights of a file into the model. If the classes differ, only the last layer does
// not fit, and keeps its random weights. The result text says so.
func (n *network) load(path string) (text string, err error) {
	sd, was, err := loadWeights(path)
	if err != nil {
		return "", err
	}
	defer func() {
		for _, t := range sd {
			t.Free()
		}
	}()
	if n.gpt != nil {
		if err := n.gpt.LoadStateDict(sd); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return "", nil
	}
	use := sd
	if name, _ := n.head(); name != "" {
		if from := otherOutputs(sd, was, name, n); from != "" {
			use = maps.Clone(sd)
			own := nn.StateDict(n.model)
			for _, p := range []string{name + ".weight", name + ".bias"} {
				use[p] = own[p]
			}
			text = fmt.Sprintf("%s: the last layer, %s, is replaced by a new one: it was for %s and is for %s", path, name, from, n.card.outputs())
		}
	}
	if err := nn.LoadStateDict(n.model, use); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// head returns the last linear layer, which computes the outputs.
func (n *network) head() (name string, layer *nn.Linear) {
	for at, l := range nn.Modules(n.model) {
		if l, ok := l.(*nn.Linear); ok {
			name, layer = at, l
		}
	}
	return name, layer
}

// otherOutputs compares the last layer in a state dict with the network's last layer. If their
// outputs differ, it describes the outputs of the layer in the state dict. Otherwise it returns "".
// It also returns "" if the layers have different input sizes, because they then belong to
// different models. old is the card of the state dict, and may be nil.
func otherOutputs(sd map[string]*tensor.Tensor, old *card, name string, n *network) string {
	_, l := n.head()
	weight, bias := sd[name+".weight"], sd[name+".bias"]
	switch {
	case weight == nil || bias == nil || weight.Rank() != 2 || bias.Rank() != 1 || weight.Dim(1) != l.Weight.Dim(1) || bias.Dim(0) != weight.Dim(0):
		return ""
	case old != nil && slices.Equal(old.Classes, n.card.Classes), old == nil && weight.Dim(0) == l.Weight.Dim(0):
		return ""
	case old != nil && weight.Dim(0) == l.Weight.Dim(0):
		return "others, " + old.outputs()
	case old != nil:
		return old.outputs()
	}
	return fmt.Sprintf("%d classes", weight.Dim(0))
}

// outputs describes the model's outputs in words.
func (c *card) outputs() string {
	if c.Regression != nil {
		return "a number"
	}
	const most = 5
	some := fmt.Sprintf("%q", c.Classes[:min(len(c.Classes), most)])
	if len(c.Classes) > most {
		return fmt.Sprintf("%d classes", len(c.Classes))
	}
	return fmt.Sprintf("%d classes, %s", len(c.Classes), some)
}

// freeze freezes all layers except the last. Batch norms use their running statistics and do not
// update them, as PyTorch's do in evaluation mode.
func (n *network) freeze() (text string, err error) {
	name, layer := n.head()
	if layer == nil || n.gpt != nil {
		return "", errors.New("--freeze: the model has no last layer that could learn alone")
	}
	nn.Freeze(n.model)
	nn.Unfreeze(layer)
	for _, l := range nn.Modules(n.model) {
		if l, ok := l.(*nn.BatchNorm2d); ok {
			n.held = append(n.held, l)
		}
	}
	text = fmt.Sprintf("only the last layer, %s, learns: %d of %d parameters", name, nn.Count(layer), nn.Count(n.model))
	if len(n.held) > 0 {
		text += "; batch normalisation keeps its running statistics"
	}
	return text, nil
}
