package models

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// A publisher serves files in the way that torchvision and the hub do.
type publisher struct {
	files  map[string][]byte // contents of the files, by path
	header map[string]http.Header
	hits   []string
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.hits = append(p.hits, r.URL.Path)
	b, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	maps.Copy(w.Header(), p.header[r.URL.Path])
	w.Write(b)
}

func TestPretrained(t *testing.T) {
	t.Setenv("FLAMBEAU_OFFLINE", "")
	t.Setenv("FLAMBEAU_CACHE", t.TempDir())
	from := NewResNet(ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 4, Classes: 3})
	tree := map[string]any{}
	for name, x := range nn.StateDict(from) {
		tree[name] = x
	}
	folder := t.TempDir()
	read := func(name string, save func(path string) error) []byte {
		if err := save(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	digest := func(b []byte) string { d := sha256.Sum256(b); return hex.EncodeToString(d[:]) }
	pth := read("a.pth", func(p string) error { return torchfile.Save(p, tree) })
	sft := read("a.safetensors", func(p string) error { return safetensors.Save(p, nn.StateDict(from), nil) })
	vocab := []byte("{}")
	blob := fmt.Sprintf("%x", gitBlob(vocab))
	site := &publisher{files: map[string][]byte{}, header: map[string]http.Header{}}
	server := httptest.NewServer(site)
	defer server.Close()
	good, bad := "/models/tiny-"+digest(pth)[:8]+".pth", "/models/tiny-00000000.pth"
	site.files[good], site.files[bad] = pth, pth
	defer func(h string) { hub, pause = h, 0 }(hub)
	hub, pause = server.URL+"/", time.Millisecond
	site.files["/openai-community/gpt2/resolve/main/model.safetensors"] = sft
	site.header["/openai-community/gpt2/resolve/main/model.safetensors"] = http.Header{"X-Linked-Etag": {`"` + digest(sft) + `"`}}
	for _, f := range []string{"vocab.json", "merges.txt"} {
		site.files["/openai-community/gpt2/resolve/main/"+f] = vocab
		site.header["/openai-community/gpt2/resolve/main/"+f] = http.Header{"Etag": {`"` + blob + `"`}}
	}
	for name, addr := range map[string]string{"Tiny.GOOD": server.URL + good, "Tiny.BAD": server.URL + bad, "Tiny.UNNAMED": server.URL + "/models/tiny.pth", "Tiny.GONE": server.URL + "/gone-12345678.pth"} {
		torchvisionWeights[name] = addr
		defer delete(torchvisionWeights, name)
	}
	ctx := context.Background()
	dir := t.TempDir()
	for _, name := range []string{"Tiny.GOOD", "gpt2"} {
		for range 2 { // in the second iteration, the files are already in dir
			hits, told := len(site.hits), int64(0)
			sd, err := Pretrained(ctx, name, dir, func(done, _ int64) { told = done })
			if err != nil {
				t.Fatal(err)
			}
			to := NewResNet(from.Config)
			if err := nn.LoadStateDict(to, sd); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(to.Layer3.Layers[0].(*basicBlock).Conv2.Weight.Floats(), from.Layer3.Layers[0].(*basicBlock).Conv2.Weight.Floats()) {
				t.Errorf("%s: other weights", name)
			}
			if told == 0 && len(site.hits) > hits {
				t.Errorf("%s: no progress was told", name)
			}
		}
	}
	if n := slices.Index(site.hits, good); n < 0 || slices.Contains(site.hits[n+1:], good) {
		t.Errorf("requests %v", site.hits)
	}
	files, err := PretrainedTokenizer(ctx, "gpt2", "") // "" stands for the user's cache directory
	if err != nil || len(files) != 2 || !strings.HasPrefix(files[0], os.Getenv("FLAMBEAU_CACHE")) || filepath.Base(files[1]) != "merges.txt" {
		t.Errorf("%v, %v", files, err)
	}
	// The error says what is wrong, and no file with the requested name remains.
	var e *DownloadError
	for name, says := range map[string]string{"Tiny.BAD": "digest", "Tiny.UNNAMED": "digest", "Tiny.GONE": "404"} {
		if _, err := Pretrained(ctx, name, dir); !errors.As(err, &e) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "tiny-00000000.pth")); err == nil {
		t.Error("a file with a wrong digest stays")
	}
	t.Setenv("FLAMBEAU_OFFLINE", "1")
	if _, err := Pretrained(ctx, "ResNet18_Weights.IMAGENET1K_V1", dir); !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), filepath.Join(dir, "resnet18-f37072fd.pth")) || !strings.Contains(err.Error(), "https://download.pytorch.org/models/resnet18-f37072fd.pth") {
		t.Errorf("offline: %v", err)
	}
	if sd, err := Pretrained(ctx, "Tiny.GOOD", dir); err != nil || len(sd) != len(tree) {
		t.Errorf("what is here needs no network: %v", err)
	}
	for _, f := range []func() error{
		func() error { _, err := Pretrained(ctx, "resnett18", dir); return err },
		func() error { _, err := PretrainedTokenizer(ctx, "resnett18", dir); return err },
	} {
		var e *Error
		if err := f(); !errors.As(err, &e) || !strings.Contains(err.Error(), `no weights "resnett18"; did you mean "ResNet18_Weights.IMAGENET1K_V1"? Known are ResNet101`) {
			t.Error(err)
		}
	}
	// This file is not a checkpoint.
	torchvisionWeights["Tiny.JUNK"] = server.URL + "/junk-" + digest(vocab)[:8] + ".pth"
	defer delete(torchvisionWeights, "Tiny.JUNK")
	site.files["/junk-"+digest(vocab)[:8]+".pth"] = vocab
	t.Setenv("FLAMBEAU_OFFLINE", "")
	var te *torchfile.Error
	if _, err := Pretrained(ctx, "Tiny.JUNK", dir); !errors.As(err, &te) {
		t.Error(err)
	}
}

// Weights are found under the names that users of PyTorch know.
func TestNamesOfPretrainedWeights(t *testing.T) {
	for name, want := range map[string]string{
		"ResNet18_Weights.IMAGENET1K_V1": "ResNet18_Weights.IMAGENET1K_V1",
		"resnet18":                       "ResNet18_Weights.IMAGENET1K_V1",
		"ResNet-18":                      "ResNet18_Weights.IMAGENET1K_V1",
		"resnet18-f37072fd.pth":          "ResNet18_Weights.IMAGENET1K_V1",
		"https://download.pytorch.org/models/resnet18-f37072fd.pth": "ResNet18_Weights.IMAGENET1K_V1",
		"resnet50":                      "ResNet50_Weights.IMAGENET1K_V2",
		"ResNet50_Weights.DEFAULT":      "ResNet50_Weights.IMAGENET1K_V2",
		"resnet50-0676ba61.pth":         "ResNet50_Weights.IMAGENET1K_V1",
		"vit_b_16":                      "ViT_B_16_Weights.IMAGENET1K_V1",
		"ViT-B/16":                      "ViT_B_16_Weights.IMAGENET1K_V1",
		"GPT2":                          "gpt2",
		"openai-community/gpt2-medium":  "gpt2-medium",
		"google-bert/bert-base-uncased": "bert-base-uncased",
	} {
		if got, err := canonical(name); err != nil || got != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for _, key := range PretrainedNames() {
		if got, err := canonical(key); err != nil || got != key {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	for name, like := range map[string]string{"resent18": "ResNet18", "gtp2": "gpt2", "vit_b16_224": "ViT_B_16", "bert-base-cased": "bert-base-uncased"} {
		if _, err := canonical(name); err == nil || !strings.Contains(err.Error(), `did you mean "`+like) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := canonical("llama"); err == nil || strings.Contains(err.Error(), "did you mean") || !strings.Contains(err.Error(), "gpt2-xl") {
		t.Error(err)
	}
	if _, err := PretrainedTokenizer(context.Background(), "resnet18", ""); err == nil || !strings.Contains(err.Error(), "no tokenizer") {
		t.Error(err)
	}
}

func gitBlob(b []byte) [20]byte {
	return sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(b)), b...))
}

// Every address in the table has a digest, and belongs to a model of this package.
func TestPretrainedTable(t *testing.T) {
	form := regexp.MustCompile(`^https://download\.pytorch\.org/models/[a-z0-9_]+-[0-9a-f]{8}\.pth$`)
	for name, addr := range torchvisionWeights {
		if !form.MatchString(addr) {
			t.Errorf("%s: %s", name, addr)
		}
	}
	if n := len(PretrainedNames()); n != len(torchvisionWeights)+len(published) || !slices.Contains(PretrainedNames(), "gpt2") {
		t.Errorf("%d names", n)
	}
}

// In torchvision's older ViT files, the layers of a block's MLP have other names. currentNames
// replaces them by the current names.
func TestOlderNames(t *testing.T) {
	m := NewViT(ViTConfig{Image: 8, Patch: 8, Layers: 2, Heads: 1, Width: 4, Classes: 2})
	sd := nn.StateDict(m)
	old := map[string]*tensor.Tensor{}
	for name, x := range sd {
		name = strings.ReplaceAll(name, ".mlp.0.", ".mlp.linear_1.")
		old[strings.ReplaceAll(name, ".mlp.3.", ".mlp.linear_2.")] = x
	}
	if err := nn.LoadStateDict(m, old); err == nil {
		t.Error("the old names are others")
	}
	if err := nn.LoadStateDict(m, currentNames(old)); err != nil {
		t.Error(err)
	}
}
