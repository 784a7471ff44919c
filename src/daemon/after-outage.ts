import { setTimeout as delay } from 'node:timers/promises';
import { HEARTBEAT_MS, retry, type Store } from '../store/index.js';
import type { Executions } from './executions.js';
import type { Recovery } from './recovery.js';
import type { Sweeper } from './sweeper.js';

/** The time for other hosts to restore their records before this one takes jobs. */
const SETTLE_MS = 3000;
const SETTLED_LOOK_MS = 50;
const HEARD_LOOK_MS = 500;

interface Parts {
  store: Store;
  sweeper: Pick<Sweeper, 'others'>;
  recovery: Pick<Recovery, 'restoreEnds'>;
  executions: Pick<Executions, 'compare' | 'fenced'>;
  /** Shows that this host lives. */
  beat: () => Promise<void>;
}

/** After an outage of Redis: ends copies that others took over and restores what Redis lost, before anything else. */
export class AfterOutage {
  /** Comparisons that are not done. */
  #away = 0;
  #stopping = false;

  constructor(private readonly parts: Parts) {}

  /** A comparison runs: what Redis says is not to be acted on. */
  get runs(): boolean {
    return this.#away > 0;
  }

  /** Waits for nobody any more. */
  stop(): void {
    this.#stopping = true;
  }

  async compare(): Promise<void> {
    this.#away += 1;
    const { others } = this.parts.sweeper; // before a sweep that was under way hears of none in what Redis has come back with
    try {
      await this.#writeBack();
      await retry(() => this.parts.beat(), { onRefused: this.parts.store.connection.onRefused }); // others wait for it
      // An older state of Redis may offer what another host runs, until that host has restored its record
      if (others.length > 0) {
        await this.#heardAgain(others);
        await delay(SETTLE_MS);
        await this.#writeBack(); // what was taken from that state meanwhile may be another's by now
      }
    } finally {
      this.#away -= 1;
    }
  }

  /** Resolves when no comparison runs: one that was on its way when Redis came back may have taken a job. */
  async settled(): Promise<void> {
    while (this.#away > 0 && !this.#stopping) await delay(SETTLED_LOOK_MS);
  }

  /** Waits for hosts that find Redis later, but no longer than they may be silent. */
  async #heardAgain(others: string[]): Promise<void> {
    const { hosts, connection } = this.parts.store;
    const until = performance.now() + HEARTBEAT_MS;
    for (;;) {
      const known = await retry(() => hosts.list(), { onRefused: connection.onRefused });
      const missing = others.some((name) => !known.some(({ host, alive }) => host === name && alive));
      if (!missing || this.#stopping || performance.now() > until) return;
      await delay(HEARD_LOOK_MS);
    }
  }

  async #writeBack(): Promise<void> {
    const { recovery, executions, store } = this.parts;
    const { onRefused } = store.connection;
    await retry(() => recovery.restoreEnds(), { onRefused });
    await retry(() => executions.compare(), { onRefused });
    await executions.fenced();
  }
}
