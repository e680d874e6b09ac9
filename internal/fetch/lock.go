package fetch

import (
	"context"
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// lock waits for the only right to fetch a file and returns what gives it back. The operating system gives it back too
// when the process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	wait := 5 * time.Millisecond
	for {
		f, err := filelock.Open(path, 0o644)
		if err != nil {
			return nil, err
		}
		err = filelock.Try(f)
		if err != nil && err != filelock.ErrHeld {
			filelock.Remove(f, path)
			return nil, fmt.Errorf("what is fetched cannot be locked here: %w; set FLAMBEAU_CACHE to a directory of a file system that has locks", err)
		}
		if err == nil && filelock.InPlace(f, path) {
			return func() { filelock.Remove(f, path) }, nil
		}
		f.Close()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		wait = min(2*wait, 250*time.Millisecond)
	}
}
