import { formatBytes } from '../common/size.js';
import type { EstimateReport } from '../contract/estimate.js';
import { rungName } from '../contract/rung.js';
import type { Paint } from './output.js';
import { table } from './table.js';
import { bytesOr } from './words.js';

/** For people: what it needs at its own batch, then a line for each card. */
export function renderEstimate(report: EstimateReport, paint: Paint): string {
  const { name, own, cards, parameter_bytes, gradient_bytes, optimizer_state_bytes } = report;
  const first = cards[0]?.name ?? '';
  const lines = [paint('bold', `${name}, estimated without a GPU`)];
  const row = (title: string, text: string): void => void lines.push(`  ${title.padEnd(11)}  ${text}`);
  if (own === null) row('the script', 'names no batch of its own');
  else {
    const times = own.accumulation > 1 ? ` × accumulation ${own.accumulation}` : '';
    row('the script', `micro-batch ${own.micro_batch}${times}, ${rungName(report.rung)}`);
    row(
      'peak',
      `${formatBytes(own.peak_bytes)} on a card like ${first}, ${formatBytes(own.allocated_bytes)} of it tensors`,
    );
  }
  for (const { micro_batch, peak_bytes } of report.asked) row(`peak at ${micro_batch}`, formatBytes(peak_bytes));
  row(
    'kept',
    `${bytesOr(parameter_bytes)} parameters, ${bytesOr(gradient_bytes)} gradients, ${bytesOr(optimizer_state_bytes)} optimizer state`,
  );
  const body = table(
    cards,
    [
      { title: 'CARD', value: (card) => card.name },
      { title: 'MEMORY', value: (card) => formatBytes(card.total_bytes), align: 'right' },
      {
        title: 'ITS OWN BATCH',
        value: ({ own_fits }) => (own_fits === null ? '-' : own_fits ? 'fits' : 'does not fit'),
      },
      {
        title: 'LARGEST',
        value: (card) => (card.micro_batch === 0 ? 'none' : String(card.micro_batch)),
        align: 'right',
      },
      { title: 'PEAK', value: (card) => bytesOr(card.peak_bytes), align: 'right' },
    ],
    paint,
  );
  return [
    ...lines,
    '',
    body,
    '',
    `The largest leaves ${report.headroom_pct} % free. Nothing of this was run on a card; \`oomtune find-batch\` measures it on one.`,
    ...report.notes.map((note) => `  - ${note}`),
  ].join('\n');
}
