import { formatBytes } from '../../common/size.js';
import type { Diagnosis, MemoryPicture } from '../../contract/diagnosis.js';

const TITLES: Record<Diagnosis['class'], string> = {
  device_oom: 'out of device memory',
  host_oom: 'out of host memory',
  shm: 'shared memory is full',
  disk_full: 'no space left on disk',
  network: 'network or collective failure',
  device_fault: 'the device failed',
  user_error: 'an error in the program or its input',
  timeout: 'ran past its time limit',
  killed: 'killed',
  cancelled: 'cancelled',
  ok: 'no failure',
};

/** A diagnosis for a person: verdict, the line that shows it, who held the memory, what to do. Ends with a line feed. */
export function renderDiagnosis(d: Diagnosis, { color, width }: { color: boolean; width: number }): string {
  const columns = Math.max(40, Math.min(width || 80, 120));
  const paint = (code: number, text: string) => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  const out: string[] = [];
  const sure = d.certain || d.class === 'ok' ? '' : ' (not certain)';
  const phase = d.phase === 'unknown' ? '' : `, in phase ${d.phase}`;
  out.push(paint(d.class === 'ok' ? 32 : 31, `${d.class}: ${TITLES[d.class]}`) + paint(2, `${sure}${phase}`), '');
  if (d.evidence !== null) {
    const where = d.line === null ? '' : `line ${d.line}${d.rank ? ` (${d.rank})` : ''}: `;
    out.push(...wrap(where + printable(d.evidence), columns - 2, 6).map((line) => `  ${paint(2, line)}`), '');
  }
  const bar = d.memory ? memoryBar(d.memory, columns - 2, paint) : [];
  if (bar.length > 0) out.push(...bar.map((line) => `  ${line}`), '');
  if (d.cause) out.push(...wrap(d.cause, columns));
  if (d.advice) out.push(...wrap(`What helps: ${d.advice}`, columns));
  return `${out.join('\n')}\n`;
}

type Paint = (code: number, text: string) => string;

/** One bar for the whole device, and one line that names its parts. */
function memoryBar(memory: MemoryPicture, width: number, paint: Paint): string[] {
  const { total_bytes: total, process_bytes: own, others_bytes: others, free_bytes: free, asked_bytes: asked } = memory;
  const legend: string[] = [];
  const part = (name: string, bytes: number | null, sign: string) => {
    if (bytes !== null && bytes > 0) legend.push(`${sign}${name} ${formatBytes(bytes)}`);
  };
  part('total', total, '');
  part('this process', own, '█ ');
  part('others', others, '▒ ');
  part('free', free, '░ ');
  part('asked', asked, '▶ ');
  const lines: string[] = [];
  if (total !== null && total > 0 && own !== null) {
    const cells = Math.max(20, Math.min(60, width - 12));
    const cell = (bytes: number | null) => Math.round((Math.min(bytes ?? 0, total) / total) * cells);
    const mine = cell(own);
    const theirs = Math.min(cells - mine, cell(others));
    const rest = Math.max(0, cells - mine - theirs);
    const want = asked === null ? 0 : Math.max(1, Math.min(8, cell(asked)));
    lines.push(
      `│${paint(36, '█'.repeat(mine))}${paint(33, '▒'.repeat(theirs))}${'░'.repeat(rest)}│${paint(31, '▶'.repeat(want))}`,
    );
  }
  // A part's sign, name and size stay on one line.
  const parts = legend.map((text) => text.replaceAll(' ', '\u00a0')).join('  ');
  if (legend.length > 0) lines.push(...wrap(parts, width).map((line) => line.replaceAll('\u00a0', ' ')));
  return lines;
}

/** Log text may hold anything: nothing in it may steer the terminal. */
function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
}

function wrap(text: string, width: number, most = 40): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/ +/)) {
    for (let rest = word; rest !== ''; rest = rest.slice(width)) {
      const piece = rest.slice(0, width);
      if (line !== '' && line.length + 1 + piece.length > width) {
        lines.push(line);
        line = '';
      }
      line = line === '' ? piece : `${line} ${piece}`;
    }
  }
  if (line !== '') lines.push(line);
  return lines.length <= most
    ? lines
    : [...lines.slice(0, most - 1), `${(lines[most - 1] as string).slice(0, width - 1)}…`];
}
