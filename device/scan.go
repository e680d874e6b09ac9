package device

// ScanKind says how a scan combines each element with those before it.
type ScanKind uint8

// The ways to combine. Sums of floats start with +0.
const (
	ScanSum ScanKind = iota
	ScanProd
	ScanLogSumExp // log Σ exp
	ScanMax       // the position, as I64, of the greatest so far, the last of equal ones; NaN is the greatest
	ScanMin       // the position of the least so far, the last of equal ones; NaN is the least
	ScanLinear    // of factors a and terms b, in this order: yᵢ = bᵢ + aᵢ·yᵢ₋₁, and y₀ = b₀
)

// String returns the kind in lower case.
func (k ScanKind) String() string {
	return [...]string{"sum", "prod", "logsumexp", "max", "min", "linear"}[k]
}

// Scanner is satisfied by devices that combine each element with all before it.
type Scanner interface {
	// Scan combines along dimension 1 of views of one rank-3 shape, if reverse from its end on. Floats give their type and are
	// combined in float64, at least in float32 those of 16 bits; integers and Bool give I64, and so do positions. The order of
	// operations depends on the shape alone.
	Scan(s Stream, kind ScanKind, out View, ins []View, reverse bool) error
}
