// The instructions of the kernels in tiles_amd64.s. DOT multiplies two tiles and adds to a third one.
// Only sums of bfloat16 products are rounded: for other products tileCall.low is nil.
	MOVQ call+0(FP), R8
	LDTILECFG_R8
	MOVQ $128, DI
	MOVQ tileCall_tall(R8), R10
	MOVQ tileCall_wide(R8), R11
	MOVQ tileCall_aStep(R8), R13
	MOVQ tileCall_mask(R8), AX
	KMOVD AX, K1

panel:
	MOVQ tileCall_from(R8), AX
	TESTQ AX, AX
	JEQ zero
	ADDQ tileCall_fromAt(R8), AX
	MOVQ tileCall_fromRow(R8), BX
	MOVQ BX, DX
	SHLQ $4, DX
	ADDQ AX, DX
	TILELOAD_AX_BX(0)
	TESTQ R11, R11
	JEQ fromTall
	TILELOAD_AX_BX_64(1)

fromTall:
	TESTQ R10, R10
	JEQ multiply
	TILELOAD_DX_BX(2)
	TESTQ R11, R11
	JEQ multiply
	TILELOAD_DX_BX_64(3)
	JMP multiply

zero:
	TILEZERO(0)
	TILEZERO(1)
	TILEZERO(2)
	TILEZERO(3)

multiply:
	MOVQ tileCall_a(R8), AX
	ADDQ tileCall_aAt(R8), AX
	MOVQ tileCall_aRow(R8), BX
	MOVQ tileCall_b(R8), SI
	MOVQ tileCall_tail(R8), R9
	MOVQ tileCall_steps(R8), CX
	TESTQ CX, CX
	JEQ tail

steps:
	MOVQ BX, DX
	SHLQ $4, DX
	ADDQ AX, DX
	TESTQ R10, R10
	JEQ low
	TESTQ R11, R11
	JEQ narrow

both:
	TILELOADT1_AX_BX(4)
	TILELOAD_SI_DI(6)
	TILELOAD_SI_DI_64(7)
	DOT(6, 4, 0)
	TILELOADT1_DX_BX(5)
	DOT(7, 4, 1)
	DOT(6, 5, 2)
	DOT(7, 5, 3)
	ADDQ R13, AX
	ADDQ R13, DX
	ADDQ $2048, SI
	DECQ CX
	JNE both
	JMP tail

narrow:
	TILELOAD_AX_BX(4)
	TILELOAD_SI_DI(6)
	TILELOAD_DX_BX(5)
	DOT(6, 4, 0)
	DOT(6, 5, 2)
	ADDQ R13, AX
	ADDQ R13, DX
	ADDQ $2048, SI
	DECQ CX
	JNE narrow
	JMP tail

low:
	TESTQ R11, R11
	JEQ single

wide:
	TILELOAD_AX_BX(4)
	TILELOAD_SI_DI(6)
	TILELOAD_SI_DI_64(7)
	DOT(6, 4, 0)
	DOT(7, 4, 1)
	ADDQ R13, AX
	ADDQ $2048, SI
	DECQ CX
	JNE wide
	JMP tail

single:
	TILELOAD_AX_BX(4)
	TILELOAD_SI_DI(6)
	DOT(6, 4, 0)
	ADDQ R13, AX
	ADDQ $2048, SI
	DECQ CX
	JNE single

tail:
	TESTQ R9, R9
	JEQ store
	MOVQ R9, AX
	ADDQ tileCall_tailAt(R8), AX
	MOVQ $64, BX
	MOVQ $1, CX
	XORQ R9, R9
	JMP steps

store:
	MOVQ tileCall_c(R8), AX
	ADDQ tileCall_cAt(R8), AX
	MOVQ tileCall_cRow(R8), BX
	MOVQ BX, DX
	SHLQ $4, DX
	ADDQ AX, DX
	TILESTORE_AX_BX(0)
	TESTQ R11, R11
	JEQ storeTall
	TILESTORE_AX_BX_64(1)

storeTall:
	TESTQ R10, R10
	JEQ round
	TILESTORE_DX_BX(2)
	TESTQ R11, R11
	JEQ round
	TILESTORE_DX_BX_64(3)

round:
	MOVQ tileCall_low(R8), DX
	TESTQ DX, DX
	JEQ next
	ADDQ tileCall_lowAt(R8), DX
	MOVQ tileCall_lowRow(R8), R12
	MOVQ tileCall_rows(R8), CX

row:
	VMOVUPS (AX), Z0
	VMOVUPS 64(AX), Z1
	VCVTNE2PS2BF16_Z0_Z1_Z0
	VMOVDQU16 Z0, K1, (DX)
	ADDQ BX, AX
	ADDQ R12, DX
	DECQ CX
	JNE row

next:
	MOVQ tileCall_aPanel(R8), AX
	ADDQ AX, tileCall_aAt(R8)
	MOVQ tileCall_cStep(R8), AX
	ADDQ AX, tileCall_cAt(R8)
	MOVQ tileCall_fromRow(R8), AX
	SHLQ $5, AX
	ADDQ AX, tileCall_fromAt(R8)
	MOVQ tileCall_lowRow(R8), AX
	SHLQ $5, AX
	ADDQ AX, tileCall_lowAt(R8)
	ADDQ $2048, tileCall_tailAt(R8)
	DECQ tileCall_panels(R8)
	JNE panel
	TILERELEASE
	VZEROUPPER
	RET
