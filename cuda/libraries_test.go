package cuda

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func touch(t *testing.T, path ...string) string {
	t.Helper()
	p := filepath.Join(path...)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, nil, 0o644))
	return p
}

func TestLibraries(t *testing.T) {
	dir := t.TempDir()
	home, env := filepath.Join(dir, "home"), map[string]string{}
	f := finder{goos: "linux", home: home, root: dir, env: func(k string) string { return env[k] }}
	find := func(name string) Library {
		t.Helper()
		for _, l := range f.all() {
			if l.Name == name {
				return l
			}
		}
		t.Fatalf("no library %q", name)
		return Library{}
	}
	is := func(name, path string) {
		t.Helper()
		if l := find(name); l.Path != path || l.Found != (path != "") {
			t.Errorf("%s is %q, want %q; searched %v", name, l.Path, path, l.Searched)
		}
	}
	for _, l := range f.all() {
		if l.Found || len(l.Searched) < 5 || l.Purpose == "" {
			t.Errorf("on an empty machine: %+v", l)
		}
	}
	if s := find("nccl").Looked(); !strings.HasPrefix(s, dir+"/usr/lib/x86_64-linux-gnu, ") || !strings.HasSuffix(s, " more places") {
		t.Errorf("looked for in %q", s)
	}
	// The test creates files in the reverse order of the search. Each new file must be found
	// instead of the earlier ones.
	is("cudnn", "")
	is("cudnn", touch(t, dir, "usr/lib/python3/dist-packages/nvidia/cudnn/lib/libcudnn.so.8"))
	is("cudnn", touch(t, home, ".local/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9"))
	env["VIRTUAL_ENV"] = filepath.Join(dir, "venv")
	is("cudnn", touch(t, dir, "venv/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9"))
	env["CONDA_PREFIX"] = filepath.Join(dir, "conda")
	is("cudnn", touch(t, dir, "conda/lib/libcudnn.so.9"))
	is("cudnn", touch(t, dir, "usr/lib/x86_64-linux-gnu/libcudnn.so.9"))
	env["CUDA_HOME"] = filepath.Join(dir, "toolkit")
	is("cudnn", touch(t, dir, "toolkit/lib64/libcudnn.so.9.1.0"))
	is("cudnn", touch(t, dir, "toolkit/lib64/libcudnn.so.9"))

	env["LD_LIBRARY_PATH"] = ":" + filepath.Join(dir, "mine")
	is("cudnn", touch(t, dir, "mine/libcudnn.so.9"))
	if l := find("cudnn"); len(l.Searched) != 1 {
		t.Errorf("found in the first place, searched %v", l.Searched)
	}
	touch(t, dir, "mine/libcublasLt.so") // a name without a version, which only a linker uses
	is("cublasLt", "")
	touch(t, dir, "mine/libcublasLt.so.12")
	is("cublasLt", touch(t, dir, "mine/libcublasLt.so.13"))
	is("nvml", touch(t, dir, "usr/lib64/libnvidia-ml.so.1"))
	is("nccl", touch(t, dir, "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnccl.so.2"))

	f.goos = "windows"
	env["PATH"] = filepath.Join(dir, "bin")
	is("nvml", touch(t, dir, "bin/nvml.dll"))
	is("cudnn", touch(t, dir, "bin/cudnn64_9.dll"))
	is("nccl", "")
	if s := find("nccl").Looked(); s != "nowhere: it does not exist for this platform" {
		t.Errorf("nccl on windows: %q", s)
	}
	f.goos = "darwin"
	is("cudnn", "")
}
