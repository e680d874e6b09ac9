package profile_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// The profile shows a layer that is called three times, and the ops in it. The example prints
// counts and operations, because times differ from run to run.
func Example() {
	fc := nn.NewLinear(8, 4)
	prof, err := profile.Start(profile.Options{FLOPs: true})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		tensor.Do(func(s *tensor.Scope) { fc.Forward(s.Ones(2, 8)).Sum().Backward() }, tensor.Named("step"))
	}
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	for _, r := range prof.KeyAverages().Rows {
		if strings.Contains(r.Key, "atmul") || strings.Contains(r.Key, "inear") || r.Kind == "module" || r.Kind == "scope" {
			fmt.Println(r.Kind, r.Key, r.Count, r.FLOPs)
		}
	}
	// Output:
	// scope step 3 0
	// module Linear_0 3 0
	// op linear 3 408
	// backward LinearBackward 3 0
	// direct linear.grad 3 408
}

// Span corresponds to torch's record_function.
func ExampleSpan() {
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	func() {
		defer profile.Span("augment")()
		tensor.Ones(3).Add(tensor.Ones(3))
	}()
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	for _, r := range prof.KeyAverages().Rows {
		fmt.Println(r.Kind, r.Key, r.Count)
	}
	// Output:
	// user augment 1
	// direct ones 2
	// op add 1
}

// The schedule records the third, fourth, seventh and eighth of ten steps.
func ExampleSchedule() {
	s := profile.Schedule{Wait: 1, Warmup: 1, Active: 2, Repeat: 2}
	var actions []profile.Action
	for step := range 10 {
		actions = append(actions, s.Action(step))
	}
	fmt.Println(actions)
	// skip Wait in the first cycle
	first := profile.Schedule{Wait: 1, Active: 1, SkipFirstWait: true}
	fmt.Println(first.Action(0), first.Action(1), first.Action(2))
	// Output:
	// [NONE WARMUP RECORD RECORD_AND_SAVE NONE WARMUP RECORD RECORD_AND_SAVE NONE NONE]
	// RECORD_AND_SAVE NONE RECORD_AND_SAVE
}

// OnTraceReady is called at the end of each cycle of a schedule.
func ExampleOptions_onTraceReady() {
	prof, err := profile.Start(profile.Options{Schedule: profile.Schedule{Wait: 1, Active: 2}, OnTraceReady: func(p *profile.Profile) error {
		fmt.Println("after", p.StepNumber(), "steps:", p.KeyAverages().Rows[0].Key, p.KeyAverages().Rows[0].Count)
		return nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	for range 6 {
		tensor.Ones(3).Exp()
		if err := prof.Step(); err != nil {
			log.Fatal(err)
		}
	}
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// after 3 steps: ProfilerStep* 2
	// after 6 steps: ProfilerStep* 2
}

// ByModule shows the cost of each layer, forward and backward together.
func ExampleByModule() {
	m := nn.NewSequential(nn.NewLinear(8, 4), nn.NewLinear(4, 2))
	prof, err := profile.Start(profile.Options{Modules: nn.ModuleNames(m, "net")})
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) { m.Forward(s.Ones(2, 8)).Sum().Backward() })
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	a := prof.KeyAverages(profile.ByModule())
	if err := a.Sort("key"); err != nil {
		log.Fatal(err)
	}
	for _, r := range a.Rows {
		fmt.Println(r.Key, r.Count, r.FLOPs)
	}
	// Output:
	// (outside of layers) 0 4
	// 0 1 272
	// 1 1 104
	// net 1 0
}

// An unknown sort key is a typed error that lists the valid keys.
func ExampleAverages_Table() {
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	_, err = prof.KeyAverages().Table(profile.SortBy("time"))
	fmt.Println(errors.Is(err, profile.ErrKey))
	table, err := prof.KeyAverages().Table(profile.SortBy("cpu_time_total"), profile.Rows(20), profile.TimeUnit("ms"))
	fmt.Print(strings.SplitN(table, "\n", 3)[1], "\n", err, "\n")
	// Output:
	// true
	//         Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls
	// <nil>
}

// Transfers lists the copies between the host and a GPU, which is emulated here, and the waits of
// the host.
func ExampleProfile_Transfers() {
	devs, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		log.Fatal(err)
	}
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Ones(1000).To(devs[0])
	_ = x.Sum().Item()
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	t := prof.Transfers()
	for _, r := range t.Rows {
		if r.Op == "item" {
			fmt.Println(r.What, r.Op, r.Count, r.Bytes, "pinned", r.Pinned, "blocked", r.Blocked)
		}
	}
	fmt.Println(len(t.Rows), strings.Contains(t.Table(), "read the sum every so many steps"))
	// Output:
	// DtoH item 1 4 pinned false blocked true
	// 2 true
}

// Roofline compares the time of kernels with the least time that their device needs. If the program
// does not give the device's peak, Roofline measures it.
func ExampleProfile_Roofline() {
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.Ones(64, 64)
	x.MatMul(x)
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	peak := map[string]device.Peak{"cpu": {FLOPs: 100e9, Bytes: 20e9, Source: "the machine's manual"}}
	for _, r := range prof.Roofline(peak).Rows {
		if r.Primitive == "matmul" {
			fmt.Println(r.Primitive, r.Work.FLOPs, r.Bound, r.By)
		}
	}
	// Output:
	// matmul 524288 5.242µs compute
}

// The extension of the file's name chooses the format.
func ExampleProfile_WriteFile() {
	dir, err := os.MkdirTemp("", "profile")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	tensor.Ones(64, 64).Exp()
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"trace.json", "trace.json.gz", "cpu.pb.gz", "cpu.stacks", "profile.txt", "trace.xml"} {
		err := prof.WriteFile(filepath.Join(dir, name))
		fmt.Println(name, err == nil)
	}
	// Output:
	// trace.json true
	// trace.json.gz true
	// cpu.pb.gz true
	// cpu.stacks true
	// profile.txt true
	// trace.xml false
}
