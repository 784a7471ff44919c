import { GiB, MiB, type Setting } from './card.js';

/** Every scenario of native/test/driver: what it holds the stand-in to, and the card that it wants. */
export const CASES: { holds: string; name: string; setting?: Setting }[] = [
  { holds: 'counts linear memory as the driver deals it out, and the context', name: 'Linear' },
  { holds: 'refuses what would pass the budget, says so, and goes on', name: 'Refusal' },
  { holds: 'shows the budget as the size of the card', name: 'Figures' },
  { holds: 'shows the budget through NVML', name: 'Nvml' },
  { holds: 'charges the pitch that the driver chose', name: 'Pitch' },
  { holds: 'counts managed memory', name: 'Managed' },
  { holds: 'counts pinned host memory by itself', name: 'Host' },
  { holds: 'counts arrays and mipmapped arrays, but not sparse ones', name: 'Arrays' },
  { holds: 'leaves imported memory to the process that made it', name: 'Imports' },
  { holds: 'takes back what went with its context', name: 'Contexts' },
  {
    holds: 'refuses a context that is larger than the budget',
    name: 'ContextRefused',
    setting: { budget: 50 * MiB },
  },
  { holds: 'charges what stream-ordered pools have reserved', name: 'Async' },
  { holds: 'charges pools that the program made, where they lie on a device', name: 'Pools' },
  {
    holds: 'undoes a growth of a pool that nobody could foresee',
    name: 'Pieces',
    setting: { env: { FAKE_PIECES: '1' } },
  },
  { holds: 'keeps physical memory charged while a handle or a mapping is left', name: 'Vmm' },
  { holds: 'charges the memory of graphs', name: 'Graphs' },
  { holds: 'refuses a graph whose nodes do not fit together, and none whose nodes take turns', name: 'GraphSum' },
  {
    holds: 'looks again at what a graph needs when it is launched',
    name: 'GraphLaunch',
    setting: { env: { FAKE_FAIL: 'cuGraphExecDestroy:1:1' } },
  },
  { holds: 'counts captured allocations of a graph as its nodes', name: 'GraphCapture' },
  { holds: 'counts what the first forms of calls take, with addresses of 32 bits', name: 'FirstForms' },
  { holds: 'keeps memory charged that only an array or a multicast object holds', name: 'Held' },
  { holds: 'knows as many pools as a program makes', name: 'ManyPools' },
  { holds: 'charges parts of a device, and refuses one too many', name: 'Green', setting: { budget: 140 * MiB } },
  { holds: 'refuses a heap for kernels that is larger than what is left', name: 'Heap' },
  { holds: 'hands arguments of every kind through unharmed', name: 'Trampoline' },
  { holds: 'hooks what the resolver gives, by name, version and flags', name: 'Resolver' },
  {
    holds: 'answers with an error where an old driver has no such function',
    name: 'OldDriver',
    setting: { driver: 'old' },
  },
  {
    holds: 'passes on what only a newer driver has, and says what it cannot count',
    name: 'NewDriver',
    setting: { driver: 'new' },
  },
  { holds: 'counts nothing and refuses nothing without a ledger', name: 'NoLedger', setting: { ledger: false } },
  {
    holds: "tells the driver's own refusals from the budget's",
    name: 'DriverRefuses',
    setting: { env: { FAKE_CAPACITY: String(256 * MiB) } },
  },
  {
    holds: 'passes an error of the driver on and counts nothing for it',
    name: 'Faults',
    setting: { env: { FAKE_FAIL: 'cuMemAlloc_v2:2:719' } },
  },
  {
    holds: 'keeps counting what the driver failed to free',
    name: 'FreeFault',
    setting: { env: { FAKE_FAIL: 'cuMemFree_v2:1:700' } },
  },
  {
    holds: 'charges what loading modules takes, before it decides',
    name: 'OverheadGrows',
    setting: { env: { FAKE_MODULE: String(64 * MiB) } },
  },
  {
    holds: 'says that it is blind when the device holds far more than the hooks saw',
    name: 'Blind',
    setting: { budget: 8 * GiB, env: { FAKE_CAPACITY: String(16 * GiB), FAKE_MODULE: String(5 * GiB) } },
  },
  { holds: 'keeps two devices apart', name: 'TwoDevices', setting: { two: true, env: { FAKE_COUNT: '2' } } },
  {
    holds: 'knows devices by uuid when a process sees them in another order',
    name: 'TwoDevices',
    setting: { two: true, env: { FAKE_COUNT: '2', FAKE_SWAP: '1' } },
  },
  {
    holds: "measures by the whole device where NVML does not know the process's pid",
    name: 'Linear',
    setting: { env: { FAKE_NO_PIDS: '1' } },
  },
  {
    holds: 'does not take for overhead what NVML shows a moment longer',
    name: 'Lag',
    setting: { env: { FAKE_LAG: '4' } },
  },
  {
    holds: 'sees what modules take although one of NVML’s answers came late',
    name: 'Spike',
    setting: { budget: 1 * GiB, env: { FAKE_CAPACITY: String(2 * GiB), FAKE_MODULE: String(64 * MiB) } },
  },
  {
    holds: 'doubts by when it looked, not by when it judges',
    name: 'Lag',
    setting: { env: { FAKE_LAG: '60', FAKE_NVML_SLOW: '12500' } },
  },
  { holds: 'knows every form of making and ending a context', name: 'ContextForms' },
  { holds: 'forgets what went with a reset of the device, and asks nothing that is gone', name: 'Reset' },
  {
    holds: 'keeps a context that is made while the one of the same name is being reset',
    name: 'ResetRace',
    setting: { env: { FAKE_SLOW: '200000' } },
  },
  { holds: 'keeps charging what outlives its pool', name: 'PoolOutlived' },
  {
    holds: 'keeps a pool that the driver did not destroy, and counts one of managed memory as such',
    name: 'PoolStays',
    setting: { env: { FAKE_FAIL: 'cuMemPoolDestroy:1:1' } },
  },
  {
    holds: 'keeps a handle apart from one of the same name that is being released',
    name: 'HandleRace',
    setting: { env: { FAKE_SLOW: '200000' } },
  },
  {
    holds: 'gives physical memory back in whichever order it is released and unmapped, and charges no multicast object',
    name: 'VmmOrders',
    setting: { env: { FAKE_FAIL: 'cuMemRelease:1:1' } },
  },
  { holds: 'closes what was imported twice only once it was closed twice', name: 'ImportedTwice' },
  { holds: "outlives the closing of the driver's library", name: 'Closed' },
  { holds: 'refuses a pitch that does not fit, and leaves nothing behind', name: 'PitchRefused' },
  { holds: 'refuses sizes near the end of the numbers', name: 'Huge' },
  {
    holds: 'lets a pool use what it has idle though the budget is passed',
    name: 'Idle',
    setting: { env: { FAKE_MODULE: String(64 * MiB) } },
  },
  {
    holds: 'tells when the card itself has no room for a context',
    name: 'NoRoom',
    setting: { env: { FAKE_CAPACITY: String(64 * MiB) } },
  },
  { holds: 'breaks no capture by what it asks for itself', name: 'Capture' },
  ...[32, 2].map((step) => ({
    holds: `peaks where NVML does with pools that grow by ${step} MiB`,
    name: 'PoolPeak',
    setting: {
      budget: 6 * GiB,
      env: {
        FAKE_CAPACITY: String(16 * GiB),
        FAKE_CONTEXT: String(700 * MiB),
        FAKE_PIECES: '1',
        FAKE_POOL_STEP: String(step * MiB),
      },
    },
  })),
  { holds: 'charges no pool of host memory, whoever made it', name: 'HostPools' },
  { holds: 'gives the threads of a forked child one account', name: 'ForkThreads' },
  {
    holds: 'measures several processes by the whole device where the driver knows their pids by others',
    name: 'Container',
    setting: { env: { FAKE_NO_PIDS: '1' } },
  },
  {
    holds: 'holds four processes to one budget in a container too, contexts included',
    name: 'Ranks',
    setting: { env: { FAKE_NO_PIDS: '1' } },
  },
  {
    holds: 'believes the contexts of several processes in a container, however large they are together',
    name: 'Ranks',
    setting: {
      budget: 6.5 * GiB,
      env: { FAKE_NO_PIDS: '1', FAKE_CONTEXT: String(1.5 * GiB), FAKE_CAPACITY: String(16 * GiB) },
    },
  },
  {
    holds: 'believes no figure that was taken between a free and an allocation of the same size',
    name: 'Swap',
    setting: { env: { FAKE_NVML_SLOW: '30000' } },
  },
  { holds: 'never passes the budget in a storm of threads', name: 'Storm' },
  { holds: 'gives a forked child an account of its own', name: 'Fork' },
  { holds: 'holds four processes to one budget, contexts included', name: 'Ranks' },
  { holds: 'takes back what a killed process held', name: 'Killed' },
];

/**
 * Programs of several living processes, which know each other by pid and start time. qemu-user tells a forked child the start
 * time of its parent, and its neighbours the right one: each is taken for dead there.
 */
export const OF_NEIGHBOURS = ['Container', 'Ranks'];
