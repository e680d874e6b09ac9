//go:build !js && !wasip1

package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

//go:embed index.html page.js worker.js
var files embed.FS

func main() {
	log.SetFlags(0)
	addr := flag.String("addr", "localhost:8080", "where to serve the page")
	out := flag.String("out", "", "write the page into this folder, for any server of files, and end")
	flag.Parse()
	if *out != "" {
		if err := build(*out); err != nil {
			log.Fatal(err)
		}
		return
	}
	if err := serve(*addr); err != nil {
		log.Fatal(err)
	}
}

// serve builds the page and serves it until Ctrl-C.
func serve(addr string) error {
	dir, err := os.MkdirTemp("", "browser")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server := &http.Server{Addr: addr, Handler: http.FileServer(http.Dir(dir))}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Printf("http://%s\n", addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// build writes the files of the page, the page's program, and Go's script that starts programs in
// browsers.
func build(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"index.html", "page.js", "worker.js"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	support, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "wasm_exec.js"), support, 0o644); err != nil {
		return err
	}
	// Debug information is left out, because browsers do not use it.
	goBuild := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, "browser.wasm"), "github.com/flambeau-go/flambeau/examples/browser")
	goBuild.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	goBuild.Stderr = os.Stderr
	return goBuild.Run()
}
