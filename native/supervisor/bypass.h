// Whether a process of the job uses the CUDA driver past our stand-in: judged by the files that it has mapped.
#pragma once

#include <string>

namespace oomtune {

/** True if `maps` (the text of /proc/PID/maps) names the driver and not `standIn` (an absolute path). */
bool mapsBypass(const std::string& maps, const std::string& standIn);

/** True if any descendant of this process does so. */
bool treeBypasses(const std::string& standIn);

}  // namespace oomtune
