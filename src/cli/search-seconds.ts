import type { Progress } from '../worker/types.js';

/** Where the seconds of a search went, from what it tells as it goes. */
export class SearchSeconds {
  #begun: number | null = null;
  #steps = 0;
  #warmUp = 0;
  #verification = 0;
  #probes = 0;
  #verifies = false;

  constructor(private readonly now: () => number = Date.now) {}

  see(event: Progress): void {
    if (event.type === 'launch' || event.type === 'life') this.#begun ??= this.now();
    if (event.type === 'probing') this.#verifies = event.probe.purpose === 'verify';
    if (event.type !== 'probe') return;
    const { wall_s: wall = 0, steps, step_s: step } = event.record;
    this.#probes += 1;
    if (this.#verifies) this.#verification += wall;
    else {
      const steady = Math.min(wall, steps * (step ?? 0));
      this.#steps += steady;
      this.#warmUp += wall - steady;
    }
  }

  /** Starts are what is left of the whole, with all that is between probes; null: nothing was searched. `total` absent: until now. */
  summary(total = this.#begun === null ? 0 : (this.now() - this.#begun) / 1000): string | null {
    if (this.#probes === 0) return null;
    const measured = this.#steps + this.#warmUp + this.#verification;
    const parts = [
      ['start', Math.max(0, total - measured)],
      ['warm-up', this.#warmUp],
      ['steps', this.#steps],
      ['verification', this.#verification],
    ] as const;
    return `searched for ${figure(Math.max(total, measured))}: ${parts.map(([name, s]) => `${name} ${figure(s)}`).join(', ')}`;
  }
}

const figure = (seconds: number): string => `${seconds.toFixed(1)} s`;
