// A corpus of logs: every form of forms.yaml, whole, and changed as logs are on their way from a process to a file.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';

/** What programs print as they fail, with what it is. */
export function readForms() {
  const all = parse(readFileSync(fileURLToPath(new URL('forms.yaml', import.meta.url)), 'utf8'));
  return Object.entries(all).flatMap(([signature, { forms, exit = 1, ambiguous = false, ...rest }]) =>
    Object.entries(forms).map(([version, text]) => ({ signature, version, text, exit, ambiguous, ...rest })),
  );
}

/** Logs in shapes of public reports that no signature was written against. */
export function readHeldOut() {
  return parse(readFileSync(fileURLToPath(new URL('held-out.yaml', import.meta.url)), 'utf8'));
}

/** The same numbers from 0 to 1 at every run. */
export function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Exceptions as Python prints them last: `package.SomeError: message`. */
const RAISED =
  /^[A-Za-z_][\w.]*(?:Error|Exception|OutOfResources|Fail|EnforceNotMet|KilledWorker|_RemoteTraceback|KeyboardInterrupt)(?::|$)/;

function traceback(text, frame, random) {
  const line = 10 + Math.floor(random() * 400);
  const [place, source] = (frame ?? 'File "/srv/job/layers.py", line 88, in forward|y = self.inner(x)').split('|');
  return [
    'Traceback (most recent call last):',
    `  File "/srv/job/run.py", line ${line}, in <module>`,
    '    main()',
    `  ${place}`,
    `    ${source}`,
    text,
  ].join('\n');
}

/** A log that ends as the form says: what the job did before, the failure, and what ended it. */
export function wholeLog({ text, frame, then }, random) {
  const start = Math.floor(random() * 900);
  const progress = Array.from(
    { length: 3 },
    (_, i) => `step ${start + i} | loss ${(2 + random()).toFixed(4)} | lr 1.0e-04`,
  );
  return `${progress.join('\n')}\n${failure({ text, frame, then }, random)}\n`;
}

/** What it prints as it fails. */
function failure({ text, frame, then }, random) {
  const first = RAISED.test(text) ? traceback(text, frame, random) : text;
  if (!then) return first;
  return `${first}\n${RAISED.test(then) ? traceback(then, undefined, random) : then}`;
}

function each(log, change) {
  const lines = log.split('\n');
  const last = lines.pop();
  return lines.map(change).join('\n') + (lines.length > 0 ? '\n' : '') + (last ? change(last, lines.length) : '');
}

/** What libraries of the system say in other languages. */
const TRANSLATED = [
  ['No space left on device', 'Auf dem Gerät ist kein Speicherplatz mehr verfügbar'],
  ['Cannot allocate memory', 'Impossible d’allouer de la mémoire'],
  ['Too many open files', 'Zu viele offene Dateien'],
  ['Address already in use', 'Adresse déjà utilisée'],
  ['Disk quota exceeded', '超出磁盘限额'],
  ['Stale file handle', '文件句柄无效'],
  ['Host is down', 'Rechner ist nicht erreichbar'],
  ['No such file or directory', '没有那个文件或目录'],
  ['Segmentation fault', 'Speicherzugriffsfehler'],
  ['Resource temporarily unavailable', 'Ressource temporairement non disponible'],
  ['There is not enough space on the disk', 'Espace insuffisant sur le disque'],
  [
    'The paging file is too small for this operation to complete',
    'Die Auslagerungsdatei ist zu klein, um diesen Vorgang durchzuführen',
  ],
];

/** Ways in which a log is changed; null: nothing in it can be changed so. */
export const MUTATIONS = {
  whole: (log) => log,
  'by rank': (log) => each(log, (line) => `[rank2]: ${line}`),
  'by rank, wrapped': (log) => each(log, (line) => `[rank2]: ${line}`.replace(/(.{96})(?=.)/g, '$1\n')),
  'by time': (log) => each(log, (line, i) => `2026-06-22T15:13:${10 + (i % 50)}.123456Z ${line}`),
  'by logger': (log) => each(log, (line, i) => `2026-06-22 15:13:${10 + (i % 50)},123 - runner - INFO - ${line}`),
  'behind tqdm': (log, random) => {
    const n = Math.floor(random() * 90);
    const bar = Array.from(
      { length: 5 },
      (_, i) => `${n + i}%|███       | ${n + i}/100 [00:10<00:30,  3.1it/s, loss=2.1]`,
    );
    return `\r${bar.join('\r')}${log.slice(log.indexOf('\n') + 1).replace(/^(?:step .*\n)*/, '')}`;
  },
  coloured: (log) => each(log, (line) => (line === '' ? line : `\u001b[1m\u001b[31m${line}\u001b[0m`)),
  boxed: (log) => each(log, (line) => `│ ${line.padEnd(78)} │`),
  translated: (log) => {
    const changed = TRANSLATED.reduce((text, [from, to]) => text.replaceAll(from, to), log);
    return changed === log ? null : changed;
  },
  'wrapped at 80': (log) => each(log, (line) => line.replace(/(.{80})(?=.)/g, '$1\n')),
  'wrapped at 100': (log) => each(log, (line) => line.replace(/(.{100})(?=.)/g, '$1\n')),
  'wrapped at 120': (log) => each(log, (line) => line.replace(/(.{120})(?=.)/g, '$1\n')),
  'wrapped at words': (log) => each(log, (line) => line.replace(/(.{1,100})(?: |$)/g, '$1\n').trimEnd()),
  'in JSON': (log) => each(log, (line) => JSON.stringify({ log: `${line}\n`, stream: 'stderr' })),
  'in a repr': (log) => {
    const head = log.indexOf('Traceback');
    return head < 0 ? null : `${log.slice(0, head)}request 17 failed: error=${JSON.stringify(log.slice(head))}\n`;
  },
  'with CRLF': (log) => log.replaceAll('\n', '\r\n'),
  'behind 1 MB of \\r': (log) => {
    let bars = '';
    for (let i = 0; bars.length < 1 << 20; i++) bars += `\r${i % 100}%|##        | ${i}/99999 [00:01<00:02, 3.1it/s]`;
    return `${bars}\n${log}`;
  },
  'front cut': (log, random) => {
    const head = log.indexOf('Traceback');
    if (head < 0) return null;
    return log.slice(head + Math.floor(random() * 60));
  },
  'end cut': (log, random) => {
    const last = log.trimEnd().split('\n').at(-1);
    if (last.length < 160) return log.trimEnd();
    return log.trimEnd().slice(0, -Math.floor(random() * (last.length - 140)));
  },
  interleaved: (log) => {
    let step = 0;
    return each(log, (line) => `[rank0]: ${line}\n[rank1]: waiting for rank 0 (${step++})`);
  },
};

/** The same failure, got over: the job says so, goes on, and nobody knows its exit status. */
function gotOver(form, random) {
  const start = 1000 + Math.floor(random() * 900);
  const steps = Array.from(
    { length: 4 },
    (_, i) => `step ${start + i} | loss ${(1 + random()).toFixed(4)} | lr 1.0e-04`,
  );
  return `${wholeLog(form, random)}skipping batch after out-of-memory error\n${steps.join('\n')}\n`;
}

/** How a run begins and what it prints, in no form that says how far it is. */
function run(from) {
  const written = Array.from(
    { length: 9 },
    (_, i) => `wrote shard-${from + i}.npz (${3 + i} items) to out/${from + i}`,
  );
  return `exporting embeddings of corpus ${from}\nusing cache at /data/cache/${from}\nencoder: 12 layers, 768 wide\nlooking for shards below in/${from}\n${written.join('\n')}\n`;
}

/** The same failure in a log to which the next run was appended, and that went well. */
function beforeAnother(form, random) {
  return `${run(100)}${failure(form, random)}\n${run(400)}`;
}

/** The same failure in a log to which this run was appended: the run before it had failed of something else. */
function behindAnother(form, random) {
  const other = 'Traceback (most recent call last):\n  File "/srv/job/run.py", line 9, in <module>\n    main()';
  return `${run(100)}${other}\nKeyError: 'shards'\n${run(400)}${failure(form, random)}\n`;
}

/** All logs: `{form, mutation, log}`. `seed`: of what is random in them. */
export function* generate(seed = 1) {
  const random = randomFrom(seed);
  for (const form of readForms()) {
    const whole = wholeLog(form, random);
    for (const [mutation, change] of Object.entries(MUTATIONS)) {
      const log = change(whole, random);
      if (log !== null) yield { form, mutation, log };
    }
    yield { form: { ...form, exit: null }, mutation: 'behind another run', log: behindAnother(form, random) };
    // What one rank prints says nothing of another, and a run of several ranks is none of one process.
    if (form.class !== 'ok' && !form.text.startsWith('[rank')) {
      const past = { ...form, class: 'ok', exit: null, ambiguous: true };
      yield { form: past, mutation: 'before another run', log: beforeAnother(form, random) };
    }
    if (form.class === 'device_oom') {
      const over = { ...form, class: 'ok', exit: null, ambiguous: true };
      yield { form: over, mutation: 'got over', log: gotOver(form, random) };
    }
  }
}
