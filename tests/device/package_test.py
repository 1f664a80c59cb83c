"""The real package: made, copied by a stand-in adb, run under qemu."""
import pathlib
import shutil
import subprocess
import unittest

import stand_in

PACKAGE = stand_in.ROOT / "build/package/kazeia-aarch64"
UNDER = "qemu-aarch64 -cpu max,sve=off -L /usr/aarch64-linux-gnu"


class Package(stand_in.DeviceTest):
    @classmethod
    def setUpClass(cls):
        made = subprocess.run([stand_in.ROOT / "scripts/package-aarch64"], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr + made.stdout
        print(made.stdout, end="")

    def setUp(self):
        super().setUp()
        self.package = PACKAGE

    def test_it_holds_what_it_names_and_a_licence_for_everything_in_it(self):
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=PACKAGE, check=True)
        files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if path.is_file()}
        for version in (73, 75, 79, 81):
            self.assertIn(f"lib/libggml-htp-v{version}.so", files)
        licences = {path for path in files if path.startswith("licences/")}
        for name in ("kazeia", "llama.cpp", "cpp-httplib", "nlohmann-json", "fmt", "CLI11", "xxHash",
                     "llama.rn-and-libggml-htp", "libstdc++-and-libgcc"):
            self.assertIn(f"licences/{name}.txt", licences)
            text = (PACKAGE / f"licences/{name}.txt").read_text()
            self.assertIn("copyright", text.lower())
            self.assertGreater(len(text), 500, name)
        self.assertNotIn("@", (PACKAGE / "README.txt").read_text())
        self.assertTrue(pathlib.Path(f"{PACKAGE}.tar.gz").stat().st_size > 0)

    def test_the_program_needs_the_c_library_alone_and_says_nothing_of_this_machine(self):
        needed = subprocess.run(["aarch64-linux-gnu-readelf", "-d", PACKAGE / "bin/kazeia"], capture_output=True, text=True,
                                check=True).stdout
        libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
        self.assertLessEqual(libraries, {"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"})
        for path in PACKAGE.rglob("*"):
            if path.is_file():
                self.assertNotIn(str(stand_in.ROOT).encode(), path.read_bytes(), path)

    def test_it_answers_from_another_folder_under_a_name_with_a_space(self):
        copy = self.folder / "a copy"
        shutil.copytree(PACKAGE, copy)
        done = subprocess.run(["mksh", copy / "kazeia.sh", "run", copy / "models" / stand_in.MINI.name, "--quiet", "--temp", "0",
                               "-p", "What is the capital of France?"], cwd="/", capture_output=True, text=True,
                              env=self.environment(KAZEIA_UNDER=UNDER, XDG_STATE_HOME=str(self.folder)))
        self.assertEqual((done.returncode, done.stdout), (0, "The capital of France is Paris.\n"), done.stderr)

    def test_the_acceptance_run_measures_the_cpu_and_claims_nothing_of_an_npu_that_is_not_there(self):
        code = self.accept("--prompts", "128", "--repeat", "1", "--decode", "8", "--long", "0", "--context", "2048", "--soak", "5s",
                           "--soak-route", "cpu", "--soak-prompt", "128", "--soak-decode", "8", "--timeout", "3m", stand_in.MINI,
                           limit=900, FAKE_ADB_UNDER=UNDER)
        self.assertEqual(code, 1, "`doctor --npu` fails where there is no NPU, so not every step passed:\n" + self.said)
        outcomes = self.outcomes()
        doctor = next(s for s in self.steps() if s["step"] == "doctor")
        self.assertEqual((doctor["outcome"], doctor["result"]["usable"]), ("failed", False))
        for step in ("m1.file", "m1.inspect", "m1.cpu.p128.r1", "soak.1"):
            self.assertEqual(outcomes[step], "passed", self.steps())
        cpu = next(s for s in self.steps() if s["step"] == "m1.cpu.p128.r1")["result"]
        self.assertGreater(cpu["prompt_tokens"], 128)
        self.assertGreater(cpu["prefill_tps"], 0)
        summary = self.summary()
        self.assertIn("| 128 | cpu | 1 of 1 |", summary)
        for route in ("npu-prefill", "npu-only"):
            self.assertIn(f"m1.{route}.p128.r1", outcomes)
            self.assertIn(f"answered on the route cpu, not on {route}", summary)
            self.assertIn(f"| 128 | {route} | 0 of 1 | - |", summary)
        self.assertIn("this machine has no driver of a Hexagon NPU", summary)
        self.assertIn("This model is not of that size: no ratios.", summary)


if __name__ == "__main__":
    unittest.main()
