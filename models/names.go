package models

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// canonical returns the name in PretrainedNames that a name of published weights stands for.
func canonical(name string) (string, error) {
	if _, ok := torchvisionWeights[name]; ok {
		return name, nil
	}
	if _, ok := published[name]; ok {
		return name, nil
	}
	all := otherNames()
	if to, ok := all[plain(name)]; ok {
		return to, nil
	}
	known := strings.Join(PretrainedNames(), ", ")
	if near := nearest(plain(name), all); near != "" {
		return "", wrong("pretrained", "there are no weights %q; did you mean %q? Known are %s", name, near, known)
	}
	return "", wrong("pretrained", "there are no weights %q; known are %s", name, known)
}

// plain is a name without what people write differently: ViT-B/16, vit_b_16.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", "/", "", ".", "").Replace(strings.ToLower(name))
}

// otherNames returns what each further name stands for, in plain form: that of torchvision's model,
// "resnet50", and of its entry DEFAULT, which are its newest weights; that of a file and its address;
// and Hugging Face's repositories with their owners.
func otherNames() map[string]string {
	all := map[string]string{}
	keys := PretrainedNames()
	slices.Sort(keys) // so that IMAGENET1K_V2 comes after V1
	for _, key := range keys {
		all[plain(key)] = key
		if p, ok := published[key]; ok {
			all[plain(p.repository)] = key
			continue
		}
		addr := torchvisionWeights[key]
		all[plain(addr)], all[plain(path.Base(addr))] = key, key
		model, _, _ := strings.Cut(key, "_Weights.")
		all[plain(model)], all[plain(model+"_Weights.DEFAULT")] = key, key
	}
	return all
}

// nearest returns the name of the weights that a name is a few letters away from, "" for none.
func nearest(name string, all map[string]string) string {
	best, least := "", len(name)/4+1
	for _, other := range slices.Sorted(maps.Keys(all)) {
		if d := distance(name, other); d <= least && (best == "" || d < least) {
			best, least = all[other], d
		}
	}
	return best
}

// distance is the least number of letters that are put in, left out or changed to make b of a
// (V. Levenshtein, 1966).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
