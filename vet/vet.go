// Package vet finds mistakes with scopes in programs that use Flambeau, before they run.
//
// There are three ways to run it: `flambeau vet ./...`, `go vet -vettool=$(which flambeau) ./...`,
// and a program that passes the [Analyzers] to golang.org/x/tools/go/analysis.
//
//   - [NestedDo] finds tensor.Do inside of another scope's function.
//   - [KeptResult] finds tensors that are used after their scope has closed.
//   - [GivenAway] finds tensors that are used after From gave them away.
//   - [UnclosedScope] finds scopes that are never closed.
//   - [UnusedMode] finds scopes with a mode that has no effect.
//   - [MissedMode] finds calls of a model that the mode around them does not reach.
//
// An analyzer looks at one function at a time, and reports only code that is certainly wrong. A
// comment can suppress the reports about its own line and the next line, or about the function that
// it documents. A comment before the package clause suppresses the reports about the file:
//
//	//flambeau:ignore nesteddo this test shows what happens
//
// The first word names the analyzer, or several analyzers with commas between them. The words after
// it are the reason. A comment without a reason has no effect.
package vet

import (
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// Analyzers holds the analyzers, for a program that runs them together with other analyzers.
var Analyzers = []*analysis.Analyzer{UnusedMode, MissedMode, NestedDo, UnclosedScope, GivenAway, KeptResult}

// Asked reports whether args are the arguments with which the go command calls its vet tool:
// "-V=full", "-flags", or flags and one file of type .cfg. args does not include the program's
// name.
func Asked(args []string) bool {
	if len(args) == 0 {
		return false
	}
	last := args[len(args)-1]
	if len(args) == 1 && (last == "-V=full" || last == "-flags") {
		return true
	}
	for _, a := range args[:len(args)-1] {
		if !strings.HasPrefix(a, "-") {
			return false
		}
	}
	return strings.HasSuffix(last, ".cfg") && !strings.HasPrefix(last, "-")
}

// Main runs the vet tool for the go command. It reads [os.Args] and ends the process.
func Main() {
	unitchecker.Main(Analyzers...)
	os.Exit(0) // not reached, because the call above ends the process
}

// analyzer returns an analyzer that runs a function on one package.
func analyzer(name, doc string, run func(*unit)) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: name, Doc: doc, Requires: []*analysis.Analyzer{inspect.Analyzer},
		Run: func(pass *analysis.Pass) (any, error) {
			run(newUnit(pass))
			return nil, nil
		},
	}
}

// ignored returns the parts of files for which a comment suppresses the analyzer's reports.
func ignored(pass *analysis.Pass) []span {
	var spans []span
	for _, f := range pass.Files {
		documents := map[*ast.CommentGroup]ast.Node{}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Doc != nil {
				documents[d.Doc] = d
			}
		}
		file := pass.Fset.File(f.FileStart)
		for _, group := range f.Comments {
			for _, c := range group.List {
				if !suppresses(c.Text, pass.Analyzer.Name) {
					continue
				}
				if d := documents[group]; d != nil {
					spans = append(spans, span{d.Pos(), d.End()})
					continue
				}
				if c.Pos() < f.Package {
					spans = append(spans, span{f.FileStart, f.FileEnd})
					continue
				}
				line, end := file.Line(c.Pos()), f.FileEnd
				if line+2 <= file.LineCount() {
					end = file.LineStart(line + 2)
				}
				spans = append(spans, span{file.LineStart(line), end})
			}
		}
	}
	return spans
}

// suppresses reports whether a comment suppresses the reports of the named analyzer. The comment
// must give a reason.
func suppresses(comment, name string) bool {
	text, ok := strings.CutPrefix(comment, "//flambeau:ignore ")
	names, reason, _ := strings.Cut(strings.TrimSpace(text), " ")
	return ok && strings.TrimSpace(reason) != "" && slices.Contains(strings.Split(names, ","), name)
}

// span is a part of a file, from position start up to, but not including, position end.
type span struct{ start, end token.Pos }
