#include "cgroup.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "scratch.h"

using namespace oomtune;

TEST(Cgroup, isHeldToARegionOfDeviceMemory) {
  Scratch group;
  std::ofstream(group.file("dmem.max")) << "";  // as the kernel has it where the controller is handed on
  EXPECT_EQ(limitRegion(group.path(), "drm/0000:17:00.0/vram0", 8589934592u), 0);
  EXPECT_EQ(group.read("dmem.max"), "drm/0000:17:00.0/vram0 8589934592\n");
}

TEST(Cgroup, saysWhenTheKernelDoesNotLimitIt) {
  Scratch group;
  EXPECT_EQ(limitRegion(group.path(), "drm/0000:17:00.0/vram0", 5), ENOENT) << "not handed on";
  Cgroup none;
  EXPECT_EQ(none.limit("drm/0000:17:00.0/vram0", 5), ENOENT) << "no group of its own";
}
