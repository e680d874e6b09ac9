module github.com/flambeau-go/flambeau/tensor/_gen

go 1.26.0
