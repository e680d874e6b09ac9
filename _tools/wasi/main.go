// Command wasi runs a program that was built for wasip1/wasm, for use with go test -exec. It gives
// the program arguments, an environment and output, but no files.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: wasi PROGRAM ARGUMENT...")
		os.Exit(2)
	}
	err := run(context.Background(), os.Args[1], os.Args[1:])
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(int(exit.ExitCode()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, args []string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// Compiled programs are cached, because compiling a program takes longer than most tests.
	dir, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, "flambeau", "wasi"))
	if err != nil {
		return err
	}
	defer cache.Close(ctx)
	runtime := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	defer runtime.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, runtime); err != nil {
		return err
	}
	config := wazero.NewModuleConfig().WithArgs(args...).WithStdin(os.Stdin).WithStdout(os.Stdout).WithStderr(os.Stderr).
		WithRandSource(rand.Reader).WithSysWalltime().WithSysNanotime().WithSysNanosleep()
	for _, v := range os.Environ() {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" {
			config = config.WithEnv(name, value)
		}
	}
	_, err = runtime.InstantiateWithConfig(ctx, program, config)
	return err
}
