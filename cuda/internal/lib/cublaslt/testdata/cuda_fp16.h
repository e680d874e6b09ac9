// cublas_api.h includes it, and takes nothing of it.
