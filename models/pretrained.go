package models

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/internal/fetch"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// hub is where Hugging Face publishes; a repository's files are at
// <hub><repository>/resolve/main/<file>.
var hub = "https://huggingface.co/"

// pause is the wait after the first request that fails; 0: the ordinary one.
var pause time.Duration

// torchvisionWeights are the addresses that torchvision 0.29 gives for its weights, by its names
// for them. The digits in a file's name are the beginning of its SHA-256.
var torchvisionWeights = map[string]string{
	"ResNet18_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/resnet18-f37072fd.pth",
	"ResNet34_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/resnet34-b627a593.pth",
	"ResNet50_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/resnet50-0676ba61.pth",
	"ResNet50_Weights.IMAGENET1K_V2":  "https://download.pytorch.org/models/resnet50-11ad3fa6.pth",
	"ResNet101_Weights.IMAGENET1K_V1": "https://download.pytorch.org/models/resnet101-63fe2227.pth",
	"ResNet101_Weights.IMAGENET1K_V2": "https://download.pytorch.org/models/resnet101-cd907fc2.pth",
	"ResNet152_Weights.IMAGENET1K_V1": "https://download.pytorch.org/models/resnet152-394f9c45.pth",
	"ResNet152_Weights.IMAGENET1K_V2": "https://download.pytorch.org/models/resnet152-f82ba261.pth",
	"ViT_B_16_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/vit_b_16-c867db91.pth",
	"ViT_B_32_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/vit_b_32-d86f8d99.pth",
	"ViT_L_16_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/vit_l_16-852ce7e3.pth",
	"ViT_L_32_Weights.IMAGENET1K_V1":  "https://download.pytorch.org/models/vit_l_32-c7638314.pth",
}

// A DownloadError is a published file that could not be had: where it is, and where it belongs on
// this machine.
type DownloadError = fetch.Error

// ErrOffline is in a [DownloadError] where there is no network, or FLAMBEAU_OFFLINE=1 forbids it.
var ErrOffline = fetch.ErrOffline

// PretrainedNames returns the names that [Pretrained] knows, in the order of the alphabet:
// torchvision's names of weights, and names of Hugging Face's repositories without the owner.
func PretrainedNames() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range torchvisionWeights {
			if !yield(name) {
				return
			}
		}
		for name := range published {
			if !yield(name) {
				return
			}
		}
	})
}

// Pretrained fetches published weights into dir, unless they are there, and returns them as a state
// dict. An empty dir is the user's cache directory (FLAMBEAU_CACHE moves it).
// "ResNet50_Weights.IMAGENET1K_V2" is for [nn.LoadStateDict] into a ResNet50(1000, 3), "gpt2" for
// LoadStateDict of a [GPT]. With nn.SkipInit and nn.Assign the model is there at once, as the file
// is mapped and not read.
//
// A name is one of [PretrainedNames], in any case. It is also the name of torchvision's model,
// "resnet50", which is its newest weights, as "ResNet50_Weights.DEFAULT" is; of its file,
// "resnet18-f37072fd.pth", or the address of that; or the hub's, "openai-community/gpt2". Files are
// checked against the publishers' digests: torchvision's by the one in the file's name, those of
// the hub by the SHA-256 that it tells at download. An interrupted download goes on where it ended.
// progress, if given, is told the bytes that are here, and all of them, or -1 where that is not
// known.
//
// Errors are a *[DownloadError], which offline says which file to put where, and an *[Error] for a
// name that is not known, which tells one that is like it. A file that cannot be read is an error
// of package torchfile or safetensors.
func Pretrained(ctx context.Context, name, dir string, progress ...func(done, total int64)) (map[string]*tensor.Tensor, error) {
	name, err := canonical(name)
	if err != nil {
		return nil, err
	}
	if addr, ok := torchvisionWeights[name]; ok {
		digest, _ := fetch.DigestInName(path.Base(addr)) // without one, File refuses
		file, err := get(ctx, fetch.Source{URLs: []string{addr}, Digest: digest}, dir, progress)
		if err != nil {
			return nil, err
		}
		tree, err := torchfile.Load(file, torchfile.Mapped())
		if err != nil {
			return nil, err
		}
		sd, err := torchfile.StateDict(tree)
		if err != nil {
			return nil, err
		}
		return today(sd), nil
	}
	file, err := fromHub(ctx, name, "model.safetensors", dir, progress)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Tensors()
}

// today gives the tensors of torchvision's older files the names that its models have since: it
// renames them, too, when it loads (torchvision/models/vision_transformer.py, MLPBlock).
func today(sd map[string]*tensor.Tensor) map[string]*tensor.Tensor {
	out := make(map[string]*tensor.Tensor, len(sd))
	rename := strings.NewReplacer(".mlp.linear_1.", ".mlp.0.", ".mlp.linear_2.", ".mlp.3.")
	for name, x := range sd {
		if strings.HasPrefix(name, "encoder.layers.") {
			name = rename.Replace(name)
		}
		out[name] = x
	}
	return out
}

// PretrainedTokenizer fetches the files of a language model's tokenizer as [Pretrained] does and
// returns their paths, in the order in which text.LoadBPE or text.LoadWordPiece takes them.
func PretrainedTokenizer(ctx context.Context, name, dir string) (files []string, err error) {
	name, err = canonical(name)
	if err != nil {
		return nil, err
	}
	p, ok := published[name]
	if !ok {
		return nil, wrong("pretrained", "%s are weights for pictures, and have no tokenizer", name)
	}
	for _, f := range p.tokenizer {
		file, err := fromHub(ctx, name, f, dir, nil)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// fromHub fetches a file of the repository that name stands for, into a folder of the repository's
// name.
func fromHub(ctx context.Context, name, file, dir string, progress []func(done, total int64)) (string, error) {
	p := published[name]
	src := fetch.Source{URLs: []string{hub + p.repository + "/resolve/main/" + file}, Name: p.repository + "/" + file, Digest: fetch.HubDigest()}
	return get(ctx, src, dir, progress)
}

func get(ctx context.Context, src fetch.Source, dir string, progress []func(done, total int64)) (string, error) {
	if dir == "" {
		var err error
		if dir, err = fetch.CacheDir("models"); err != nil {
			return "", &DownloadError{URL: src.URLs[0], Err: err}
		}
	}
	o := fetch.Options{Dir: dir, Wait: pause}
	if len(progress) > 0 {
		o.Progress = progress[0]
	}
	return fetch.File(ctx, src, o)
}
