package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type generateCmd struct {
	Weights     string  `arg:"" help:"Weights of a gpt written by flambeau train, a directory of its checkpoints, or GPT-2's weights (safetensors or .pt)." type:"path"`
	Prompt      string  `help:"The beginning of the text." default:"\n"`
	Tokens      int     `help:"How many tokens to add." default:"200"`
	Temperature float64 `help:"0 takes the most likely token each time, and 1 draws by the model's probabilities." default:"0.8"`
	TopK        int     `help:"Draw among this many of the most likely tokens, or 0 for all." default:"0"`
	TopP        float64 `help:"Draw among the most likely tokens that together have this probability, or 0 for all." default:"0"`
	Seed        uint64  `help:"Seed of the draws." default:"1"`
	Vocab       string  `help:"GPT-2's vocab.json. Default: the file beside the weights." type:"path" placeholder:"FILE"`
	Merges      string  `help:"GPT-2's merges.txt. Default: the file beside the weights." type:"path" placeholder:"FILE"`
	Heads       int     `help:"Attention heads of GPT-2's weights. 0 stands for one head per 64 features, as in all published weights." default:"0"`
	Device      string  `help:"Device: auto, cpu, cuda or cuda:N." default:"auto"`
}

// Validate checks the flags. The command-line parser, kong, calls it.
func (c *generateCmd) Validate() error {
	switch {
	case c.Tokens < 1:
		return fmt.Errorf("--tokens %d: at least 1", c.Tokens)
	case !(c.Temperature >= 0) || math.IsInf(c.Temperature, 1):
		return fmt.Errorf("--temperature %v: a number from 0 up is needed", c.Temperature)
	case c.TopK < 0 || c.Heads < 0:
		return fmt.Errorf("--top-k %d, --heads %d: they cannot be negative", c.TopK, c.Heads)
	case !(c.TopP >= 0 && c.TopP <= 1):
		return fmt.Errorf("--top-p %v: a probability is needed", c.TopP)
	case (c.Vocab == "") != (c.Merges == ""):
		return errors.New("--vocab and --merges belong together")
	}
	return nil
}

// Run prints the prompt and the tokens that the model adds, one by one.
func (c *generateCmd) Run(e *env) error {
	dev, why, err := openDevice(c.Device)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.err, why)
	m, tok, err := c.open(dev)
	if err != nil {
		return err
	}
	prompt, err := tok.Encode(c.Prompt)
	if err != nil {
		return fmt.Errorf("--prompt: %w", err)
	}
	if len(prompt) == 0 {
		return errors.New("--prompt: the model needs at least one character to begin with")
	}
	if most := m.Config.Context; len(prompt) > most {
		prompt = prompt[len(prompt)-most:]
	}
	fmt.Fprint(e.out, c.Prompt)
	for id, err := range m.Stream(prompt, models.GenerateOptions{MaxTokens: c.Tokens, Temperature: c.Temperature, TopK: c.TopK, TopP: c.TopP, Seed: c.Seed, Slide: true}) {
		if err != nil {
			return err
		}
		if e.ctx.Err() != nil {
			fmt.Fprintln(e.out)
			return errInterrupted
		}
		piece, err := tok.Decode([]int{id})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprint(e.out, piece); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(e.out)
	return err
}

// open builds the model of a weights file and loads its tokenizer.
func (c *generateCmd) open(dev device.Device) (*models.GPT, text.Tokenizer, error) {
	sd, k, err := loadWeights(c.Weights)
	if err != nil {
		return nil, nil, err
	}
	if k != nil && k.Model != "gpt" {
		return nil, nil, fmt.Errorf("%s: a %s writes no text; see flambeau predict", c.Weights, k.Model)
	}
	var tok text.Tokenizer
	var size models.GPTConfig
	if k != nil && k.Chars != "" {
		if tok, err = k.tokenizer(); err != nil {
			return nil, nil, err
		}
		size = *k.GPT
	} else {
		if size, err = gptSize(sd, c.Heads); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Weights, err)
		}
		if tok, err = c.bpe(); err != nil {
			return nil, nil, err
		}
	}
	if err := size.Check(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Weights, err)
	}
	if tok.Vocab() > size.Vocab {
		return nil, nil, fmt.Errorf("%s: the model knows %d tokens, the vocabulary has %d", c.Weights, size.Vocab, tok.Vocab())
	}
	m := models.NewGPT(size, nn.SkipInit())
	if err := m.LoadStateDict(sd, nn.Assign()); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Weights, err)
	}
	for _, t := range sd {
		t.Free()
	}
	return nn.Eval(nn.To(m, dev)), tok, nil
}

// bpe reads GPT-2's vocabulary from the files that flags name, or from files in the directory of
// the weights.
func (c *generateCmd) bpe() (text.Tokenizer, error) {
	dir := filepath.Dir(c.Weights)
	switch {
	case c.Vocab != "":
		return text.LoadBPE(c.Vocab, c.Merges)
	case exists(filepath.Join(dir, "vocab.json")) && exists(filepath.Join(dir, "merges.txt")):
		return text.LoadBPE(filepath.Join(dir, "vocab.json"), filepath.Join(dir, "merges.txt"))
	case exists(filepath.Join(dir, "tokenizer.json")):
		return text.LoadTokenizerJSON(filepath.Join(dir, "tokenizer.json"))
	}
	return nil, fmt.Errorf("%s does not say what its tokens are, and there are no vocab.json and merges.txt beside it; name them with --vocab and --merges", c.Weights)
}

// gptSize derives the configuration of a GPT-2 from the shapes of its weights.
func gptSize(sd map[string]*tensor.Tensor, heads int) (models.GPTConfig, error) {
	find := func(name string) *tensor.Tensor {
		if t := sd["transformer."+name]; t != nil {
			return t
		}
		return sd[name]
	}
	wte, wpe := find("wte.weight"), find("wpe.weight")
	if wte == nil || wpe == nil || wte.Rank() != 2 || wpe.Rank() != 2 {
		return models.GPTConfig{}, errors.New("these are not the weights of a GPT-2: wte.weight and wpe.weight are not there")
	}
	c := models.GPTConfig{Vocab: wte.Dim(0), Context: wpe.Dim(0), Width: wte.Dim(1), Heads: heads}
	for name := range sd {
		if strings.HasSuffix(name, ".ln_1.weight") {
			c.Layers++
		}
	}
	if c.Heads == 0 {
		c.Heads = max(1, c.Width/64)
	}
	if fc := find("h.0.mlp.c_fc.weight"); fc != nil && fc.Rank() == 2 {
		c.Hidden = fc.Dim(1)
	}
	return c, nil
}
