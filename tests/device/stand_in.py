"""A tablet that is a folder: packages, a stand-in adb, the acceptance script run against both."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ACCEPTANCE = ROOT / "scripts/device/acceptance"
MINI = ROOT / "models/kazeia-mini-qwen35-q4_0.gguf"


def write_sums(package):
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(package)}"
             for path in sorted(package.rglob("*")) if path.is_file() and path.name != "SHA256SUMS"]
    (package / "SHA256SUMS").write_text("\n".join(lines) + "\n")


def fake_package(folder):
    """A package like scripts/package-aarch64's, with fake_kazeia for the program."""
    for name in ("bin", "lib", "acceptance"):
        (folder / name).mkdir(parents=True)
    shutil.copy(HERE / "fake_kazeia", folder / "bin/kazeia")
    shutil.copy(ROOT / "packaging/kazeia.sh", folder)
    for name in ("on_device.sh", "steps.sh", "sampler.sh"):
        shutil.copy(ROOT / "scripts/device" / name, folder / "acceptance")
    subprocess.run([sys.executable, "-B", ROOT / "scripts/device/make_prompts.py", folder / "acceptance/prompts",
                    "128", "512"], check=True)
    (folder / "lib/libggml-htp-v79.so").write_bytes(b"not a library")
    (folder / "PACKAGE").write_text("name=fake\nversion=0\ncommit=none\npreset=none\n")
    write_sums(folder)
    return folder


def fake_sysfs(folder):
    """What a tablet shows of itself: two thermal zones, one broken; two cores; a battery."""
    files = {"class/thermal/thermal_zone0/type": "cpu-0-0", "class/thermal/thermal_zone0/temp": "41500",
             "class/thermal/thermal_zone7/type": "nsp", "class/thermal/thermal_zone7/temp": "",
             "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2745600",
             "devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq": "4320000",
             "devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "1804800",
             "class/power_supply/battery/capacity": "83", "class/power_supply/battery/temp": "312"}
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return folder


class DeviceTest(unittest.TestCase):
    """A folder with a space in its name for everything, and a device that is gone afterwards."""

    def setUp(self):
        for program in ("mksh", "toybox"):
            self.assertIsNotNone(shutil.which(program), f"no {program}: run scripts/setup aarch64")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kazeia device "))
        self.device = self.folder / "data local"
        self.device.mkdir()
        (self.folder / "adb").mkdir()
        self.sysfs = fake_sysfs(self.folder / "sys")
        self.out = self.folder / "report"

    def tearDown(self):
        on_device = self.device / "package/acceptance/on_device.sh"
        if on_device.exists():
            subprocess.run(["mksh", on_device, "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder)

    def environment(self, **more):
        return {**os.environ, "ADB": str(HERE / "adb"), "FAKE_ADB_STATE": str(self.folder / "adb"),
                "FAKE_ADB_SYSFS": str(self.sysfs), **more}

    def command(self, *arguments):
        return [ACCEPTANCE, "--package", self.package, "--device-dir", self.device, "--out", self.out, "--poll", "1s",
                "--pause", "0", "--sample", "1s", *arguments]

    def accept(self, *arguments, limit=120, **more):
        """Runs the acceptance script to its end; its exit code. What it said is in self.said."""
        done = subprocess.run(self.command(*arguments), env=self.environment(**more), capture_output=True, text=True,
                              timeout=limit)
        self.said = done.stderr + done.stdout
        return done.returncode

    def accept_in_background(self, *arguments, **more):
        return subprocess.Popen(self.command(*arguments), env=self.environment(**more), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def steps(self, folder=None):
        return [json.loads(line) for line in ((folder or self.out) / "report.jsonl").read_text().splitlines()]

    def samples(self):
        return [json.loads(line) for line in (self.out / "samples.jsonl").read_text().splitlines()]

    def outcomes(self):
        return {step["step"]: step["outcome"] for step in self.steps()}

    def summary(self):
        return (self.out / "summary.md").read_text()

    def adb_log(self):
        log = self.folder / "adb/log"
        return [line.split(" ", 1)[1] for line in log.read_text().splitlines()] if log.exists() else []

    def forget_adb_log(self):
        for name in ("log", "count"):
            (self.folder / "adb" / name).unlink()

    def wait_until(self, condition, seconds=60):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, "waited too long")
            time.sleep(0.1)

    def model(self, name="model.gguf", size=1000):
        path = self.folder / name
        path.write_bytes(bytes(i * 7 % 251 for i in range(size)))
        return path
