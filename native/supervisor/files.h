#pragma once

#include <cstddef>
#include <string>

namespace oomtune {

/** The file's contents, at most about `largest` bytes; empty if it cannot be read. */
std::string readFile(const std::string& path, size_t largest);

}  // namespace oomtune
