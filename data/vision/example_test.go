package vision_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/internal/glyphs"
	"github.com/flambeau-go/flambeau/tensor"
)

// The loader's goroutines augment images from directories.
func Example() {
	dir, err := os.MkdirTemp("", "digits")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := glyphs.Folder(dir, 5, 1); err != nil { // draws images dir/0/0000.png, …
		fmt.Println(err)
		return
	}
	pictures, err := vision.ImageFolder(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	train := vision.Apply(pictures,
		vision.RandomResizedCrop(32, vision.Area{Scale: [2]float64{0.8, 1}}),
		vision.RandomRotation(vision.Rotation{From: -10, To: 10}),
		vision.ToTensor(),
		vision.Normalize(vision.ImageNetMean, vision.ImageNetStd),
	)
	loader, err := data.NewLoader(train, data.Config{Batch: 16, Shuffle: true, Workers: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(pictures.Classes()), "classes")
	for batch, err := range loader.Batches() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.X.Type(), batch.X.Shape(), batch.Y.Shape())
		tensor.Do(func(s *tensor.Scope) { batch.Into(s) })
	}
	// Output:
	// 10 classes
	// float32 [16, 3, 32, 32] [16]
	// float32 [16, 3, 32, 32] [16]
	// float32 [16, 3, 32, 32] [16]
	// float32 [2, 3, 32, 32] [2]
}

// A program's own function can be a transform.
func ExampleTransform() {
	var invert vision.Transform = func(m *vision.Image, _ *rand.Rand) (*vision.Image, error) {
		for i, v := range m.U8 {
			m.U8[i] = 255 - v
		}
		return m, nil
	}
	m := &vision.Image{C: 1, H: 1, W: 3, U8: []uint8{0, 100, 255}}
	m, err := vision.Compose(invert, vision.RandomHorizontalFlip(1), vision.ToTensor())(m, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(m.Tensor(), err)
	// Output: tensor([[[0.0000, 0.6078, 1.0000]]]) <nil>
}

func ExampleMNIST() {
	dir, err := os.MkdirTemp("", "mnist")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	// A real program calls vision.Download(ctx, "mnist", dir, nil) instead.
	if err := glyphs.IDX(dir, 60, 10, 1); err != nil {
		fmt.Println(err)
		return
	}
	train, err := vision.MNIST(dir, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	x, y, err := train.GetBatch([]int{0, 1, 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(train.Len(), "images;", x.Shape(), y)
	// Output: 60 images; [3, 1, 28, 28] tensor([0, 1, 2])
}

// Without a network, the error says which files to put where.
func ExampleDownload() {
	os.Setenv("FLAMBEAU_OFFLINE", "1")
	defer os.Unsetenv("FLAMBEAU_OFFLINE")
	_, err := vision.Download(context.Background(), "cifar10", "sets", nil)
	fmt.Println(errors.Is(err, vision.ErrOffline))
	var e *vision.DownloadError
	if errors.As(err, &e) {
		fmt.Println(e.URL)
		fmt.Println(filepath.ToSlash(e.Path))
	}
	// Output:
	// true
	// https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz
	// sets/cifar-10-binary.tar.gz
}

func ExampleReadIDX() {
	var file bytes.Buffer
	if err := vision.WriteIDX(&file, tensor.From([]int16{1, -2, 3}, 3)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("% x\n", file.Bytes())
	x, err := vision.ReadIDX(&file)
	fmt.Println(x, err)
	_, err = vision.ReadIDX(bytes.NewReader([]byte{0, 0, 8, 1, 0, 0, 0, 2, 7}))
	fmt.Println(err)
	// Output:
	// 00 00 0b 01 00 00 00 03 00 01 ff fe 00 03
	// tensor([ 1, -2,  3], dtype=torch.int16) <nil>
	// vision: 1 bytes of elements, [2] of type uint8 are 2: unexpected EOF
}

func ExampleDecode_Read() {
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, 40, 30))); err != nil {
		fmt.Println(err)
		return
	}
	m, err := vision.Decode{}.Read(bytes.NewReader(file.Bytes()))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.C, m.H, m.W)
	_, err = vision.Decode{MaxPixels: 1000}.Read(&file)
	fmt.Println(err)
	// Output:
	// 3 30 40
	// vision: 40×30 pixels, at most 1000 pixels are decoded; the field MaxPixels of vision.Decode raises the limit
}

func ExampleNewSet() {
	set, err := vision.NewSet(1, 2, 2, []uint8{0, 255, 0, 255, 255, 0, 255, 0}, []int64{1, 0}, []string{"odd", "even"})
	if err != nil {
		fmt.Println(err)
		return
	}
	sample, err := set.Get(0)
	fmt.Println(sample.X, set.Classes()[sample.Y.(int64)], err)
	// Output:
	// tensor([[[0., 1.],
	//          [0., 1.]]]) even <nil>
}

func ExampleMixup() {
	x := tensor.From([]float32{0, 0, 1, 1}, 2, 1, 1, 2)
	y := tensor.From([]int64{0, 1})
	mixed, target := vision.Mixup(x, y, 2, 0.2, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(mixed.Shape(), target.Shape(), target.Sum().Item())
	mixed, target = vision.CutMix(x, y, 2, 1, rand.New(rand.NewPCG(1, 2)))
	fmt.Println(mixed.Shape(), target.Shape(), target.Sum().Item())
	// Output:
	// [2, 1, 1, 2] [2, 2] 2
	// [2, 1, 1, 2] [2, 2] 2
}

func ExampleSaveImage() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	x := tensor.Root().Rand(16, 1, 28, 28)
	fmt.Println(vision.MakeGrid(x, vision.Grid{Columns: 4, Padding: 1}).Shape())
	fmt.Println(vision.SaveImage(filepath.Join(dir, "grid.png"), x))
	fmt.Println(vision.SaveImage("grid.bmp", x))
	// Output:
	// [3, 117, 117]
	// <nil>
	// vision: grid.bmp: the file's name ends in none of .png, .jpg, .jpeg
}
