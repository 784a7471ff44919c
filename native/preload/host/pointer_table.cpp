#include "pointer_table.h"

#include <sched.h>
#include <sys/mman.h>

namespace oomtune {

namespace {

constexpr uint32_t kFirstBits = 8;  // 256 entries: one page

/** A spinlock: it is held for some ten instructions, except when the table grows. */
class Hold {
 public:
  explicit Hold(std::atomic<uint32_t>& lock) : lock_(lock) {
    for (uint32_t spins = 0; lock_.exchange(1, std::memory_order_acquire) != 0; ++spins) {
      if (spins > 64) sched_yield();
    }
  }
  ~Hold() { lock_.store(0, std::memory_order_release); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  std::atomic<uint32_t>& lock_;
};

}  // namespace

uint64_t PointerTable::insert(Entry* entries, uint32_t bits, Entry entry) {
  const uint64_t mask = (1ULL << bits) - 1;
  uint64_t at = home(entry.key, bits);
  while (entries[at].key != 0 && entries[at].key != entry.key) at = (at + 1) & mask;
  const uint64_t before = entries[at].key != 0 ? entries[at].size : 0;
  entries[at] = entry;
  return before;
}

bool PointerTable::grow(Shard& shard) {
  const uint32_t bits = shard.entries == nullptr ? kFirstBits : shard.bits + 1;
  void* memory = mmap(nullptr, sizeof(Entry) << bits, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Entry* entries = static_cast<Entry*>(memory);
  if (shard.entries != nullptr) {
    for (uint64_t i = 0; i < 1ULL << shard.bits; ++i) {
      if (shard.entries[i].key != 0) insert(entries, bits, shard.entries[i]);
    }
    munmap(shard.entries, sizeof(Entry) << shard.bits);
  }
  shard.entries = entries;
  shard.bits = bits;
  return true;
}

bool PointerTable::put(const void* pointer, uint64_t size, uint64_t* stale) {
  const uintptr_t key = reinterpret_cast<uintptr_t>(pointer);
  Shard& shard = shardOf(key);
  *stale = 0;
  Hold hold(shard.lock);
  const bool full = shard.entries == nullptr || shard.used * 4 >= 3ULL << shard.bits;
  if (full && !grow(shard) && (shard.entries == nullptr || shard.used + 1 >= 1ULL << shard.bits)) return false;
  *stale = insert(shard.entries, shard.bits, Entry{key, size});
  if (*stale == 0) ++shard.used;
  return true;
}

bool PointerTable::take(const void* pointer, uint64_t* size) {
  const uintptr_t key = reinterpret_cast<uintptr_t>(pointer);
  Shard& shard = shardOf(key);
  Hold hold(shard.lock);
  if (shard.used == 0) return false;
  const uint64_t mask = (1ULL << shard.bits) - 1;
  uint64_t at = home(key, shard.bits);
  while (shard.entries[at].key != key) {
    if (shard.entries[at].key == 0) return false;
    at = (at + 1) & mask;
  }
  *size = shard.entries[at].size;
  --shard.used;
  // Moves later entries of the run back: tombstones would pile up in a long training.
  uint64_t hole = at;
  for (uint64_t next = (at + 1) & mask; shard.entries[next].key != 0; next = (next + 1) & mask) {
    const uint64_t wanted = home(shard.entries[next].key, shard.bits);
    if (((next - wanted) & mask) >= ((next - hole) & mask)) {
      shard.entries[hole] = shard.entries[next];
      hole = next;
    }
  }
  shard.entries[hole].key = 0;
  return true;
}

void PointerTable::inherit() {
  for (Shard& shard : shards_) {
    if (shard.lock.load() == 0) {
      count(shard, false);
      continue;
    }
    // Not unmapped: a thread of the parent was half way through a change, perhaps a growth.
    shard.entries = nullptr;
    shard.bits = 0;
    shard.used = 0;
    shard.lock.store(0);
  }
}

uint64_t PointerTable::count(Shard& shard, bool here) {
  uint64_t changed = 0;
  for (uint64_t i = 0; shard.used != 0 && i < 1ULL << shard.bits; ++i) {
    Entry& entry = shard.entries[i];
    if (entry.key == 0 || ((entry.size & kCountedElsewhere) == 0) == here) continue;
    entry.size ^= kCountedElsewhere;
    changed += entry.size & ~kCountedElsewhere;
  }
  return changed;
}

uint64_t PointerTable::count(bool here) {
  uint64_t changed = 0;
  for (Shard& shard : shards_) {
    Hold hold(shard.lock);
    changed += count(shard, here);
  }
  return changed;
}

uint64_t PointerTable::size() {
  uint64_t all = 0;
  for (Shard& shard : shards_) {
    Hold hold(shard.lock);
    all += shard.used;
  }
  return all;
}

}  // namespace oomtune
