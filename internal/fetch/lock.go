package fetch

import (
	"context"
	"os"
	"time"
)

// lock waits for the only right to fetch a file and returns what gives it back. The operating system gives it back too
// when the process ends, however it ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	wait := 5 * time.Millisecond
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		held, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, err
		}
		if held && sameFile(f, path) {
			return func() {
				// While it is held: who waits for it sees that it is gone and makes another. Where an open file cannot be
				// removed, one that somebody waits for cannot be either.
				if os.Remove(path) == nil {
					f.Close()
				} else {
					f.Close()
					os.Remove(path)
				}
			}, nil
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

// sameFile reports whether path still names f.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}
