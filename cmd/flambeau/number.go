package main

import (
	"encoding/json"
	"math"
)

// A number is null in JSON where it is none: JSON knows neither NaN nor infinities.
type number float64

// MarshalJSON is called by encoding/json.
func (n number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// measured returns one of an evaluation's numbers; nil if it is not among them.
func measured(m map[string]float64, name string) *number {
	v, ok := m[name]
	if !ok {
		return nil
	}
	return new(number(v))
}
