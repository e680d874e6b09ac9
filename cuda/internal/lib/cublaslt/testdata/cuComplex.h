// cublas_api.h declares functions of complex numbers. None is called.
#pragma once
typedef struct { float x, y; } cuComplex;
typedef struct { double x, y; } cuDoubleComplex;
