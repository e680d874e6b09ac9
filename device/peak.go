package device

// A Peak is what a device can do at most, by its makers' numbers or by measurement.
type Peak struct {
	FLOPs  float64 // a second, of float32 arithmetic
	Half   float64 // a second, of products of 16-bit floats: tensor cores where there are some; 0 for FLOPs
	Bytes  float64 // a second, of its memory
	Source string  // where the numbers are from
}

// Peaker is satisfied by devices that know their peak.
type Peaker interface {
	// Peak fails for a device whose driver does not tell.
	Peak() (Peak, error)
}
