#include "json.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

namespace oomtune {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else {
      out += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return out + "\"";
}

std::string isoTime(uint64_t nanoseconds) {
  const time_t seconds = static_cast<time_t>(nanoseconds / 1000000000ULL);
  tm parts{};
  gmtime_r(&seconds, &parts);
  char date[40];
  const size_t length = strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char rest[8];
  snprintf(rest, sizeof rest, ".%03uZ", static_cast<unsigned>(nanoseconds / 1000000ULL % 1000));
  return std::string(date, length) + rest;
}

std::string signalName(int signal) {
  switch (signal) {
    case SIGHUP: return "SIGHUP";
    case SIGINT: return "SIGINT";
    case SIGQUIT: return "SIGQUIT";
    case SIGILL: return "SIGILL";
    case SIGTRAP: return "SIGTRAP";
    case SIGABRT: return "SIGABRT";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGKILL: return "SIGKILL";
    case SIGUSR1: return "SIGUSR1";
    case SIGSEGV: return "SIGSEGV";
    case SIGUSR2: return "SIGUSR2";
    case SIGPIPE: return "SIGPIPE";
    case SIGALRM: return "SIGALRM";
    case SIGTERM: return "SIGTERM";
    case SIGXCPU: return "SIGXCPU";
    case SIGXFSZ: return "SIGXFSZ";
    case SIGVTALRM: return "SIGVTALRM";
    case SIGPROF: return "SIGPROF";
    case SIGIO: return "SIGIO";
    case SIGSYS: return "SIGSYS";
    default: return "SIG" + std::to_string(signal);
  }
}

}  // namespace oomtune
