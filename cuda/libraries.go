package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Library describes an optional library by NVIDIA, and where this machine has it. Package cuda uses
// nvml for [Temperature] and similar functions, and nccl for [Device.Connect]. It uses cublasLt for
// matrix products if FLAMBEAU_LIBS names it. Everything else works without these libraries.
type Library struct {
	Name  string `json:"name"`
	Found bool   `json:"found"`
	Path  string `json:"path,omitempty"`
	// directories and patterns that were searched, in order, up to the folder where the library was
	// found
	Searched []string `json:"searched"`
	Purpose  string   `json:"purpose"`
}

// Looked returns a short text that says where Libraries searched for the library.
func (l Library) Looked() string {
	const most = 3
	if len(l.Searched) == 0 {
		return "nowhere: it does not exist for this platform"
	}
	s := strings.Join(l.Searched[:min(most, len(l.Searched))], ", ")
	if more := len(l.Searched) - most; more > 0 {
		s += fmt.Sprintf(" and %d more places", more)
	}
	return s
}

// optional describes a library that [Libraries] looks for.
type optional struct {
	name, purpose string
	linux         string // pattern of the library's file name on Linux
	windows       string // pattern of the library's file name on Windows; "" if NVIDIA has none
	// folder of the Python package below site-packages/nvidia; "" if there is none
	pip string
}

var optionals = []optional{
	{"cublasLt", "matrix products", "libcublasLt.so.[0-9]*", "cublasLt64_*.dll", "cublas"},
	{"cudnn", "convolutions and attention", "libcudnn.so.[0-9]*", "cudnn64_*.dll", "cudnn"},
	{"nccl", "collectives between GPUs", "libnccl.so.[0-9]*", "", "nccl"},
	{"nvml", "temperature, power and use of GPUs", "libnvidia-ml.so.1", "nvml.dll", ""},
}

// Libraries looks for cublasLt, cudnn, nccl and nvml in these places: LD_LIBRARY_PATH (PATH on
// Windows), the toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), the system's directories and pip's
// layout (site-packages/nvidia/*/lib). It reads directories and loads nothing.
func Libraries() []Library {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "" // without a home directory, folders below it are not searched
	}
	return finder{goos: runtime.GOOS, home: home, env: os.Getenv}.all()
}

// finder searches a machine for libraries. Its fields let tests imitate other machines.
type finder struct {
	goos, home string
	env        func(string) string
	root       string // folder that tests use in place of the root of the file system
}

func (f finder) all() []Library {
	list := make([]Library, len(optionals))
	for i, o := range optionals {
		list[i] = f.find(o)
	}
	return list
}

func (f finder) find(o optional) Library {
	l := Library{Name: o.name, Purpose: o.purpose, Searched: []string{}}
	pattern := o.linux
	if f.goos == "windows" {
		pattern = o.windows
	}
	if pattern == "" || f.goos != "linux" && f.goos != "windows" {
		return l
	}
	for _, dir := range f.places(o) {
		if slices.Contains(l.Searched, dir) {
			continue
		}
		l.Searched = append(l.Searched, dir)
		// The only possible error is a bad pattern, for example if a directory is named "[". Such
		// directories are skipped.
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		if len(files) > 0 {
			l.Found, l.Path = true, newest(files)
			return l
		}
	}
	return l
}

// newest chooses one of several file names of a library. It returns the shortest name, because
// libx.so.9 is a link to libx.so.9.1.2. Among names of equal length it returns the highest version.
func newest(files []string) string {
	return slices.MaxFunc(files, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
}

// places lists the directories to search, in order. Some of them are patterns.
func (f finder) places(o optional) []string {
	var dirs []string
	add := func(d ...string) { dirs = append(dirs, d...) }
	system := func(d ...string) {
		for _, s := range d {
			add(f.root + s)
		}
	}
	listed := func(variable, separator string) {
		for _, d := range strings.Split(f.env(variable), separator) {
			if d != "" {
				add(d)
			}
		}
	}
	if f.goos == "windows" {
		listed("PATH", ";")
		for _, v := range []string{"CUDA_PATH", "CUDA_HOME"} {
			if h := f.env(v); h != "" {
				add(filepath.Join(h, "bin"), filepath.Join(h, "bin", "x64"))
			}
		}
		if s := f.env("SystemRoot"); s != "" {
			add(filepath.Join(s, "System32"))
		}
		for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
			if h := f.env(v); h != "" && o.pip != "" {
				add(filepath.Join(h, "Lib", "site-packages", "nvidia", o.pip, "bin"))
			}
		}
		if a := f.env("LOCALAPPDATA"); a != "" && o.pip != "" {
			add(filepath.Join(a, "Programs", "Python", "Python3*", "Lib", "site-packages", "nvidia", o.pip, "bin"))
		}
		return dirs
	}
	listed("LD_LIBRARY_PATH", ":")
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if h := f.env(v); h != "" {
			add(filepath.Join(h, "lib64"), filepath.Join(h, "lib"))
		}
	}
	system("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib", "/usr/local/lib",
		"/usr/local/cuda/lib64", "/usr/local/cuda/targets/*/lib", "/usr/local/nvidia/lib64", "/opt/cuda/lib64", "/run/opengl-driver/lib")
	if h := f.env("CONDA_PREFIX"); h != "" {
		add(filepath.Join(h, "lib"))
	}
	if o.pip == "" {
		return dirs
	}
	pip := func(base string) {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			add(filepath.Join(base, packages, "nvidia", o.pip, "lib"), filepath.Join(base, packages, "nvidia", "cu1[0-9]", "lib"))
		}
	}
	for _, v := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if h := f.env(v); h != "" {
			pip(filepath.Join(h, "lib", "python3*"))
		}
	}
	if f.home != "" {
		pip(filepath.Join(f.home, ".local", "lib", "python3*"))
	}
	for _, base := range []string{"/usr/local/lib/python3*", "/usr/lib/python3*"} {
		pip(f.root + base)
	}
	return dirs
}
