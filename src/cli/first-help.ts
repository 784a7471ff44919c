/** What the bare command shows: what people come for, and the words that do it. */
const TASKS: [task: string, words: string][] = [
  ['Find the largest batch that fits', 'find-batch -- python train.py'],
  ['Run a job that would not fit', 'run -- python train.py'],
  ['Queue a job', 'submit -- python train.py'],
  ['Start what runs queued jobs', 'daemon start'],
  ['Follow the latest job', 'logs -f @'],
  ['See devices and jobs', 'top'],
  ['Learn why a job waits or failed', 'explain @'],
  ['Learn why a log ends', 'diagnose train.log'],
  ['Read what was found', 'recommend'],
  ['Check this machine', 'doctor'],
];

/** Narrower terminals get the words below each task. */
const BESIDE = 72;

export function firstHelp(columns: number): string {
  const widest = Math.max(...TASKS.map(([task]) => task.length));
  const lines = TASKS.map(([task, words]) =>
    columns < BESIDE ? `  ${task}\n      oomtune ${words}` : `  ${task.padEnd(widest)}   oomtune ${words}`,
  );
  return `Runs any training command at the best configuration that fits the GPU.

${lines.join('\n')}

\`oomtune VERB --help\` tells what a verb takes.
\`oomtune --help\` names all verbs.
`;
}
