// Package flambeau is a torch for Go: tensors, gradients, layers, optimizers and data loading that
// run on NVIDIA GPUs and on the CPU from one go build, without cgo, Python or a CUDA toolkit.
//
// This package is the module's first page and has no code. A program imports the packages below it.
// Three make a training:
//
//   - tensor has the tensors, their ops and gradients, and the scopes that own memory.
//   - nn has layers, losses, and what one does to a whole model.
//   - optim has the optimizers. optim/sched changes their learning rates.
//
// A step is as in PyTorch, except for the scope, which frees what the step made:
//
//	dev, why := device.Best() // cuda:0 where there is a GPU, else cpu
//	model := nn.To(nn.NewLinear(64, 10), dev)
//	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
//	tensor.Do(func(s *tensor.Scope) {
//		loss := nn.CrossEntropy(model.Forward(s.From(x)), s.From(y))
//		loss.Backward()
//		opt.Step()
//		opt.ZeroGrad()
//	}, tensor.On(dev))
//
// Around the step:
//
//   - data has datasets and loaders. data/vision, data/text and data/table read images, text and
//     tables, data/detect tells which of them a path holds, and data/digits is a set to try.
//   - train has the whole loop with metrics and checkpoints, and the plan that says whether a model
//     fits a GPU. train/tensorboard writes curves.
//   - models has known networks, and fetches published weights for them.
//   - safetensors, torchfile and npy read and write files of weights. checkpoint saves trainings.
//   - amp trains in float16, and autograd has Jacobians and gradients of one's own.
//   - dist trains on several devices.
//   - profile says where the time goes, and profile/memsnap draws the memory.
//   - vet finds mistakes with scopes in a program's source.
//
// On devices and kernels:
//
//   - device opens devices by name. To link the driver of GPUs in, import cuda for its effect
//     alone: import _ "github.com/flambeau-go/flambeau/cuda". cuda/doctor says why a GPU is not
//     used.
//   - cpu is the driver of the processor, which tensor imports.
//   - ptx and expr are for those who write kernels and ops. dtype and shape have the element types
//     and the arithmetic of shapes.
//   - device/devicetest and tensor/optest are the suites that a new driver has to pass.
//
// The pages of the repository teach the library: docs/start leads from the first tensor to several
// GPUs, docs/from-pytorch has PyTorch's names beside the names here, and docs/guide is about
// memory, precision and profiling. The command is cmd/flambeau, and examples has whole programs.
package flambeau
