//go:build !(amd64 || arm64) || noasm

package spin

func pause() {}
