"""The acceptance run with a fake program: what is recorded, repeated, copied and claimed."""
import pathlib
import shutil
import subprocess
import unittest

import stand_in

SHORT = ("--prompts", "128", "--repeat", "1", "--long", "0")


class Acceptance(stand_in.DeviceTest):
    def setUp(self):
        super().setUp()
        self.package = stand_in.fake_package(self.folder / "the package")

    def test_a_full_run_records_every_step_with_its_command_and_object(self):
        code = self.accept("--prompts", "128 512", "--repeat", "2", "--long", "512", "--soak", "3s", self.model("it's a model.gguf"))
        self.assertEqual(code, 0, self.said)
        steps = self.steps()
        self.assertEqual([s["outcome"] for s in steps], ["passed"] * len(steps))
        runs = [s["step"] for s in steps if s["kind"] == "run"]
        routes = ["cpu", "npu-prefill", "npu-only"]
        self.assertEqual(runs, [f"m1.{route}.p{prompt}.r{n}" for n in (1, 2) for prompt in (128, 512) for route in routes])
        self.assertEqual([s["route"] for s in steps if s["kind"] == "long"], routes)
        run = next(s for s in steps if s["kind"] == "run")
        self.assertEqual(run["result"]["decode_tps"], 33)
        self.assertEqual((run["exit_code"], run["prompt"], run["repetition"], run["attempt"]), (0, "128", 1, 1))
        self.assertIn("--route cpu --json --raw", run["command"])
        # The recorded command is one that a shell understands, apostrophes and spaces included.
        words = subprocess.run(["mksh", "-c", f"printf '%s\\n' {run['command']}"], capture_output=True, text=True).stdout
        self.assertIn(f"\n{self.device}/models/it's a model.gguf\n", words)
        doctor = next(s for s in steps if s["kind"] == "doctor")
        self.assertEqual(doctor["result"]["npu"]["note"], 'tab\tand "quotes"')
        self.assertGreater(len([s for s in steps if s["kind"] == "soak"]), 1)
        device = next(s for s in steps if s["kind"] == "device")
        self.assertEqual(device["result"]["max_clock_khz"], [4320000])

    def test_samples_hold_what_can_be_read_and_nothing_else(self):
        self.assertEqual(self.accept(*SHORT, "--soak", "2s", self.model()), 0, self.said)
        sample = self.samples()[0]
        self.assertEqual(sample["temperature_mc"], {"zone0/cpu-0-0": 41500})
        self.assertEqual(sample["clock_khz"], [2745600, 1804800])
        self.assertEqual(sample["battery"], {"capacity": 83, "temp": 312})
        self.assertGreater(sample["mem_available_kb"], 0)
        self.assertTrue(any(s["step"].startswith("soak.") for s in self.samples()))

    def test_a_crash_a_hang_and_a_broken_answer_are_recorded_and_the_next_step_runs(self):
        code = self.accept(*SHORT, "--timeout", "2s", self.model("crash-stubborn-garbage.gguf"), self.model("second.gguf"))
        self.assertEqual(code, 1, self.said)
        outcomes = self.outcomes()
        self.assertEqual(outcomes["m1.npu-prefill.p128.r1"], "crashed")
        self.assertEqual(outcomes["m1.npu-only.p128.r1"], "timeout")
        self.assertEqual(outcomes["m2.npu-only.p128.r1"], "passed")
        broken = next(s for s in self.steps() if s["step"] == "m1.cpu.p128.r1")
        self.assertNotIn("result", broken)
        self.assertEqual(broken["stdout"], '{"text": "cut of')
        summary = self.summary()
        self.assertIn("died of signal 11", summary)
        self.assertIn("without an answer", summary)
        self.assertIn("no JSON object with figures", summary)

    def test_a_route_that_the_program_does_not_know_ends_as_failed_and_ends_the_soak(self):
        self.assertEqual(self.accept(*SHORT, "--soak", "1h", self.model("refuse.gguf")), 1, self.said)
        outcomes = self.outcomes()
        self.assertEqual({outcomes[f"m1.{r}.p128.r1"] for r in ("cpu", "npu-prefill", "npu-only")}, {"failed"})
        self.assertEqual(len([s for s in self.steps() if s["kind"] == "soak"]), 3)
        self.assertIn("exit code 2: kazeia: --route: not in this version", self.summary())

    def test_a_second_run_repeats_nothing_copies_nothing_and_adds_what_is_new(self):
        model = self.model()
        self.assertEqual(self.accept(*SHORT, model), 0, self.said)
        before = self.steps()
        self.forget_adb_log()
        self.assertEqual(self.accept(*SHORT, model), 0, self.said)
        self.assertEqual(self.steps(), before)
        self.assertFalse([line for line in self.adb_log() if line.startswith("push")])
        self.assertEqual(self.accept("--prompts", "128 512", "--repeat", "1", "--long", "0", model), 0, self.said)
        self.assertEqual([s["step"] for s in self.steps()][len(before):], [f"m1.{r}.p512.r1" for r in ("cpu", "npu-prefill", "npu-only")])

    def test_only_changed_files_are_copied_and_a_changed_program_starts_a_new_report(self):
        model = self.model()
        self.assertEqual(self.accept(*SHORT, model), 0, self.said)
        program = self.package / "bin/kazeia"
        program.write_text(program.read_text().replace('"decode_tps":33', '"decode_tps":44'))
        stand_in.write_sums(self.package)
        self.forget_adb_log()
        self.assertEqual(self.accept(*SHORT, model), 0, self.said)
        pushed = [line.split("/")[-1] for line in self.adb_log() if line.startswith("push")]
        self.assertEqual(pushed, ["kazeia", "SHA256SUMS"])
        self.assertEqual({s["result"]["decode_tps"] for s in self.steps() if s["kind"] == "run"}, {44})
        self.assertTrue((self.device / "report.1/report.jsonl").exists())

    def test_new_starts_over_and_retry_failed_repeats_the_failed_steps_alone(self):
        model = self.model("crash.gguf")
        self.assertEqual(self.accept(*SHORT, model), 1, self.said)
        count = len(self.steps())
        self.assertEqual(self.accept(*SHORT, "--retry-failed", model), 1, self.said)
        self.assertEqual([s["step"] for s in self.steps()][count:], ["m1.npu-prefill.p128.r1"])
        self.assertEqual(self.accept(*SHORT, "--new", model), 1, self.said)
        self.assertEqual(len(self.steps()), count)
        self.assertEqual(len(self.steps(self.device / "report.1")), count + 1)

    def test_losing_the_connection_costs_nothing(self):
        model = self.model(size=3 * 2**20)
        self.assertEqual(self.accept(*SHORT, "--part-mib", "1", "--soak", "4s", model,
                                     FAKE_ADB_LOST="3-5,9,16-18,30-33,45-47", FAKE_ADB_CUT="2,7,14,22,26,36,40,43,50"), 0, self.said)
        self.assertIn("the device is back", self.said)
        names = [s["step"] for s in self.steps()]
        self.assertEqual(len(names), len(set(names)), names)
        self.assertEqual((self.device / "models/model.gguf").read_bytes(), model.read_bytes())
        self.assertEqual(set(self.outcomes().values()), {"passed"})

    def test_a_device_that_stays_away_ends_the_script_and_the_run_goes_on(self):
        model = self.model("hang.gguf")
        self.assertEqual(self.accept(*SHORT, "--timeout", "4s", "--wait", "2s", model, FAKE_ADB_LOST="26-9999"), 3, self.said)
        self.assertIn("did not come back", self.said)
        self.wait_until((self.device / "report/finished").exists)
        # The same command finds everything done.
        self.assertEqual(self.accept(*SHORT, "--timeout", "4s", "--wait", "2s", model), 1, self.said)
        self.assertEqual(self.outcomes()["m1.npu-only.p128.r1"], "timeout")
        self.assertEqual(len([s for s in self.steps() if s["kind"] == "run"]), 3)

    def test_an_interrupted_copy_of_a_model_goes_on(self):
        model = self.model(size=4 * 2**20 + 17)
        words = (*SHORT, "--wait", "1s", "--part-mib", "1", model)
        # Which command copies the third part? The order of commands up to there is always the same.
        self.assertEqual(self.accept(*words), 0, self.said)
        third = [n for n, line in enumerate(self.adb_log(), 1) if line.startswith("push") and line.endswith(".part")][2]
        shutil.rmtree(self.device)
        self.device.mkdir()
        self.forget_adb_log()
        self.assertEqual(self.accept(*words, FAKE_ADB_LOST=f"{third}-9999"), 3, self.said)
        partial = self.device / "models/model.gguf.partial"
        there = partial.stat().st_size
        self.assertEqual(there, 2 * 2**20)
        with open(partial, "ab") as file:
            file.write(b"half a part")
        self.forget_adb_log()
        self.assertEqual(self.accept(*SHORT, "--part-mib", "1", model), 0, self.said)
        parts = [line for line in self.adb_log() if line.startswith("push") and line.endswith(".part")]
        self.assertEqual(len(parts), 3)
        self.assertEqual((self.device / "models/model.gguf").read_bytes(), model.read_bytes())
        self.assertFalse(partial.exists())

    def test_a_killed_run_is_started_again_and_a_step_that_kills_it_twice_is_given_up(self):
        model = self.model("hang.gguf")
        script = self.accept_in_background(*SHORT, "--timeout", "30s", model)
        current = self.device / "report/current"
        programs = []
        for _ in range(2):
            self.wait_until(lambda: current.exists() and current.read_text() == "m1.npu-only.p128.r1\n"
                            and (self.device / "report/child").exists())
            programs.append((self.device / "report/child").read_text())
            runner = (self.device / "report/pid").read_text().split()[0]
            current.unlink()
            subprocess.run(["kill", "-9", runner], check=True)
        self.assertEqual(script.wait(60), 1)
        self.assertEqual(self.outcomes()["m1.npu-only.p128.r1"], "lost")
        self.assertEqual(self.outcomes()["m1.npu-prefill.p128.r1"], "passed")
        self.assertIn("went away twice", self.summary())
        # What the killed run had started did not stay at work beside the next one.
        for program in programs:
            self.assertFalse(pathlib.Path(f"/proc/{program.strip()}").exists())

    def test_stop_ends_the_run_and_its_program_and_the_next_start_goes_on(self):
        model = self.model("hang.gguf")
        script = self.accept_in_background(*SHORT, "--timeout", "20s", model)
        current = self.device / "report/current"
        self.wait_until(lambda: current.exists() and current.read_text() == "m1.npu-only.p128.r1\n")
        script.terminate()
        script.wait(30)
        self.assertEqual(self.accept("--stop"), 0, self.said)
        self.assertIn("state=stopped", self.said)
        self.assertEqual(subprocess.run(["pgrep", "-f", str(self.device)], capture_output=True, text=True).stdout, "")
        self.assertEqual(self.accept(*SHORT, "--timeout", "2s", model), 1, self.said)
        self.assertEqual(self.outcomes()["m1.npu-only.p128.r1"], "timeout")
        self.assertEqual(self.steps()[-1]["attempt"], 1)

    def test_the_device_side_works_alone_in_the_devices_shell(self):
        model = self.model()
        report = self.folder / "own report"
        done = subprocess.run(["mksh", self.package / "acceptance/on_device.sh", "run", "--report", report, "--pause", "0",
                               "--sample", "1s", *SHORT, model.name], cwd=self.folder, capture_output=True, text=True, timeout=60,
                              env=self.environment(KAZEIA_SYSFS=str(self.sysfs)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({s["outcome"] for s in self.steps(report)}, {"passed"})
        self.assertEqual(subprocess.run([stand_in.ACCEPTANCE, "--summary", report]).returncode, 0)
        self.assertIn("| 128 | cpu | 1 of 1 |", (report / "summary.md").read_text())

    def test_wrong_words_are_refused_before_anything_is_copied(self):
        model = self.model()
        for words, sentence in ((["--prompts", "999", model], "no prompt of 999 tokens"),
                                (["--soak", "soon", model], "not a time: 'soon'"),
                                (["--repeat", "x", model], "--repeat needs a whole number, not 'x'"),
                                (["--part-mib", "x", model], "--part-mib needs a whole number, not 'x'"),
                                (["--colour", model], "unknown option '--colour'"),
                                ([model, "--colour"], "unknown option '--colour'"),
                                (["--soak=3s", model], "unknown option '--soak=3s'"),
                                ([self.folder / "none.gguf"], "no file"), ([], "which models")):
            with self.subTest(words):
                self.assertEqual(self.accept(*SHORT, *words), 2)
                self.assertIn(sentence, self.said)
                self.assertFalse([line for line in self.adb_log() if line.startswith("push")])

    def test_an_option_without_its_value_takes_neither_a_model_nor_the_next_option_for_it(self):
        model = self.model()
        for words, sentence in (([model, "--soak"], "--soak needs a value"),
                                (["--routes", model, model], f"--routes needs a value, not the file '{model}'"),
                                (["--soak-route", "/sdcard/model", model], "--soak-route needs a value, not the file '/sdcard/model'"),
                                (["--routes", "--retry-failed", model], "--routes needs a value, not '--retry-failed'"),
                                ([model, "--serial"], "--serial needs a value"),
                                (["--serial", model, model], f"--serial needs a value, not '{model}'"),
                                (["--wait", "--new", model], "--wait needs a value, not '--new'")):
            with self.subTest(words):
                self.assertEqual(self.accept(*SHORT, *words), 2)
                self.assertIn(sentence, self.said)
                self.assertEqual(self.adb_log(), [])


class Summary(stand_in.DeviceTest):
    def setUp(self):
        super().setUp()
        self.package = stand_in.fake_package(self.folder / "package")

    def row(self, prompt, route):
        return next(line for line in self.summary().splitlines() if line.startswith(f"| {prompt} | {route} | "))

    def test_the_users_figures_stand_beside_the_measured_ones(self):
        self.assertEqual(self.accept("--prompts", "128", "--repeat", "2", "--long", "0", self.model()), 0, self.said)
        self.assertEqual(self.row(128, "cpu"), "| 128 | cpu | 2 of 2 | 128 | 150.0 (150.0 to 150.0, 2 runs) | 75 | 2.00 x | "
                         "33.0 (33.0 to 33.0, 2 runs) | 64 | 16.5 | 2.00 x | 850 (850 to 850, 2 runs) | 100 (100 to 100, 2 runs) |")
        self.assertIn("| 159 | 0.94 x |", self.row(128, "npu-prefill"))
        self.assertIn("| 3.6 | 9.17 x |", self.row(128, "npu-only"))
        for words in ("ExecuTorch, all on the NPU: 14 to 21 tok/s decode, 190 ms", "ratios are measured / users'", "qwen3, 4022.5 M",
                      "temperature zone0/cpu-0-0, C | 41.5", "battery capacity | 83"):
            self.assertIn(words, self.summary())

    def test_a_route_on_which_the_npu_did_nothing_gives_no_figure(self):
        self.assertEqual(self.accept(*SHORT, self.model("mute-npu.gguf")), 0, self.said)
        self.assertIn("| 0 of 1 | - | - |", self.row(128, "npu-prefill"))
        self.assertIn("the NPU read none of the prompt", self.summary())
        self.assertIn("| 1 of 1 |", self.row(128, "cpu"))

    def test_a_route_on_which_the_npu_failed_gives_no_figure(self):
        self.assertEqual(self.accept(*SHORT, self.model("died-on-the-way.gguf")), 0, self.said)
        self.assertIn("| 0 of 1 | - | - |", self.row(128, "npu-prefill"))
        self.assertIn("the NPU failed on the way: session lost", self.summary())

    def test_a_route_that_answers_otherwise_than_the_cpu_is_named(self):
        self.assertEqual(self.accept(*SHORT, self.model("drift.gguf")), 0, self.said)
        self.assertIn("| 128 | npu-prefill | the same |", self.summary())
        self.assertIn("| 128 | npu-only | differs after 4 characters |", self.summary())

    def test_damaged_lines_are_counted_and_left_out(self):
        self.assertEqual(self.accept(*SHORT, self.model()), 0, self.said)
        with open(self.out / "report.jsonl", "a") as file:
            file.write('{"step":"m1.cpu')
        self.assertEqual(subprocess.run([stand_in.ACCEPTANCE, "--summary", self.out]).returncode, 0)
        self.assertIn("1 damaged line(s) in report.jsonl", self.summary())
        (self.out / "finished").unlink()
        subprocess.run([stand_in.ACCEPTANCE, "--summary", self.out], check=True)
        self.assertIn("not finished", self.summary())


if __name__ == "__main__":
    unittest.main()
