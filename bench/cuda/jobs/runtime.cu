// A program of the CUDA runtime, linked statically (nvcc's default): every way to memory, then the limit, then on.
// argv[1] "pairs": instead measures how long a pair of allocation and free takes; "reset": resets the device between two
// fillings, of which neither may be charged for the other.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#define OK(call)                                                                                \
  do {                                                                                          \
    cudaError_t e = (call);                                                                     \
    if (e != cudaSuccess) {                                                                     \
      printf("{\"failed\": \"%s\", \"error\": \"%s\"}\n", #call, cudaGetErrorName(e));          \
      return 1;                                                                                 \
    }                                                                                           \
  } while (0)

__global__ void touch(char* p, size_t n) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = 1;
}

static double pairs(size_t size, int count, bool async) {
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      void* p = nullptr;
      if (async) {
        cudaMallocAsync(&p, size, 0);
        cudaFreeAsync(p, 0);
      } else {
        cudaMalloc(&p, size);
        cudaFree(p);
      }
    }
    cudaDeviceSynchronize();
    rounds.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count() / count);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

static int fill(size_t bytes) {
  const size_t MiB = 1 << 20;
  void* plain = nullptr;
  void* current = nullptr;
  void* own = nullptr;
  cudaMemPool_t pool;
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  OK(cudaMalloc(&plain, bytes));
  OK(cudaMallocAsync(&current, 200 * MiB, 0));
  OK(cudaMemPoolCreate(&pool, &props));
  OK(cudaMallocFromPoolAsync(&own, 300 * MiB, pool, 0));
  OK(cudaDeviceSynchronize());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return 0;
}

static int reset() {
  const size_t GiB = 1 << 30;
  if (fill(2 * GiB) != 0) return 1;
  OK(cudaDeviceReset());
  if (fill(3 * GiB) != 0) return 1;
  OK(cudaDeviceReset());
  void* again = nullptr;
  OK(cudaMalloc(&again, 3 * GiB));
  printf("{\"recovered\": true, \"allocations\": 3}\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "reset") == 0) return reset();
  OK(cudaFree(nullptr));
  if (argc > 1 && strcmp(argv[1], "pairs") == 0) {
    void* keep = nullptr;
    OK(cudaMalloc(&keep, 512));  // small allocations share a block, which now stays
    pairs(512, 200, false);
    double small = pairs(512, 4000, false);
    double large = pairs(2 << 20, 1000, false);
    double async = pairs(1 << 20, 4000, true);
    printf("{\"pair_512B_ns\": %.1f, \"pair_2MiB_ns\": %.1f, \"pair_async_1MiB_ns\": %.1f}\n", small, large, async);
    return 0;
  }
  const size_t MiB = 1 << 20;
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  cudaDeviceProp prop;
  OK(cudaGetDeviceProperties(&prop, 0));
  char* p = nullptr;
  OK(cudaMalloc(&p, 100 * MiB));
  touch<<<64, 256>>>(p, 100 * MiB);
  OK(cudaDeviceSynchronize());
  size_t pitch = 0;
  char* pitched = nullptr;
  OK(cudaMallocPitch((void**)&pitched, &pitch, 1000, 10000));
  char* managed = nullptr;
  OK(cudaMallocManaged((void**)&managed, 16 * MiB));
  touch<<<64, 256>>>(managed, 16 * MiB);
  OK(cudaDeviceSynchronize());
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
  cudaArray_t array = nullptr;
  OK(cudaMallocArray(&array, &format, 2048, 2048));  // 64 MiB
  cudaMipmappedArray_t mipmap = nullptr;
  cudaExtent extent = make_cudaExtent(1024, 1024, 0);
  OK(cudaMallocMipmappedArray(&mipmap, &format, extent, 4));
  size_t freeWithArrays = 0;
  OK(cudaMemGetInfo(&freeWithArrays, &total));
  void* async = nullptr;
  cudaMemPool_t pool;
  unsigned long long small = 0, reserved = 0;
  OK(cudaDeviceGetMemPool(&pool, 0));
  OK(cudaMallocAsync(&async, 512, 0));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &small));
  OK(cudaFreeAsync(async, 0));
  OK(cudaMallocAsync(&async, 81 * MiB, 0));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  OK(cudaFreeAsync(async, 0));
  OK(cudaDeviceSynchronize());
  void* host = nullptr;
  OK(cudaMallocHost(&host, 32 * MiB));
  // A graph with memory nodes, captured from stream-ordered calls.
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* inside = nullptr;
  OK(cudaMallocAsync(&inside, 64 * MiB, stream));
  touch<<<64, 256, 0, stream>>>((char*)inside, 64 * MiB);
  OK(cudaFreeAsync(inside, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaFreeArray(array));
  OK(cudaFreeMipmappedArray(mipmap));
  std::vector<void*> hoard;
  cudaError_t error = cudaSuccess;
  while (hoard.size() < 8192) {
    void* more = nullptr;
    error = cudaMalloc(&more, 32 * MiB);
    if (error != cudaSuccess) break;
    hoard.push_back(more);
  }
  cudaGetLastError();
  size_t hoarded = hoard.size();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // so that whoever samples from outside sees the peak
  for (void* more : hoard) OK(cudaFree(more));
  char* again = nullptr;
  OK(cudaMalloc(&again, 200 * MiB));
  touch<<<64, 256>>>(again, 200 * MiB);
  bool recovered = cudaDeviceSynchronize() == cudaSuccess;
  printf("{\"total\": %zu, \"prop_total\": %zu, \"free_at_start\": %zu, \"free_with_arrays\": %zu, \"hoarded\": %zu, "
         "\"error\": \"%s\", \"is_own_oom\": %s, \"allocations\": %zu, \"recovered\": %s, \"pool_512B\": %llu, "
         "\"pool_81MiB\": %llu}\n",
         total, prop.totalGlobalMem, free, freeWithArrays, hoarded * 32 * MiB, cudaGetErrorName(error),
         error == cudaErrorMemoryAllocation ? "true" : "false", hoarded + 5, recovered ? "true" : "false", small, reserved);
  OK(cudaFree(p));
  OK(cudaFree(pitched));
  OK(cudaFree(managed));
  OK(cudaFreeHost(host));
  return 0;
}
