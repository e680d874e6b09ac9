package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// openDevices opens the devices of --devices, and describes them in words.
func openDevices(names []string) (dist.DeviceList, string, error) {
	if len(names) == 1 && names[0] == "all" {
		names = []string{"cuda:*"}
	}
	open := dist.Devices(names...)
	list, err := open.List()
	if err != nil {
		var u *device.UnavailableError
		if errors.As(err, &u) && strings.HasPrefix(u.Name, "cuda") {
			err = fmt.Errorf("--devices: %w; --devices cpu,cpu works without it", err)
		}
		return open, "", err
	}
	var each []string
	for _, d := range list {
		each = append(each, d.Name()+" ("+d.Info().Name+")")
	}
	return open, announce(list[0], "using "+strings.Join(each, ", ")), nil
}

// checkDevices checks the names in --devices.
func (c *trainCmd) checkDevices() error {
	switch {
	case len(c.Devices) > 0 && c.Device != "auto":
		return fmt.Errorf("--device %s and --devices %s: give one of the two", c.Device, strings.Join(c.Devices, ","))
	case slices.Contains(c.Devices, ""):
		return errors.New("--devices: a name is empty")
	case len(c.Devices) > 1 && slices.Contains(c.Devices, "all"):
		return errors.New("--devices: all stands alone, for all GPUs")
	}
	return nil
}

// open opens the devices of a training. It returns the first device, all devices if there are
// several, and the reason for the choice.
func (c *trainCmd) open() (dev device.Device, all dist.DeviceList, why string, err error) {
	if len(c.Devices) == 0 {
		dev, why, err = openDevice(c.Device)
		return dev, all, why, err
	}
	if all, why, err = openDevices(c.Devices); err != nil {
		return nil, all, "", err
	}
	list, err := all.List()
	return list[0], all, why, err
}

// deviceNames returns the names of several devices, and the largest peak of memory on any of them.
// For a single device, names is nil.
func deviceNames(dev device.Device, all dist.DeviceList) (names []string, peak int) {
	list, _ := all.List()
	for _, d := range list {
		names, peak = append(names, d.Name()), max(peak, d.Stats().AllocatedPeak)
	}
	if len(list) < 2 {
		return nil, dev.Stats().AllocatedPeak
	}
	return names, peak
}

// replica returns a network like n on device dev. Its model is the argument model, which is a copy
// of n's model on that device.
func (n *network) replica(model any, dev device.Device) *network {
	c := &network{card: n.card, model: model, module: model.(nn.Module), dev: dev}
	c.gpt, _ = model.(*models.GPT)
	if n.mean != nil {
		c.mean, c.std = n.mean.To(dev), n.std.To(dev)
	}
	if len(n.held) > 0 {
		var own, copies []*nn.BatchNorm2d
		for list, m := range map[*[]*nn.BatchNorm2d]any{&own: n.model, &copies: model} {
			nn.Apply(m, func(l any) {
				if l, ok := l.(*nn.BatchNorm2d); ok {
					*list = append(*list, l)
				}
			})
		}
		for _, l := range n.held {
			c.held = append(c.held, copies[slices.Index(own, l)])
		}
	}
	return c
}

// computation returns the functions with which package train computes outputs and losses.
func (n *network) computation() train.Computation {
	switch r := n.card.Regression; {
	case n.gpt != nil:
		return train.Computation{Compute: func(_ *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
			return nil, nil, n.gpt.Loss(b.X, b.Y)
		}}
	case r != nil:
		return train.Computation{Compute: func(_ *tensor.Scope, b *data.Batch) (output, target, loss *tensor.Tensor) {
			y := n.forward(b.X).Squeeze(1)
			return n.unscaled(y.Detach()), b.Y, nn.MSELoss{}.Forward(y, b.Y.Double().SubScalar(r.Mean).DivScalar(r.Std).Float())
		}}
	}
	return train.Computation{Forward: n.forward}
}
