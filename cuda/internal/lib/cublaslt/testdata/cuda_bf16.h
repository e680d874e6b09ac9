// cublas_api.h includes this file, but needs none of its declarations.
