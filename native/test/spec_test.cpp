#include "spec.h"

#include <gtest/gtest.h>

#include <random>

#include "ledger.h"

using namespace oomtune;

namespace {

std::string records(std::initializer_list<const char*> lines) {
  std::string text;
  for (const char* line : lines) text += std::string(line) + '\0';
  return text;
}

const std::string kSound = records({"version=1",
                                    "job=j-1",
                                    "launch=2",
                                    "cwd=/tmp",
                                    "timeout_ms=0",
                                    "grace_ms=500",
                                    "log_bytes=65536",
                                    "output=inherit",
                                    "input=12,/tmp/in, put",
                                    "standin=/lib/x",
                                    "device=0,1048576,cpu,",
                                    "device=2,-,cuda:7,GPU-x",
                                    "dmem=1048576,drm/0000:17:00.0/vram0",
                                    "arg=python",
                                    "arg=",
                                    "arg=a=b\n c",
                                    "env=PATH=/bin",
                                    "env=EMPTY=",
                                    "umask=18",
                                    "limit=nofile,1024,4096",
                                    "limit=core,0,-"});

bool parses(const std::string& text) {
  Spec spec;
  std::string error;
  const bool sound = parseSpec(text.data(), text.size(), &spec, &error);
  EXPECT_EQ(sound, error.empty()) << error;
  return sound;
}

/** The sound spec with one record in the place of the one that begins with the same key. */
bool parsesWith(const std::string& record) {
  const std::string key = record.substr(0, record.find('=') + 1);
  std::string text;
  bool replaced = false;
  for (size_t at = 0; at < kSound.size();) {
    const std::string line = kSound.c_str() + at;
    at += line.size() + 1;
    const bool same = line.rfind(key, 0) == 0 && !replaced;
    replaced = replaced || same;
    text += (same ? record : line) + '\0';
  }
  if (!replaced) text += record + '\0';
  return parses(text);
}

}  // namespace

TEST(Spec, isReadAsItWasWritten) {
  Spec spec;
  std::string error;
  ASSERT_TRUE(parseSpec(kSound.data(), kSound.size(), &spec, &error)) << error;
  EXPECT_EQ(spec.arguments, (std::vector<std::string>{"python", "", "a=b\n c"}));
  EXPECT_EQ(spec.environment, (std::vector<std::string>{"PATH=/bin", "EMPTY="}));
  EXPECT_EQ(spec.launch, 2u);
  EXPECT_EQ(spec.graceMs, 500u);
  EXPECT_TRUE(spec.inherit);
  EXPECT_EQ(spec.input, "/tmp/in, put");
  EXPECT_EQ(spec.inputOffset, 12u);
  EXPECT_EQ(spec.mask, 022);
  ASSERT_EQ(spec.limits.size(), 2u);
  EXPECT_EQ(spec.limits[0].soft, 1024u);
  EXPECT_EQ(spec.limits[1].hard, UINT64_MAX);
  ASSERT_EQ(spec.devices.size(), 2u);
  EXPECT_EQ(spec.devices[0].budget, 1048576u);
  EXPECT_EQ(spec.devices[1].index, 2u);
  EXPECT_EQ(spec.devices[1].budget, kNoBudget);
  EXPECT_EQ(spec.devices[1].uuid, "GPU-x");
  ASSERT_EQ(spec.regions.size(), 1u);
  EXPECT_EQ(spec.regions[0].name, "drm/0000:17:00.0/vram0");
  EXPECT_EQ(spec.regions[0].bytes, 1048576u);
}

TEST(Spec, takesNothingElse) {
  for (const char* record : {"version=2",
                             "version=",
                             "job=",
                             "job=a/b",
                             "job=a b",
                             "launch=0",
                             "launch=-1",
                             "launch=4294967296",
                             "launch=1x",
                             "cwd=tmp",
                             "cwd=",
                             "timeout_ms=1.5",
                             "timeout_ms=99999999999999999999",
                             "grace_ms= 5",
                             "log_bytes=1",
                             "output=both",
                             "input=/tmp/in",
                             "input=-1,/tmp/in",
                             "input=0,",
                             "input=0,relative",
                             "device=17,-,cpu,",
                             "device=0,12,cpu",
                             "device=0,0x10,cpu,",
                             "device=0,-,,",
                             "device=2,1,cuda:1,",
                             "env==x",
                             "dmem=",
                             "dmem=5",
                             "dmem=5,",
                             "dmem=-,x",
                             "dmem=5,a b",
                             "dmem=max,x",
                             "env=x",
                             "standin=",
                             "standin=x",
                             "unknown=1",
                             "ARG=x"}) {
    EXPECT_FALSE(parsesWith(record)) << record;
  }
  EXPECT_FALSE(parses(""));
  EXPECT_FALSE(parses(kSound.substr(0, kSound.size() - 1))) << "cut off";
  EXPECT_FALSE(parses(kSound + records({"job=again"}))) << "twice";
  EXPECT_FALSE(parses(kSound + std::string(1, '\0'))) << "an empty record";
  EXPECT_FALSE(parses(kSound + records({"nokey"})));
  EXPECT_FALSE(parses(records({"version=1", "job=j", "launch=1", "cwd=/"}))) << "no command";
  EXPECT_FALSE(parses(records({"version=1", "job=j", "launch=1", "cwd=/", "arg="}))) << "an empty command";
  EXPECT_FALSE(parses(std::string(kSpecBytes, 'a') + '\0')) << "too long";
}

TEST(Spec, ofTooManyRecordsIsRefused) {
  std::string text = kSound;
  for (size_t i = 0; i < kSpecItems; ++i) text += std::string("arg=") + '\0';
  EXPECT_FALSE(parses(text));
}

TEST(Spec, neverNamesAValueInItsError) {
  Spec spec;
  std::string error;
  const std::string text = records({"env=token-without-equals"});
  EXPECT_FALSE(parseSpec(text.data(), text.size(), &spec, &error));
  EXPECT_EQ(error.find("token"), std::string::npos) << error;
}

TEST(Spec, survivesAnyBytes) {
  std::mt19937 random(11);
  const char* const pieces[] = {"=", ",", "-", "device=", "env=", "arg=", "version=1", "18446744073709551616", "9"};
  unsigned accepted = 0;
  for (int round = 0; round < 60000; ++round) {
    std::string text = kSound;
    for (unsigned edits = random() % 4 + 1; edits > 0 && !text.empty(); --edits) {
      const size_t at = random() % text.size();
      switch (random() % 5) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 9); break;
        case 2: text.insert(at, 1, static_cast<char>(random() % 3 == 0 ? 0 : random())); break;
        case 3: text.insert(at, pieces[random() % (sizeof pieces / sizeof pieces[0])]); break;
        default: text = text.substr(at) + text.substr(0, at); break;
      }
    }
    // Of exactly the size of the text, so that a read past its end is seen.
    std::vector<char> bytes(text.begin(), text.end());
    Spec spec;
    std::string error;
    if (!parseSpec(bytes.data(), bytes.size(), &spec, &error)) continue;
    ++accepted;
    ASSERT_FALSE(spec.arguments.empty());
    ASSERT_EQ(spec.cwd[0], '/');
    for (const SpecDevice& device : spec.devices) ASSERT_LT(device.index, kDevices);
  }
  EXPECT_GT(accepted, 100u) << "the mutations should leave some of them sound";
}

TEST(Spec, takesLimitsAndAMaskOnlyAsTheyCanBe) {
  for (const char* wrong : {"umask=512", "umask=-1", "umask=", "limit=nofile,2,1", "limit=nofile,1", "limit=rttime,1,1",
                            "limit=nofile,-,1", "limit=,1,1", "limit=nofile,1,1,1"}) {
    EXPECT_FALSE(parsesWith(wrong)) << wrong;
  }
  for (const char* right : {"umask=0", "umask=511", "limit=nofile,-,-", "limit=stack,8388608,-"}) {
    EXPECT_TRUE(parsesWith(right)) << right;
  }
}
