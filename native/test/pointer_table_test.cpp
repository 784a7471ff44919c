#include "pointer_table.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

using namespace oomtune;

TEST(Table, agreesWithAMap) {
  static PointerTable table;
  std::unordered_map<uintptr_t, uint64_t> model;
  std::mt19937_64 random(3);
  for (int i = 0; i < 400000; ++i) {
    // Few addresses at first, so that they collide and come back; then many, so that the shards grow.
    const uintptr_t key = (random() % (i < 200000 ? 500 : 60000) + 1) * 16;
    void* pointer = reinterpret_cast<void*>(key);
    uint64_t got = 0;
    if (random() % 2 == 0) {
      ASSERT_TRUE(table.put(pointer, static_cast<uint64_t>(i) + 1, &got));
      ASSERT_EQ(got, model.count(key) ? model[key] : 0);
      model[key] = static_cast<uint64_t>(i) + 1;
    } else {
      ASSERT_EQ(table.take(pointer, &got), model.count(key) == 1);
      if (model.count(key)) {
        ASSERT_EQ(got, model[key]);
        model.erase(key);
      }
    }
  }
  EXPECT_EQ(table.size(), model.size());
}

TEST(Table, handsItsBytesToAForkAndBack) {
  static PointerTable table;
  uint64_t got = 0;
  for (uintptr_t i = 1; i <= 1000; ++i) ASSERT_TRUE(table.put(reinterpret_cast<void*>(i * 16), 100, &got));
  table.inherit();
  ASSERT_TRUE(table.take(reinterpret_cast<void*>(16), &got));
  EXPECT_EQ(countedHere(got), 0u);
  ASSERT_TRUE(table.put(reinterpret_cast<void*>(16), 7, &got));
  EXPECT_EQ(table.count(true), 999 * 100u);
  EXPECT_EQ(table.count(true), 0u);
  EXPECT_EQ(table.count(false), 999 * 100u + 7);
  EXPECT_EQ(table.size(), 1000u);
}
