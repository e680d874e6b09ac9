package vision

import (
	"fmt"
	"image"
)

// Size returns the rows and columns of picture i as [Folder.Image] gives it. Where the picture is
// not turned upright, no more than the beginning of its file is read. An error names the file.
func (f *Folder) Size(i int) (h, w int, err error) {
	if i < 0 || i >= len(f.paths) {
		return 0, 0, fmt.Errorf("vision: image %d of %d", i, len(f.paths))
	}
	if f.decode.Upright {
		m, _, err := f.Image(i)
		if err != nil {
			return 0, 0, err
		}
		return m.H, m.W, nil
	}
	file, err := open(f.paths[i])
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	c, _, err := image.DecodeConfig(file)
	if err != nil {
		return 0, 0, failf(f.paths[i], "not a picture: %w", err)
	}
	k := f.decode.factor(c.Height, c.Width)
	return (c.Height + k - 1) / k, (c.Width + k - 1) / k, nil
}
