package profile

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/internal/atomicfile"
)

// ErrEmpty means that nothing has been recorded yet: no cycle has ended, and the profile has not
// been stopped.
var ErrEmpty = errors.New("nothing has been recorded")

// WriteFile writes the recording in the format given by the extension of path:
//
//	.json, .json.gz   a trace: Profile.ExportChromeTrace
//	.pb.gz, .pprof    for go tool pprof: Profile.ExportPprof
//	.stacks           for flame graphs: Profile.ExportStacks
//	.txt              the tables of averages, layers, transfers and roofline: Profile.Report
//
// The file is written completely or not at all. The error is an *[Error] that wraps the cause.
func (p *Profile) WriteFile(path string) error {
	switch {
	case strings.HasSuffix(path, ".json"), strings.HasSuffix(path, ".json.gz"):
		return p.ExportChromeTrace(path)
	case strings.HasSuffix(path, ".pb.gz"), strings.HasSuffix(path, ".pprof"):
		return p.ExportPprof(path)
	case strings.HasSuffix(path, ".stacks"):
		return p.ExportStacks(path, "")
	case strings.HasSuffix(path, ".txt"):
		return p.write(path, func(r *record, w io.Writer) error {
			_, err := io.WriteString(w, p.Report())
			return err
		})
	}
	return &Error{Op: "write " + path, Msg: "the form of a profile is told by the end of its name: .json or .json.gz (trace), .pb.gz (pprof), .stacks (flame graph) or .txt (tables)"}
}

// ExportChromeTrace writes a trace for chrome://tracing and ui.perfetto.dev: torch's
// export_chrome_trace. If path ends in .gz, the trace is gzipped. The trace has a track for each
// goroutine and each stream of a device, arrows from launches to kernels, and a graph of the memory
// in use.
func (p *Profile) ExportChromeTrace(path string) error {
	return p.write(path, func(r *record, w io.Writer) error {
		if !strings.HasSuffix(path, ".gz") {
			return r.writeTrace(w)
		}
		z := gzip.NewWriter(w)
		if err := r.writeTrace(z); err != nil {
			return err
		}
		return z.Close()
	})
}

// ExportPprof writes a profile for go tool pprof, with sample types cpu, gpu, flops, moved and
// allocated:
//
//	go tool pprof -top -sample_index=gpu prof.pb.gz
//
// A stack consists of a kernel, the op that launched it, and the layers and spans around it. With
// Options.Stacks a stack also has the program's own functions. Labels give the device, the kind
// and the module.
func (p *Profile) ExportPprof(path string) error {
	return p.write(path, func(r *record, w io.Writer) error { return r.writePprof(w) })
}

// ExportStacks writes stacks for flame graph tools: torch's export_stacks. Each line has a stack,
// outermost frame first, and its self time in microseconds. The argument metric is
// "self_cpu_time_total" or "self_cuda_time_total". If metric is empty, the GPU times are written
// if there are any, else the CPU times.
func (p *Profile) ExportStacks(path, metric string) error {
	at := valueCPU
	switch metric {
	case "":
		if p.KeyAverages().Total().CUDASelf > 0 {
			at = valueGPU
		}
	case "self_cpu_time_total":
	case "self_cuda_time_total", "self_device_time_total":
		at = valueGPU
	default:
		return &Error{Op: "stacks", Msg: fmt.Sprintf("no metric %q; known are self_cpu_time_total and self_cuda_time_total", metric), Err: ErrKey}
	}
	return p.write(path, func(r *record, w io.Writer) error {
		_, sum := r.samples()
		lines := map[string]int64{}
		for k, v := range sum {
			if v[at] == 0 {
				continue
			}
			frames := k.stack()
			names := make([]string, len(frames))
			for i, f := range frames {
				names[len(frames)-1-i] = strings.Map(func(r rune) rune {
					if r == ';' || r < ' ' {
						return '_'
					}
					return r
				}, short(f.function))
			}
			lines[strings.Join(names, ";")] += v[at]
		}
		b := bufio.NewWriter(w)
		for _, k := range slices.Sorted(maps.Keys(lines)) {
			fmt.Fprintf(b, "%s %d\n", k, (lines[k]+500)/1000)
		}
		return b.Flush()
	})
}

// write writes a file completely or not at all.
func (p *Profile) write(path string, to func(r *record, w io.Writer) error) error {
	p.mu.Lock()
	r := p.data
	p.mu.Unlock()
	if r == nil {
		return &Error{Op: "write " + path, Msg: "nothing has been recorded: stop the profile, or let a cycle of its schedule end, first", Err: ErrEmpty}
	}
	f, err := atomicfile.Create(path)
	if err == nil {
		defer f.Abort()
		if err = to(r, f); err == nil {
			err = f.Commit()
		}
	}
	if err != nil {
		return &Error{Op: "write " + path, Msg: err.Error(), Err: err}
	}
	return nil
}

// Report returns all tables in one text: the averages with the most time, layers, transfers and the
// roofline.
func (p *Profile) Report() string {
	r := p.record()
	key := "self_cpu_time_total"
	a := r.averages(grouping{})
	if a.Total().CUDASelf > 0 {
		key = "self_cuda_time_total"
	}
	var b strings.Builder
	part := func(title, table string, err error) {
		if err != nil { // cannot happen, because the sort key is valid
			panic(err)
		}
		fmt.Fprintf(&b, "%s\n\n%s\n", title, table)
	}
	table, err := a.Table(SortBy(key))
	part("By name", table, err)
	table, err = r.byModule().Table(SortBy(key))
	part("By layer", table, err)
	part("Copies between host and device, and waits", p.Transfers().Table(), nil)
	part("Kernels and what the device could do", p.Roofline().Table(), nil)
	return b.String()
}
