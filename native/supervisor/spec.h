// The supervisor's instructions: the file `spec` in the launch folder. Records `key=value`, each ended by a NUL
// byte; the keys are those below, in any order; each but arg, env, device, dmem and limit stands at most once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace oomtune {

constexpr size_t kSpecBytes = 8u << 20;  // a kernel takes 2 to 6 MiB of arguments and environment
constexpr size_t kSpecItems = 65536;

struct SpecDevice {
  uint32_t index;  // into the ledger: 0 host, 1 + CUDA ordinal
  uint64_t budget;
  std::string name;
  std::string uuid;
};

/** A limit of the kernel's own on a device: a region of the dmem controller. */
struct SpecRegion {
  std::string name;  // "drm/0000:17:00.0/vram0"
  uint64_t bytes;
};

/** A resource limit of the shell that submitted the job. */
struct SpecLimit {
  int resource;   // RLIMIT_…
  uint64_t soft;  // UINT64_MAX: none
  uint64_t hard;
};

struct Spec {
  std::string job;
  uint32_t launch = 0;
  std::vector<std::string> arguments;    // arg=…
  std::vector<std::string> environment;  // env=NAME=VALUE
  std::string cwd;
  std::vector<SpecDevice> devices;  // device=INDEX,BUDGET|-,NAME,UUID
  std::vector<SpecRegion> regions;  // dmem=BYTES,REGION
  std::vector<SpecLimit> limits;    // limit=NAME,SOFT|-,HARD|-
  int mask = -1;                    // umask=N, decimal; -1: that of whoever started us
  uint64_t timeoutMs = 0;           // 0: none
  uint64_t graceMs = 0;
  uint64_t lingerMs = 2000;       // for what outlives the job's main process
  uint64_t logBytes = 64u << 20;  // of one log file; there are two
  bool inherit = false;           // output=log|inherit
  std::string input;              // input=OFFSET,PATH of the file to read; empty: as output says
  uint64_t inputOffset = 0;
  uint64_t ownerPid = 0;  // owner=PID,START: the run ends with this process; 0: it outlives whoever started it
  uint64_t ownerStart = 0;
  std::string standIn;  // standin=PATH of the library that the job's CUDA calls go through; may be missing
};

/** False, with a sentence in `error`, for anything that is not exactly such a file. */
bool parseSpec(const char* bytes, size_t length, Spec* spec, std::string* error);

}  // namespace oomtune
