//go:build linux || darwin

package vision_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
)

// A pipe or a dangling link may have the name of an image file. ImageFolder and Load do not block.
// They return an error that names the pipe or the link.
func TestPipeAmongPictures(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "class", "a.png")
	refused := func(want string) {
		t.Helper()
		_, ferr := vision.ImageFolder(dir)
		_, lerr := vision.Decode{}.Load(path)
		for _, err := range []error{ferr, lerr} {
			var e *vision.Error
			if !errors.As(err, &e) || e.Path != path || !strings.Contains(err.Error(), want) {
				t.Errorf("%v", err)
			}
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused("this is a pipe, where a picture belongs")
	if err := errors.Join(os.Remove(path), os.Symlink("/dev/null", path)); err != nil {
		t.Fatal(err)
	}
	refused("this is a device")
	if err := errors.Join(os.Remove(path), os.Symlink("nowhere", path)); err != nil {
		t.Fatal(err)
	}
	refused("no such file")
}
