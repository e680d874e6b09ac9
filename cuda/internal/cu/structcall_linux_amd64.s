//go:build !nogpu

#include "textflag.h"

GLOBL ·structStubAddr(SB), NOPTR|RODATA, $8
DATA ·structStubAddr(SB)/8, $structStub(SB)

// void structStub(structBlock *b): System V ABI, on the system stack, b in DI.
// Offsets of structBlock: fn 0, a[i] 8+8·i, s 56, r1 184. The six arguments go in registers, the
// 128 bytes of the struct on the stack, where the callee finds an argument of class MEMORY.
// The return address, the saved BX and these 128 bytes keep SP a multiple of 16 at the call.
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
