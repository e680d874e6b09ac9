package start_test

import (
	"context"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
)

func Example_ranks() {
	set, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	known, _ := set.Split()
	devices := dist.Devices("cpu", "cpu") // or "cuda:0", "cuda:1", or "cuda:*" for all GPUs
	err = dist.Run(context.Background(), devices, func(ctx context.Context, group *dist.Group) error {
		return rank(group, known)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: the ranks agree: true
}

func rank(group *dist.Group, set data.Dataset) error {
	share, err := data.NewDistributedSampler(set.Len(), data.DistributedConfig{Rank: group.Rank(), World: group.World(), Shuffle: true})
	if err != nil {
		return err
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 16, Sampler: share, Device: group.Device()})
	if err != nil {
		return err
	}
	model := dist.Make(group, NewNet) // the same weights on all ranks
	// from here on, Backward averages gradients over the ranks
	model = dist.DDP(nn.To(model, group.Device()), group)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	for step, err := range loader.Steps(group.Options()...) {
		if err != nil {
			return err
		}
		nn.CrossEntropy(model.Forward(step.X), step.Y).Backward()
		opt.Step()
		opt.ZeroGrad()
	}
	// collects one value from each rank
	sums := dist.Exchange(group, model.Out.Weight.Detach().Sum().Item())
	if group.Rank() == 0 {
		fmt.Println("the ranks agree:", sums[0] == sums[1])
	}
	return nil
}
