#include "spec.h"

#include <sys/resource.h>

#include <cstring>

#include "ledger.h"

namespace oomtune {

namespace {

/** Decimal digits only: no sign, no blank, no overflow past `largest`. */
bool number(const std::string& text, uint64_t largest, uint64_t* out) {
  if (text.empty() || text.size() > 20) return false;
  uint64_t value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    const uint64_t digit = static_cast<uint64_t>(c - '0');
    if (value > (largest - digit) / 10) return false;
    value = value * 10 + digit;
  }
  *out = value;
  return true;
}

bool plainText(const std::string& text, size_t longest) {
  if (text.size() > longest) return false;
  for (char c : text) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

bool device(const std::string& text, Spec* spec) {
  std::string parts[4];
  size_t from = 0;
  for (int i = 0; i < 3; ++i) {
    const size_t comma = text.find(',', from);
    if (comma == std::string::npos) return false;
    parts[i] = text.substr(from, comma - from);
    from = comma + 1;
  }
  parts[3] = text.substr(from);
  SpecDevice entry{};
  uint64_t index = 0;
  if (!number(parts[0], kDevices - 1, &index)) return false;
  if (parts[1] == "-") {
    entry.budget = kNoBudget;
  } else if (!number(parts[1], 1ULL << 53, &entry.budget)) {
    return false;
  }
  if (parts[2].empty() || !plainText(parts[2], 15) || !plainText(parts[3], 63)) return false;
  for (const SpecDevice& other : spec->devices) {
    if (other.index == index) return false;
  }
  entry.index = static_cast<uint32_t>(index);
  entry.name = parts[2];
  entry.uuid = parts[3];
  spec->devices.push_back(entry);
  return true;
}

bool region(const std::string& text, Spec* spec) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return false;
  SpecRegion entry{text.substr(comma + 1), 0};
  if (!number(text.substr(0, comma), 1ULL << 53, &entry.bytes)) return false;
  if (entry.name.empty() || !plainText(entry.name, 255) || spec->regions.size() == kDevices) return false;
  spec->regions.push_back(entry);
  return true;
}

struct LimitName {
  const char* name;
  int resource;
};

// Not RLIMIT_RTTIME: in it each job bears the mark of its launch.
const LimitName kLimits[] = {{"as", RLIMIT_AS},
                             {"core", RLIMIT_CORE},
                             {"cpu", RLIMIT_CPU},
                             {"data", RLIMIT_DATA},
                             {"fsize", RLIMIT_FSIZE},
                             {"memlock", RLIMIT_MEMLOCK},
                             {"nofile", RLIMIT_NOFILE},
                             {"nproc", RLIMIT_NPROC},
                             {"rss", RLIMIT_RSS},
                             {"stack", RLIMIT_STACK},
                             {"nice", RLIMIT_NICE},
                             {"rtprio", RLIMIT_RTPRIO},
                             {"msgqueue", RLIMIT_MSGQUEUE},
                             {"sigpending", RLIMIT_SIGPENDING},
                             {"locks", RLIMIT_LOCKS}};

bool bound(const std::string& text, uint64_t* value) {
  if (text != "-") return number(text, 1ULL << 62, value);
  *value = UINT64_MAX;
  return true;
}

bool limit(const std::string& text, Spec* spec) {
  const size_t first = text.find(',');
  const size_t second = first == std::string::npos ? first : text.find(',', first + 1);
  if (second == std::string::npos) return false;
  SpecLimit entry{-1, 0, 0};
  for (const LimitName& known : kLimits) {
    if (text.substr(0, first) == known.name) entry.resource = known.resource;
  }
  if (entry.resource < 0 || spec->limits.size() == sizeof kLimits / sizeof kLimits[0]) return false;
  if (!bound(text.substr(first + 1, second - first - 1), &entry.soft)) return false;
  if (!bound(text.substr(second + 1), &entry.hard) || entry.soft > entry.hard) return false;
  spec->limits.push_back(entry);
  return true;
}

bool variable(const std::string& text, Spec* spec) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  spec->environment.push_back(text);
  return true;
}

constexpr uint64_t kLongest = 10ULL * 365 * 24 * 3600 * 1000;  // ten years in ms

const char* const kOnce[] = {"version",   "job",    "launch",  "cwd",   "timeout_ms", "grace_ms", "linger_ms",
                             "log_bytes", "output", "standin", "owner", "umask",      "input"};
constexpr size_t kOnceCount = sizeof kOnce / sizeof kOnce[0];

bool record(const std::string& key, const std::string& value, Spec* spec) {
  uint64_t n = 0;
  if (key == "version") return value == "1";
  if (key == "job") {
    spec->job = value;
    return !value.empty() && plainText(value, 128) && value.find('/') == std::string::npos;
  }
  if (key == "launch") {
    if (!number(value, UINT32_MAX, &n) || n == 0) return false;
    spec->launch = static_cast<uint32_t>(n);
    return true;
  }
  if (key == "cwd") {
    spec->cwd = value;
    return !value.empty() && value[0] == '/';
  }
  if (key == "timeout_ms") return number(value, kLongest, &spec->timeoutMs);
  if (key == "grace_ms") return number(value, kLongest, &spec->graceMs);
  if (key == "linger_ms") return number(value, kLongest, &spec->lingerMs);
  if (key == "log_bytes") return number(value, 1ULL << 40, &spec->logBytes) && spec->logBytes >= 4096;
  if (key == "standin") {
    spec->standIn = value;
    return !value.empty() && value[0] == '/';
  }
  if (key == "owner") {
    const size_t comma = value.find(',');
    if (comma == std::string::npos) return false;
    return number(value.substr(0, comma), INT32_MAX, &spec->ownerPid) && spec->ownerPid != 0 &&
           number(value.substr(comma + 1), 1ULL << 53, &spec->ownerStart);
  }
  if (key == "input") {
    const size_t comma = value.find(',');
    if (comma == std::string::npos || !number(value.substr(0, comma), 1ULL << 62, &spec->inputOffset)) return false;
    spec->input = value.substr(comma + 1);
    return !spec->input.empty() && spec->input[0] == '/';
  }
  if (key == "umask") {
    if (!number(value, 0777, &n)) return false;
    spec->mask = static_cast<int>(n);
    return true;
  }
  if (key == "output") {
    spec->inherit = value == "inherit";
    return value == "inherit" || value == "log";
  }
  return false;
}

}  // namespace

bool parseSpec(const char* bytes, size_t length, Spec* spec, std::string* error) {
  *spec = Spec{};
  if (length == 0 || length > kSpecBytes || bytes[length - 1] != '\0') {
    *error = "spec: empty, too long or cut off";
    return false;
  }
  bool seen[kOnceCount] = {};
  size_t items = 0;
  for (size_t at = 0; at < length;) {
    const size_t size = strnlen(bytes + at, length - at);
    const std::string text(bytes + at, size);
    at += size + 1;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || ++items > kSpecItems) {
      *error = "spec: a record without a key, or too many records";
      return false;
    }
    const std::string key = text.substr(0, equals);
    const std::string value = text.substr(equals + 1);
    bool sound = false;
    if (key == "arg") {
      spec->arguments.push_back(value);
      sound = true;
    } else if (key == "env") {
      sound = variable(value, spec);
    } else if (key == "device") {
      sound = device(value, spec);
    } else if (key == "dmem") {
      sound = region(value, spec);
    } else if (key == "limit") {
      sound = limit(value, spec);
    } else {
      for (size_t i = 0; i < kOnceCount; ++i) {
        if (key == kOnce[i]) {
          sound = !seen[i] && record(key, value, spec);
          seen[i] = true;
        }
      }
    }
    if (!sound) {
      // Never the value: it may be a secret of the environment.
      *error = "spec: unknown, repeated or malformed record";
      if (plainText(key, 16)) *error += " \"" + key + "\"";
      return false;
    }
  }
  if (!seen[0] || spec->job.empty() || spec->launch == 0 || spec->cwd.empty() || spec->arguments.empty() ||
      spec->arguments[0].empty()) {
    *error = "spec: version, job, launch, cwd or arg is missing";
    return false;
  }
  return true;
}

}  // namespace oomtune
