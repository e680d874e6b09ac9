package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// DDP makes Backward average the gradients of a model over the ranks of g: torch's
// DistributedDataParallel. All ranks call it. It returns the model itself, unchanged.
//
// DDP immediately copies rank 0's parameters and buffers to all ranks. From then on, each Backward
// averages the gradients of the last layers while it still computes those of the first layers.
// Gradients are grouped in buckets, which are averaged one after the other. After Backward a
// gradient is a view of its bucket. If Backward does not reach some parameters, this costs nothing
// and needs no option. A parameter that no rank reaches keeps its old gradient. After Backward, DDP
// copies buffers, such as running statistics, to all ranks from the lowest rank that still has data
// (see [Group.Join]).
//
// Parameters that require no gradient now are left out, even if they require one later. Each rank
// makes its own model, for example with [Make]. [Group.NoSync] turns the averaging off for a while.
func DDP[M any](model M, g *Group, opts ...DDPOption) M {
	g.NewReducer(model, opts...)
	return model
}

// Make calls f on one rank after the other, in the order of ranks. On each rank it returns the
// result of that rank's call. If f draws parameters from the root scope's generator, the model has
// the same values in each run of the program.
func Make[M any](g *Group, f func() M) (m M) {
	for r := range g.World() {
		if r == g.rank {
			m = f()
		}
		g.exchange("make", nil, nil)
	}
	return m
}

// DDPOption changes how [DDP] averages gradients.
type DDPOption func(*ddpSettings)

type ddpSettings struct {
	firstBytes, laterBytes int // size limits of the first bucket and of each later bucket, in bytes
	hook                   CommHook
	keepBuffers            bool
	fixed                  bool // whether buckets keep their initial order
}

// BucketBytes limits how many bytes of gradients are averaged by one collective. The argument first
// is the limit of the bucket that is complete first, and rest is the limit of each later bucket.
// The defaults are 1 MiB and 25 MiB, as in PyTorch.
func BucketBytes(first, rest int) DDPOption {
	return func(s *ddpSettings) { s.firstBytes, s.laterBytes = first, rest }
}

// KeepBuffers lets each rank keep its own buffers, such as running statistics. Without it, [DDP]
// copies them from one rank to all ranks after each Backward.
func KeepBuffers() DDPOption { return func(s *ddpSettings) { s.keepBuffers = true } }

// Bucket is a group of gradients that one collective averages.
type Bucket struct {
	Index, Of int // index of this bucket, and number of buckets
	// this rank's gradients, all of one type, concatenated to one dimension
	Grads *tensor.Tensor
	Names []string // names of the gradients' parameters
	// Average starts to average x over the ranks, as DDP does without a hook. It uses the weights
	// of [Reducer.Weigh], if they are set.
	Average func(x *tensor.Tensor) *Work
}

// CommHook replaces the averaging of a bucket's gradients: torch's register_comm_hook. It is called
// when the bucket is complete. Its result finish is called at the end of Backward, and may be nil.
// At that point b.Grads must hold the averaged gradients. The hook is called for the buckets in the
// same order on all ranks.
type CommHook func(g *Group, b Bucket) (finish func())

// WithHook makes the hook h average the buckets.
func WithHook(h CommHook) DDPOption { return func(s *ddpSettings) { s.hook = h } }

// Compress averages gradients in bfloat16, which halves the traffic between devices: torch's
// bf16_compress_hook. Each rank's gradient is rounded to bfloat16, with 8 significant bits, before
// the average. The average is rounded again.
func Compress() DDPOption {
	return WithHook(func(g *Group, b Bucket) func() {
		wire := b.Grads.BFloat16()
		b.Average(wire)
		if wire == b.Grads {
			return nil
		}
		return func() {
			b.Grads.Copy(wire)
			wire.Free()
		}
	})
}

// Reducer averages the gradients of one rank's model over its group. [DDP] makes one.
type Reducer struct {
	ddpSettings
	group  *Group // the group that was passed to DDP
	g      *Group // a clone of group, whose collectives do not mix with those of the program
	params []nn.Param
	leaves []*tensor.Tensor
	state  []*tensor.Tensor // all tensors of the model
	bufs   []*tensor.Tensor

	buckets []*bucket
	home    []int   // index of each leaf's bucket
	statics []*flat // the model's buffers, packed for a broadcast
	packed  [][]int
	// indices of the leaves in the order in which gradients became ready; nil when the buckets have
	// this order
	order    []int
	ordered  bool   // whether the buckets are in the order in which gradients became ready
	unsynced []bool // for each leaf, whether a Backward inside NoSync has reached it
	weight   float64
	weighted bool
	quiet    int // number of NoSync calls that are running
	running  *reduction
	runs     int // number of runs of Backward that have begun
	remove   func()
}

// NewReducer is [DDP] for programs that need the Reducer: it does the same and returns the Reducer.
// All ranks call it, with models of the same structure.
func (g *Group) NewReducer(model any, opts ...DDPOption) *Reducer {
	const op = "ddp"
	g.member(op)
	if g.capture() != nil {
		panic(g.misuse(op, tensor.ErrCapture, "the model is given to DDP before the capture of a step"))
	}
	r := &Reducer{ddpSettings: ddpSettings{firstBytes: 1 << 20, laterBytes: 25 << 20}, group: g, g: g.Clone(), weight: 1}
	for i, o := range opts {
		if o == nil {
			panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("option %d is nil", i)))
		}
		o(&r.ddpSettings)
	}
	for _, p := range nn.Named(model) {
		if d := p.Tensor.Device(); d != g.Device() {
			panic(g.misuse(op, tensor.ErrDevice, fmt.Sprintf("%s is on %s; move the model there with nn.To", p.Name, d.Name())))
		}
		r.state = append(r.state, p.Tensor)
		switch {
		case p.Buffer:
			r.bufs = append(r.bufs, p.Tensor)
		case p.Tensor.NeedsGrad():
			r.params, r.leaves = append(r.params, p), append(r.leaves, p.Tensor)
		}
	}
	r.alike(op, model)
	if len(r.leaves) == 0 {
		panic(g.misuse(op, tensor.ErrGrad, "no parameter requires a gradient"))
	}
	r.ordered = r.fixed
	g.clones = append(g.clones, r.g)
	g.reducers = append(g.reducers, r)
	if g.World() == 1 {
		return r
	}
	r.spread(0)
	r.unsynced = make([]bool, len(r.leaves))
	if !r.keepBuffers {
		r.makeStatics()
	}
	var order []int
	for i := len(r.leaves) - 1; i >= 0; i-- {
		order = append(order, i)
	}
	r.arrange(order)
	r.remove = tensor.WatchBackward(r.leaves, r)
	return r
}

// alike exchanges a description of the model among the ranks and panics if the models differ in
// structure.
func (r *Reducer) alike(op string, model any) {
	type entry struct{ name, like string }
	var list []entry
	for _, p := range nn.Named(model) {
		list = append(list, entry{p.Name, fmt.Sprintf("%v %v, gradient %v", p.Tensor.Shape(), p.Tensor.Type(), p.Tensor.NeedsGrad())})
	}
	for rank, other := range Exchange(r.g, list) {
		for i := range max(len(list), len(other)) {
			switch {
			case i >= len(list):
				panic(r.group.misuse(op, ErrMismatch, fmt.Sprintf("the model lacks %s, which rank %d has", other[i].name, rank)))
			case i >= len(other):
				panic(r.group.misuse(op, ErrMismatch, fmt.Sprintf("the model has %s, which rank %d lacks", list[i].name, rank)))
			case list[i] != other[i]:
				panic(r.group.misuse(op, ErrMismatch, fmt.Sprintf("%s is %s, that of rank %d is %s, %s", list[i].name, list[i].like, rank, other[i].name, other[i].like)))
			}
		}
	}
}

// spread copies all tensors of rank root's model to all ranks.
func (r *Reducer) spread(root int) {
	for _, list := range packs(r.state, 25<<20, 25<<20) {
		part := pick(r.state, list)
		f := newFlat(r.g.Device(), part[0].Type(), part)
		r.broadcast(f, part, root, "parameters and buffers")
		f.free()
	}
}

// broadcast copies the tensors part from rank root to all ranks. It uses f as the buffer for the
// transfer.
func (r *Reducer) broadcast(f *flat, part []*tensor.Tensor, root int, operands string) {
	if r.g.rank == root {
		f.pack(r.g.recorded(), part)
	}
	r.g.begin(signature{op: "broadcast", kind: device.KindBroadcast, root: root}, operands, f.buffer, f.buffer, 1)
	if r.g.rank != root {
		f.unpack(r.g.recorded(), part)
	}
}

func pick[T any](list []T, which []int) []T {
	out := make([]T, len(which))
	for i, k := range which {
		out[i] = list[k]
	}
	return out
}

// Group returns the group over which the gradients are averaged.
func (r *Reducer) Group() *Group { return r.group }

// Weigh sets the weight of this rank's gradients from now on: the number of samples in its batch.
// DDP then averages the gradients with these weights. In this way ranks may have batches of
// different sizes, even empty batches. Either all ranks call it or none does. If the ranks' losses
// depend on each other, as with [ConvertSyncBatchNorm], the weighted average is not the right
// gradient. In that case do not call Weigh. Instead, multiply each rank's loss by its number of
// samples and by World, and divide it by the number of samples of all ranks.
func (r *Reducer) Weigh(w float64) {
	if !(w >= 0) {
		panic(r.group.misuse("weigh", tensor.ErrValue, fmt.Sprintf("%v is no weight", w)))
	}
	r.weight, r.weighted = w, true
}

// Close ends the averaging of gradients. The present gradients stay as they are. The end of the run
// closes the Reducer too.
func (r *Reducer) Close() {
	if r.remove != nil {
		r.remove()
		r.remove = nil
	}
	for _, b := range r.buckets {
		b.flat.free()
	}
	for _, f := range r.statics {
		f.free()
	}
	r.buckets, r.statics = nil, nil
	r.group.reducers = slices.DeleteFunc(r.group.reducers, func(o *Reducer) bool { return o == r })
}

// NoSync runs f without averaging gradients: torch's no_sync. The gradients of the batches in f add
// up on each rank. The first Backward after f averages their sum.
func (g *Group) NoSync(f func()) {
	g.member("no sync")
	list := slices.Clone(g.reducers)
	for _, r := range list {
		r.quiet++
	}
	defer func() {
		for _, r := range list {
			r.quiet--
		}
	}()
	f()
}
