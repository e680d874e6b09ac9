package models_test

import (
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A tiny temperature draws the most probable token, even if dividing the logits by it overflows
// float32.
func TestSmallTemperatures(t *testing.T) {
	s := tensor.NewScope(tensor.Seed(1))
	defer s.Close()
	m := models.NewGPT(models.GPTConfig{Vocab: 31, Context: 6, Layers: 1, Heads: 2, Width: 8}, nn.In(s))
	prompt := [][]int{{1, 2}}
	for _, k := range []int{0, 5} {
		want, err := m.Generate(prompt, models.GenerateOptions{})
		if err != nil || want[0][0] == 0 {
			t.Fatal(want, err)
		}
		for _, temperature := range []float64{1e-7, 1e-20, 1e-37, 1e-42, 5e-324} {
			got, err := m.Generate(prompt, models.GenerateOptions{Temperature: temperature, TopK: k, TopP: 0.9})
			if err != nil || !slices.Equal(got[0], want[0]) {
				t.Errorf("%v: %v, want %v: %v", temperature, got, want, err)
			}
		}
	}
	var long *models.ContextError
	if _, err := m.Generate(prompt, models.GenerateOptions{MaxTokens: math.MaxInt}); !errors.As(err, &long) {
		t.Errorf("got %v", err)
	}
}

// Several goroutines can generate with one model at the same time, even in training mode, without
// affecting each other.
func TestGenerateTogether(t *testing.T) {
	m := models.NewGPT(models.GPTConfig{Vocab: 31, Context: 24, Layers: 2, Heads: 2, Width: 8, Dropout: 0.5})
	run := func(seed int) []int {
		out, err := m.Generate([][]int{{1, 2}}, models.GenerateOptions{Temperature: 1, Seed: uint64(seed)})
		if err != nil {
			t.Error(err)
			return nil
		}
		return out[0]
	}
	var want, got [4][]int
	var wg sync.WaitGroup
	for i := range want {
		want[i] = run(i)
		wg.Add(1)
	}
	for i := range got {
		go func() {
			defer wg.Done()
			got[i] = run(i)
		}()
	}
	wg.Wait()
	for i := range got {
		if !slices.Equal(got[i], want[i]) || i > 0 && slices.Equal(got[i], got[0]) {
			t.Errorf("seed %d: %v, by itself %v", i, got[i], want[i])
		}
	}
}

func TestModelsWithoutInput(t *testing.T) {
	gpt := models.NewGPT(models.GPTConfig{Vocab: 31, Context: 6, Layers: 1, Heads: 2, Width: 8})
	bert := models.NewMaskedLM(models.BERTConfig{Vocab: 9, Context: 4, Layers: 1, Heads: 1, Width: 4})
	var none *models.Cache
	none.Free()
	none.Truncate(0)
	for name, f := range map[string]func(){
		"gpt":      func() { gpt.Forward(nil) },
		"loss":     func() { gpt.Loss(nil, nil) },
		"decode":   func() { gpt.Decode(nil, gpt.NewCache(tensor.Root(), 1)) },
		"bert":     func() { bert.Forward(nil) },
		"features": func() { bert.Bert.Features(nil, models.BERTInput{}) },
		"truncate": func() { none.Truncate(1) },
	} {
		if err := tensor.Try(f); !errors.Is(err, tensor.ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The memory of a generation does not grow with its length, and is freed however the loop ends.
func TestGenerateMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 7, Context: 4, Layers: 1, Heads: 1, Width: 4}, nn.In(s))
		before := dev.Stats().Allocated
		run := func(tokens int, leave func()) (after []uint64) {
			defer func() {
				recover()
				if now := dev.Stats().Allocated; now != before {
					t.Errorf("%d bytes are allocated, %d before", now, before)
				}
			}()
			for _, err := range m.Stream([]int{1}, models.GenerateOptions{MaxTokens: tokens, Slide: true, Temperature: 1}) {
				if err != nil {
					t.Fatal(err)
				}
				if after = append(after, uint64(dev.Stats().Allocated)); len(after) == 20 {
					leave()
				}
			}
			return after
		}
		held := run(60, func() { dev.ResetPeak() })
		if peak := dev.Stats().AllocatedPeak; len(held) != 60 || held[5] != held[59] || uint64(peak) > held[5]+16<<10 {
			t.Errorf("%v, a peak of %d", held, peak)
		}
		run(60, func() { panic("leave") })
		for range m.Stream([]int{1}, models.GenerateOptions{}) {
			break
		}
		if now := dev.Stats().Allocated; now != before {
			t.Errorf("%d bytes are allocated, %d before", now, before)
		}
	}, tensor.On(dev))
}
