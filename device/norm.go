package device

// A Norm describes a normalisation of rows: y = (x - mean)·rstd·weight + bias, with mean the row's mean and rstd = 1/√(v + Eps),
// where v is the mean square distance from the mean, in two passes. RMS takes mean as 0.
//
// Weight and bias are one value for each Inner neighbouring columns of each of Period rows, which repeat: element (r, c) has that of
// index (r mod Period · columns + c) / Inner. A layer normalisation has Period 1 and Inner 1; one of groups has Period groups, and
// Inner is the number of elements of a channel.
type Norm struct {
	Eps    float64
	RMS    bool
	Zero   bool // without a bias 0 is added, which makes -0 a 0
	Period int
	Inner  int
}

// Affine is the number of weights for rows of the given number of columns.
func (n Norm) Affine(columns int) int { return n.Period * columns / n.Inner }

// Normer is satisfied by devices with fused normalisations of the rows of rank-2 views. All views are contiguous. x, out, dx and g have
// x's type and shape [rows, columns]; mean and rstd are [rows] of x's computing type; weight and bias are [Affine(columns)] of x's type
// or its computing type. Views without a buffer stand for what is absent: mean with RMS, weight, bias.
type Normer interface {
	// Norm sets out, mean and rstd.
	Norm(s Stream, out, mean, rstd, x, weight, bias View, n Norm) error
	// NormGrad sets dx from g, the gradient of the result: rstd·(h - m(h) - z·m(h·z)) with h = g·weight, z = (x - mean)·rstd and m the
	// mean over the row, m(h) left out with RMS.
	NormGrad(s Stream, dx, g, x, mean, rstd, weight View, n Norm) error
}
