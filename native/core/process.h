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

/** False: there is no such process, or it cannot be told. */
bool readStat(uint64_t pid, ProcessStat* out);

uint32_t currentPid();
uint32_t currentTid();

/** Inode of the pid namespace, 0 if it cannot be told. */
uint64_t currentPidNamespace();

/** The same for all libraries of one process image, another after exec. */
uint64_t currentImage();

/**
 * Lives the process with this pid and start time? A zombie does not: its memory is gone. Where it cannot be told (no
 * /proc, no descriptor left to read it with) it lives.
 */
bool processLives(uint64_t pid, uint64_t start);

uint64_t nowNanoseconds();

}  // namespace oomtune
