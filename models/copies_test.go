package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Each step of generation on a GPU makes one copy to the host: the ids of the chosen tokens, 8
// bytes for each sequence. Generation copies only the prompt to the GPU. Training reads nothing
// from the GPU. Generation and training free all memory.
func TestHostCopies(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	gpu := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 31, Context: 6, Layers: 1, Heads: 2, Width: 8, Dropout: 0.1}, nn.In(s))
		prompts := [][]int{{1, 2}, {3, 4}, {5, 6}}
		for _, o := range []models.GenerateOptions{{}, {Temperature: 1, TopK: 5, TopP: 0.9}, {MaxTokens: 7, Slide: true, Temperature: 1, TopP: 0.9}} {
			// The first call is not counted, because it also makes programs and constants.
			if _, err := m.Generate(prompts, o); err != nil {
				t.Fatal(err)
			}
			before, held := gpu.Counters(), gpu.Stats().Allocated
			out, err := m.Generate(prompts, o)
			if err != nil {
				t.Fatal(err)
			}
			after := gpu.Counters()
			n := uint64(len(out[0]))
			up, down, bytes := after.Uploads-before.Uploads, after.Downloads-before.Downloads, after.DownloadedBytes-before.DownloadedBytes
			if up != 1 || down != n || bytes != n*3*8 || n < 5 {
				t.Errorf("%+v: %d uploads, %d downloads of %d bytes for %d tokens of 3 sequences", o, up, down, bytes, n)
			}
			if now := gpu.Stats().Allocated; now != held {
				t.Errorf("%+v: %d bytes are allocated, %d before", o, now, held)
			}
		}
		x, y := s.From([]int64{1, 2, 3}, 1, 3), s.From([]int64{2, 3, 4}, 1, 3)
		before := gpu.Counters()
		s.Do(func(c *tensor.Scope) { m.Loss(x.In(c), y.In(c)).Backward() })
		if after := gpu.Counters(); after.Uploads != before.Uploads || after.Downloads != before.Downloads {
			t.Errorf("training copies: %d uploads, %d downloads", after.Uploads-before.Uploads, after.Downloads-before.Downloads)
		}
	}, tensor.On(gpu))
}
