package models_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The model is a perceptron for images of digits.
func ExampleMLP() {
	m := models.NewMLP([]int{784, 64, 10}, 0.1)
	x := tensor.Ones(2, 1, 28, 28)
	fmt.Println(m.Forward(x.Flatten(1, -1)).Shape(), nn.Count(m))
	// Output: [2, 10] 50890
}

// LeNet-5 classifies the images of MNIST.
func ExampleLeNet() {
	m := models.NewLeNet(28, 1, 10)
	fmt.Println(m.Forward(tensor.Ones(2, 1, 28, 28)).Shape(), nn.Count(m))
	// Output: [2, 10] 61706
}

func ExampleCNN() {
	m := models.NewCNN(1, 10)
	fmt.Println(m.Forward(tensor.Ones(4, 1, 8, 8)).Shape())
	// Output: [4, 10]
}

// A ResNet-18 would be models.ResNet18(10, 3). This model is narrower, with the same names of
// weights.
func Example() {
	m := nn.Eval(models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 8, Classes: 10}))
	fmt.Println(m.Forward(tensor.Ones(1, 3, 32, 32)).Shape(), nn.StateDict(m)["layer4.0.downsample.0.weight"].Shape())
	// Output: [1, 10] [64, 32, 1, 1]
}

// For fine-tuning, the body of the model is frozen and gets a new head.
func ExampleResNet_Features() {
	m := models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 8})
	nn.Eval(nn.Freeze(m))
	head := nn.NewLinear(64, 5)
	y := head.Forward(m.Features(tensor.Ones(2, 3, 32, 32)))
	y.Sum().Backward()
	fmt.Println(y.Shape(), head.Weight.Grad().Shape(), m.Conv1.Weight.Grad() == nil)
	// Output: [2, 5] [5, 64] true
}

// ViT-B/16 would be models.NewViT(models.ViTB16()). This model is smaller, with the same names of
// weights.
func ExampleViT() {
	m := models.NewViT(models.ViTConfig{Image: 32, Patch: 8, Layers: 2, Heads: 4, Width: 32, Classes: 10})
	fmt.Println(m.Forward(tensor.Ones(1, 3, 32, 32)).Shape())
	fmt.Println(nn.StateDict(m)["encoder.layers.encoder_layer_0.self_attention.in_proj_weight"].Shape())
	// Output:
	// [1, 10]
	// [96, 32]
}

// The example loads torchvision's published weights into a model with 1000 classes. Without a
// network, the error says which files to put where.
func ExamplePretrained() {
	dir, err := os.MkdirTemp("", "weights")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("FLAMBEAU_OFFLINE", "1") // only for the example
	defer os.Unsetenv("FLAMBEAU_OFFLINE")

	sd, err := models.Pretrained(context.Background(), "ResNet18_Weights.IMAGENET1K_V1", dir)
	if errors.Is(err, models.ErrOffline) {
		fmt.Println("no network:", strings.Contains(err.Error(), "resnet18-f37072fd.pth"))
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := nn.LoadStateDict(models.ResNet18(1000, 3), sd); err != nil {
		log.Fatal(err)
	}
	// Output: no network: true
}
