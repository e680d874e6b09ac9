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

// hub is the address of Hugging Face's hub. The files of a repository are at
// <hub><repository>/resolve/main/<file>.
var hub = "https://huggingface.co/"

// pause is the time before a failed request is repeated for the first time. 0 means the default of
// package fetch.
var pause time.Duration

// torchvisionWeights maps torchvision's names of weights to their addresses, as of torchvision
// 0.29. A file's name contains the first digits of its SHA-256.
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

// A DownloadError reports a published file that could not be downloaded. It has the file's address,
// and the path at which the file should be on this machine.
type DownloadError = fetch.Error

// ErrOffline is wrapped by a [DownloadError] if there is no network, or if FLAMBEAU_OFFLINE=1
// forbids its use.
var ErrOffline = fetch.ErrOffline

// PretrainedNames returns the names that [Pretrained] knows, in alphabetical order: torchvision's
// names of weights, and names of Hugging Face's repositories without the owner.
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

// Pretrained returns published weights as a state dict. If they are not in dir, it downloads them
// into dir. An empty dir means the user's cache directory (FLAMBEAU_CACHE changes it). For example,
// [nn.LoadStateDict] loads "ResNet50_Weights.IMAGENET1K_V2" into a ResNet50(1000, 3), and
// LoadStateDict of a [GPT] loads "gpt2". With nn.SkipInit and nn.Assign loading takes hardly any
// time, because the file is mapped and not read.
//
// A name is one of [PretrainedNames], in upper or lower case. These names are accepted too:
//
//   - torchvision's model name, such as "resnet50", or "ResNet50_Weights.DEFAULT", for its newest
//     weights
//   - the name of a file, such as "resnet18-f37072fd.pth", or its address
//   - the hub's name with the owner, such as "openai-community/gpt2"
//
// Files are checked against the publishers' digests. For torchvision the digest is in the file's
// name. The hub sends the SHA-256 with the download. An interrupted download continues where it
// ended. Pretrained calls progress, if given, with the number of bytes received so far and the
// total, which is -1 if it is not known.
//
// The error is a *[DownloadError], or for an unknown name an *[Error] with a suggestion. Without a
// network, the DownloadError says which files to put where. If a file cannot be read, the error is
// from package torchfile or safetensors.
func Pretrained(ctx context.Context, name, dir string, progress ...func(done, total int64)) (map[string]*tensor.Tensor, error) {
	name, err := canonical(name)
	if err != nil {
		return nil, err
	}
	if addr, ok := torchvisionWeights[name]; ok {
		// If the name has no digest, fetch.File returns an error.
		digest, _ := fetch.DigestInName(path.Base(addr))
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
		return currentNames(sd), nil
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

// currentNames replaces old names of tensors in torchvision's files by torchvision's current names.
// torchvision does the same when it loads old files (torchvision/models/vision_transformer.py,
// MLPBlock).
func currentNames(sd map[string]*tensor.Tensor) map[string]*tensor.Tensor {
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

// PretrainedTokenizer downloads the files of a language model's tokenizer as [Pretrained] does. It
// returns their paths, in the order of the arguments of text.LoadBPE or text.LoadWordPiece.
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

// fromHub downloads a file of the repository with the given name, into a directory with the
// repository's name.
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
