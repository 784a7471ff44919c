// The ledger: one file, mapped shared by every process of a launch and by its readers. Fixed layout, host byte
// order, no pointers. Sizes are bytes. Everything that more than one process writes is a lock-free atomic.
//
// Counting rule: every change goes to the device (what the whole launch holds) and to the slot of the process that made
// it (so that the bytes of a dead process can be taken back). `committed` is what has been promised, `live` what
// the allocator has really handed out; overhead (contexts, modules: what no hook sees) is part of both.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace oomtune {

constexpr uint64_t kLedgerMagic = 0x314744454c4d4f4fULL;  // "OOMLEDG1", little-endian
constexpr uint32_t kLedgerVersion = 1;

/** Index 0 is the host; 1 + n is the job's CUDA ordinal n. */
constexpr uint32_t kHostDevice = 0;
constexpr uint32_t kCudaDevices = 16;
constexpr uint32_t kDevices = 1 + kCudaDevices;
constexpr uint32_t kSlots = 512;
constexpr uint32_t kRefusals = 256;
constexpr uint64_t kNoBudget = UINT64_MAX;

enum Kind : uint32_t {
  kClassic = 0,  // malloc and memalign on the host; cuMemAlloc and its pitched form
  kManaged,
  kAsync,  // stream-ordered pools
  kVmm,    // cuMemCreate
  kGraph,
  kArray,
  kHostPinned,
  kIpc,
  kKinds
};

enum RefusedBy : uint32_t { kByBudget = 1, kByDriver = 2 };

/** Why figures may be incomplete; a mask. */
enum Blind : uint32_t {
  kBlindSlots = 1,   // more processes than slots: their bytes cannot be taken back one by one
  kBlindUnseen = 2,  // the driver's figures show memory that the hooks did not see
  kBlindBypass = 4,  // /proc/PID/maps shows another copy of the driver
  kBlindHook = 8,    // a hook passed through a call that it does not know
};

/**
 * By which of the driver's figures overhead was measured: the weakest kind that any process of the launch had to use.
 */
enum Measured : uint32_t {
  kMeasuredNot = 0,
  kMeasuredByProcess = 1,
  kMeasuredByDevice = 2,  // the driver knows processes by other pids, as in a container
};

using Cell = std::atomic<uint64_t>;
using Word = std::atomic<uint32_t>;
static_assert(Cell::is_always_lock_free && Word::is_always_lock_free, "shared counters must not need a lock");
static_assert(sizeof(Cell) == 8 && sizeof(Word) == 4, "shared counters must have no hidden state");

struct DeviceEntry {
  Cell budget;     // kNoBudget: count, refuse nothing
  Cell committed;  // never above budget by an allocation; overhead may lift it above
  Cell live;
  Cell peak;  // of live; never reset
  Cell refused;
  Word present;      // 1: this launch has the device
  Word measured;     // a Measured: by which figures overhead is known
  char name[16];     // "cpu", "cuda:3": how oomtune calls it; zero-terminated
  char uuid[64];     // NVML's uuid, or empty; zero-terminated
  Cell base;         // bytes in use on the whole device before the launch's first context, plus 1; 0: not looked at
  Cell measureLock;  // who measures by the whole device now (pid and start time, as Ledger::reaper); 0: nobody
  Cell freedAt;      // ms of CLOCK_MONOTONIC when memory was last freed, kept while it is so measured
  uint64_t spare[2];
};
static_assert(sizeof(DeviceEntry) == 168, "layout");

/** Who holds the slot of the same index. Separate from the counters, so that searching for a slot touches few pages. */
struct SlotKey {
  Cell pid;    // 0: free
  Cell start;  // field 22 of /proc/PID/stat, in clock ticks; 0 while the slot is being taken
  Cell image;  // differs from one exec to the next (the kernel's AT_RANDOM)
  Cell pidns;  // inode of the pid namespace in which `pid` means something
};
static_assert(sizeof(SlotKey) == 32, "layout");

struct SlotDevice {
  Cell committed;
  Cell live;
  Cell peak;      // of this process since the slot was taken
  Cell markPeak;  // the same since oomtune_reset_peak()
  Cell overhead;
  Cell kinds[kKinds];
};
static_assert(sizeof(SlotDevice) == 104, "layout");

struct Slot {
  Cell begun;  // begun != ended: a change of the counters is under way, or died half done
  Cell ended;
  uint64_t spare[6];
  SlotDevice devices[kDevices];
};
static_assert(sizeof(Slot) == 64 + 104 * kDevices, "layout");

/** One refused call. `sequence` is 2n+1 while the n-th refusal is being written, 2n+2 when it is whole. */
struct RefusalEntry {
  Cell sequence;
  Cell atNanoseconds;  // CLOCK_REALTIME
  Cell size;
  Cell live;  // of the device, when it was refused
  Cell budget;
  Word pid;
  Word tid;
  Word device;
  Word by;
  Cell api[4];  // up to 31 bytes of ASCII, zero-padded
};
static_assert(sizeof(RefusalEntry) == 88, "layout");

struct Ledger {
  Cell magic;  // written last: a ledger without it is not ready
  Word version;
  Word deviceCount;
  Word slotCount;
  Word kindCount;
  Word refusalCount;
  Word blind;
  Cell bytes;  // of the whole file
  Cell createdNanoseconds;
  Cell refused;  // calls refused in all
  Cell reaper;   // lock: who takes back a dead process's bytes now (pid and start time); 0: nobody
  Word drift;    // 1: device counters may differ from the sum of the slots
  Word reserved;
  Cell claims;  // slots ever taken; 0: no process of the job has loaded a library of ours
  uint64_t spare[7];
  DeviceEntry devices[kDevices];
  SlotKey keys[kSlots];
  RefusalEntry refusals[kRefusals];
  Slot slots[kSlots];
};
static_assert(sizeof(Ledger) % 8 == 0, "layout");

/** The last slot is shared by the processes that found no other; it is never taken back. */
constexpr uint32_t kOverflowSlot = kSlots - 1;
constexpr uint64_t kOverflowPid = UINT64_MAX;

}  // namespace oomtune
