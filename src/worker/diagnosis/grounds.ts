import { formatBytes } from '../../common/size.js';
import { isHost } from '../../contract/device-id.js';
import type { FailureClass } from '../../contract/failure.js';
import type { Event } from './event.js';
import type { Incident } from './incident.js';
import { lastRefusal, type Refusal, type Signals, wasRefused } from './signals.js';
import type { Meaning } from './signatures.js';
import { isOfHook } from './traceback.js';

/** What a failure is called, and how surely. */
export interface Status {
  class: FailureClass | 'ok';
  certain: boolean;
  /** A sentence where the class does not come from an event. */
  told: string | null;
  /** Key of the advice that goes with the sentence; absent: the class's. */
  advice?: string;
}

/** The allocator of the CPU itself: where the CPU is the device, its word is as good as a refusal. */
const CPU_ALLOCATOR = 'torch-cpu-oom';
/** oneDNN says the same of want of memory and of an operation that it cannot do. */
const ONEDNN = 'onednn-memory';

/** An event's class, as the device and the ledger make it. */
export function judged(event: Event, signals: Signals): Status {
  const { meaning } = event;
  const refused = wasRefused(signals);
  const cpu = onCpu(signals);
  const unlikely = cpu && !refused && event.id !== CPU_ALLOCATOR;
  if (meaning.class === 'host_oom' && cpu && !unlikely) return { class: 'device_oom', certain: true, told: null };
  if (!meaning.certain && refused && (meaning.class === 'device_oom' || meaning.class === 'device_fault')) {
    return { class: 'device_oom', certain: true, told: null };
  }
  return { class: meaning.class, certain: meaning.certain && !(unlikely && isDeviceOom(event)), told: null };
}

/**
 * Takes what the evidence rules out for what it is. A text that speaks of a GPU's memory, from a job whose device is the
 * CPU and whose ledger refused nothing there, was printed or raised by the program itself; and what oneDNN could not do
 * was then something else.
 */
export function grounded(incident: Incident, signals: Signals): Incident {
  const event = groundedEvent(incident.event, signals);
  return event === incident.event ? incident : { ...incident, event };
}

/** The same for one event. */
export function groundedEvent(event: Event, signals: Signals): Event {
  if (event.meaning.class === 'user_error' && event.traceback && isOfHook(event.traceback))
    return { ...event, meaning: { ...OF_HOOK, role: event.meaning.role } };
  if (!refusedNothing(signals)) return event;
  if (event.id === ONEDNN && signals.ledger) return { ...event, meaning: ONEDNN_FAILED };
  if (!isDeviceOom(event) || event.id === CPU_ALLOCATOR) return event;
  return { ...event, meaning: event.traceback ? RAISED_ON_CPU : SAID_ON_CPU };
}

const OF_HOOK: Meaning = {
  class: 'user_error',
  role: 'fatal',
  certain: true,
  cause: "The error was raised in oomtune's own hook: most likely it is a fault in oomtune, not in the program.",
  advice: 'own-fault',
};

const RAISED_ON_CPU: Meaning = {
  class: 'user_error',
  role: 'fatal',
  certain: true,
  cause:
    "The program raised an error that speaks of a GPU's memory, but it ran on the CPU, where nothing that it asked for was refused.",
  advice: 'user_error',
};
const SAID_ON_CPU: Meaning = { ...RAISED_ON_CPU, role: 'weak', certain: false };

const ONEDNN_FAILED: Meaning = {
  ...RAISED_ON_CPU,
  certain: false,
  cause: 'oneDNN could not run an operation, though none of the memory that the job asked for was refused.',
};

/** What ran out is the host's memory beside the budget, where its allocator refused what the budget allowed by far. */
export function ofMachine(status: Status, signals: Signals): Status {
  const refusal = lastRefusal(signals);
  if (status.class !== 'device_oom' || refusal === null || !belowBudget(refusal)) return status;
  const { size_bytes: asked, live_bytes: held, budget_bytes: budget } = refusal;
  const told = `the machine refused it ${formatBytes(asked)} more while it held ${formatBytes(held)} of its budget of ${formatBytes(budget)}`;
  return { class: 'host_oom', certain: true, told, advice: LIMITED };
}

/** Key of the advice against a limit of the machine. */
export const LIMITED = 'machine-limit';

/** The host's own allocator refused it, and it would not have come to half of the budget. */
function belowBudget({ by, device, size_bytes, live_bytes, budget_bytes }: Refusal): boolean {
  return by === 'driver' && isHost(device) && live_bytes + size_bytes < budget_bytes / 2;
}

function isDeviceOom({ meaning }: Event): boolean {
  return meaning.class === 'device_oom';
}

function onCpu(signals: Signals): boolean {
  return isHost(signals.device) || isHost(lastRefusal(signals)?.device);
}

/** The ledger saw all of the memory on the CPU, and refused none; or nothing asked for any, and there is no ledger. */
export function refusedNothing({ device, ledger }: Signals): boolean {
  return isHost(device) && (ledger === null || (!ledger.blind && ledger.refused === 0));
}
