/** Between two reports of the same. */
const AGAIN_MS = 60_000;

/** Keeps what is reported again and again from being told each time. */
export class ToldLately {
  #last = { what: '', at: Number.NEGATIVE_INFINITY };

  /** Whether this is to be told now: it is another thing than the last time, or that was a minute ago. */
  isDue(what: string): boolean {
    if (this.#last.what === what && Date.now() - this.#last.at < AGAIN_MS) return false;
    this.#last = { what, at: Date.now() };
    return true;
  }
}
