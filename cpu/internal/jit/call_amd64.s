//go:build linux && !noasm

#include "textflag.h"

// func call(entry uintptr, reg unsafe.Pointer, n, rows int, strides unsafe.Pointer)
TEXT ·call(SB), NOSPLIT, $8-40
	MOVQ entry+0(FP), AX
	MOVQ reg+8(FP), DI
	MOVQ n+16(FP), DX
	MOVQ rows+24(FP), CX
	MOVQ strides+32(FP), R8
	CALL AX
	RET
