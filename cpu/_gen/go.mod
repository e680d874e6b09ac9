module github.com/flambeau-go/flambeau/cpu/_gen

go 1.26.0

require github.com/mmcloughlin/avo v0.6.0

require (
	github.com/flambeau-go/flambeau v0.0.0-00010101000000-000000000000
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
)

replace github.com/flambeau-go/flambeau => ../..
