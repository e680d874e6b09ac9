// Command flambeau trains models on NVIDIA GPUs and on the CPU, and shows what devices there are.
//
// Usage:
//
//	flambeau train      train a model on your data, or on the embedded digits, on the best device
//	                    found
//	flambeau eval       measure a trained model on data
//	flambeau predict    classify images or rows of a table
//	flambeau generate   write text with a trained model of text
//	flambeau plan       compute the cost of a training step before there is a GPU: memory, largest
//	                    batch, operations, time
//	flambeau kernels    pack the kernels of a training step, for a program that ships them
//	flambeau devices    list the devices and the optional libraries
//	flambeau doctor     say why a GPU is not used, or is slow, and what to do
//	flambeau ops        list the ops, with their tested types and gradients
//	flambeau convert    convert a file of weights to another format: safetensors, PyTorch's,
//	                    NumPy's
//	flambeau inspect    list the tensors in a file
//	flambeau vet        find mistakes with scopes in a program's source; also as go vet's -vettool
//	flambeau version    print the version
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	_ "github.com/flambeau-go/flambeau/cuda" // register the driver for GPUs
	"github.com/flambeau-go/flambeau/vet"
)

// cli declares the command line for the parser kong.
type cli struct {
	Train    trainCmd    `cmd:"" help:"Train a model on your data, or on embedded handwritten digits, on the best device found."`
	Eval     evalCmd     `cmd:"" help:"Measure a trained model on data."`
	Predict  predictCmd  `cmd:"" help:"Classify images or rows of a table with a trained model."`
	Generate generateCmd `cmd:"" help:"Write text with a trained model of text."`
	Plan     planCmd     `cmd:"" help:"Compute the cost of a model's training step without the GPU: memory, the largest batch that fits, operations, time."`
	Kernels  kernelsCmd  `cmd:"" help:"Pack the kernels of a training step, for a program that ships them. List measurements of matrix products."`
	Devices  devicesCmd  `cmd:"" help:"List the devices, say why there is no GPU, and list the optional libraries found."`
	Doctor   doctorCmd   `cmd:"" help:"Find out why a GPU is not used, or is slower than it could be. The exit status is 0 if all is well, 1 if a GPU is used but slow, and 2 if no GPU is used."`
	Ops      opsCmd      `cmd:"" help:"List the ops, with the devices, types and gradients that the tests cover."`
	Convert  convertCmd  `cmd:"" help:"Convert a file of weights to another format, by the ending of the output: .safetensors, .safetensors.index.json, .pt, .pth, .npz, .npy."`
	Inspect  inspectCmd  `cmd:"" help:"List the tensors in a file: names, types, shapes, sizes."`
	Vet      vetCmd      `cmd:"" passthrough:"" help:"Find mistakes with scopes in the source of programs. It is go vet with Flambeau's checks, and takes go vet's flags and packages."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// env holds the output streams of a command.
type env struct {
	ctx      context.Context
	out, err io.Writer
}

func main() {
	if vet.Asked(os.Args[1:]) { // go vet -vettool has started this program
		vet.Main()
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit status: 1 for a failure, 2 for a wrong command
// line, 3 for a plan that does not fit. 130 means that the command was interrupted by Ctrl-C, by
// SIGTERM, or by SIGHUP when its terminal was closed. The command doctor returns other statuses.
func run(args []string, out, errOut io.Writer) int {
	ctx, end := interruptible()
	defer end()
	e := &env{ctx: ctx, out: out, err: errOut}
	var c cli
	status := -1
	parser, err := kong.New(&c, kong.Name("flambeau"), kong.Description("Tensors, gradients and training in Go, on NVIDIA GPUs and the CPU."),
		kong.Vars{"optims": namesOf(optims), "scheds": namesOf(scheds), "models": strings.Join(modelNames, ", "),
			"planmodels": planModelNames(), "gpus": gpuNames()}, kong.Writers(out, errOut), kong.Exit(func(code int) { status = code }), kong.UsageOnError())
	if err != nil {
		fmt.Fprintln(errOut, "flambeau:", err)
		return 2
	}
	if len(args) > 0 && args[0] == "help" { // "help train" shows the help of train
		args = append(slices.Clone(args[1:]), "--help")
	}
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
	}
	k, err := parser.Parse(args)
	if status >= 0 {
		return status // the parser has already printed the help
	}
	if err != nil {
		fmt.Fprintln(errOut, "flambeau:", err)
		if len(args) == 0 {
			fmt.Fprintln(errOut, "Try: flambeau train, or flambeau --help")
		} else {
			fmt.Fprintln(errOut, "See: flambeau "+helpFor(parser, args[0])+"--help")
		}
		return 2
	}
	var exit exitStatus
	switch err := k.Run(e); {
	case err == nil:
		return 0
	case errors.Is(err, errInterrupted):
		return 130
	case errors.Is(err, errTooLarge):
		return 3
	case errors.As(err, &exit):
		return int(exit)
	default:
		fmt.Fprintln(errOut, "flambeau:", err)
		return 1
	}
}

// helpFor returns the command name and a space if the command exists, else "". Messages use it to
// refer to the command's help.
func helpFor(parser *kong.Kong, name string) string {
	for _, n := range parser.Model.Children {
		if n.Name == name {
			return name + " "
		}
	}
	return ""
}

type versionCmd struct{}

// Run prints the module's version as the go command recorded it, the Go release and the platform.
func (versionCmd) Run(e *env) error {
	version := "(devel)"
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		version = b.Main.Version
	}
	_, err := fmt.Fprintf(e.out, "flambeau %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// The signals are defined here because package syscall does not define them for js. All other
// systems use the same numbers.
const (
	hangUp     = syscall.Signal(1)  // number of SIGHUP
	brokenPipe = syscall.Signal(13) // number of SIGPIPE
)

// interruptible returns a context that is cancelled by Ctrl-C, by SIGTERM, or by SIGHUP when the
// terminal or the connection is gone. Under nohup SIGHUP has no effect. A second Ctrl-C or SIGTERM
// ends the process immediately. A second SIGHUP does not, because closing a terminal sends several
// SIGHUPs.
func interruptible() (ctx context.Context, end func()) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	gone := make(chan os.Signal, 1)
	if !signal.Ignored(hangUp) {
		signal.Notify(gone, hangUp)
	}
	go func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	context.AfterFunc(ctx, stop)
	return ctx, func() {
		cancel()
		stop()
		signal.Stop(gone)
	}
}

// outlivePipes keeps the process alive when the reader of its output has ended. Writes then fail,
// but the training continues.
func outlivePipes() { signal.Ignore(brokenPipe) }
