package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// cubinCache keeps compiled kernels on disk, so that each kernel is compiled only once for a
// machine and driver. The name of a file is the SHA-256 of the kernel's PTX text, the capability
// and the driver's version. The file holds the SHA-256 of the machine code, then the machine code.
//
// The cache must never cause a failure, and wrong code must never run. A file that is truncated,
// altered or unreadable counts as missing. If a file cannot be written, the kernel is compiled
// again next time. These problems are not reported.
type cubinCache struct{ dir string }

// defaultCubins returns the cache in the user's cache directory, or nil if there is none.
func defaultCubins() *cubinCache {
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil
	}
	return &cubinCache{filepath.Join(dir, "flambeau", "cubin")}
}

func (c *cubinCache) path(ptx string, sm int, v cu.Version) string {
	h := sha256.New()
	fmt.Fprintf(h, "sm_%d driver %d\n%s", sm, int(v), ptx)
	return filepath.Join(c.dir, hex.EncodeToString(h.Sum(nil)))
}

// load returns the machine code of a PTX text for a compute capability and a driver. It reads the
// code from the cache, or compiles the text and adds the code to the cache.
func (c *cubinCache) load(ptx string, sm int, v cu.Version, compile func() ([]byte, error)) ([]byte, error) {
	path := c.path(ptx, sm, v)
	if code := readCubin(path); code != nil {
		return code, nil
	}
	code, err := compile()
	if err == nil {
		c.write(path, code)
	}
	return code, err
}

// readCubin returns the machine code in a file, or nil if the checksum does not match.
func readCubin(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil || len(b) <= sha256.Size {
		return nil
	}
	code := b[sha256.Size:]
	if sha256.Sum256(code) != [sha256.Size]byte(b[:sha256.Size]) {
		return nil
	}
	return code
}

// write adds machine code to the cache. Other processes may use the cache at the same time, so the
// file is written under another name and then renamed.
func (c *cubinCache) write(path string, code []byte) {
	if os.MkdirAll(c.dir, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(c.dir, ".new-*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(code)
	_, err = f.Write(append(sum[:], code...))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the cache does not report errors
	}
}
