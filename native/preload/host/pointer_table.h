// The counted pointers with their bytes. Sharded, with open addressing, on anonymous mappings: no malloc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace oomtune {

/** In a block's size: another process counts it, which this one is a fork of, or which is a fork of this one. */
constexpr uint64_t kCountedElsewhere = 1ULL << 63;

inline uint64_t countedHere(uint64_t size) { return (size & kCountedElsewhere) != 0 ? 0 : size; }

class PointerTable {
 public:
  /**
   * False: no memory for the table (the caller lets the block go uncounted). `stale` gets the bytes of an
   * older block at that address whose free() was not seen, else 0.
   */
  bool put(const void* pointer, uint64_t size, uint64_t* stale);
  /** Removes it; false: not one of ours. */
  bool take(const void* pointer, uint64_t* size);
  /** In a forked child: the parent counts the blocks. What a thread that is gone was changing is forgotten. */
  void inherit();
  /** Who counts all blocks from now on. Returns the bytes of those that change hands. */
  uint64_t count(bool here);
  uint64_t size();

 private:
  struct Entry {
    uintptr_t key;  // 0: empty
    uint64_t size;  // perhaps with kCountedElsewhere
  };
  struct alignas(64) Shard {
    std::atomic<uint32_t> lock;
    uint32_t bits;  // log2 of the capacity
    uint64_t used;
    Entry* entries;
  };
  static constexpr uint32_t kShards = 64;

  Shard& shardOf(uintptr_t key) { return shards_[hash(key) >> 58]; }
  static uint64_t hash(uintptr_t key) { return (static_cast<uint64_t>(key) >> 4) * 0x9E3779B97F4A7C15ULL; }
  static uint64_t home(uintptr_t key, uint32_t bits) { return (hash(key) << 6) >> (64 - bits); }
  /** The size that the key had before, 0 if it is new. */
  static uint64_t insert(Entry* entries, uint32_t bits, Entry entry);
  static bool grow(Shard& shard);
  static uint64_t count(Shard& shard, bool here);

  Shard shards_[kShards] = {};
};

}  // namespace oomtune
