package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// cubinCache keeps compiled kernels on disk, so that a program compiles each once a machine and
// driver, not once a run. A file holds the SHA-256 of the machine code and the machine code, under
// the SHA-256 of what it was made from.
//
// A cache must never be the reason that something fails or that wrong code runs. A file that is cut
// short, altered or unreadable is as good as none. Where nothing can be written the kernel is
// compiled again the next time. Neither is reported.
type cubinCache struct{ dir string }

// defaultCubins is the cache in the user's cache directory, nil where there is none.
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

// get returns the machine code of the text for that capability and driver, from the cache or
// compiled and kept.
func (c *cubinCache) get(ptx string, sm int, v cu.Version, compile func() ([]byte, error)) ([]byte, error) {
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

// readCubin returns the machine code in a file, nil if it is not what was written.
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

// write keeps machine code. The file appears whole or not at all: other processes may read and
// write the same one.
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
		_ = os.Remove(f.Name()) // nothing more can be done about it
	}
}
