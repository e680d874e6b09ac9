#include "textflag.h"

// func Returns(pc []uintptr) int
TEXT ·Returns(SB), NOSPLIT, $0-32
	MOVD pc_base+0(FP), R0
	MOVD pc_len+8(FP), R6
	MOVD 0(g), R1 // the stack's bounds, which a g begins with
	MOVD 8(g), R2
	SUB  $16, R2, R2
	MOVD R29, R3
	MOVD $0, R4

next:
	CMP  R6, R4
	BGE  done
	CMP  R1, R3
	BLO  done
	CMP  R2, R3
	BHI  done
	MOVD 8(R3), R5
	MOVD R5, (R0)(R4<<3)
	ADD  $1, R4
	MOVD (R3), R5
	CMP  R3, R5
	BLS  done
	MOVD R5, R3
	B    next

done:
	MOVD R4, ret+24(FP)
	RET
