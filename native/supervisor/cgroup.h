// A cgroup (v2) of the launch's own, if this user may make one: its cgroup.kill also ends what forks faster than
// signals.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace oomtune {

class Cgroup {
 public:
  ~Cgroup();
  /** Makes a group below our own. False: not delegated to us, which is usual. */
  bool make(const std::string& name);
  /** Its folder; empty when none was made. */
  const std::string& path() const { return path_; }
  /**
   * Holds all in it to `bytes` of a region of device memory ("drm/0000:17:00.0/vram0", of the dmem controller,
   * Linux 6.14). 0 or an errno; ENOENT: there is no group, or the controller is not delegated to it.
   */
  int limit(const std::string& region, uint64_t bytes) const;
  /**
   * As fork(2), with the child in the group from its first moment: a process that moves there has the kernel wait for a
   * grace period, some 10 ms. Where the kernel cannot (before Linux 5.7, or in a sandbox that forbids it) the child
   * moves.
   */
  pid_t fork() const;
  /** SIGKILL to all in it, at once. */
  void kill() const;

 private:
  void enter() const;

  std::string path_;
  int folder_ = -1;
};

/** The same, of a group by its folder. */
int limitRegion(const std::string& group, const std::string& region, uint64_t bytes);

/** The folders of our own cgroups: v2 (or empty), and v1's memory controller (or empty). */
void ownCgroups(std::string* unified, std::string* memory);

}  // namespace oomtune
