/** Runs something that looks at everything, once at a time: a call in between is followed by one more look, whenever it comes. */
export class OneAtATime {
  #running: Promise<void> | null = null;
  #again = false;

  constructor(private readonly look: () => Promise<void>) {}

  /** Resolves, or rejects with the first look's error, when there is nothing more to look at. */
  call(): Promise<void> {
    if (this.#running !== null) {
      this.#again = true;
      return this.#running;
    }
    this.#again = false;
    this.#running = this.look().finally(() => {
      // Not before: a call that comes after the look has ended, and before this line, would be for nothing.
      this.#running = null;
      return this.#again ? this.call() : undefined;
    });
    return this.#running;
  }

  /** Resolves when no look runs. */
  async idle(): Promise<void> {
    await this.#running?.catch(() => {});
  }
}
