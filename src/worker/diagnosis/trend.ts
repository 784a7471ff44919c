const FIGURE =
  /(?:^|[^a-z])(?:gpu[_ -]?mem(?:ory)?|cuda[_ -]?mem(?:ory)?|max[_ -]?mem(?:ory)?|mem(?:ory)?|allocated|reserved|vram)(?:[_ -]?(?:used|usage|alloc\w{0,8}|reserved|cuda:\d))*[^a-z0-9]{0,4}(\d{1,9}(?:\.\d{1,4})?) ?(gib|mib|gb|mb|g|m)?(?![a-z0-9%])/;
const UNITS: Record<string, number> = {
  g: 1024 ** 3,
  gb: 1024 ** 3,
  gib: 1024 ** 3,
  m: 1024 ** 2,
  mb: 1024 ** 2,
  mib: 1024 ** 2,
};
const ENOUGH = 5;

/** Memory as a job's own progress lines show it: whether it rose from step to step. */
export class Trend {
  private first: { step: number; bytes: number } | null = null;
  private last: { step: number; bytes: number } | null = null;
  private points = 0;
  private rises = 0;
  private falls = 0;

  /** Takes a line of progress; lines without a figure are nothing to it. */
  add(text: string, step: number | null): void {
    const match = FIGURE.exec(text.toLowerCase());
    if (!match) return;
    const bytes = Math.round(Number(match[1]) * (UNITS[match[2] ?? 'mib'] as number));
    const point = { step: step ?? this.points, bytes };
    if (this.last) {
      if (bytes > this.last.bytes) this.rises += 1;
      if (bytes < this.last.bytes) this.falls += 1;
    }
    this.first ??= point;
    this.last = point;
    this.points += 1;
  }

  /** A steady rise that never fell and came to at least a tenth; null: none. */
  growth(): { bytesPerStep: number; steps: number } | null {
    const { first, last } = this;
    if (!first || !last || this.points < ENOUGH || this.falls > 0 || this.rises < (this.points - 1) * 0.7) return null;
    if (last.bytes < first.bytes * 1.1) return null;
    const steps = last.step > first.step ? last.step - first.step : this.points - 1;
    return { bytesPerStep: Math.round((last.bytes - first.bytes) / steps), steps };
  }
}
