// Finding and opening the real library behind a stand-in.
#pragma once

namespace oomtune::cuda {

/**
 * Opens the real library: the absolute path in the environment variable `variable`; else `soname` in the folder
 * `beside` (may be null), on LD_LIBRARY_PATH, in the loader's cache and in the usual folders of drivers. Never a
 * stand-in. Null: there is none. `path` (of `capacity` bytes) receives where it was found.
 */
void* openReal(const char* variable, const char* soname, const char* beside, char* path, unsigned long capacity);

/** Prints one line on stderr if OOMTUNE_DEBUG is set. */
void debugLine(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace oomtune::cuda
