//go:build nogpu || !(linux || windows) || !(amd64 || arm64)

package cu

import "runtime"

// Open reports that this program has no way to a driver. The error is always an [*Unavailable].
func Open() (API, error) {
	return nil, NewUnavailable(absent, "built for "+runtime.GOOS+"/"+runtime.GOARCH)
}
