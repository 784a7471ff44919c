// The part of the driver's binary interface that the hooks need, declared from its public documentation. Only what is
// read or written here is named; the rest is opaque.
#pragma once

#include <cstddef>
#include <cstdint>

namespace oomtune::cuda {

using Result = int;
using Device = int;
using Address = unsigned long long;
using Context = struct ContextOpaque*;
using Stream = struct StreamOpaque*;
using Pool = struct PoolOpaque*;
using Graph = struct GraphOpaque*;
using GraphNode = struct GraphNodeOpaque*;
using GraphExec = struct GraphExecOpaque*;
using GreenContext = struct GreenContextOpaque*;
using Array = struct ArrayOpaque*;
using Mipmap = struct MipmapOpaque*;
using Handle = unsigned long long;

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotInitialized = 3;
constexpr Result kNoDevice = 100;
constexpr Result kNotFound = 500;

// All other types are host memory, or none.
enum LocationType : int { kLocationDevice = 1, kLocationHost = 2, kLocationHostNuma = 3 };
enum AllocationType : int { kAllocationPinned = 1, kAllocationManaged = 2 };
constexpr int kCaptureRelaxed = 2;

struct Location {
  int type;
  int id;
};

struct AllocationProp {
  int type;
  int handleTypes;
  Location location;
  void* windowsMetaData;
  unsigned char flags[8];
};

struct PoolProps {
  int type;
  int handleTypes;
  Location location;
  void* windowsAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(PoolProps) == 88, "layout of the driver");

struct MemAllocNodeParams {
  PoolProps pool;
  const void* access;
  size_t accessCount;
  size_t bytes;
  Address address;
};
static_assert(offsetof(MemAllocNodeParams, bytes) == 104, "layout of the driver");

constexpr int kGraphNodeChild = 4;
constexpr int kGraphNodeMemAlloc = 10;
constexpr int kGraphNodeMemFree = 11;

struct GraphNodeParams {
  int type;
  int reserved[3];
  union {
    long long padding[29];
    MemAllocNodeParams alloc;
  };
  long long reserved2;
};

struct ArrayDescriptor {
  size_t width;
  size_t height;
  unsigned int format;
  unsigned int channels;
};

struct Array3dDescriptor {
  size_t width;
  size_t height;
  size_t depth;
  unsigned int format;
  unsigned int channels;
  unsigned int flags;
};

/** The layout of CUDA's first version, in which sizes had 32 bits. */
struct FirstArrayDescriptor {
  unsigned int width;
  unsigned int height;
  unsigned int format;
  unsigned int channels;
};

struct FirstArray3dDescriptor {
  unsigned int width;
  unsigned int height;
  unsigned int depth;
  unsigned int format;
  unsigned int channels;
  unsigned int flags;
};

/** A piece of a sparse array, and the memory that is mapped to it or unmapped. */
struct ArrayMapInfo {
  int resourceType;
  uint64_t resource;  // an array or a mipmapped one
  int subresourceType;
  unsigned long long subresource[4];
  int operation;
  int handleType;
  Handle handle;
  unsigned long long offset;
  unsigned int devices;
  unsigned int flags;
  unsigned int reserved[2];
};
static_assert(sizeof(ArrayMapInfo) == 96 && offsetof(ArrayMapInfo, handle) == 64, "layout of the driver");
constexpr int kMapOperation = 1;
constexpr int kUnmapOperation = 2;

constexpr int kLimitHeap = 2;  // of malloc() in kernels

constexpr unsigned int kArraySparse = 0x40;
constexpr unsigned int kArrayDeferred = 0x80;
constexpr unsigned int kArrayCubemap = 0x04;

struct IpcMemHandle {
  char reserved[64];
};

struct Uuid {
  unsigned char bytes[16];
};

enum PoolAttribute : int { kPoolReservedCurrent = 5, kPoolUsedCurrent = 7 };
enum GraphMemAttribute : int { kGraphReservedCurrent = 2 };

}  // namespace oomtune::cuda
