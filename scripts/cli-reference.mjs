#!/usr/bin/env node
/** Writes docs/reference/cli.md from the program itself; `--check` only says whether it is up to date. */
import { readFileSync, writeFileSync } from 'node:fs';
import { createProgram } from '../dist/cli/program.js';

const FILE = new URL('../docs/reference/cli.md', import.meta.url);

function section(command, path) {
  const help = command.createHelp();
  help.helpWidth = 100;
  const usage = `oomtune ${[...path, command.usage()].join(' ')}`.replace('  ', ' ');
  const lines = [`${'#'.repeat(Math.min(path.length + 1, 3))} ${path.length === 0 ? 'oomtune' : path.join(' ')}`, ''];
  lines.push(
    `${command.description().replace(/\.$/, '')}.`.replace(/^./, (letter) => letter.toUpperCase()),
    '',
    '```',
    usage,
    '```',
    '',
  );
  const args = command.registeredArguments.filter((argument) => argument.description);
  if (args.length > 0) {
    lines.push('| Argument | |', '|---|---|');
    for (const argument of args) lines.push(`| \`${argument.name()}\` | ${cell(argument.description)} |`);
    lines.push('');
  }
  const options = help.visibleOptions(command);
  if (options.length > 0) {
    lines.push('| Option | |', '|---|---|');
    for (const option of options)
      lines.push(`| \`${option.flags.replaceAll('|', '\\|')}\` | ${cell(help.optionDescription(option))} |`);
    lines.push('');
  }
  for (const sub of help.visibleCommands(command)) lines.push(...section(sub, [...path, sub.name()]));
  return lines;
}

const cell = (text) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

export function reference() {
  const head = [
    '# Command line',
    '',
    'Written by `node scripts/cli-reference.mjs` from the program itself; do not edit.',
    '',
  ];
  const ends = [
    'The command to work on follows `--` and is never given to a shell. Data goes to stdout, diagnostics and progress to',
    'stderr. Exit codes and error codes are listed in [errors](errors.md), files and variables in',
    '[configuration](configuration.md).',
    '',
  ];
  const [, ...body] = section(
    createProgram(async () => {}),
    [],
  );
  return `${[...head, ...ends, ...body.slice(1)].join('\n').trimEnd()}\n`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const text = reference();
  if (!process.argv.includes('--check')) writeFileSync(FILE, text);
  else if (readFileSync(FILE, 'utf8') !== text) {
    process.stderr.write('docs/reference/cli.md is out of date: run node scripts/cli-reference.mjs\n');
    process.exitCode = 1;
  }
}
