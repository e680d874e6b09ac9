package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

type devicesCmd struct {
	JSON bool `help:"Print one JSON object." name:"json"`
}

// deviceReport describes a device in JSON output.
type deviceReport struct {
	Name     string `json:"name"`
	Product  string `json:"product"`
	Emulated bool   `json:"emulated,omitempty"`
	Cores    int    `json:"cores"`
	SIMD     string `json:"simd,omitempty"`
	// Interpreted says why elementwise programs are not compiled to machine code.
	Interpreted string `json:"interpreted,omitempty"`
	Memory      int    `json:"memory_bytes"`
	Capability  string `json:"compute_capability,omitempty"`
	Driver      string `json:"driver_version,omitempty"`
	PTX         string `json:"ptx_version,omitempty"`
	// Products names the library or the kernels that compute matrix products on a GPU.
	Products string `json:"products,omitempty"`
	// Tuning says whether products use measured kernels: "on" measures, and "use" only uses earlier
	// measurements.
	Tuning string `json:"tuning,omitempty"`
	// Tuned is the number of products that have been measured.
	Tuned   int          `json:"tuned_products,omitempty"`
	Spills  []cuda.Spill `json:"spilling_kernels,omitempty"` // spills in the library's kernels
	Problem string       `json:"problem,omitempty"`
}

type devicesReport struct {
	Devices   []deviceReport `json:"devices"`
	GPUReason string         `json:"gpu_unavailable,omitempty"`
	short     string         // short form of GPUReason
	Libraries []cuda.Library `json:"libraries"`
}

// Run lists the devices.
func (c *devicesCmd) Run(e *env) error {
	var r devicesReport
	for _, kind := range []string{"cpu", "cuda"} {
		n, err := device.Count(kind)
		if err != nil {
			r.GPUReason, r.short = err.Error(), err.Error()
			if u, ok := errors.AsType[*device.UnavailableError](err); ok {
				r.short = u.Reason
			}
			continue
		}
		for i := range n {
			name := kind
			if kind != "cpu" {
				name = fmt.Sprintf("%s:%d", kind, i)
			}
			d, err := device.Open(name)
			if err != nil {
				r.Devices = append(r.Devices, deviceReport{Name: name, Problem: err.Error()})
				continue
			}
			in := d.Info()
			p := deviceReport{Name: name, Product: in.Name, Emulated: in.Emulated, Cores: in.Cores, SIMD: in.SIMD, Interpreted: in.Interpreted, Memory: in.Memory, Driver: in.Driver, PTX: in.PTX}
			if in.Kind == "cuda" {
				p.Capability = fmt.Sprintf("%d.%d", in.Capability[0], in.Capability[1])
				gpu := d.(*cuda.Device)
				p.Spills, p.Products, p.Tuned = gpu.Spills(), gpu.Products(), len(gpu.TunedProducts())
				if t := gpu.Tuning(); t != cuda.TuningOff {
					p.Tuning = t.String()
				}
			}
			r.Devices = append(r.Devices, p)
		}
	}
	r.Libraries = cuda.Libraries()
	if c.JSON {
		enc := json.NewEncoder(e.out)
		return enc.Encode(r)
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEVICE\tPRODUCT\tCORES\tMEMORY\tDETAILS")
	for _, d := range r.Devices {
		details := ""
		switch {
		case d.Problem != "":
			details = d.Problem
		case d.Capability != "":
			details = fmt.Sprintf("compute capability %s, driver %s, PTX %s", d.Capability, d.Driver, d.PTX)
			details += ", products: " + d.Products
			details += tuningOf(d.Tuning, d.Tuned)
			if d.Emulated {
				details += ", EMULATED"
			}
			if n := len(d.Spills); n > 0 {
				details += fmt.Sprintf(", %d kernels spill registers (flambeau doctor)", n)
			}
		default:
			details = "SIMD " + d.SIMD + ", machine code at run time"
			if d.Interpreted != "" {
				details = fmt.Sprintf("SIMD %s, no machine code at run time (%s)", d.SIMD, d.Interpreted)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", d.Name, d.Product, d.Cores, byteCount(d.Memory), details)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if r.short != "" {
		fmt.Fprintf(e.out, "\nno GPU: %s (flambeau doctor says more, and what to do)\n", r.short)
	}
	fmt.Fprintln(e.out, "\noptional libraries of NVIDIA (nvml tells doctor of temperatures and the like, nccl connects GPUs, cublasLt does products where FLAMBEAU_LIBS=cublaslt asks for it, cudnn is not used yet; everything works without them):")
	for _, l := range r.Libraries {
		state := "not found in " + l.Looked()
		switch {
		case l.Found:
			state = "found: " + l.Path
		case len(l.Searched) == 0:
			state = "does not exist for this platform"
		}
		fmt.Fprintf(e.out, "  %-10s %s\n", l.Name, state)
	}
	return nil
}

// tuningOf describes in words how the kernels of a GPU's matrix products are chosen.
func tuningOf(tuning string, measured int) string {
	switch {
	case tuning == "" && measured == 0:
		return ""
	case tuning == "":
		return fmt.Sprintf(", %d products measured and not used (FLAMBEAU_TUNE)", measured)
	}
	return fmt.Sprintf(", FLAMBEAU_TUNE=%s: %d products measured", tuning, measured)
}

// byteCount formats a number of bytes.
func byteCount(n int) string {
	const unit = 1024
	f, k := float64(n), 0
	for f >= unit && k < 4 {
		f /= unit
		k++
	}
	return fmt.Sprintf("%.1f %s", f, []string{"B", "KiB", "MiB", "GiB", "TiB"}[k])
}
