package nn

import "github.com/flambeau-go/flambeau/tensor"

// CosineSimilarity is x·z/(‖x‖·‖z‖) for two inputs x and z, along dimension Dim; see
// [tensor.Tensor.CosineSimilarity].
type CosineSimilarity struct {
	Dim int
	Eps float64 // norms below Eps are replaced by Eps

	made made
}

// NewCosineSimilarity returns a layer; torch's defaults are dim 1 and eps 1e-8.
func NewCosineSimilarity(dim int, eps float64) CosineSimilarity {
	return CosineSimilarity{dim, eps, true}
}

// Forward returns the similarities of x and z, which broadcast against each other. The result lacks
// dimension Dim.
func (l CosineSimilarity) Forward(x, z *tensor.Tensor) *tensor.Tensor {
	l.made.unset("cosine_similarity", "Eps", l.Eps, "nn.NewCosineSimilarity(1, 1e-8)", x, z)
	return x.CosineSimilarity(z, l.Dim, l.Eps)
}

// PairwiseDistance is the norm of order P of x - z + Eps, along the last dimension of the inputs x
// and z; see [tensor.Tensor.PairwiseDistance].
type PairwiseDistance struct {
	P, Eps  float64
	KeepDim bool

	made made
}

// NewPairwiseDistance returns a layer; torch's defaults are p 2 and eps 1e-6.
func NewPairwiseDistance(p, eps float64) PairwiseDistance {
	return PairwiseDistance{P: p, Eps: eps, made: true}
}

// Forward returns the distances of x and z, which broadcast against each other.
func (l PairwiseDistance) Forward(x, z *tensor.Tensor) *tensor.Tensor {
	l.made.unset("pairwise_distance", "P", l.P, "nn.NewPairwiseDistance(2, 1e-6)", x, z)
	y := x.PairwiseDistance(z, l.P, l.Eps)
	if l.KeepDim {
		defer y.Free() // the result is a view, which keeps y's storage alive
		return y.Unsqueeze(-1)
	}
	return y
}
