package models

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/internal/didyoumean"
)

// canonical converts any accepted name of weights to their name in PretrainedNames.
func canonical(name string) (string, error) {
	if _, ok := torchvisionWeights[name]; ok {
		return name, nil
	}
	if _, ok := published[name]; ok {
		return name, nil
	}
	all := otherNames()
	if to, ok := all[simplified(name)]; ok {
		return to, nil
	}
	known := strings.Join(PretrainedNames(), ", ")
	as := simplified(name)
	if near := didyoumean.Nearest(as, slices.Sorted(maps.Keys(all)), len(as)/4+1); near != "" {
		return "", wrong("pretrained", "there are no weights %q; did you mean %q? Known are %s", name, all[near], known)
	}
	return "", wrong("pretrained", "there are no weights %q; known are %s", name, known)
}

// simplified returns a name in lower case without separators. For example, ViT-B/16 and vit_b_16
// both become vitb16.
func simplified(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", "/", "", ".", "").Replace(strings.ToLower(name))
}

// otherNames maps other names of weights, as simplified returns them, to the names in
// PretrainedNames. They are torchvision's model names ("resnet50"), the entries DEFAULT of its
// enumerations, names and addresses of files, and Hugging Face's repositories with their owners. A
// model name and DEFAULT both mean the newest weights.
func otherNames() map[string]string {
	all := map[string]string{}
	keys := PretrainedNames()
	slices.Sort(keys) // "IMAGENET1K_V2" must come after "IMAGENET1K_V1"
	for _, key := range keys {
		all[simplified(key)] = key
		if p, ok := published[key]; ok {
			all[simplified(p.repository)] = key
			continue
		}
		addr := torchvisionWeights[key]
		all[simplified(addr)], all[simplified(path.Base(addr))] = key, key
		model, _, _ := strings.Cut(key, "_Weights.")
		all[simplified(model)], all[simplified(model+"_Weights.DEFAULT")] = key, key
	}
	return all
}
