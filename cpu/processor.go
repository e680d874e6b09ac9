package cpu

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"sync"
)

// processor returns the product's name where the system tells it, else the architecture.
var processor = sync.OnceValue(func() string {
	if name := os.Getenv("PROCESSOR_IDENTIFIER"); runtime.GOOS == "windows" && name != "" {
		return name
	}
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH
})
