// Command platforms type-checks packages, and everything that they import, for each of the given
// platforms. It reads their source. A compiler would find the same mistakes, but takes many times
// as long.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	on := flag.String("on", "", "platforms, as js/wasm,linux/386")
	tests := flag.Bool("tests", true, "check tests as well")
	flag.Parse()
	if *on == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: platforms -on GOOS/GOARCH,... [-tests=false] PACKAGE...")
		os.Exit(2)
	}
	failed := false
	for _, platform := range strings.Split(*on, ",") {
		n, err := check(platform, *tests, flag.Args())
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s:\n%v\n", platform, err)
			failed = true
			continue
		}
		fmt.Printf("%s: %d packages\n", platform, n)
	}
	if failed {
		os.Exit(1)
	}
}

// check returns the number of matching packages, and the errors in them or in their imports.
func check(platform string, tests bool, patterns []string) (int, error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return 0, fmt.Errorf("%q is not as GOOS/GOARCH", platform)
	}
	list, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax,
		Tests: tests,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return 0, err
	}
	var found []error
	packages.Visit(list, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			found = append(found, e)
		}
	})
	return len(list), errors.Join(found...)
}
