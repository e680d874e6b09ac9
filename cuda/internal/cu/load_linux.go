//go:build !nogpu && (amd64 || arm64)

package cu

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
)

// libraryDirs are searched after the system loader's own search. They are the folders of WSL, of
// distributions that keep the driver in a separate folder, of containers, of NixOS and of Jetson.
var libraryDirs = []string{
	"/usr/lib/wsl/lib",
	"/usr/lib/x86_64-linux-gnu",
	"/usr/lib/x86_64-linux-gnu/nvidia/current",
	"/usr/lib/aarch64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu/nvidia/current",
	"/usr/lib/aarch64-linux-gnu/tegra",
	"/usr/lib64",
	"/usr/lib64/nvidia",
	"/usr/lib/nvidia",
	"/usr/local/nvidia/lib64",
	"/run/opengl-driver/lib",
}

// loadLibrary opens the library with this name. It first uses the loader's own search, and then
// tries the folders dirs. If it finds none, it returns the list of what it tried.
func loadLibrary(name string, dirs []string) (*library, []string) {
	var tried []string
	open := func(path string) *library {
		h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			tried = append(tried, path+": "+strings.TrimPrefix(err.Error(), path+": "))
			return nil
		}
		return &library{path: path, lookup: func(name string) uintptr {
			p, err := purego.Dlsym(h, name)
			if err != nil {
				return 0
			}
			return p
		}}
	}
	if lib := open(name); lib != nil {
		return lib, nil
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			tried = append(tried, path+": no such file")
			continue
		}
		if lib := open(path); lib != nil {
			return lib, nil
		}
	}
	return nil, tried
}

// systemDetail returns what the operating system reports about the driver.
func systemDetail() string {
	b, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		if _, err := os.Stat("/dev/nvidiactl"); err != nil {
			return "no NVIDIA kernel module is loaded"
		}
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return "kernel module: " + strings.Join(strings.Fields(strings.TrimPrefix(line, "NVRM version:")), " ")
}
