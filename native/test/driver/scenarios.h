#pragma once

#include <string.h>

#include "program.h"

// clang-format off
#define SCENARIOS(X)                                                                                              \
  X(Linear) X(Refusal) X(Figures) X(Pitch) X(Managed) X(Host) X(Arrays) X(Imports) X(Contexts) X(ContextRefused)  \
  X(Async) X(Pools) X(Vmm) X(Graphs) X(Trampoline) X(Resolver) X(OldDriver) X(NewDriver) X(NoDriver) X(NoLedger)  \
  X(DriverRefuses) X(Faults) X(FreeFault) X(OverheadGrows) X(Blind) X(TwoDevices) X(Storm) X(Fork) X(Ranks)       \
  X(Killed) X(Leak) X(Nvml) X(GrowsAtEnd) X(Pieces) X(Lag) X(ContextForms) X(Reset) X(ResetRace) X(Spike)          \
  X(PoolOutlived) X(PoolStays) X(HandleRace) X(VmmOrders) X(ImportedTwice) X(Closed) X(PitchRefused) X(Huge)     \
  X(Idle) X(NoRoom) X(Capture) X(PoolPeak) X(Silent) X(HostPools) X(ForkThreads) X(Container)       \
  X(ContainerNeighbour) X(Swap) X(FirstForms) X(ManyPools) X(Held)          \
  X(Green) X(Heap) X(GraphSum) X(GraphLaunch) X(GraphCapture)
// clang-format on

#define DECLARE(name) void scenario##name();
SCENARIOS(DECLARE)
#undef DECLARE
