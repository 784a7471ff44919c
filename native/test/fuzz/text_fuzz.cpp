// Texts of the kernel and of other processes that the supervisor and the preloads read.
#include <cstdlib>
#include <string>
#include <vector>

#include "bypass.h"
#include "evidence.h"
#include "json.h"
#include "process.h"
#include "target.h"

using namespace oomtune;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::vector<char> exact(bytes, bytes + size);
  const std::string text(exact.begin(), exact.end());
  ProcessStat stat{};
  parseStat(exact.data(), exact.size(), &stat);
  HOLD(oomKillLine(text) >= -1);
  kernelNames(text, 1234);
  mapsBypass(text, "/lib/libcuda.so.1");
  const std::string written = quoted(text);
  HOLD(written.size() >= 2 && written.front() == '"' && written.back() == '"');
  // Whatever was told, a record stays one line of JSON.
  for (size_t i = 1; i + 1 < written.size(); ++i) {
    HOLD(written[i] >= ' ' && written[i] <= '~');
    if (written[i] == '\\') ++i;
    else HOLD(written[i] != '"');
  }
  return 0;
}
