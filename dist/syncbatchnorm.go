package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// ConvertSyncBatchNorm makes every nn.BatchNorm1d, 2d and 3d of a model, in place, one whose
// statistics in training are those of all ranks' batches together: torch's
// SyncBatchNorm.convert_sync_batchnorm. It returns the model, which may be one such layer. Types,
// parameters, buffers and names stay as they are. So nn.SyncBatchNorm of torch is
//
//	l := dist.ConvertSyncBatchNorm(nn.NewBatchNorm2d(64), g)
//
// The ranks' batches may differ in size, and may be empty. Input gradients are those of the sum of
// all ranks' losses; gradients of weight and bias are this rank's part. Running statistics are
// alike on all ranks. In evaluation, and in a group of one rank, the layers are as before.
//
// Each rank converts its own model with its own group. A model that is copied is converted again.
// All ranks' layers are called in the same order, and all train: one that is in evaluation does not
// come to the collective, which is an [Error]. So it is if the input requires a gradient on one
// rank and on another does not.
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

// batchRanks are a group as a layer's statistics see it.
type batchRanks struct {
	g     *Group
	layer string
}

// of says which of the layer's values are meant.
func (r *batchRanks) of(values string) string {
	if r.layer == "" {
		return values
	}
	return values + " of " + r.layer
}

func (r *batchRanks) Gather(x *tensor.Tensor) *tensor.Tensor {
	y := x.NewEmpty(r.g.World() * x.Size())
	r.g.begin(what{op: "batch norm all gather", kind: device.KindAllGather}, r.of("statistics"), y, x, 1)
	return y
}

func (r *batchRanks) Sum(x *tensor.Tensor) *tensor.Tensor {
	return allReduce(r.g, "batch norm all reduce", r.of("gradients"), x, Sum)
}
