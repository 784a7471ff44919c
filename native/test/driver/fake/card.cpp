// The pretended card itself: its memory, names for what is on it, faults, and captures.
#include "card.h"

#include <atomic>
#include <string>

namespace fake {

namespace {

std::atomic<uint64_t> nextName{0x7f0000000000ULL};
thread_local int captureMode = 0;
thread_local bool captureBroken = false;
constexpr int kRelaxed = 2;

}  // namespace

std::mutex mutex;
thread_local uint64_t current = 0;
thread_local bool capturing = false;
bool initialised = false;

int deviceCount() { return static_cast<int>(number("FAKE_COUNT", 1)); }

Result fault(const char* name) {
  static std::map<std::string, int> calls;
  static std::mutex counting;
  const char* text = getenv("FAKE_FAIL");
  if (text == nullptr) return 0;
  const std::string wanted = text;
  const size_t first = wanted.find(':');
  const size_t second = wanted.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos || wanted.substr(0, first) != name) return 0;
  std::lock_guard<std::mutex> lock(counting);
  const int nth = atoi(wanted.c_str() + first + 1);
  const int call = ++calls[name];
  const bool struck = wanted[second - 1] == '+' ? call >= nth : call == nth;
  return struck ? atoi(wanted.c_str() + second + 1) : 0;
}

bool breaksCapture() {
  if (!capturing || captureMode == kRelaxed) return false;
  captureBroken = true;
  return true;
}

bool endCapture() {
  capturing = false;
  const bool whole = !captureBroken;
  captureBroken = false;
  return whole;
}

bool take(int device, int64_t bytes) {
  Locked state;
  if (bytes < 0) {
    // FAKE_LAG: for that many milliseconds NVML still shows as used what was freed.
    state.mine().ghost[device] = static_cast<uint64_t>(-bytes);
    state.mine().ghostUntil = now() + number("FAKE_LAG", 0);
  }
  if (bytes > 0 && state.used(device) + static_cast<uint64_t>(bytes) > state->capacity) return false;
  state.mine().bytes[device] += static_cast<uint64_t>(bytes);
  return true;
}

uint64_t rounded(uint64_t size) { return (size + kPage - 1) / kPage * kPage; }

uint64_t newName(uint64_t size) { return nextName.fetch_add(rounded(size) + kPage); }

}  // namespace fake

API cuStreamIsCapturing(fake::Stream, int* status) { return *status = fake::capturing ? 1 : 0, 0; }
API cuStreamIsCapturing_ptsz(fake::Stream stream, int* status) { return cuStreamIsCapturing(stream, status); }
API cuStreamBeginCapture_v2(fake::Stream, int mode) {
  fake::captureMode = mode;
  fake::beginGraph();
  return fake::capturing = true, 0;
}
API cuStreamEndCapture(fake::Stream, fake::Graph* graph) {
  const fake::Graph made = fake::endGraph();
  if (!fake::endCapture()) return 901;
  return *graph = made, 0;
}
API cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = fake::captureMode;
  fake::captureMode = *mode;
  *mode = before;
  return 0;
}
API cuStreamSynchronize(fake::Stream) {
  UNSAFE_IN_CAPTURE();
  return 0;
}
API cuStreamSynchronize_ptsz(fake::Stream stream) { return cuStreamSynchronize(stream); }
