// Command interop compares torchvision's ResNet-50 and ViT-B/16, at full size, with this library's
// models. It tests both directions and both file formats:
//
//	python _golden/interop_vision.py write DIR
//	go run ./bench/interop DIR
//	python _golden/interop_vision.py check DIR
//
// The script writes a .safetensors and a .pt file of each model, with images and logits. The
// command loads these files and prints the differences between its logits and those in the file. It
// also saves its own models with their logits, and the script compares them. The command ends with
// status 1 if logits differ by more than 1e-4 times the largest logit.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

const tolerance = 1e-4

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: interop DIR, the folder that _golden/interop_vision.py wrote to")
	}
	for name, build := range map[string]func(opts ...nn.Option) nn.Module{
		"resnet50": func(opts ...nn.Option) nn.Module { return models.ResNet50(1000, 3, opts...) },
		"vit_b_16": func(opts ...nn.Option) nn.Module { return models.NewViT(models.ViTB16(), opts...) },
	} {
		if err := compare(filepath.Join(os.Args[1], name), name, build); err != nil {
			log.Fatal(err)
		}
	}
}

// compare loads the files whose names begin with base, compares logits, and saves files for the
// script.
func compare(base, name string, build func(opts ...nn.Option) nn.Module) error {
	expected, _, err := safetensors.Load(base + ".expected.safetensors")
	if err != nil {
		return err
	}
	load := map[string]func() (map[string]*tensor.Tensor, error){
		".safetensors": func() (map[string]*tensor.Tensor, error) {
			sd, _, err := safetensors.Load(base + ".safetensors")
			return sd, err
		},
		".pt": func() (map[string]*tensor.Tensor, error) {
			tree, err := torchfile.Load(base + ".pt")
			if err != nil {
				return nil, err
			}
			return torchfile.StateDict(tree)
		},
	}
	for kind, f := range load {
		start := time.Now()
		sd, err := f()
		if err != nil {
			return err
		}
		err = inScope(func(s *tensor.Scope) error {
			m := nn.Eval(build(nn.In(s)))
			if err := nn.LoadStateDict(m, sd); err != nil {
				return err
			}
			loaded := time.Since(start)
			start := time.Now()
			y := m.Forward(expected["images"].In(s))
			want := expected["logits"].In(s)
			off := y.Sub(want).Abs().Amax().Item() / want.Abs().Amax().Item()
			fmt.Printf("%s%s: %d tensors loaded in %v, logits in %v, they differ by %.2g of the greatest\n",
				name, kind, len(sd), loaded.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), off)
			if !(off < tolerance) {
				return fmt.Errorf("%s%s: the logits differ by more than %v", name, kind, tolerance)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, x := range sd {
			x.Free()
		}
	}
	return inScope(func(s *tensor.Scope) error {
		m := nn.Eval(build(nn.In(s)))
		// The last layer of a new ViT is zero, so all its logits would be 0 and comparing them
		// would prove nothing.
		if v, ok := m.(*models.ViT); ok {
			v.Heads.At("head").(*nn.Linear).Weight.NormalInPlace(0, 0.02)
		}
		sd := nn.StateDict(m)
		x := expected["images"]
		tree := map[string]any{}
		for key, t := range sd {
			tree[key] = t
		}
		if err := safetensors.Save(base+".ours.safetensors", sd, nil); err != nil {
			return err
		}
		if err := torchfile.Save(base+".ours.pt", tree); err != nil {
			return err
		}
		return safetensors.Save(base+".ours.expected.safetensors", map[string]*tensor.Tensor{"images": x, "logits": m.Forward(x.In(s))}, nil)
	})
}

// inScope runs f in a scope without gradients. If f panics with a tensor's error, inScope returns
// the error.
func inScope(f func(s *tensor.Scope) error) (err error) {
	if e := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { err = f(s) }, tensor.NoGrad()) }); e != nil {
		return e
	}
	return err
}
