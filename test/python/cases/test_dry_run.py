"""While a process is probed the user's files of earlier results stay as they are, whatever the script does with them."""

import os
import tempfile
import unittest

from support import probe, run
from test_probe import HEAD

LOOP = "for x, y in DataLoader(data, batch_size=8):\n    work(x, y)\n"


class Results(unittest.TestCase):
    def drive(self, text, answers=(probe(3),)):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("best.pt", "oldest.ckpt", "state.pkl", "runs/model.pt", "runs/log.txt"):
                path = os.path.join(folder, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w") as file:
                    file.write("an earlier run's")
            result = run(
                HEAD + "import pickle, shutil, numpy\nfrom pathlib import Path\n" + text, "probe", answers, cwd=folder
            )
            self.files = {}
            for place, _, names in os.walk(folder):
                for name in names:
                    with open(os.path.join(place, name), "rb") as file:
                        self.files[os.path.relpath(os.path.join(place, name), folder)] = file.read()
        self.assertEqual(result.status, 0, result.errors)
        return result

    def assert_untouched(self):
        names = {"best.pt", "oldest.ckpt", "state.pkl", "runs/model.pt", "runs/log.txt", "seen"}
        self.assertEqual(set(self.files), names)
        self.assertEqual({self.files[name] for name in names - {"seen"}}, {b"an earlier run's"})

    def test_saving_into_a_file_that_the_script_opens(self):
        self.drive(LOOP + "    with open('best.pt', 'wb') as file: torch.save(model, file)\n")
        self.assert_untouched()

    def test_a_new_checkpoint_that_takes_the_place_of_the_old(self):
        self.drive(
            LOOP
            + "    torch.save(model, 'new.pt'); os.replace('new.pt', 'best.pt'); shutil.copy('best.pt', 'copy.pt')\n"
        )
        self.assert_untouched()

    def test_an_open_file_that_takes_the_place_of_the_old(self):
        self.drive(
            LOOP
            + "    with open('best.pt.tmp', 'wb') as file: torch.save(model, file)\n    os.rename('best.pt.tmp', 'best.pt')\n"
        )
        self.assert_untouched()

    def test_an_open_file_of_another_name_that_takes_the_place_of_the_old(self):
        self.drive(
            LOOP + "    with open('saved', 'wb') as file: torch.save(model, file)\n    os.replace('saved', 'best.pt')\n"
        )
        self.assertEqual(self.files.pop("saved"), b"")
        self.assert_untouched()

    def test_asking_about_what_was_saved(self):
        self.drive(
            LOOP
            + "    torch.save(model, 'a.pth'); assert os.path.exists('a.pth') and Path('a.pth').stat().st_size > 0\n"
        )
        self.assert_untouched()

    def test_reading_back_what_was_saved(self):
        self.drive(
            LOOP + "    torch.save({'at': 1}, 'best.pt'); assert torch.load('best.pt') == {'at': 1}\n"
            "    torch.save({'at': 2}, 'new.ckpt'); os.replace('new.ckpt', 'best.pt'); assert torch.load(Path('best.pt')) == {'at': 2}\n"
            "    with open('state.pkl', 'wb') as file: pickle.dump([3], file)\n"
            "    with Path('state.pkl').open('rb') as file: assert pickle.load(file) == [3]\n"
            "    numpy.save('weights.npy', numpy.full(2, 4)); assert numpy.load('weights.npy').sum() == 8\n"
            "    with open('log.bin', 'wb') as file: file.write(b'5')\n"
            "    with open('log.bin', 'ab') as file: file.write(b'6')\n"
            "    assert open('log.bin', 'rb').read() == b'56' and os.path.getsize('log.bin') == 2\n"
        )
        self.assert_untouched()

    def test_what_cannot_be_kept_is_left_out(self):
        self.drive(LOOP + "    torch.save(lambda: 0, 'a.pth'); assert os.path.exists('a.pth')\n")
        self.assert_untouched()

    def test_memory_that_a_save_cannot_have_is_the_scripts_to_know(self):
        """torch's error for the host's memory is a RuntimeError, as that of a full disk may be."""
        self.drive(
            "class Huge:\n    def __reduce__(self): return torch.empty, (len(torch.empty(1 << 50, dtype=torch.uint8)),)\n"
            + LOOP
            + "    try: torch.save(Huge(), 'a.pth')\n"
            "    except RuntimeError as error: assert 'allocate memory' in str(error), error\n"
            "    else: raise SystemExit('not told')\n"
        )
        self.assert_untouched()

    def test_rotation(self):
        self.drive(LOOP + "    os.remove('oldest.ckpt'); Path('best.pt').unlink(); shutil.rmtree('runs')\n")
        self.assert_untouched()

    def test_pickles_and_arrays(self):
        self.drive(
            LOOP + "    with Path('state.pkl').open('wb') as file: pickle.dump(1, file)\n"
            "    numpy.save('weights.npy', numpy.zeros(2)); numpy.savez('all.npz', a=numpy.zeros(2))\n"
        )
        self.assert_untouched()

    def test_other_files_are_the_scripts_own(self):
        self.drive(
            LOOP
            + "    with open('table.csv', 'a') as file: file.write('x')\n    Path('runs/log.txt').unlink(missing_ok=True)\n"
        )
        self.assertEqual(self.files["table.csv"], b"xxx")
        self.assertNotIn("runs/log.txt", self.files)

    def test_once_released_it_writes_and_removes(self):
        self.drive(
            LOOP + "    pass\nos.remove('oldest.ckpt'); torch.save(model, 'best.pt'); shutil.rmtree('runs')\n",
            [probe(3), {"t": "go"}],
        )
        self.assertEqual(set(self.files), {"best.pt", "state.pkl", "seen"})
        self.assertNotEqual(self.files["best.pt"], b"an earlier run's")


if __name__ == "__main__":
    unittest.main()
