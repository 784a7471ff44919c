import { Argument, Command } from 'commander';
import { usageError } from '../common/errors.js';
import { nearest } from '../common/names.js';
import { SHELLS } from './completion/grammar.js';
import { firstHelp } from './first-help.js';
import {
  addOptions,
  COMMON,
  DAEMON,
  EDIT,
  ESTIMATE,
  KNOB,
  MANIFEST,
  NOTIFY,
  type Options,
  PLOT,
  RUN,
  SUBMIT,
  SYSTEM,
  WORK,
} from './options.js';
import { shown } from './output.js';
import { type Dispatch, verbMaker } from './verb.js';

const SERVE = 'Serve:';

/** The whole command line. `dispatch` gets the verb; `command` is what followed `--`. */
export function createProgram(dispatch: Dispatch, command: string[] = []): Command {
  const program = new Command('oomtune')
    .description('Runs any training command at the best configuration that fits the GPU.')
    .usage('VERB [options] [-- COMMAND…]')
    .helpOption('-h, --help', 'show this help')
    .helpCommand('help [verb]', 'show the help of a verb')
    .configureHelp({
      showGlobalOptions: false,
      helpWidth: Math.min(process.stdout.columns || 100, 120),
      optionDescription: (option) => option.description, // the flags name the choices already
    })
    .exitOverride()
    .configureOutput({
      writeOut: (text) => process.stdout.write(shown(text, process.stdout)),
      writeErr: () => {},
      outputError: () => {},
    })
    .enablePositionalOptions()
    .allowExcessArguments(true) // so that an unknown verb is told as that
    .option('-V, --version', 'show the versions of all parts');
  addOptions(program, COMMON);
  program.action(async (options: Record<string, unknown>) => {
    if (options.version) {
      const load = async () => (await import('./verbs/version.js')).default;
      return dispatch({ verb: 'version', args: [], options, command, program }, load);
    }
    const [word] = program.args;
    if (word === undefined && options.json !== true) {
      process.stdout.write(shown(firstHelp(process.stdout.columns || 80), process.stdout));
      return;
    }
    if (word === undefined) throw usageError('No verb was given.', 'Run `oomtune --help` to see them all.');
    const near = nearest(
      word,
      program.commands.map((known) => known.name()),
    );
    const hint = near === null ? '' : `Did you mean \`oomtune ${near}\`? `;
    throw usageError(`There is no verb "${word}".`, `${hint}Run \`oomtune --help\` to see them all.`);
  });

  const under = verbMaker(program, dispatch, command);
  const jobs = { args: [new Argument('<job...>', 'job ids or names; @ is the latest')] };
  const options = (...specs: Options[string]): { options: Options[] } => ({ options: [{ '': specs }] });

  const work = under(program, 'Find, run, queue:');
  work(
    'find-batch',
    'find, verify and record the best configuration for a command',
    () => import('./verbs/find-batch.js'),
    { command: 'must', options: [WORK, KNOB, PLOT, NOTIFY] },
  );
  work('run', 'run a command in the foreground, tuned and supervised', () => import('./verbs/run.js'), {
    command: 'must',
    options: [WORK, RUN, NOTIFY],
  });
  work('submit', 'queue a command; prints the job id', () => import('./verbs/submit.js'), {
    command: 'must',
    options: [WORK, SUBMIT, NOTIFY],
  });

  work(
    'estimate',
    'work out without a GPU what a command needs, and the largest batch on a list of cards',
    () => import('./verbs/estimate.js'),
    { command: 'must', options: [ESTIMATE] },
  );

  const follow = under(program, 'Follow and steer jobs:');
  follow('status', 'show jobs', () => import('./verbs/status.js'), {
    args: [new Argument('[job...]', 'job ids or names; @ is the latest')],
    ...options(
      ['-w, --watch', 'go on showing, until interrupted'],
      ['-n, --limit <n>', 'how many of those that have ended to show, the latest (default: 20); all others are shown'],
      ['--state <states>', 'only these: states with commas between, or waiting, active, ended'],
      ['--name <name>', 'only jobs of this name; * stands for any letters'],
      ['-u, --user <name>', 'only the jobs of this user'],
      ['--host <host>', 'only jobs of this host'],
      ['--device <device>', 'only jobs on this device: cuda:0, cuda or cpu'],
      ['--tag <tag>', 'only jobs that were submitted with this tag'],
      [
        '--sort <by>',
        'submitted, started, ended, duration, name, state, owner, host, device or priority; -duration: the longest first',
        { preset: 'submitted' },
      ],
      ['--csv', 'a line of comma-separated values for each job, for spreadsheets'],
      ['--users', 'show what each user has used, has and may have; who is first goes first'],
    ),
  });
  follow(
    'top',
    'show devices and jobs as they change, with keys to cancel, hold and follow',
    () => import('./verbs/top.js'),
    {
      ...options(
        ['--state <states>', 'only these: states with commas between, or waiting, active, ended'],
        ['--name <name>', 'only jobs of this name; * stands for any letters'],
        ['-u, --user <name>', 'only the jobs of this user'],
        ['--sort <by>', 'as in status', { preset: 'submitted' }],
      ),
    },
  );
  follow('wait', 'wait until jobs have ended', () => import('./verbs/wait.js'), jobs);
  follow('logs', "show a job's output", () => import('./verbs/logs.js'), {
    ...jobs,
    ...options(
      ['-f, --follow', 'go on until the job has ended'],
      ['-n, --lines <n>', 'only the last lines'],
      ['--launch <n>', 'of this launch', { preset: 'the latest' }],
    ),
  });
  const steer = () => import('./verbs/steer.js');
  follow('cancel', 'end jobs, or take them from the queue', steer, jobs);
  follow('retry', 'queue an ended job again', () => import('./verbs/retry.js'), {
    args: [new Argument('<job>', 'job id or name; @ is the latest')],
  });
  follow('hold', 'keep waiting jobs from starting', steer, jobs);
  follow('pause', 'have running jobs stand still', steer, jobs);
  follow('resume', 'let paused jobs go on', steer, jobs);
  follow('edit', 'change the priority or the time limit of waiting jobs', steer, { ...jobs, options: [EDIT] });
  follow('release', 'let held jobs start', steer, jobs);

  const ask = under(program, 'Ask:');
  ask('explain', 'tell why a job waits, or how its configuration was found', () => import('./verbs/explain.js'), {
    args: [
      new Argument(
        '[job]',
        'job id or name (@, the default, is the latest), also of run and find-batch; or the name or key of a recommendation',
      ),
    ],
  });
  ask('recommend', 'show recorded configurations', () => import('./verbs/recommend.js'), {
    args: [new Argument('[name]', "name, key, or the stem of the script's name")],
    command: 'may',
    ...options(
      ['--apply', 'print the command after -- with the configuration filled in'],
      ['--format <env|json|slurm|k8s|hami|kai>', 'print it for another program'],
    ),
  }).usage('[options] [name] [--apply -- COMMAND…]');
  ask('manifest', 'print a Kubernetes Job for a job or a command', () => import('./verbs/manifest.js'), {
    args: [new Argument('[job]', 'job id or name; @ is the latest')],
    command: 'may',
    options: [WORK, MANIFEST],
  }).usage('[options] --image IMAGE JOB | -- COMMAND…');
  ask('diagnose', 'say why a training process failed, from its log', () => import('./verbs/diagnose.js'), {
    args: [new Argument('[file]', 'log file, or - for stdin')],
    ...options(
      ['--exit-code <n>', 'exit code of the process'],
      ['--signal <signal>', 'signal that ended it: 9, KILL or SIGKILL'],
    ),
  });
  ask('devices', 'show GPUs and host memory, and who holds them', () => import('./verbs/devices.js'));
  ask('doctor', 'check Redis, Python, torch, driver and limits', () => import('./verbs/doctor.js'), {
    ...options(['--report', 'print a bug report: versions and checks, nothing private']),
  });

  const group = (name: string, about: string): Command => {
    const parent = program.command(name).description(about).helpGroup(SERVE);
    return addOptions(parent, COMMON)
      .usage('VERB [options]')
      .helpCommand(false)
      .action(() => {
        const [first] = parent.args;
        const names = parent.commands.map((sub) => sub.name()).join(', ');
        throw usageError(
          first === undefined ? `${name} needs a verb.` : `There is no verb "${name} ${first}".`,
          `Write \`oomtune ${name} VERB\`, with VERB one of ${names}.`,
        );
      })
      .allowExcessArguments(true);
  };
  const daemon = under(group('daemon', 'the scheduler that runs submitted jobs'));
  const daemonVerbs = () => import('./verbs/daemon.js');
  daemon('start', 'start it in the background', daemonVerbs, { options: [DAEMON] });
  daemon('stop', 'stop it; running jobs go on', daemonVerbs, options(['--kill', 'end running jobs too']));
  daemon('forget', 'give up a host that is down for good, and run its jobs elsewhere', daemonVerbs, {
    args: [new Argument('<host>', 'its name, as `status` shows it')],
  });
  daemon('status', 'tell whether it runs', daemonVerbs);
  daemon('run', 'run it in the foreground, under systemd or in a container', daemonVerbs, {
    options: [DAEMON, SYSTEM],
  });
  daemon('install', 'write the systemd unit of a daemon for all users', daemonVerbs, {
    options: [SYSTEM, { '': [['--print', 'print the unit and change nothing']] }],
  });
  const redis = under(group('redis', 'the embedded Redis'));
  const redisVerbs = () => import('./verbs/redis.js');
  redis('url', 'print its URL, starting it if need be', redisVerbs);
  redis('status', 'tell whether it runs', redisVerbs);
  redis('stop', 'stop it', redisVerbs);

  const serve = under(program, SERVE);
  serve('dashboard', "print the dashboard's address, with its token", () => import('./verbs/dashboard.js'));
  serve('completion', 'print the completion script of a shell', () => import('./verbs/completion.js'), {
    args: [new Argument('<shell>', 'the shell').choices(SHELLS)],
  });
  serve('__agent', 'work with the rights of one user', () => import('./verbs/agent.js'), {
    hidden: true,
    args: [new Argument('<home>')],
  });
  serve('__complete', 'print the words that complete jobs or names', () => import('./verbs/complete.js'), {
    hidden: true,
    args: [new Argument('<what>').choices(['jobs', 'names', 'presets'])],
  });
  program.addHelpText(
    'after',
    `
Examples:
  $ oomtune find-batch --device cpu --budget 300MiB -- python train.py
  $ oomtune run --effective-batch 256 -- python train.py --batch-size {micro_batch} --accumulation {accumulation}
  $ oomtune submit --budget 24GiB -- python train.py && oomtune wait @

Exit codes: 0 done, 2 wrong usage, 3 nothing fits, 4 the job failed for another reason than memory,
5 something needed is missing, 6 no such job, 130 interrupted; run passes the job's own code through.`,
  );
  return program;
}
