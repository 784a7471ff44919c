"""Recommendations read from a real Redis, from files that the program writes, and by the program itself."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from support import ROOT

sys.path.insert(0, os.path.join(ROOT, "python"))

import oomtune
from oomtune.redis_client import RedisClient, RedisRefused, unix_url

RECORD = {
    "schema": "1",
    "key": "bert:nvidia-h200:24g:1x",
    "name": "bert",
    "gpu_model": "NVIDIA H200",
    "budget_bytes": "25769803776",
    "world_size": "1",
    "micro_batch": "48",
    "accumulation": "2",
    "effective_batch": "96",
    "amp": "bf16",
    "checkpointing": "1",
    "max_micro_batch": "50",
    "known_bad_micro_batch": "",
    "peak_bytes": "25000000000",
    "samples_per_s": "812.5",
    "verified_at": "2026-11-20T10:00:00.000Z",
    "status": "verified",
    "command_digest": "ab",
    "torch": "",
    "driver": "",
    "probes": "[]",
}


def record(**changes):
    return dict(RECORD, **changes)


class Server:
    """A redis-server of the test's own. `password`: needed, if given."""

    def __init__(self, folder, password=None):
        self.path = os.path.join(folder, "redis.sock")
        command = ["redis-server", "--port", "0", "--unixsocket", self.path, "--save", "", "--dir", folder]
        if password:
            command += ["--requirepass", password]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while not self._listens() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _listens(self):
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(self.path) == 0

    @property
    def url(self):
        return unix_url(self.path)

    def put(self, *records, url=None):
        with RedisClient(url or self.url) as redis:
            for one in records:
                redis.call("HSET", "{oomtune}:config:" + one["key"], *[part for pair in one.items() for part in pair])
                redis.call("ZADD", "{oomtune}:configs", str(len(one["verified_at"])), one["key"])

    def end(self):
        self.process.terminate()
        self.process.wait()


@unittest.skipIf(shutil.which("redis-server") is None, "redis-server is not installed")
class FromRedis(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="oomtune-redis-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.server = Server(self.folder)
        self.addCleanup(self.server.end)
        # nothing of this machine's own
        patch = mock.patch.dict(os.environ, {"OOMTUNE_HOME": self.folder, "OOMTUNE_REDIS_URL": self.server.url})
        patch.start()
        self.addCleanup(patch.stop)

    def test_every_field_has_its_type(self):
        self.server.put(RECORD)
        found = oomtune.recommended("bert")
        self.assertEqual((found.micro_batch, found.accumulation, found.effective_batch), (48, 2, 96))
        self.assertEqual((found.amp, found.checkpointing, found.world_size), ("bf16", True, 1))
        self.assertEqual((found.max_micro_batch, found.peak_bytes), (50, 25000000000))
        self.assertEqual((found.samples_per_s, found.budget_bytes), (812.5, 25769803776))
        self.assertEqual((found.key, found.gpu_model), (RECORD["key"], "NVIDIA H200"))
        self.assertEqual(found.document["command_digest"], "ab")

    def test_what_was_not_measured_is_none(self):
        self.server.put(record(peak_bytes="", samples_per_s=""))
        found = oomtune.recommended("bert")
        self.assertEqual((found.peak_bytes, found.samples_per_s), (None, None))

    def test_the_latest_verified_one_is_taken(self):
        self.server.put(
            record(key="bert:nvidia-h200:24g:1x", micro_batch="1"),
            record(
                key="bert:nvidia-l40s:48g:2x",
                micro_batch="2",
                verified_at="2026-11-22T10:00:00.000Z",
                world_size="2",
                gpu_model="NVIDIA L40S",
            ),
            record(
                key="bert:nvidia-h200:80g:1x", micro_batch="3", verified_at="2026-11-23T10:00:00.000Z", status="demoted"
            ),
        )
        self.assertEqual(oomtune.recommended("bert").micro_batch, 2)
        self.assertEqual(oomtune.recommended("bert", gpu_model="NVIDIA H200").micro_batch, 1)
        self.assertEqual(oomtune.recommended("bert", world_size=1).micro_batch, 1)
        self.assertEqual(oomtune.recommended("bert:nvidia-h200:24g:1x").micro_batch, 1)
        with self.assertRaises(oomtune.OomtuneError) as raised:
            oomtune.recommended("bert:nvidia-h200:80g:1x")
        self.assertEqual(raised.exception.code, "OOMTUNE_NO_SUCH_CONFIG")

    def test_the_stem_of_a_script_finds_its_name_with_a_digest(self):
        self.server.put(record(name="train-1a2b3c4d", key="train-1a2b3c4d:cpu:1g:1x"), record(name="train-more"))
        self.assertEqual(oomtune.recommended("train").key, "train-1a2b3c4d:cpu:1g:1x")

    def test_one_that_is_not_there_is_told(self):
        with self.assertRaisesRegex(oomtune.OomtuneError, 'There is no recommendation "gpt".*OOMTUNE_NO_SUCH_CONFIG'):
            oomtune.recommended("gpt")

    def test_another_prefix(self):
        self.server.put(RECORD)
        with mock.patch.dict(os.environ, {"OOMTUNE_PREFIX": "lab"}), self.assertRaises(oomtune.OomtuneError):
            oomtune.recommended("bert")

    def test_a_record_that_cannot_be_read_is_told(self):
        for broken, why in ((record(micro_batch="many"), "many"), (record(schema="2"), "later version")):
            with self.subTest(why):
                self.server.put(broken)
                with self.assertRaisesRegex(oomtune.OomtuneError, why + ".*OOMTUNE_RECORD_UNREADABLE"):
                    oomtune.recommended("bert")

    def test_the_redis_of_the_home_is_found_without_a_url(self):
        os.mkdir(os.path.join(self.folder, "redis"))
        os.symlink(self.server.path, os.path.join(self.folder, "redis", "redis.sock"))
        self.server.put(RECORD)
        with mock.patch.dict(os.environ, {"PATH": ""}):
            del os.environ["OOMTUNE_REDIS_URL"]
            self.assertEqual(oomtune.recommended("bert").micro_batch, 48)

    def test_a_password_by_url_and_a_database(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        server = Server(folder, "a b")
        self.addCleanup(server.end)
        url = server.url + "?db=3&password=a%20b"
        server.put(RECORD, url=url)
        self.assertEqual(oomtune.recommended("bert", redis=url).micro_batch, 48)
        with self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_REDIS_UNREACHABLE") as raised:
            oomtune.recommended("bert", redis=server.url + "?password=wrong")
        self.assertNotIn("wrong", str(raised.exception).replace("WRONGPASS", ""))

    def test_a_redis_that_is_away_is_told(self):
        for url in ("redis://127.0.0.1:1", "unix:///nowhere/redis.sock"):
            with self.subTest(url), self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_REDIS_UNREACHABLE"):
                oomtune.recommended("bert", redis=url)

    def test_a_url_that_is_none_is_told(self):
        for url in ("http://host", "unix://relative", "redis://host:port"):
            with self.subTest(url), self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_USAGE"):
                oomtune.recommended("bert", redis=url)

    def test_answers_of_redis(self):
        with RedisClient(self.server.url) as redis:
            self.assertEqual(redis.call("SET", "a", "\u00e4\r\n" * 50000), "OK")
            self.assertEqual(redis.call("GET", "a"), "\u00e4\r\n" * 50000)
            self.assertEqual(redis.calls([("GET", "none"), ("STRLEN", "a"), ("KEYS", "b*")]), [None, 200000, []])
            with self.assertRaises(RedisRefused):
                redis.call("NONSENSE")


class FromFile(unittest.TestCase):
    def read(self, document, name="bert"):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(document if isinstance(document, str) else json.dumps(document))
            file.flush()
            return oomtune.recommended(name, file=file.name)

    def test_a_file_without_a_recommendation_is_told(self):
        for text in ("", "{", "[]", "{}", '{"recommendations": []}', "null", "3"):
            with self.subTest(text), self.assertRaises(oomtune.OomtuneError):
                self.read(text)
        with self.assertRaisesRegex(oomtune.OomtuneError, "No such file.*OOMTUNE_RECORD_UNREADABLE"):
            oomtune.recommended("bert", file="/nowhere.json")

    def test_another_name_is_told(self):
        config = {
            "micro_batch": 4,
            "accumulation": 1,
            "effective_batch": 4,
            "world_size": 1,
            "amp": "off",
            "checkpointing": False,
        }
        document = {"key": "bert:cpu:1g:1x", "name": "bert", "config": config, "budget_bytes": 1, "peak_bytes": None}
        self.assertEqual(self.read(document).micro_batch, 4)
        with self.assertRaisesRegex(oomtune.OomtuneError, "OOMTUNE_NO_SUCH_CONFIG"):
            self.read(document, "gpt")


class WithoutTheProgram(unittest.TestCase):
    def ask(self, path):
        """In a copy of the package that stands alone, with this PATH."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(ROOT, "python", "oomtune"), os.path.join(folder, "a", "b", "oomtune"))
            text = "import oomtune\ntry: oomtune.recommended('bert')\nexcept oomtune.OomtuneError as e: print(e)"
            env = {"PYTHONPATH": os.path.join(folder, "a", "b"), "OOMTUNE_HOME": folder, "PATH": path}
            done = subprocess.run(
                [sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, universal_newlines=True
            )
            return done.stdout

    def test_it_is_told_that_it_is_missing(self):
        self.assertRegex(self.ask(""), "The program oomtune is not here.*OOMTUNE_COMMAND_MISSING")

    def test_one_on_path_is_called(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "oomtune"), "w") as file:
                error = {"code": "OOMTUNE_REDIS_MISSING", "message": "No Redis.", "remedy": "Install it."}
                file.write("#!/bin/sh\necho '%s'\n" % json.dumps({"schema": 1, "error": error}))
            os.chmod(file.name, 0o755)
            self.assertEqual(self.ask(folder), "No Redis. Install it. (OOMTUNE_REDIS_MISSING)\n")

    def test_node_that_is_missing_is_told(self):
        with mock.patch.dict(os.environ, {"PATH": "", "OOMTUNE_HOME": "/nowhere"}):
            os.environ.pop("OOMTUNE_REDIS_URL", None)
            with self.assertRaisesRegex(oomtune.OomtuneError, "Node is not on PATH.*OOMTUNE_COMMAND_MISSING"):
                oomtune.recommended("bert")


class Package(unittest.TestCase):
    def test_every_name_is_there_and_typed(self):
        for name in oomtune.__all__:
            self.assertIsNotNone(getattr(oomtune, name))
            self.assertIn(name, dir(oomtune))
        with self.assertRaises(AttributeError):
            oomtune.nonsense  # noqa: B018
        self.assertTrue(os.path.exists(os.path.join(ROOT, "python", "oomtune", "py.typed")))

    def test_importing_it_loads_next_to_nothing(self):
        text = "import sys; before = set(sys.modules); import oomtune; print(sorted(set(sys.modules) - before))"
        env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "python"))
        done = subprocess.run([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertIn(done.stdout.strip(), ("['oomtune']", "['__future__', 'oomtune']"))


if __name__ == "__main__":
    unittest.main()
