import { execFile } from 'node:child_process';
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { Oomtune, PYTHON, ROOT } from '../cli/oomtune.js';

const run = promisify(execFile);

/** A program that trains a small model on data of its own, as a person would write it. */
const PROGRAM = `
import json, sys, torch, oomtune
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 512
LIMITS = {"device": "cpu", "budget": "150MiB"}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))

    def forward(self, x):
        return self.body(x)

data = TensorDataset(torch.randn(256, 64), torch.randint(4, (256,)))

def epoch(loader):
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

def train():
    epoch(DataLoader(data, batch_size=32, shuffle=True))

def train_with(batch_size):
    epoch(DataLoader(data, batch_size=batch_size, shuffle=True))

def by_hand(batch_size):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        model(torch.randn(batch_size, 64)).sum().backward()
        optimizer.step()

def looks(batch_size):
    for x, y in DataLoader(data, batch_size=batch_size):
        Net()(x)

def train_once():
    model = Net()
    model(torch.randn(16, 64)).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()

def broken():
    epoch(DataLoader(dta, batch_size=32))
`;

describe('oomtune.find_batch() in Python', () => {
  const oomtune = new Oomtune();
  const env = { ...oomtune.env, PYTHONPATH: join(ROOT, 'python'), TMPDIR: oomtune.home };
  afterAll(() => oomtune.close());

  const folders = () => readdirSync(oomtune.home).filter((name) => name.startsWith('oomtune-function-'));

  async function program(text: string) {
    const file = join(oomtune.home, 'program.py');
    writeFileSync(file, `${PROGRAM}\nif __name__ == "__main__":\n${text.replace(/^/gm, '    ')}\n`);
    const { stdout, stderr } = await run(PYTHON, [file], { env, cwd: oomtune.home });
    return { said: stdout.trim(), told: stderr };
  }

  it("gives the command line's answer, recorded under the function's name", async () => {
    const { said, told } = await program(
      'f = oomtune.find_batch(train, **LIMITS, max_batch=64)\nprint(json.dumps([f.key, f.document]))',
    );
    const [key, document] = JSON.parse(said) as [string, Record<string, never>];
    expect(document).toMatchObject({ schema: 1, status: 'found', name: 'train', verified_steps: 3 });
    expect(told).toMatch(/micro-batch +64 .*fit/);
    const recorded = (await oomtune.json(['recommend', key])) as { recommendations: Record<string, unknown>[] };
    expect(recorded.recommendations[0]).toMatchObject(document.config);
    expect(document.max_micro_batch).toBe(64);
    // sizes were set in the loop itself: not a start for each
    expect(document.launches).toBeLessThan((document.probes as unknown[]).length);
  });

  it('passes each size to a function that uses it by itself', async () => {
    const { said } = await program(
      'f = oomtune.find_batch(by_hand, **LIMITS, max_batch=8, name="sized", verbose=False)\nprint(json.dumps(f.document))',
    );
    const document = JSON.parse(said);
    expect(document).toMatchObject({ status: 'found', name: 'sized', max_micro_batch: 8 });
    expect(document.apply.argv.at(-1)).toBe(String(document.config.micro_batch));
  });

  it('sets the sizes of a DataLoader in one launch, and none beyond the data, where a parameter is only those', async () => {
    const { said, told } = await program(
      'f = oomtune.find_batch(train_with, device="cpu", budget="700MiB")\nprint(json.dumps(f.document))',
    );
    expect(JSON.parse(said)).toMatchObject({ status: 'found', name: 'train_with', max_micro_batch: 256, launches: 1 });
    expect(told).toContain('note: All 256 samples of the data set fit at once');
  });

  it('says why a function fails, and that nothing fits', async () => {
    const { said, told } = await program(
      [
        'for function, budget in ((broken, "150MiB"), (train, "1MiB")):',
        '    try: oomtune.find_batch(function, device="cpu", budget=budget, max_launches=2, verbose=False)',
        '    except oomtune.OomtuneError as error: print(error.code, error, error.document["status"])',
      ].join('\n'),
    );
    const [failed, exhausted] = said.split('\n');
    expect(failed).toMatch(/^OOMTUNE_JOB_FAILED .*user_error: NameError: name 'dta' is not defined.* failed$/);
    expect(exhausted).toMatch(/^OOMTUNE_EXHAUSTED No batch size fits \(device_oom: .* exhausted$/);
    expect(told).toBe('');
  });

  it('says what a function lacks of which no size can be set, and never passes sizes beyond the data', async () => {
    const { said, told } = await program(
      [
        'for function in (looks, train_once, train_with(8)):',
        '    try: oomtune.find_batch(function, device="cpu", budget="150MiB", verbose=False)',
        '    except oomtune.OomtuneError as error: print(error.code, error)',
      ].join('\n'),
    );
    const [looks, once, called] = said.split('\n');
    expect(looks).toMatch(/^OOMTUNE_JOB_FAILED .*Let the function train for some steps with an optimizer/);
    expect(once).toMatch(/^OOMTUNE_JOB_FAILED .*Give the function a parameter for its batch size/);
    expect(called).toMatch(/^OOMTUNE_USAGE Expected the function that trains, got NoneType/);
    expect(told).toBe('');
  });

  it("takes the command line's own errors over", async () => {
    const { said } = await program(
      'try: oomtune.find_batch(train, budget="24")\nexcept oomtune.OomtuneError as error: print(error.code)',
    );
    expect(said).toBe('OOMTUNE_BAD_SIZE');
  });

  it('leaves no file and no process behind, also where it is interrupted', async () => {
    const file = join(oomtune.home, 'program.py');
    writeFileSync(
      file,
      `import oomtune, time\ndef train():\n    open("started", "w").close(); time.sleep(600)\nif __name__ == "__main__":\n    try: oomtune.find_batch(train, device="cpu", budget="150MiB")\n    except KeyboardInterrupt: print("interrupted")\n`,
    );
    const running = run(PYTHON, [file], { env, cwd: oomtune.home });
    for (let tries = 0; !existsSync(join(oomtune.home, 'started')) && tries < 600; tries++) await delay(100);
    expect(oomtune.leftovers().join('\n')).toContain('oomtune-function-');
    running.child.kill('SIGINT');
    expect((await running).stdout).toBe('interrupted\n');
    expect(oomtune.leftovers()).toEqual([]);
    expect(folders()).toEqual([]);
  });

  // A notebook's kernel is told to end, and is killed where it does not
  it.each(['SIGTERM', 'SIGKILL'] as const)('leaves no process behind after %s', async (name) => {
    const started = join(oomtune.home, `started-${name}`);
    const file = join(oomtune.home, 'ended.py');
    writeFileSync(
      file,
      `import oomtune, time\ndef train():\n    open(${JSON.stringify(started)}, "w").close(); time.sleep(600)\nif __name__ == "__main__":\n    oomtune.find_batch(train, device="cpu", budget="150MiB")\n`,
    );
    const running = run(PYTHON, [file], { env, cwd: oomtune.home });
    const ended = expect(running).rejects.toMatchObject({ signal: name });
    for (let tries = 0; !existsSync(started) && tries < 600; tries++) await delay(100);
    running.child.kill(name);
    await ended;
    for (let tries = 0; oomtune.leftovers().length > 0 && tries < 300; tries++) await delay(100);
    expect(oomtune.leftovers()).toEqual([]);
    expect(folders()).toHaveLength(1);
    await program('try: oomtune.find_batch(train, budget="24")\nexcept oomtune.OomtuneError: pass');
    expect(folders()).toEqual([]); // what it held is removed by the next search
  });
});
