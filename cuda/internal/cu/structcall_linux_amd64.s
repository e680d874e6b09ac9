//go:build !nogpu

#include "textflag.h"

GLOBL ·structStubAddr(SB), NOPTR|RODATA, $8
DATA ·structStubAddr(SB)/8, $structStub(SB)

// void structStub(structBlock *b): System V ABI, on the system stack; DI holds b. The offsets in
// structBlock are: fn 0, a[i] 8+8·i, s 56, r1 184. The six arguments are passed in registers. The
// 128 bytes of the struct are passed on the stack, as an argument of class MEMORY. At the call, the
// return address, the saved BX and these 128 bytes keep SP a multiple of 16.
TEXT structStub(SB), NOSPLIT|NOFRAME, $0
	PUSHQ BX
	MOVQ  DI, BX
	SUBQ  $128, SP
	MOVQ  SP, DI
	LEAQ  56(BX), SI
	MOVQ  $16, CX
	CLD
	REP; MOVSQ
	MOVQ  8(BX), DI
	MOVQ  16(BX), SI
	MOVQ  24(BX), DX
	MOVQ  32(BX), CX
	MOVQ  40(BX), R8
	MOVQ  48(BX), R9
	MOVQ  0(BX), R10
	XORL  AX, AX
	CALL  R10
	MOVQ  AX, 184(BX)
	ADDQ  $128, SP
	POPQ  BX
	RET
