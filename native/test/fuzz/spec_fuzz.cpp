// The supervisor's spec, as anyone who may write into a launch folder could have written it.
#include <cstdlib>
#include <vector>

#include "ledger.h"
#include "spec.h"
#include "target.h"

using namespace oomtune;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  // Of exactly that size, so that a read past the end is seen.
  const std::vector<char> text(bytes, bytes + size);
  Spec spec;
  std::string error;
  const bool sound = parseSpec(text.data(), text.size(), &spec, &error);
  HOLD(sound == error.empty());
  if (!sound) return 0;
  HOLD(!spec.arguments.empty() && !spec.arguments[0].empty() && spec.cwd[0] == '/' && spec.launch > 0);
  HOLD(spec.job.find('/') == std::string::npos && spec.devices.size() <= kDevices && spec.regions.size() <= kDevices);
  for (const SpecDevice& device : spec.devices)
    HOLD(device.index < kDevices && device.name.size() < 16 && device.uuid.size() < 64);
  for (const SpecRegion& region : spec.regions) HOLD(region.name.find('\n') == std::string::npos);
  for (const std::string& variable : spec.environment)
    HOLD(variable.find('=') != 0 && variable.find('=') != std::string::npos);
  return 0;
}
