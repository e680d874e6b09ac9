package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// ConvertSyncBatchNorm changes every nn.BatchNorm1d, 2d and 3d of a model, in place. In training
// these layers then use the statistics of all ranks' batches together: torch's
// SyncBatchNorm.convert_sync_batchnorm. ConvertSyncBatchNorm returns the model, which may itself be
// a batch norm. Types, parameters, buffers and names stay the same. To make one layer, like torch's
// nn.SyncBatchNorm:
//
//	l := dist.ConvertSyncBatchNorm(nn.NewBatchNorm2d(64), g)
//
// The ranks' batches may differ in size and may be empty. Gradients are those of the sum of all
// ranks' losses. An input gets its whole gradient. Weight and bias get only this rank's part of
// their gradients. Running statistics are equal on all ranks. In evaluation mode, and in a group of
// one rank, the layers work as before.
//
// Each rank converts its own model with its own group. A copy of a model must be converted again.
// All ranks must call their layers in the same order, and all must be in training mode. A layer in
// evaluation mode does not call the collective, so the other ranks get an [Error]. It is also an
// [Error] if the input requires a gradient on one rank and not on another.
func ConvertSyncBatchNorm[M any](model M, g *Group) M {
	for name, l := range nn.Modules(model) {
		l, ok := l.(interface{ SyncOver(tensor.BatchRanks) })
		switch {
		case !ok:
		case g.World() == 1:
			l.SyncOver(nil)
		default:
			l.SyncOver(&batchRanks{g, name})
		}
	}
	return model
}

// batchRanks combines a batch norm's statistics over the ranks of a group.
type batchRanks struct {
	g     *Group
	layer string
}

// operand describes the operand of a collective for errors: which values it holds, and the layer's
// name if there is one.
func (r *batchRanks) operand(values string) string {
	if r.layer == "" {
		return values
	}
	return values + " of " + r.layer
}

func (r *batchRanks) Gather(x *tensor.Tensor) *tensor.Tensor {
	y := x.NewEmpty(r.g.World() * x.Size())
	r.g.begin(signature{op: "batch norm all gather", kind: device.KindAllGather}, r.operand("statistics"), y, x, 1)
	return y
}

func (r *batchRanks) Sum(x *tensor.Tensor) *tensor.Tensor {
	return allReduce(r.g, "batch norm all reduce", r.operand("gradients"), x, Sum)
}
