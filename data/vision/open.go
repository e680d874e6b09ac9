package vision

import (
	"io/fs"
	"os"
)

// open opens a regular file for reading. For any other kind of file it returns an *[Error].
// Examples are a directory, and a pipe, whose reader would block.
func open(path string) (*os.File, error) {
	if err := isFile(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &Error{path, err}
	}
	return f, nil
}

// isFile returns an error unless path is a regular file or a symbolic link to one.
func isFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return &Error{path, err}
	}
	var what string
	switch m := info.Mode(); {
	case m.IsRegular():
		return nil
	case m.IsDir():
		what = "a directory"
	case m&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case m&fs.ModeSocket != 0:
		what = "a socket"
	default:
		what = "a device"
	}
	return failf(path, "this is %s, where a picture belongs", what)
}
