import { setMaxListeners } from 'node:events';
import { longestEndMs } from '../common/bounds.js';
import { Interrupted } from '../common/interrupted.js';
import { ignoresHangup } from './hangup.js';
import type { Output } from './output.js';

/** And the exit codes of a program that each of them ends. */
const SIGNALS = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;
type Ending = keyof typeof SIGNALS;
const NAMES = Object.keys(SIGNALS) as Ending[];

/** What a verb does about the signals that end a program: the first has it end what runs, the second end it at once, the third ends this process. */
export class Interruption {
  private readonly controller = new AbortController();
  private readonly patienceOver = new AbortController();
  private times = 0;
  private code: number | null = null;

  /** Listens from now on. */
  constructor(private readonly out: Output) {
    setMaxListeners(0, this.controller.signal); // a verb waits for as many jobs as were named
    const stays = ignoresHangup();
    for (const name of NAMES) if (name !== 'SIGHUP' || !stays) process.on(name, this.heard);
    // Heard all the same, as without a listener it would end us.
    if (stays) process.on('SIGHUP', ignored);
  }

  /** Aborted by the first signal. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Aborted when a job that Ctrl-C has reached is not to save any more; with any other signal at once. */
  get patience(): AbortSignal {
    return this.patienceOver.signal;
  }

  /** 128 + the number of the first signal; null: there was none. */
  get exitCode(): number | null {
    return this.code;
  }

  readonly heard = (name: Ending): void => {
    this.times += 1;
    this.code ??= SIGNALS[name];
    if (name !== 'SIGINT' || this.times > 1) this.patienceOver.abort();
    // At a terminal somebody is there who can press once more.
    else if (!process.stderr.isTTY) setTimeout(() => this.patienceOver.abort(), longestEndMs()).unref();
    if (this.times === 1) this.controller.abort(this.reason(name));
    else if (this.times === 2) this.out.note('oomtune: still ending what runs; once more to leave at once.');
    else process.exit(this.code);
  };

  close(): void {
    for (const name of NAMES) process.off(name, this.heard);
    process.off('SIGHUP', ignored);
  }

  private reason(name: Ending): DOMException {
    return name === 'SIGINT'
      ? new Interrupted(this.patience)
      : new DOMException(`Interrupted by ${name}.`, 'AbortError');
  }
}

const ignored = (): void => {};
