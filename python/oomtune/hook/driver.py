"""Drives the user's training loop: hands it batches of the sizes that the worker asks for, and measures each.

The loop itself is not touched. It asks for its next batch as always, and that is where the hook waits for the worker,
books what the steps since then cost, and in the end leaves the process.
"""

import gc
import math
import weakref

from . import samples
from .feed import Feed
from .gate import Micro
from .holdings import Holdings
from .meter import find_meter
from .pace import Pace
from .phases import FORWARD_BACKWARD, LOAD, OPTIMIZER, OTHER
from .record import Record

#: Batches without any backward pass after which a loop is taken for no training loop.
NO_BACKWARD = 16
#: Batches without an optimizer step after which the loop cannot be driven.
NO_STEP = 512


class Driver:
    def __init__(self, hook):
        self._hook = hook
        self._torch = hook.torch
        self._gate = hook.gate
        self.state = "waiting"
        self.probe = None
        self.record = None
        self._meter = None
        self._port = None
        self._pace = Pace()
        self._rejected = weakref.WeakSet()
        self._forced = weakref.WeakSet()
        self._feed = Feed(hook)
        self._handed = 0
        self._steps = 0
        self._since_step = 0
        self._backwards = 0
        self._stepped = False
        self._failures = 0
        #: The loader of the latest loop that was given its own batches.
        self._passed = None
        self._group = 1

    # -- what loader.Port asks

    def watches(self, loader):
        return self.state != "released"

    def keeps_out(self, port):
        """A loop that began with real batches goes on with them, unless it turned out to be the training loop."""
        return self.state == "released" or port.loader not in self._forced

    def takes(self, port):
        loader = port.loader
        if self.state == "released" or loader in self._rejected:
            return False
        known = loader in self._forced or self._feed.knows(loader)
        # A validation loop in the middle of training keeps its own batches, also where it shares the loader.
        taken = self._torch.is_grad_enabled() if known else self._hook.training.likely()
        if taken:
            self._hook.phase = "train"
        elif self.state == "driving":
            self._hook.phase = "eval"
        else:
            self._passed = weakref.ref(loader)
        return taken

    def next(self, port):
        if self.state == "waiting":
            self._begin(port)
        self._asked(port)
        self._settle()
        if self.state != "driving" or port.loader in self._rejected:
            return port.next_real()
        return self._hand(port)

    def _settle(self):
        """Waits for the worker wherever it is its turn."""
        while self.state == "driving" and (self.probe is None or self.record.complete):
            if self.probe is not None:
                self._send_measured()
            self._take(self._hook.link.receive())

    # -- what the optimizer and backward watchers tell

    def backward(self):
        self._backwards += 1

    def before_step(self):
        if self.record is not None and not self._hook.backward.running:
            self.record.gradients_are_made()
            self.record.phases.enter(OPTIMIZER)

    def forward_backward_again(self):
        if self.record is not None:
            self.record.phases.enter(FORWARD_BACKWARD)

    def after_step(self):
        passed = None if self._passed is None else self._passed()
        if self.state == "waiting" and passed is not None:
            # It did not look like training, and is: its model is in evaluation mode on purpose, say.
            self._forced.add(passed)
        if self.record is not None and not self._hook.backward.running:
            self.record.phases.enter(OTHER)
        self._stepped = True
        if self._gate.engaged and self._gate.own_accumulation > 1:
            # The script accumulates by itself: its gradients stay resident without any help.
            self._set_group()

    # -- the parts

    def _begin(self, port):
        hook = self._hook
        self._meter = hook.meter = find_meter(self._torch)
        if not hook.link.open():
            hook.leave(75)
        try:
            source = self._feed.source(port)
            hook.link.send(hook.describe_loop(port.loader, source))
        except samples.Unsuitable as reason:
            hook.link.send(hook.describe_loop(port.loader, None))
            hook.bye("undriveable", str(reason))
            hook.leave(0)
        if hook.trainer_accumulation:
            self._gate.own_accumulation = hook.trainer_accumulation
        self.state = "driving"
        hook.driving = True
        # Between sizes garbage has to go; what the imports left need not be looked through each time.
        gc.collect()
        gc.freeze()

    def _asked(self, port):
        if not self._pace.asked(port.loader):
            return
        if self._port is None or self._port() is not port:
            self._port = weakref.ref(port)
            self._gate.start_loop()
        self._gate.asked()
        if self.record is None:
            return
        if self._stepped:
            self._stepped = False
            self._since_step = self._backwards = self._hook.backward.failures = 0
            self._steps += 1
            self.record.step_done()
        else:
            self._check_bounds(port)
        self._check_swallowed()
        self.record.phases.enter(LOAD)

    def _check_bounds(self, port):
        if self._since_step >= NO_STEP:
            self._hook.bye("undriveable", "no optimizer step in %d batches" % self._since_step)
            self._hook.leave(0)
        if self._since_step >= NO_BACKWARD and self._backwards == 0 and not self._steps:
            self._rejected.add(port.loader)
            self._feed.drop(port.loader)
            self._since_step = 0
            self._pace = Pace()

    def _check_swallowed(self):
        """The script caught an out-of-memory error and goes on: this size did not fit all the same."""
        failures = self._meter.failures()
        done = self._backwards - self._hook.backward.failures
        # Refusals alone prove nothing: cuDNN tries a smaller workspace then.
        if failures > self._failures and self._since_step and done < self._since_step:
            self._hook.link.send(
                {
                    "t": "exception",
                    "class": "torch.OutOfMemoryError",
                    "message": "out of memory (caught by the script)",
                    "phase": "train",
                    "frame": None,
                    "oom": True,
                    "micro_batch": self.micro_batch,
                    "traceback": "",
                }
            )
            self._hook.leave(1)
        self._failures = failures

    def _send_measured(self):
        probe = self.probe
        message = {"t": "measured", "micro_batch": probe["micro_batch"], "accumulation": self._batches_a_step()}
        message.update({name: probe[name] for name in ("amp", "checkpointing", "offload")})
        message.update(self.record.report())
        message["own_accumulation"] = self._gate.own_accumulation
        message["own_amp"] = self._hook.own_amp()
        self._hook.link.send(message)

    def _batches_a_step(self):
        return self._group * self._gate.own_accumulation

    def _take(self, answer):
        hook = self._hook
        kind = None if answer is None else answer.get("t")
        if kind is None:
            hook.leave(75)
        elif kind == "end":
            hook.bye("end", "")
            hook.leave(0)
        elif kind == "go":
            self._release()
        elif kind == "more" and self.record is not None:
            self.record.extend(max(1, int(answer.get("steps") or 1)))
        elif kind == "probe":
            self._start(answer)

    def _release(self):
        self.state = "released"
        self.record = None
        self._feed.clear()
        self._gate.release()
        self._hook.driving = False
        gc.unfreeze()
        self._hook.rung.switch("off", False, False)

    @property
    def micro_batch(self):
        return None if self.probe is None else self.probe["micro_batch"]

    def _start(self, answer):
        before = self.probe
        self.probe = {
            "micro_batch": max(1, int(answer["micro_batch"])),
            "accumulation": max(1, int(answer.get("accumulation") or 1)),
            "amp": answer.get("amp") or "off",
            "checkpointing": bool(answer.get("checkpointing")),
            "offload": bool(answer.get("offload")),
        }
        self._hook.rung.switch(self.probe["amp"], self.probe["checkpointing"], self.probe["offload"])
        self._feed.clear()
        self._hook.optimizers.renew()
        gc.collect()
        self._meter.tidy()
        skip = 0
        if before is not None:
            # Batches of the size before are still with the loop: fetched ahead, or bound to its variables.
            skip = math.ceil(self._gate.ahead / self._batches_a_step())
            if before["micro_batch"] > self.probe["micro_batch"] or before["accumulation"] != self.probe["accumulation"]:
                skip = max(1, skip)
        self._failures = self._meter.failures()
        self._since_step = self._backwards = self._hook.backward.failures = 0
        # Only a caching allocator minds that lengths change.
        vary = bool(answer.get("vary")) and self._feed.variable and self._meter.reserved() is not None
        steps = max(2, int(answer.get("steps") or 3))
        self.record = Record(self._meter, steps, skip, holdings=self._holdings(), vary=vary)
        self._set_group()

    def _holdings(self):
        return Holdings(self._torch, self._hook.optimizers, self._hook.modules, self._meter.device)

    def _set_group(self):
        """Batches that the hook has to make one step of, beyond those that the script does."""
        wanted = 1 if self.probe is None else self.probe["accumulation"]
        own = self._gate.own_accumulation
        self._group = 1 if own > 1 else wanted
        if self._group > 1:
            self._gate.engage()
        else:
            self._gate.release()

    def _hand(self, port):
        paced = self._pace.sets(port.loader)
        size = self.micro_batch
        if not paced:
            ours, others = samples.own_batch(self._pace.loader()), samples.own_batch(port.loader)
            if ours and others:
                size = max(1, round(size * others / ours))
        batch = self._feed.batch(port, size, self.record.turn())
        if paced:
            place = self._handed % self._group
            self._gate.handed(Micro(self._handed // self._group, place, self._group, 1.0 / self._group))
            self._hook.modules.sync(self._gate.syncs)
            self._handed += 1
            if self._since_step == 0:
                self.record.phases.step_starts()
            self._since_step += 1
            self.record.phases.enter(FORWARD_BACKWARD)
            self.record.start_clock()
        return batch
