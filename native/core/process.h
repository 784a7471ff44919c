// What identifies a process across pid reuse and exec. No allocation, no stdio: runs inside malloc.
#pragma once

#include <cstdint>

namespace oomtune {

struct ProcessStat {
  char state;
  uint32_t parent;
  uint32_t group;
  uint32_t session;
  uint32_t threads;
  uint64_t start;  // clock ticks since boot
};

/** Reads a line of /proc/PID/stat; the name in it may hold blanks and parentheses. False: not such a line. */
bool parseStat(const char* text, uint64_t length, ProcessStat* out);

/** False: there is no such process, or its state cannot be read. */
bool readStat(uint64_t pid, ProcessStat* out);

uint32_t currentPid();
uint32_t currentTid();

/** Inode of this process's pid namespace; 0 if it cannot be read. */
uint64_t currentPidNamespace();

/** A number that all libraries of one process image share, and that exec changes. */
uint64_t currentImage();

/**
 * True if a process with this pid and start time (clock ticks since boot) exists. False for a zombie: its memory is
 * gone. True where it cannot be found out (no /proc, no descriptor left to read it with).
 */
bool processExists(uint64_t pid, uint64_t start);

/** Nanoseconds since 1970, of CLOCK_REALTIME. */
uint64_t nowNanoseconds();

}  // namespace oomtune
