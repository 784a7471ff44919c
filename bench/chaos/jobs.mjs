// What is submitted: mostly jobs that end soon, in each way that there is, and some that fight back.

/** Notes each start, and whether another launch of the same job runs: the lock goes with the last process that has it. */
export const prelude = (work) =>
  `note() { echo "$OOMTUNE_JOB_ID $OOMTUNE_LAUNCH $OOMTUNE_RUN_DIR" >> "${work}/$1"; }; note starts; ` +
  `exec 9>> "${work}/$OOMTUNE_JOB_ID.lock"; flock --nonblock 9 || note both; `;

const D = '"$OOMTUNE_RUN_DIR"';

/** `state`: how it ends where no fault strikes it; null: it struck itself, any end will do. */
export const KINDS = [
  { name: 'ends', share: 30, line: 'sleep 0.2; exit 0', state: 'succeeded', options: { retries: 50 } },
  { name: 'once', share: 15, line: 'sleep 0.5; exit 0', state: 'succeeded' },
  { name: 'works', share: 10, line: 'sleep 3; exit 0', state: 'succeeded', options: { retries: 50 } },
  { name: 'fails', share: 10, line: 'echo boom >&2; exit 3', state: 'failed', code: 3 },
  { name: 'segfaults', share: 3, line: 'kill -SEGV $$', state: 'failed' },
  { name: 'leaves', share: 6, line: 'env -i setsid sleep 600 & exit 0', state: 'succeeded', options: { retries: 50 } },
  {
    name: 'hangs',
    share: 4,
    line: '(setsid sleep 600 &) ; sleep 600',
    state: 'timeout',
    options: { timeoutSeconds: 3, retries: 50 },
  },
  { name: 'cancelled', share: 6, line: 'setsid sleep 600 & sleep 600', state: 'cancelled', options: { retries: 50 } },
  {
    name: 'loud',
    share: 3,
    line: 'head -c 3000000 /dev/urandom; exit 0',
    state: 'succeeded',
    options: { retries: 50 },
  },
  { name: 'removes-its-folder', share: 2, line: `rm -rf ${D}; sleep 1; exit 0`, state: 'succeeded' },
  { name: 'truncates-its-ledger', share: 2, line: ': > "$OOMTUNE_LEDGER"; sleep 1; exit 0', state: null },
  { name: 'swaps-its-log', share: 2, line: `rm -f ${D}/log; mkfifo ${D}/log; sleep 1; exit 0`, state: null },
  {
    name: 'zeroes-its-record',
    share: 1,
    line: `head -c 400 /dev/zero > ${D}/supervisor.json; sleep 1; exit 0`,
    state: 'succeeded',
  },
  {
    name: 'stops-its-supervisor',
    share: 2,
    line: 'kill -STOP $PPID; sleep 600',
    state: null,
    options: { timeoutSeconds: 3 },
  },
  { name: 'kills-its-supervisor', share: 2, line: 'setsid sleep 600 & kill -KILL $PPID; sleep 600', state: null },
  { name: 'held', share: 5, line: 'exit 0', state: 'succeeded', hold: true },
  {
    name: 'large',
    share: 4,
    line: `exec 8>> "\${OOMTUNE_RUN_DIR%%/runs/*}/large.lock"; flock --nonblock 8 || note promised-twice; sleep 1; exit 0`,
    state: 'succeeded',
    // More than half of the host's memory: two of them at a time were promised the same
    options: { budget: '60%', retries: 50 },
  },
  {
    name: 'forks',
    share: 2,
    line: 'for n in 1 2 3 4 5 6 7 8; do (setsid sleep 600 &); done; exit 0',
    state: 'succeeded',
    options: { retries: 50 },
  },
];

/** As many kinds as jobs, in a random order. */
export function plan(count, random) {
  const drawn = KINDS.flatMap((kind) => Array.from({ length: kind.share }, () => kind));
  return Array.from({ length: count }, () => drawn[Math.floor(random() * drawn.length)]);
}
