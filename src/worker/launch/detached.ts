/** Thrown when this process lets go of a run that goes on by itself (`daemon stop`). */
export class Detached extends Error {
  constructor() {
    super('The run goes on under its supervisor.');
    this.name = 'Detached';
  }
}

/** Whether an abort ends the job. */
export const isEnded = (signal: AbortSignal): boolean => signal.aborted && !letsGo(signal);

/** Whether an abort only lets go of the job: its reason is a `Detached`. */
export const letsGo = (signal: AbortSignal): boolean => signal.aborted && signal.reason instanceof Detached;
