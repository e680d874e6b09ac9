// cublas_api.h declares functions of complex numbers, of which none is called.
#pragma once
typedef struct { float x, y; } cuComplex;
typedef struct { double x, y; } cuDoubleComplex;
