// Command block writes the generated files of package asm: the exported functions and, through avo,
// the AVX2 and AVX-512 kernels with their Go declarations and tables.
//
//	go run ./block -dir ../internal/asm
package main

import "flag"

func main() {
	dir := flag.String("dir", "../internal/asm", "folder of package asm")
	flag.Parse()
	writeAPI(*dir)
	writeISA(*dir, avx2, nil)
	writeISA(*dir, avx512, nil)
}
