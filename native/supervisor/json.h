// Values of the supervisor's records as JSON.
#pragma once

#include <cstdint>
#include <string>

namespace oomtune {

/** A JSON string with its quotes; bytes that are not printable ASCII become "?". */
std::string quoted(const std::string& text);

/** ISO 8601 in UTC with milliseconds. */
std::string isoTime(uint64_t nanoseconds);

/** `SIGKILL` for 9; `SIG42` for a signal without a name. */
std::string signalName(int signal);

}  // namespace oomtune
