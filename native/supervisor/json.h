// The two records that the supervisor leaves: supervisor.json and exit.json.
#pragma once

#include <cstdint>
#include <string>

namespace oomtune {

/** A JSON string with its quotes; bytes that are no ASCII become "?". */
std::string quoted(const std::string& text);

/** ISO 8601 in UTC with milliseconds. */
std::string isoTime(uint64_t nanoseconds);

/** `SIGKILL` for 9; `SIG42` for what has no name of its own. */
std::string signalName(int signal);

/**
 * Writes `name` in the folder whole or not at all: to a side file, then renamed. 0 or an errno. `durable`: on the disk
 * before it returns, so that it survives a power cut too.
 */
int writeRecord(int folder, const char* name, const std::string& text, bool durable);

}  // namespace oomtune
