package profile_test

import (
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// onGPU returns a profile of two products on an emulated GPU, whose times come from the emulator's
// cost model.
func onGPU() *profile.Profile {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Root().On(gpus[0]).Ones(64, 64)
	prof, err := profile.Start(profile.Options{CUDA: true})
	if err != nil {
		log.Fatal(err)
	}
	x.MatMul(x).MatMul(x)
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	return prof
}

// The example reads the averages of one op, and the sum of all rows, as numbers. The profile has
// only the times of the GPU, because CUDA is its only activity (in torch's sense).
func ExampleAverage() {
	a := onGPU().KeyAverages()
	total := a.Total()
	for _, r := range a.Rows {
		if r.Key == "matmul" {
			fmt.Println(r.Count, r.CUDATime() == r.CUDATotal/2, r.CPUTime() == r.CPUTotal/2, r.CUDATotal <= total.CUDASelf)
		}
	}
	table, err := a.Table(profile.SortBy("cuda_time"), profile.Header("two products"), profile.NameWidth(12))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.SplitN(table, "\n", 3)[1])
	// Output:
	// 2 true true true
	// two products
}

// Fraction says how close the speed of a kernel is to the peak of its device. The program or the
// device may provide the peak. Otherwise Roofline measures it, as here for the CPU.
func ExampleRooflines() {
	host, err := device.Open("cpu")
	if err != nil {
		log.Fatal(err)
	}
	peak, err := profile.MeasurePeak(host)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(peak.FLOPs > 1e8, peak.Bytes > 1e8)
	f := onGPU().Roofline()
	for _, r := range f.Rows {
		if r.Primitive == "matmul" {
			fmt.Println(r.Count, r.Fraction() > 0, r.Fraction() <= 1)
		}
	}
	for line := range strings.Lines(f.Table()) {
		if strings.HasPrefix(line, "cuda:0") {
			fmt.Print(line)
		}
	}
	// Output:
	// true true
	// 2 true true
	// cuda:0: 64000 GFLOP/s, 3350 GB/s (the emulator's cost model)
}

// Report returns all tables as one text, as WriteFile writes it to a .txt file.
func ExampleProfile_Report() {
	for part := range strings.SplitSeq(onGPU().Report(), "\n\n") {
		if !strings.Contains(part, "\n") {
			fmt.Println(part)
		}
	}
	// Output:
	// By name
	// By layer
	// Copies between host and device, and waits
	// Kernels and what the device could do
}

// Only one profile can run at a time, and a profile that has recorded nothing cannot be written.
// errors.Is recognises both errors.
func ExampleStart() {
	prof, err := profile.Start(profile.Options{Schedule: profile.Schedule{SkipFirst: 10, Active: 1}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = profile.Start(profile.Options{})
	fmt.Println(errors.Is(err, profile.ErrRunning), err)
	err = prof.WriteFile("trace.json")
	fmt.Println(errors.Is(err, profile.ErrEmpty))
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	err = prof.Step()
	var e *profile.Error
	fmt.Println(errors.Is(err, profile.ErrStopped), errors.As(err, &e), e.Op)
	// Output:
	// true profile: start: another profile runs, which must be stopped first: there is one tracer in a process
	// true
	// true true step
}
