package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// With NVIDIA's own libraries but without a GPU, the commands devices and doctor say what is
// missing. FLAMBEAU_TEST_LIBCUDA is the folder in which the loader finds the libraries, and
// FLAMBEAU_TEST_DRIVER their release (.ci/run reallibs).
func TestRealDriver(t *testing.T) {
	dir, release := os.Getenv("FLAMBEAU_TEST_LIBCUDA"), os.Getenv("FLAMBEAU_TEST_DRIVER")
	if dir == "" {
		t.Skip("FLAMBEAU_TEST_LIBCUDA is not set")
	}
	devices := []string{"\nno GPU: the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES is not set; library: libcuda.so.1; driver API: ", "nvml       found: " + dir + "/libnvidia-ml.so.1"}
	doctor := []string{"No GPU is used:\n\nUNUSED  ", "there is no NVIDIA GPU on the PCI bus", "\nNOTE    the driver works but shows no GPU (", "  nvml      " + release + "  " + dir}
	if release < "520" {
		devices[0] = "\nno GPU: the NVIDIA driver is too old: it is of CUDA 11.4, 11.8 is needed"
		doctor[2] = "UNUSED  the driver is too old: it supports CUDA 11.4, 11.8 is needed (library: libcuda.so.1; driver API: 11.4)\n        do: install driver 520 or newer"
	}
	for _, c := range []struct {
		command string
		status  int
		words   []string
	}{{"devices", 0, devices}, {"doctor", 2, doctor}} {
		var out, errOut bytes.Buffer
		if status := run([]string{c.command}, &out, &errOut); status != c.status || errOut.Len() > 0 {
			t.Errorf("%s: status %d, %s", c.command, status, errOut.String())
		}
		for _, w := range c.words {
			if !strings.Contains(out.String(), w) {
				t.Errorf("%s does not say %q:\n%s", c.command, w, out.String())
			}
		}
	}
}
