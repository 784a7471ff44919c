// A target takes any bytes; what must be true whatever they are is held with HOLD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define HOLD(condition)                                                              \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                       \
    }                                                                                \
  } while (0)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);
