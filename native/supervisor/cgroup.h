// A cgroup (v2) of the launch's own, where this user may make one: its cgroup.kill ends what signals cannot outrun.
#pragma once

#include <string>

namespace oomtune {

class Cgroup {
 public:
  ~Cgroup();
  /** Makes a group below our own. False: not delegated to us, which is usual. */
  bool make(const std::string& name);
  /** Its folder; empty when none was made. */
  const std::string& path() const { return path_; }
  /** To be called in the child between fork and exec. */
  void enter() const;
  /** SIGKILL to all in it, at once. */
  void kill() const;

 private:
  std::string path_;
  int procs_ = -1;
};

/** The folders of our own cgroups: v2 (or empty), and v1's memory controller (or empty). */
void ownCgroups(std::string* unified, std::string* memory);

}  // namespace oomtune
