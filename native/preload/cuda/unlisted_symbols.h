#pragma once

#include <cstdint>

namespace oomtune::cuda {

/** Prints the functions of `handle` that start with `prefix` and a capital and for which `listed` is false. */
void warnOfUnlisted(void* handle, bool (*listed)(const char*), const char* prefix);

}  // namespace oomtune::cuda
