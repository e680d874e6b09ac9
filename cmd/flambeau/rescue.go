package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// rescue writes the weights elsewhere if --out could not be written. It tries the directory of the
// checkpoints, the working directory, and the directory for temporary files. It returns a message
// that says where the weights are.
func (c *trainCmd) rescue(n *network) string {
	base := strings.TrimSuffix(filepath.Base(c.Out), ".safetensors")
	base = strings.ToValidUTF8(base[:min(len(base), 100)], "")
	name := fmt.Sprintf("%s-%s.safetensors", base, time.Now().Format("20060102-150405.000"))
	for _, dir := range []string{c.Checkpoint, ".", os.TempDir()} {
		if dir == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if exists(path) {
			continue
		}
		if err := n.save(path); err == nil {
			if whole, err := filepath.Abs(path); err == nil {
				path = whole
			}
			return "the weights are in " + path + " instead"
		}
	}
	if c.Checkpoint != "" {
		return "the weights are in the newest checkpoint, too"
	}
	return "the weights are lost, for want of --checkpoint"
}
