// Command block writes the generated files of package asm: the exported functions and, through avo, the AVX2 and
// AVX-512 kernels with their Go declarations and tables.
//
//	go run ./block -out ../internal/asm
package main

import "flag"

func main() {
	out := flag.String("out", "../internal/asm", "folder of package asm")
	flag.Parse()
	writeAPI(*out)
}
