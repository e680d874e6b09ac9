// Package flambeau is a torch for Go: tensors, gradients, layers, optimizers and data loading that
// run on NVIDIA GPUs and on the CPU from one go build, without cgo, Python or a CUDA toolkit.
//
// This package has no code. Its comment is the first page of the module. Programs import the
// packages in its folders. Training needs three of them:
//
//   - tensor has the tensors, their ops and gradients, and the scopes that own memory.
//   - nn has layers, losses, and functions for a whole model.
//   - optim has the optimizers. optim/sched changes their learning rates.
//
// A step looks as in PyTorch, except for the scope, which frees the tensors that the step made:
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
// These packages are for the work around the step:
//
//   - data has datasets and loaders. data/vision, data/text and data/table read images, text and
//     tables. data/detect finds out which kind of data a path holds, and data/digits is a small
//     data set.
//   - train has a complete training loop with metrics and checkpoints. Its Plan says whether a
//     model fits in a GPU's memory. train/tensorboard writes curves for TensorBoard.
//   - models has well-known networks, and downloads published weights for them.
//   - safetensors, torchfile and npy read and write files of weights. checkpoint saves trainings.
//   - amp is for training in float16, and autograd has Jacobians and custom gradients.
//   - dist trains on several devices.
//   - profile measures where the time is spent, and profile/memsnap draws the memory.
//   - vet finds mistakes with scopes in a program's source.
//
// These packages are for devices and kernels:
//
//   - device opens devices by name. To link the GPU driver into a program, import cuda only for its
//     effect: import _ "github.com/flambeau-go/flambeau/cuda". cuda/doctor says why a GPU is not
//     used.
//   - cpu is the driver of the CPU, which tensor imports.
//   - ptx and expr are for those who write kernels and ops. dtype and shape have the element types
//     and the arithmetic of shapes.
//   - device/devicetest and tensor/optest are the test suites that a new driver has to pass.
//
// The pages of the repository teach the library: docs/start leads from the first tensor to several
// GPUs, docs/from-pytorch lists PyTorch's names with the names here, and docs/guide is about
// memory, precision and profiling. The command is cmd/flambeau, and examples has whole programs.
package flambeau
