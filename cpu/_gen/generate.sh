#!/bin/sh
# Regenerates every generated file of cpu/internal. Running it must leave the tree unchanged; CI
# checks that.
set -e
cd "$(dirname "$0")"
go run ./block -dir ../internal/asm
go run ./gemm -dir ../internal/gemm
go run ./rows -dir ../internal/rows
