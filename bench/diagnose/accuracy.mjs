// How often diagnose is right: on every form of forms.yaml, whole and changed in every way of corpus.mjs, and on the logs
// of held-out.yaml as they were judged at first sight. Run: node bench/diagnose/accuracy.mjs   (after npm run build:ts)
// Writes bench/results/diagnose-accuracy.md.
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import { diagnose } from '../../dist/worker/diagnosis/index.js';
import { generate, readForms, readHeldOut } from './corpus.mjs';

const CLASSES = 'device_oom host_oom shm disk_full network device_fault user_error timeout killed cancelled ok'.split(
  ' ',
);
const SEED = 1;

const verdicts = [];
for (const { form, mutation, log } of generate(SEED)) {
  const { class: got, certain } = await diagnose({ log: [Buffer.from(log)], exitCode: form.exit });
  const name = `${form.signature}, ${form.version}, ${mutation}`;
  verdicts.push({ name, mutation, wanted: form.class, got, certain, bold: form.ambiguous && certain });
}
const heldOut = [];
for (const { shape, class: wanted, first, exit = null, log } of readHeldOut()) {
  const now = await diagnose({ log: [Buffer.from(log)], exitCode: exit });
  heldOut.push({ name: shape, wanted, got: first ?? wanted, now: now.class });
}

const right = ({ wanted, got }) => wanted === got;
const percent = (part, all) => (all === 0 ? '' : `${((100 * part) / all).toFixed(1)} %`);
const table = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');

function byClass(all) {
  const rows = CLASSES.map((name) => {
    const wanted = all.filter((v) => v.wanted === name);
    const claimed = all.filter((v) => v.got === name && !right(v));
    const found = wanted.filter(right).length;
    return [
      name,
      wanted.length,
      percent(found, wanted.length),
      claimed.length,
      claimed.filter((v) => v.certain).length,
    ];
  });
  const wrong = all.filter((v) => !right(v));
  rows.push([
    'all',
    all.length,
    percent(all.length - wrong.length, all.length),
    wrong.length,
    wrong.filter((v) => v.certain).length,
  ]);
  return rows;
}

function confusion(all) {
  const used = CLASSES.filter((name) => all.some((v) => v.wanted === name || v.got === name));
  return table(
    ['is \\ judged', ...used],
    used.map((wanted) => [
      wanted,
      ...used.map((got) => all.filter((v) => v.wanted === wanted && v.got === got).length || ''),
    ]),
  );
}

const mutations = [...new Set(verdicts.map((v) => v.mutation))].map((mutation) => {
  const all = verdicts.filter((v) => v.mutation === mutation);
  return [mutation, all.length, percent(all.filter(right).length, all.length)];
});
const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const bold = verdicts.filter((v) => v.bold);
const seen = heldOut.filter(right).length;
const threads = parse(readFileSync(new URL('real-threads.yaml', import.meta.url), 'utf8'));
const sum = (of) => threads.reduce((total, set) => total + set[of], 0);
const text = `# How often diagnose is right

\`node bench/diagnose/accuracy.mjs\` (seed ${SEED}), oomtune ${version}, node ${process.version}, on ${cpus().length} cores of an ${cpus()[0].model.trim()} (no figure here depends on that), ${new Date().toISOString().slice(0, 10)}.

## Generated logs

${readForms().length} forms (three or more versions for every signature), each whole and changed in ${mutations.length - 1} ways: ${verdicts.length} logs.
The signatures were written with these forms in view; what the table shows is what the changes cost, not what unknown programs do.
"claimed wrongly" counts logs of other classes that were judged to be of this one; "for certain" those of them with \`certain: true\`.

${table(['class', 'logs', 'right', 'claimed wrongly', 'for certain'], byClass(verdicts))}

Certain of a text that can mean something else: ${bold.length} of ${verdicts.length}.

${confusion(verdicts)}

${table(['log', 'number', 'right'], mutations)}

## Held out: shapes of public reports at first sight

${heldOut.length} logs with texts of our own in shapes of public issue threads that no signature had been written against. Judged once, before
anything was changed for them: ${seen} of ${heldOut.length} right (${percent(seen, heldOut.length)}). The table shows that first sight. Signatures were written for the
others since; today ${heldOut.filter((v) => v.now === v.wanted).length} of ${heldOut.length} are right, which says nothing about the next unknown program.

${confusion(heldOut)}

Wrong at first sight: ${heldOut
  .filter((v) => !right(v))
  .map((v) => `${v.name} (${v.got})`)
  .join('; ')}.

## Texts of real threads at first sight

Texts from public issue threads, kept outside of this repository (\`bench/diagnose/real-threads.yaml\`); each set is of threads that no signature had been
written against but where its row says otherwise, and was labelled before it was judged. ${sum('right')} of ${sum('texts')} right (${percent(sum('right'), sum('texts'))}), ${sum('false_oom')} judged device_oom that were
something else, ${sum('certain_oom')} of those for certain. The signatures were mended after each set, so no set measures the present state but the last.

${table(
  ['set', 'texts', 'right at first sight', 'wrongly device_oom', 'for certain'],
  threads.map((set) => [
    set.set,
    set.texts,
    `${set.right} (${percent(set.right, set.texts)})`,
    set.false_oom,
    set.certain_oom,
  ]),
)}

## Generated logs that are judged wrong

${verdicts
  .filter((v) => !right(v))
  .map((v) => `- ${v.name}: ${v.got}${v.certain ? ', certain' : ''}; is ${v.wanted}`)
  .join('\n')}
`;
writeFileSync(fileURLToPath(new URL('../results/diagnose-accuracy.md', import.meta.url)), text);
console.log(text);
