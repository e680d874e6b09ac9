//go:build nogpu

package cu

const absent = BuiltWithout
