/**
 * An abort's reason: the user pressed Ctrl-C. At a terminal that reaches the job itself, which may save what it has, and so it does here. `over`
 * is aborted when it has had its time, or the user has asked once more: then it is ended.
 */
export class Interrupted extends DOMException {
  constructor(readonly over: AbortSignal) {
    super('Interrupted by SIGINT.', 'AbortError');
  }
}
