import { expect, it } from 'vitest';
import { diagnose } from '../../src/worker/diagnosis/index.js';

const MODULE = '/venv/lib/python3.11/site-packages/torch/nn/modules/module.py';
const OOM = 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.';

/** What is told of a script that ran out of memory in the model that it calls in the lines that end with `# here`, outermost first. */
async function told(script: string) {
  const lines = script.trim().split('\n');
  const frames = lines.flatMap((text, i) => {
    if (!text.endsWith('# here')) return [];
    const head = lines.slice(0, i + 1).findLast((one) => /^\S/.test(one)) ?? '';
    const name = /^def (\w+)/.exec(head)?.[1] ?? '<module>';
    return [{ at: i + 1, name, source: text.trim() }];
  });
  frames.sort((a, b) => (a.name === '<module>' ? -1 : b.name === '<module>' ? 1 : a.at - b.at));
  const log = [
    'Traceback (most recent call last):',
    ...frames.map(({ at, name, source }) => `  File "/job/train.py", line ${at}, in ${name}\n    ${source}`),
    `  File "${MODULE}", line 1787, in _wrapped_call_impl\n    return self._call_impl(*args, **kwargs)`,
    OOM,
  ].join('\n');
  const textOf = (file: string) => (file === '/job/train.py' ? lines.join('\n') : null);
  const { reason, phase } = await diagnose({ log: [Buffer.from(log)], exitCode: 1, textOf });
  expect((await diagnose({ log: [Buffer.from(log)], exitCode: 1 })).reason, 'of the log alone').toBe('batch');
  return { reason, phase };
}

const EVAL = { reason: 'eval', phase: 'eval' };

it.each([
  [
    'without gradients after each pass',
    `
for epoch in range(3):
    for x, y in loader:
        loss(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in valid:
            total += loss(model(x), y)  # here
    scheduler.step()`,
  ],
  [
    'without gradients after a step, as a GAN draws samples',
    `
for x in loader:
    loss(critic(x), critic(generator(noise))).backward()
    if number % 100 == 0:
        with torch.inference_mode():

            # of the same noise each time
            samples = generator(fixed)  # here`,
  ],
  [
    'in evaluation mode, and with gradients',
    `
def main():
    model.train()
    for x, y in loader:
        loss(model(x), y).backward()
    model.eval()
    for x, y in valid:
        outputs.append(model(x))  # here
main()  # here`,
  ],
  [
    'in a function of any name that turns gradients off',
    `
@torch.no_grad()
def look(x):
    return model(x)  # here
for x in loader:
    model(x).sum().backward()
    look(x)  # here`,
  ],
  [
    'in a pass of its own before the step',
    `
def check(x):
    with torch.no_grad():
        for x in valid:
            show(model(x))  # here
for x in loader:
    check()  # here
    model(x).sum().backward()`,
  ],
  [
    'of samples that it attacks',
    `
def attack(x):
    model.eval()
    for _ in range(3):
        x.requires_grad_()
        value = model(x).sum()  # here
        x = x.detach() + torch.autograd.grad(value, x)[0]
    return x
for x, y in valid:
    show(model(attack(x)))  # here`,
  ],
])('a script that evaluates in place, %s, is told so', async (_, script) => {
  expect(await told(script)).toEqual(EVAL);
});

it.each([
  [
    'calls a teacher for a step',
    `
teacher.eval()
for x in loader:
    with torch.no_grad():
        wanted = teacher(x)  # here
    loss(model(x), wanted).backward()`,
  ],
  [
    'calls one in a function, for a step of its caller',
    `
def distance(x):
    with torch.no_grad():
        wanted = teacher(x)  # here
    return loss(model(x), wanted)
for x in loader:
    value = distance(x)  # here
    value.backward()`,
  ],
  [
    'calls one for a step that a function makes',
    `
for x in loader:
    with torch.no_grad():
        wanted = teacher(x)  # here
    optimize(model, x, wanted)`,
  ],
  [
    'attacks its samples for a step',
    `
for x, y in loader:
    model.eval()
    for _ in range(3):
        x.requires_grad_()
        x = x.detach() + torch.autograd.grad(model(x).sum(), x)[0]  # here
    model.train()
    model(x).sum().backward()`,
  ],
  [
    'attacks them in a function, for a step of its caller',
    `
def attack(x):
    model.eval()
    for _ in range(3):
        x.requires_grad_()
        value = model(x).sum()  # here
        x = x.detach() + grad(value, x)[0]
    model.train()
    return x
for x, y in loader:
    x = attack(x)  # here
    model(x).sum().backward()`,
  ],
  [
    'is back in training mode',
    `
model.eval()
look(model)
model.train()
for x in loader:
    value = model(x)  # here`,
  ],
])('but not one that %s', async (_, script) => {
  expect(await told(script)).toMatchObject({ reason: 'batch' });
});
