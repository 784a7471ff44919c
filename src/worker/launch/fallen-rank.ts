/** Seconds that the other ranks of a job get to notice by themselves that one has died; its launcher mostly ends them at once. */
const NOTICE_SECONDS = 12;

/**
 * Tells when a rank has died for want of memory and the others go on waiting for it: those of NCCL do for half an hour, and not
 * every launcher looks. A process that comes after it (an elastic launcher's), or a step, takes it back.
 */
export class FallenRank {
  readonly #ranOut = new Set<number>();
  #timer: NodeJS.Timeout | null = null;
  #tell: () => void = () => {};
  /** Resolves when the others have not noticed in time. */
  readonly unnoticed = new Promise<void>((resolve) => {
    this.#tell = resolve;
  });

  constructor(private readonly seconds = NOTICE_SECONDS) {}

  ranOut(pid: number): void {
    this.#ranOut.add(pid);
  }

  gone(pid: number, others: number): void {
    if (!this.#ranOut.has(pid) || others === 0) return;
    this.#timer ??= setTimeout(() => this.#tell(), this.seconds * 1000);
  }

  /** The job goes on, or is over. */
  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
