#include "textflag.h"

// func Returns(pc []uintptr) int
TEXT ·Returns(SB), NOSPLIT, $0-32
	MOVQ pc_base+0(FP), DI
	MOVQ pc_len+8(FP), SI
	MOVQ (TLS), AX
	MOVQ 0(AX), R8 // the stack's bounds, which a g begins with
	MOVQ 8(AX), R9
	SUBQ $16, R9
	MOVQ BP, BX
	XORQ CX, CX

next:
	CMPQ CX, SI
	JGE  done
	CMPQ BX, R8
	JCS  done
	CMPQ BX, R9
	JHI  done
	MOVQ 8(BX), DX
	MOVQ DX, (DI)(CX*8)
	INCQ CX
	MOVQ (BX), DX
	CMPQ DX, BX
	JLS  done
	MOVQ DX, BX
	JMP  next

done:
	MOVQ CX, ret+24(FP)
	RET
