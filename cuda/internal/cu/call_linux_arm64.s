//go:build !nogpu

#include "textflag.h"

GLOBL ·callStubAddr(SB), NOPTR|RODATA, $8
DATA ·callStubAddr(SB)/8, $callStub(SB)

// void callStub(block *b): AAPCS64, on the system stack; R0 holds b. The offsets in block are: fn
// 0, a[i] 8+8·i, r1 136. Eight arguments are passed in registers, and eight on the stack. R19 is
// saved, because a callee must preserve it. R29 and R30 are saved as a frame record.
TEXT callStub(SB), NOSPLIT|NOFRAME, $0
	SUB  $96, RSP
	STP  (R29, R30), 64(RSP)
	MOVD R19, 80(RSP)
	ADD  $64, RSP, R29
	MOVD R0, R19
	LDP  72(R19), (R9, R10)
	STP  (R9, R10), 0(RSP)
	LDP  88(R19), (R9, R10)
	STP  (R9, R10), 16(RSP)
	LDP  104(R19), (R9, R10)
	STP  (R9, R10), 32(RSP)
	LDP  120(R19), (R9, R10)
	STP  (R9, R10), 48(RSP)
	LDP  8(R19), (R0, R1)
	LDP  24(R19), (R2, R3)
	LDP  40(R19), (R4, R5)
	LDP  56(R19), (R6, R7)
	MOVD 0(R19), R9
	BL   (R9)
	MOVD R0, 136(R19)
	MOVD 80(RSP), R19
	LDP  64(RSP), (R29, R30)
	ADD  $96, RSP
	RET
