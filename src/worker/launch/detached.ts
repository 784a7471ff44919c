/** Thrown out of the worker when its process lets go of a run that goes on by itself (`daemon stop`). */
export class Detached extends Error {
  constructor() {
    super('The run goes on under its supervisor.');
    this.name = 'Detached';
  }
}

/** Whether an abort means that the job is to end. */
export function isEnded(signal: AbortSignal): boolean {
  return signal.aborted && !letsGo(signal);
}

/** Whether an abort means "let go", not "end the job". Abort with `new Detached()` as the reason to let go. */
export function letsGo(signal: AbortSignal): boolean {
  return signal.aborted && signal.reason instanceof Detached;
}
