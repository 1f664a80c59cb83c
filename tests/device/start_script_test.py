"""packaging/kazeia.sh in Android's shell and in the machine's own."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class StartScript(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="start script "))
        self.package = self.folder / "a 'quoted' package"
        (self.package / "bin").mkdir(parents=True)
        shutil.copy(ROOT / "packaging/kazeia.sh", self.package)
        program = self.package / "bin/kazeia"
        program.write_text('#!/bin/sh\nprintf "%s|%s|" "$ADSP_LIBRARY_PATH" "${LD_LIBRARY_PATH-unset}"\nprintf "<%s>" "$@"\n')
        program.chmod(0o755)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def start(self, *arguments, script=None, cwd="/", **environment):
        answers = set()
        kept = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "ADSP_LIBRARY_PATH", "XDG_STATE_HOME")}
        for shell in ("sh", "mksh"):
            self.assertIsNotNone(shutil.which(shell), f"no {shell}: run scripts/setup aarch64")
            done = subprocess.run([shell, script or self.package / "kazeia.sh", *arguments], cwd=cwd, capture_output=True,
                                  text=True, env={**kept, **environment})
            self.assertEqual(done.returncode, 0, done.stderr)
            answers.add(done.stdout)
        self.assertEqual(len(answers), 1, answers)
        return answers.pop().split("|")

    def test_it_names_its_own_library_folder_and_hands_its_words_on(self):
        libraries, loader, words = self.start("run", "a model.gguf", "-p", "it's \"one\" $word")
        self.assertEqual(libraries, f"{self.package}/lib")
        self.assertEqual(loader, "unset")
        self.assertEqual(words, "<run><a model.gguf><-p><it's \"one\" $word>")

    def test_it_works_from_its_folder_from_elsewhere_and_through_links(self):
        self.assertEqual(self.start(script="./kazeia.sh", cwd=self.package)[0], f"{self.package}/lib")
        (self.folder / "direct").symlink_to(self.package / "kazeia.sh")
        (self.folder / "indirect").symlink_to("direct")
        self.assertEqual(self.start(script="indirect", cwd=self.folder)[0], f"{self.package}/lib")

    def test_the_vendors_libraries_leave_the_loaders_path_and_nothing_else_does(self):
        self.assertEqual(self.start(LD_LIBRARY_PATH="/vendor/lib64")[1], "unset")
        self.assertEqual(self.start(LD_LIBRARY_PATH="/a b:/vendor/lib64:/vendor/lib64/egl:/vendor/lib64/")[1], "/a b:/vendor/lib64/egl")

    def test_a_given_search_path_of_the_npu_comes_after_its_own(self):
        self.assertEqual(self.start(ADSP_LIBRARY_PATH="/dsp;/other")[0], f"{self.package}/lib;/dsp;/other")

    def test_without_a_home_its_memory_of_the_npu_stays_in_its_own_folder(self):
        program = self.package / "bin/kazeia"
        program.write_text('#!/bin/sh\nprintf "%s|" "${XDG_STATE_HOME-unset}"\n')
        self.assertEqual(self.start(HOME="/")[0], f"{self.package}/state")
        self.assertEqual(self.start(HOME=str(self.folder))[0], "unset")
        self.assertEqual(self.start(HOME="/", XDG_STATE_HOME="/elsewhere")[0], "/elsewhere")

    def test_it_runs_under_the_named_program(self):
        self.assertEqual(self.start("x", KAZEIA_UNDER="env LD_LIBRARY_PATH=/under")[1], "/under")


class AndroidPreset(unittest.TestCase):
    """What can be said of the preset without an NDK."""

    def configure(self, **environment):
        kept = {key: value for key, value in os.environ.items() if key not in ("ANDROID_NDK", "ANDROID_NDK_HOME")}
        with tempfile.TemporaryDirectory() as tree:
            done = subprocess.run(["cmake", "--preset", "android-arm64", "-B", tree], cwd=ROOT, capture_output=True, text=True,
                                  env={**kept, **environment})
        self.assertNotEqual(done.returncode, 0)
        return " ".join(done.stderr.split())

    def test_without_an_ndk_one_sentence_says_what_to_set(self):
        self.assertIn("needs Google's NDK: set ANDROID_NDK_HOME to its folder.", self.configure())
        self.assertIn("No NDK in '/nowhere'", self.configure(ANDROID_NDK_HOME="/nowhere"))
        self.assertIn("No NDK in '/nowhere'", self.configure(ANDROID_NDK="/nowhere"))


if __name__ == "__main__":
    unittest.main()
