#include "bypass.h"

#include "files.h"
#include "process_tree.h"

namespace oomtune {

bool mapsBypass(const std::string& maps, const std::string& standIn) {
  bool driver = false;
  for (size_t from = 0; from < maps.size();) {
    size_t end = maps.find('\n', from);
    if (end == std::string::npos) end = maps.size();
    const std::string line = maps.substr(from, end - from);
    const size_t path = line.find('/');
    if (path != std::string::npos) {
      const std::string file = line.substr(path);
      // Of a package that was replaced meanwhile the job keeps the old file.
      if (file == standIn || file == standIn + " (deleted)") return false;
      driver = driver || line.find("/libcuda.so", path) != std::string::npos;
    }
    from = end + 1;
  }
  return driver;
}

bool treeBypasses(const std::string& standIn) {
  for (pid_t pid : descendants()) {
    if (mapsBypass(readFile("/proc/" + std::to_string(pid) + "/maps", 16u << 20), standIn)) return true;
  }
  return false;
}

}  // namespace oomtune
