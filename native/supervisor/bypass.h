// Does a process of the job use the CUDA driver past our stand-in? Told by the files that it has mapped.
#pragma once

#include <string>

namespace oomtune {

/** From the text of /proc/PID/maps: the driver is there, and `standIn` (an absolute path) is not. */
bool mapsBypass(const std::string& maps, const std::string& standIn);

/** Looks at all descendants. */
bool treeBypasses(const std::string& standIn);

}  // namespace oomtune
