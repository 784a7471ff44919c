import { examine } from '../doctor.js';
import type { Verb } from '../verb.js';

const MARKS = { ok: ['green', '✓'], warning: ['yellow', '!'], failed: ['red', '✗'] } as const;

const doctorVerb: Verb = async (_invocation, context) => {
  const { out } = context;
  const findings = await examine(context);
  const broken = findings.filter((finding) => finding.status === 'failed');
  if (out.json) out.document('doctor', { schema: 1, ok: broken.length === 0, checks: findings });
  else {
    const widest = Math.max(...findings.map((finding) => finding.check.length));
    for (const { check, status, found, remedy } of findings) {
      const [colour, mark] = MARKS[status];
      out.data(`${out.paint(colour, mark)} ${check.padEnd(widest)}  ${found}`);
      if (remedy !== null) out.data(`  ${' '.repeat(widest)}  ${out.paint('dim', '→')} ${remedy}`);
    }
    out.note(
      broken.length === 0 ? 'Everything needed is there.' : `${broken.length} of ${findings.length} checks failed.`,
    );
  }
  return broken.length === 0 ? 0 : 5;
};

export default doctorVerb;
