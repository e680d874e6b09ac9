//go:build !nogpu && (!(linux || windows) || !(amd64 || arm64))

package cu

const absent = UnsupportedPlatform
