//go:build !noasm

#include "go_asm.h"
#include "textflag.h"

// Go's assembler does not know AMX. The macros hold the encodings of Intel's manual (Intel, "Intel
// 64 and IA-32 Architectures Software Developer's Manual", volume 2, chapter 2.13 and the pages of
// the instructions). A tile instruction with memory needs a base and an index, which is the
// distance between rows. The macros' names say base and index.
#define LDTILECFG_R8 LONG $0x4978C2C4; BYTE $0x00
#define TILERELEASE LONG $0x4978E2C4; BYTE $0xC0
#define TILEZERO(t) LONG $0x497BE2C4; BYTE $(0xC0|((t)<<3))
#define TILELOAD_AX_BX(t) LONG $0x4B7BE2C4; BYTE $(0x04|((t)<<3)); BYTE $0x18
#define TILELOAD_AX_BX_64(t) LONG $0x4B7BE2C4; BYTE $(0x44|((t)<<3)); BYTE $0x18; BYTE $0x40
#define TILELOAD_DX_BX(t) LONG $0x4B7BE2C4; BYTE $(0x04|((t)<<3)); BYTE $0x1A
#define TILELOAD_DX_BX_64(t) LONG $0x4B7BE2C4; BYTE $(0x44|((t)<<3)); BYTE $0x1A; BYTE $0x40
#define TILELOADT1_AX_BX(t) LONG $0x4B79E2C4; BYTE $(0x04|((t)<<3)); BYTE $0x18
#define TILELOADT1_DX_BX(t) LONG $0x4B79E2C4; BYTE $(0x04|((t)<<3)); BYTE $0x1A
#define TILELOAD_SI_DI(t) LONG $0x4B7BE2C4; BYTE $(0x04|((t)<<3)); BYTE $0x3E
#define TILELOAD_SI_DI_64(t) LONG $0x4B7BE2C4; BYTE $(0x44|((t)<<3)); BYTE $0x3E; BYTE $0x40
#define TILESTORE_AX_BX(t) LONG $0x4B7AE2C4; BYTE $(0x04|((t)<<3)); BYTE $0x18
#define TILESTORE_AX_BX_64(t) LONG $0x4B7AE2C4; BYTE $(0x44|((t)<<3)); BYTE $0x18; BYTE $0x40
#define TILESTORE_DX_BX(t) LONG $0x4B7AE2C4; BYTE $(0x04|((t)<<3)); BYTE $0x1A
#define TILESTORE_DX_BX_64(t) LONG $0x4B7AE2C4; BYTE $(0x44|((t)<<3)); BYTE $0x1A; BYTE $0x40
#define TDPBF16PS(b, a, c) LONG $(0x5C02E2C4|((15^(b))<<19)); BYTE $(0xC0|((c)<<3)|(a))
#define TDPBSSD(b, a, c) LONG $(0x5E03E2C4|((15^(b))<<19)); BYTE $(0xC0|((c)<<3)|(a))

// VCVTNE2PS2BF16 Z0, Z1, Z0: the lower half of Z0 comes from Z0, and the upper half from Z1.
#define VCVTNE2PS2BF16_Z0_Z1_Z0 LONG $0x4877F262; WORD $0xC072

// The kernels differ in the instruction that multiplies.
#define DOT(b, a, c) TDPBF16PS(b, a, c)

// func tilesBF16(call *tileCall)
TEXT ·tilesBF16(SB), NOSPLIT, $0-8
#include "tilesbody_amd64.h"

#undef DOT
#define DOT(b, a, c) TDPBSSD(b, a, c)

// func tilesDotInt8(call *tileCall)
TEXT ·tilesDotInt8(SB), NOSPLIT, $0-8
#include "tilesbody_amd64.h"
