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
 * Writes `name` in the folder whole or not at all, on the disk before it returns: to `name.tmp`, synchronised, then
 * renamed, so that neither a crash nor a power cut leaves a part of it, or zeros. 0 or an errno.
 */
int writeRecord(int folder, const char* name, const std::string& text);

/**
 * Takes the space that writeRecord() will need for `name`, so that a disk that fills meanwhile does not matter. 0 or an
 * errno.
 */
int reserveRecord(int folder, const char* name);

}  // namespace oomtune
