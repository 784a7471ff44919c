// Runs a target without a fuzzer, the same each time: every seed as it is, then changed a little, so many times over.
//
//   oomtune-fuzz-spec [ROUNDS] SEED…
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.h"

namespace {

using Bytes = std::vector<uint8_t>;

Bytes read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

void change(Bytes* bytes, const Bytes& other, std::mt19937* random) {
  const size_t at = bytes->empty() ? 0 : (*random)() % bytes->size();
  const auto here = bytes->begin() + static_cast<std::ptrdiff_t>(at);
  switch ((*random)() % 6) {
    case 0:
      if (!bytes->empty()) (*bytes)[at] = static_cast<uint8_t>((*random)());
      break;
    case 1:
      if (!bytes->empty()) (*bytes)[at] ^= static_cast<uint8_t>(1u << (*random)() % 8);
      break;
    case 2: bytes->insert(here, static_cast<uint8_t>((*random)() % 3 == 0 ? 0 : (*random)())); break;
    case 3:
      bytes->erase(here, bytes->begin() + static_cast<std::ptrdiff_t>(at + (*random)() % (bytes->size() - at + 1)));
      break;
    case 4: {  // a piece of another seed
      const size_t from = other.empty() ? 0 : (*random)() % other.size();
      const size_t length = (*random)() % (other.size() - from + 1);
      bytes->insert(here, other.begin() + static_cast<std::ptrdiff_t>(from),
                    other.begin() + static_cast<std::ptrdiff_t>(from + length));
      break;
    }
    default: {
      static const char* const words[] = {"=",  ",",     "-1",     "18446744073709551615", "9007199254740993",
                                          "\n", "dmem=", "device="};
      const char* word = words[(*random)() % (sizeof words / sizeof words[0])];
      bytes->insert(here, word, word + strlen(word));
    }
  }
}

void run(const Bytes& bytes) { LLVMFuzzerTestOneInput(bytes.data(), bytes.size()); }

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: %s ROUNDS SEED…\n", arguments[0]);
    return 2;
  }
  const unsigned long rounds = strtoul(arguments[1], nullptr, 10);
  std::vector<Bytes> seeds{{}};
  for (int i = 2; i < count; ++i) seeds.push_back(read(arguments[i]));
  for (const Bytes& seed : seeds) run(seed);
  std::mt19937 random(20);
  for (unsigned long round = 0; round < rounds; ++round) {
    Bytes bytes = seeds[random() % seeds.size()];
    for (unsigned changes = random() % 5 + 1; changes > 0; --changes)
      change(&bytes, seeds[random() % seeds.size()], &random);
    if (bytes.size() < 1 << 20) run(bytes);
  }
  printf("%zu seeds and %lu changes of them held\n", seeds.size(), rounds);
  return 0;
}
