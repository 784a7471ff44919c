// A sharded hash table from a 64-bit key (never 0) to a small plain value. Its memory comes from mmap: it is used
// inside the job's allocation calls, and must not show up in what it counts.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace oomtune::cuda {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

template <class Value>
class HashTable {
 public:
  /** False: no memory for it. An older value under the same key is replaced. */
  bool put(uint64_t key, const Value& value) {
    Shard& shard = shardOf(key);
    Lock lock(shard.mutex);
    if (2 * (shard.count + 1) > shard.capacity && !grow(shard)) return false;
    shard.count += insert(shard.cells, shard.capacity, key, value) ? 1 : 0;
    return true;
  }

  /** Removes the entry; false: there is none. */
  bool take(uint64_t key, Value* out) {
    Shard& shard = shardOf(key);
    Lock lock(shard.mutex);
    size_t at = 0;
    if (!locate(shard, key, &at)) return false;
    *out = shard.cells[at].value;
    remove(shard, at);
    return true;
  }

  bool get(uint64_t key, Value* out) {
    Shard& shard = shardOf(key);
    Lock lock(shard.mutex);
    size_t at = 0;
    if (!locate(shard, key, &at)) return false;
    *out = shard.cells[at].value;
    return true;
  }

  /** Removes all for which `gone(key, value)` is true. */
  template <class Predicate>
  void takeIf(Predicate gone) {
    for (Shard& shard : shards_) {
      Lock lock(shard.mutex);
      for (size_t at = 0; at < shard.capacity;) {
        Cell& cell = shard.cells[at];
        // Removing moves a later cell here: check the same cell again.
        if (cell.key != 0 && gone(cell.key, cell.value)) {
          remove(shard, at);
        } else {
          ++at;
        }
      }
    }
  }

  /** Frees its memory. */
  void clear() {
    for (Shard& shard : shards_) {
      if (shard.cells != nullptr) munmap(shard.cells, shard.capacity * sizeof(Cell));
    }
    forget();
  }

  /** In a forked child: empties the table, whose entries belong to the parent. */
  void forget() {
    for (Shard& shard : shards_) {
      shard.mutex = PTHREAD_MUTEX_INITIALIZER;
      shard.cells = nullptr;  // not unmapped: a thread of the parent may have been half way through a growth
      shard.capacity = 0;
      shard.count = 0;
    }
  }

 private:
  struct Cell {
    uint64_t key;
    Value value;
  };
  struct Shard {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    Cell* cells = nullptr;
    size_t capacity = 0;  // a power of two
    size_t count = 0;
  };
  static constexpr size_t kShards = 32;
  static constexpr size_t kFirst = 256;

  static uint64_t hash(uint64_t key) {
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdULL;
    key ^= key >> 33;
    return key;
  }

  Shard& shardOf(uint64_t key) { return shards_[hash(key) % kShards]; }

  static size_t home(uint64_t key, size_t capacity) { return (hash(key) / kShards) & (capacity - 1); }

  static bool insert(Cell* cells, size_t capacity, uint64_t key, const Value& value) {
    size_t at = home(key, capacity);
    while (cells[at].key != 0 && cells[at].key != key) at = (at + 1) & (capacity - 1);
    bool fresh = cells[at].key == 0;
    cells[at].key = key;
    cells[at].value = value;
    return fresh;
  }

  static bool locate(const Shard& shard, uint64_t key, size_t* out) {
    if (shard.capacity == 0 || key == 0) return false;
    size_t at = home(key, shard.capacity);
    while (shard.cells[at].key != 0) {
      if (shard.cells[at].key == key) {
        *out = at;
        return true;
      }
      at = (at + 1) & (shard.capacity - 1);
    }
    return false;
  }

  static void remove(Shard& shard, size_t hole) {
    const size_t mask = shard.capacity - 1;
    size_t at = hole;
    for (;;) {
      at = (at + 1) & mask;
      if (shard.cells[at].key == 0) break;
      size_t wanted = home(shard.cells[at].key, shard.capacity);
      // A cell may fill the hole unless its home lies cyclically in (hole, at].
      if (((at - wanted) & mask) >= ((at - hole) & mask)) {
        shard.cells[hole] = shard.cells[at];
        hole = at;
      }
    }
    shard.cells[hole].key = 0;
    --shard.count;
  }

  static bool grow(Shard& shard) {
    size_t capacity = shard.capacity == 0 ? kFirst : 2 * shard.capacity;
    void* memory = mmap(nullptr, capacity * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    Cell* cells = static_cast<Cell*>(memory);
    for (size_t i = 0; i < shard.capacity; ++i) {
      if (shard.cells[i].key != 0) insert(cells, capacity, shard.cells[i].key, shard.cells[i].value);
    }
    if (shard.cells != nullptr) munmap(shard.cells, shard.capacity * sizeof(Cell));
    shard.cells = cells;
    shard.capacity = capacity;
    return true;
  }

  Shard shards_[kShards];
};

}  // namespace oomtune::cuda
