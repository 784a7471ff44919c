// A ledger on the heap, a gate to it, and a folder that goes away with the test.
#pragma once

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "budget_gate.h"
#include "file.h"

namespace oomtune {

struct LedgerFree {
  void operator()(Ledger* ledger) const { free(ledger); }
};

inline std::unique_ptr<Ledger, LedgerFree> heapLedger(uint64_t budget) {
  std::unique_ptr<Ledger, LedgerFree> ledger(static_cast<Ledger*>(calloc(1, sizeof(Ledger))));
  const DeviceSetup devices[] = {
      {0, budget, "cpu", ""}, {1, budget, "cuda:3", "GPU-1"}, {2, kNoBudget, "cuda:5", "GPU-2"}};
  initLedger(ledger.get(), devices, 3);
  return ledger;
}

inline BudgetGate gateOf(Ledger* ledger) {
  BudgetGate gate;
  gate.attachTo(ledger);
  return gate;
}

class Scratch {
 public:
  Scratch() {
    char name[] = "/tmp/oomtune-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Scratch() {
    if (DIR* folder = opendir(path_.c_str())) {
      while (const dirent* entry = readdir(folder)) {
        if (entry->d_name[0] != '.') unlink((path_ + "/" + entry->d_name).c_str());
      }
      closedir(folder);
    }
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream in(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string path_;
};

}  // namespace oomtune
