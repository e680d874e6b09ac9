//go:build !nogpu

#include "textflag.h"

GLOBL ·callStubAddr(SB), NOPTR|RODATA, $8
DATA ·callStubAddr(SB)/8, $callStub(SB)

// void callStub(block *b): System V ABI, on the system stack; DI holds b. The offsets in block are:
// fn 0, a[i] 8+8·i, r1 136. Six arguments are passed in registers, and ten on the stack. At the
// call, the return address, the saved BX and 80 bytes of arguments keep SP a multiple of 16.
TEXT callStub(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	MOVQ  DI, BX
	SUBQ  $80, SP
	MOVQ  56(BX), AX
	MOVQ  AX, 0(SP)
	MOVQ  64(BX), AX
	MOVQ  AX, 8(SP)
	MOVQ  72(BX), AX
	MOVQ  AX, 16(SP)
	MOVQ  80(BX), AX
	MOVQ  AX, 24(SP)
	MOVQ  88(BX), AX
	MOVQ  AX, 32(SP)
	MOVQ  96(BX), AX
	MOVQ  AX, 40(SP)
	MOVQ  104(BX), AX
	MOVQ  AX, 48(SP)
	MOVQ  112(BX), AX
	MOVQ  AX, 56(SP)
	MOVQ  120(BX), AX
	MOVQ  AX, 64(SP)
	MOVQ  128(BX), AX
	MOVQ  AX, 72(SP)
	MOVQ  8(BX), DI
	MOVQ  16(BX), SI
	MOVQ  24(BX), DX
	MOVQ  32(BX), CX
	MOVQ  40(BX), R8
	MOVQ  48(BX), R9
	MOVQ  0(BX), R10
	XORL  AX, AX
	CALL  R10
	MOVQ  AX, 136(BX)
	ADDQ  $80, SP
	POPQ  BX
	RET
