// Command folders trains a CNN on a directory of images, with one folder per class. Without a
// directory it draws images: circles, squares and triangles.
package main

import (
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

var shapes = map[string]func(x, y float64) bool{
	"circle":   func(x, y float64) bool { return x*x+y*y < 1 },
	"square":   func(x, y float64) bool { return max(x, -x, y, -y) < 0.85 },
	"triangle": func(x, y float64) bool { return y < 0.8 && y > 2*max(x, -x)-0.9 },
}

// draw writes n images of each shape.
func draw(dir string, n int) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"circle", "square", "triangle"} {
		for i := range n {
			m := image.NewGray(image.Rect(0, 0, 24, 24))
			r, cx, cy := 5+5*rng.Float64(), 10+4*rng.Float64(), 10+4*rng.Float64()
			for p := range 24 * 24 {
				v := rng.IntN(60)
				if shapes[name]((float64(p%24)-cx)/r, (float64(p/24)-cy)/r) {
					v += 180
				}
				m.SetGray(p%24, p/24, color.Gray{Y: uint8(v)})
			}
			path := filepath.Join(dir, name, fmt.Sprintf("%03d.png", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			f, err := os.Create(path)
			if err != nil {
				return err
			}
			if err := png.Encode(f, m); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 12, "passes over the pictures")
	dir := flag.String("data", "", "a directory of directories of pictures")
	flag.Parse()
	if *dir == "" {
		*dir = must(os.MkdirTemp("", "folders"))
		defer os.RemoveAll(*dir)
		if err := draw(*dir, 40); err != nil {
			log.Fatal(err)
		}
	}

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	pictures := must(vision.ImageFolder(*dir))
	set := vision.Apply(pictures, vision.Grayscale(1), vision.ResizeTo(24, 24), vision.RandomHorizontalFlip(0.5), vision.ToTensor())
	parts := must(data.RandomSplitFractions(set, 1, 0.8, 0.2))
	model := nn.To(nn.NewSequential(
		nn.NewConv2d(1, 8, 3), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.NewConv2d(8, 16, 3), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.Flatten{}, nn.NewLinear(16*4*4, len(pictures.Classes()))), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 3e-3})
	loader := must(data.NewLoader(parts[0], data.Config{Batch: 16, Shuffle: true, Workers: 2, Device: dev, Pin: true}))
	held := must(data.NewLoader(parts[1], data.Config{Batch: 64, Device: dev}))
	for epoch := range *epochs {
		total, right := 0.0, 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := nn.CrossEntropy(model.Forward(step.X), step.Y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			total += loss.Item()
		}
		for step, err := range held.Steps(tensor.NoGrad()) {
			if err != nil {
				log.Fatal(err)
			}
			right += model.Forward(step.X).Argmax(-1).Eq(step.Y).Sum().Item()
		}
		fmt.Printf("epoch %d: loss %.4f, %.0f of %d right\n", epoch+1, total/float64(loader.Len()), right, parts[1].Len())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
