import type { Log } from '../../common/log.js';
import type { Sharing as Shared } from '../../contract/job.js';
import type { Device } from '../../contract/launch.js';
import type { PairVerdict } from '../../contract/state.js';
import { waitsForTurn } from '../../contract/waiting.js';
import type { Store } from '../../store/index.js';
import type { Execution } from '../execution.js';
import { Measurement } from './measurement.js';
import { nameOf } from './names.js';
import { medianGain } from './verdict.js';

/** After so many windows without a step of one of them it is told that there is nothing to measure yet. */
const UNSEEN = 15;

type Pair = readonly [Execution, Execution];

interface Known {
  verdict: PairVerdict['verdict'] | null;
  gain: number | null;
  measurement: Measurement;
  /** When the two were first seen beside each other (ms), and whether it was told that their steps are not seen. */
  since: number;
  unseen: boolean;
}

interface Parts {
  store: Store;
  log: Log;
  executions: Iterable<Execution>;
  devices: () => Device[];
  /** How long a part of the measurement lasts at least (ms). */
  windowMs: number;
}

/**
 * `submit --share auto`: two such jobs on a GPU are measured side by side and alone. Where both get more done by taking turns,
 * the later one stands still, with its memory, until the other has ended: nothing of its work is lost.
 */
export class Sharing {
  readonly #pairs = new Map<string, Known>();

  #closed = false;
  #looking: Promise<void> = Promise.resolve();

  constructor(private readonly parts: Parts) {}

  /** Lets all of them go on, as nobody steers them until the next daemon. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#looking;
    for (const one of this.parts.executions) if (one.record.options.shareAuto) await one.takeTurn(null);
  }

  look(): Promise<void> {
    this.#looking = this.#look();
    return this.#looking;
  }

  async #look(): Promise<void> {
    if (this.#closed) return;
    const autos = [...this.parts.executions].filter(({ record }) => record.options.shareAuto);
    if (autos.length === 0 && this.#pairs.size === 0) return;
    const pairs = pairsOf(autos.filter(({ record }) => record.state === 'running'));
    const paired = new Set(pairs.flat());
    const keys = new Set(pairs.map(keyOf));
    for (const key of this.#pairs.keys()) if (!keys.has(key)) this.#pairs.delete(key);
    for (const one of autos) if (!paired.has(one)) await one.takeTurn(null);
    for (const pair of pairs) await this.#steer(pair);
  }

  async #steer(pair: Pair): Promise<void> {
    const known = this.#pairs.get(keyOf(pair)) ?? (await this.#begin(pair));
    const [first, second] = pair;
    const asked = pair.some(({ pauseAsked }) => pauseAsked);
    if (asked || known.verdict === 'together' || known.verdict === 'unmeasured') {
      known.measurement.again(Date.now());
      for (const one of pair) await one.takeTurn(null);
    } else if (known.verdict === 'apart') {
      await first.takeTurn(null);
      await second.takeTurn(
        waitsForTurn(
          `until ${first.record.job} (${nameOf(first.record)}) has ended: side by side both would get less done${gainWords(known.gain)}`,
        ),
      );
    } else await this.#measure(pair, known);
  }

  async #measure(pair: Pair, known: Known): Promise<void> {
    const now = Date.now();
    if (!pair.every(({ pace }) => pace.known)) {
      known.measurement.again(now);
      for (const one of pair) await one.takeTurn(null);
      if (known.unseen || now - known.since < UNSEEN * this.parts.windowMs) return;
      known.unseen = true;
      await this.#tell(pair, { verdict: 'unmeasured', gain: null });
      return;
    }
    const { still, verdict } = known.measurement.look(now, [pair[0].pace, pair[1].pace]);
    for (const [at, one] of pair.entries()) {
      const other = pair[1 - at] as Execution;
      await one.takeTurn(
        still === at ? `stands still for a moment: how fast ${other.record.job} is alone is measured` : null,
      );
    }
    if (verdict === null) return;
    const { rounds } = known.measurement;
    known.verdict = verdict;
    known.gain = rounds.length === 0 || verdict === 'unmeasured' ? null : medianGain(rounds);
    this.parts.log.info(
      { jobs: pair.map(({ record }) => record.job), verdict, gain: known.gain, rounds },
      'jobs side by side',
    );
    if (verdict !== 'unmeasured') {
      const found = { verdict, gain: known.gain, rounds: rounds.length, at: new Date().toISOString() };
      await this.parts.store.pairs.put(this.#model(pair), namesOf(pair), found);
    }
    await this.#tell(pair, known);
    await this.#steer(pair);
  }

  /** What is recorded of two such jobs holds for these, too. */
  async #begin(pair: Pair): Promise<Known> {
    const found = await this.parts.store.pairs.get(this.#model(pair), namesOf(pair));
    const known: Known = {
      verdict: found?.verdict ?? null,
      gain: found?.gain ?? null,
      measurement: new Measurement(this.parts.windowMs, Date.now()),
      since: Date.now(),
      unseen: false,
    };
    this.#pairs.set(keyOf(pair), known);
    await this.#tell(pair, known);
    return known;
  }

  async #tell(pair: Pair, { verdict, gain }: Pick<Known, 'verdict' | 'gain'>): Promise<void> {
    for (const [at, one] of pair.entries()) {
      const { record } = pair[1 - at] as Execution;
      const shared: Shared = { job: record.job, name: nameOf(record), verdict: verdict ?? 'measuring', gain };
      await one.note({ sharing: shared });
    }
  }

  #model([{ record }]: Pair): string {
    return this.parts.devices().find(({ id }) => id === record.devices[0])?.model ?? 'unknown';
  }
}

const gainWords = (gain: number | null): string =>
  gain === null ? '' : ` (${gain.toFixed(2)} times what taking turns does)`;

const keyOf = (pair: Pair): string => pair.map(({ record }) => `${record.job}.${record.epoch}`).join(' ');

const namesOf = ([first, second]: Pair): [string, string] => [nameOf(first.record), nameOf(second.record)];

/** Who goes on comes first: the higher priority, else who started earlier. A lease of theirs lets no third one on the device. */
function pairsOf(running: Execution[]): Pair[] {
  const inOrder = [...running].sort(({ record: a }, { record: b }) => {
    if (a.options.priority !== b.options.priority) return b.options.priority - a.options.priority;
    const [begun, other] = [a.started_at ?? '', b.started_at ?? ''];
    return begun === other ? (a.job < b.job ? -1 : 1) : begun < other ? -1 : 1;
  });
  const pairs: Pair[] = [];
  for (const [at, one] of inOrder.entries()) {
    const other = inOrder
      .slice(at + 1)
      .find(({ record }) => record.devices.some((id) => one.record.devices.includes(id)));
    const taken = (execution: Execution): boolean => pairs.some((pair) => pair.includes(execution));
    if (other !== undefined && !taken(one) && !taken(other)) pairs.push([one, other]);
  }
  return pairs;
}
