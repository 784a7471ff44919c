#pragma once

#include <cstddef>
#include <string>

namespace oomtune {

/** What can be read of a file, at most about `largest` bytes; empty when it cannot be. */
std::string readFile(const std::string& path, size_t largest);

}  // namespace oomtune
