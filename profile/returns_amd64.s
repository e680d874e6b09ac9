#include "textflag.h"

// func returns(pc *[64]uintptr) int
TEXT ·returns(SB), NOSPLIT, $0-16
	MOVQ pc+0(FP), DI
	MOVQ (TLS), AX
	MOVQ 0(AX), R8 // the stack's bounds, which a g begins with
	MOVQ 8(AX), R9
	SUBQ $16, R9
	MOVQ BP, BX
	XORQ CX, CX

next:
	CMPQ BX, R8
	JCS  done
	CMPQ BX, R9
	JHI  done
	MOVQ 8(BX), DX
	MOVQ DX, (DI)(CX*8)
	INCQ CX
	CMPQ CX, $64
	JGE  done
	MOVQ (BX), DX
	CMPQ DX, BX
	JLS  done
	MOVQ DX, BX
	JMP  next

done:
	MOVQ CX, ret+8(FP)
	RET
