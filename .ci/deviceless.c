// A driver and a cuBLASLt without a device, as far as cuDNN looks at them while it plans for a device that is
// described: code is loaded into nothing, nothing is launched, and no product is supported.

static int device_of_nothing;

static int give(void** place) {
    *place = &device_of_nothing;
    return 0;
}

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}

int cuDeviceGetCount(int* count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int* device, int ordinal) {
    *device = ordinal;
    return 0;
}

#define GIVES(name) int name(void** place) { return give(place); }
#define DOES(name) int name(void) { return 0; }

GIVES(cuCtxGetCurrent)
GIVES(cuKernelGetFunction)
GIVES(cuLibraryGetKernel)
GIVES(cuLibraryLoadData)
GIVES(cuLibraryLoadFromFile)
GIVES(cuModuleGetFunction)
GIVES(cuModuleLoadData)
DOES(cuCtxGetLimit)
DOES(cuCtxPopCurrent)
DOES(cuCtxPushCurrent)
DOES(cuGetErrorName)
DOES(cuGetErrorString)
DOES(cuKernelGetAttribute)
DOES(cuKernelSetAttribute)
DOES(cuLaunchCooperativeKernel)
DOES(cuLaunchKernel)
DOES(cuLaunchKernelEx)
DOES(cuLibraryUnload)
DOES(cuLinkAddData)
DOES(cuLinkComplete)
DOES(cuLinkCreate)
DOES(cuLinkDestroy)
DOES(cuModuleUnload)
DOES(cuOccupancyMaxPotentialClusterSize)
DOES(cuStreamGetCtx)
DOES(cuTensorMapEncodeIm2col)
DOES(cuTensorMapEncodeTiled)

#define LACKS(name) int name(void) { return 15; }

LACKS(cublasLtCreate)
LACKS(cublasLtGetVersion)
LACKS(cublasLtMatmulAlgoGetHeuristic)
LACKS(cublasLtMatmulDescCreate)
LACKS(cublasLtMatmulDescSetAttribute)
LACKS(cublasLtMatmulPreferenceCreate)
LACKS(cublasLtMatmulPreferenceDestroy)
LACKS(cublasLtMatmulPreferenceSetAttribute)
LACKS(cublasLtMatrixLayoutCreate)
LACKS(cublasLtMatrixLayoutSetAttribute)
