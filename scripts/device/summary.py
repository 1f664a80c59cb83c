#!/usr/bin/env python3
"""Writes DIR/summary.md from the report folder DIR of an acceptance run: summary.py DIR

Only what was measured is printed as measured. A step that failed, or an NPU route on which the NPU did nothing, gives no
figure; it is listed with its reason instead.
"""
import collections
import json
import pathlib
import statistics
import sys

# The users' own figures for Qwen3-4B (Q4_0) on their tablet, before this engine: tokens/s.
REFERENCE = {
    "cpu": {"decode": "16.5", "prefill": "75"},
    "npu-prefill": {"decode": "16.5", "prefill": "159"},
    "npu-only": {"decode": "3.6", "prefill": ""},
}
EXECUTORCH = "ExecuTorch, all on the NPU: 14 to 21 tok/s decode, 190 ms to the first token"
NOT_MEASURED = "-"


def parsed(text):
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return None


def read_lines(path):
    """The objects of a JSON Lines file, and how many lines were not objects."""
    objects, damaged = [], 0
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            value = parsed(line)
            if value is None:
                # The device copies what the program printed without reading it; the step itself is still known.
                head, found, printed = line.partition(',"result":')
                value = parsed(head + "}") if found and printed.endswith("}") else None
                if value is not None:
                    value["stdout"] = printed[:-1]
            if isinstance(value, dict):
                objects.append(value)
            elif line.strip():
                damaged += 1
    return objects, damaged


def latest(steps):
    """A repeated step counts once, as it was last."""
    by_name = {}
    for step in steps:
        by_name[(step.get("step"), step.get("command"))] = step
    return list(by_name.values())


def npu_tokens(step):
    npu = result(step).get("npu")
    return npu.get("prefill_tokens", 0) if isinstance(npu, dict) else 0


def result(step):
    value = step.get("result")
    return value if isinstance(value, dict) else {}


def problem(step):
    """Why this step has no figure to quote; None if it has."""
    outcome = step.get("outcome")
    if outcome == "timeout":
        return f"ended after {step.get('seconds')} s without an answer"
    if outcome == "crashed":
        return f"died of signal {step.get('exit_code', 128) - 128}"
    if outcome == "lost":
        return "the device or the script went away twice during this step"
    if outcome != "passed":
        error = result(step).get("error")
        said = error.get("message") if isinstance(error, dict) else None
        said = said or (step.get("stderr") or "").strip().split("\n")[0] or "no message"
        return f"exit code {step.get('exit_code')}: {said}"
    if step.get("kind") in ("run", "long", "soak"):
        if "decode_tps" not in result(step):
            return "exit code 0, but no JSON object with figures"
        taken = result(step).get("route", step.get("route"))
        if taken != step.get("route"):
            said = (step.get("stderr") or "").strip().split("\n")[-1]
            return f"answered on the route {taken}, not on {step.get('route')}: {said or 'no reason given'}"
        if str(step.get("route", "")).startswith("npu"):
            failure = (result(step).get("npu") or {}).get("failure")
            if failure:
                return f"answered, but the NPU failed on the way: {failure}"
            if not npu_tokens(step):
                return "answered, but the NPU read none of the prompt: no figure of this route"
    return None


def spread(values, digits=1):
    """Median, and the range if there is one."""
    if not values:
        return NOT_MEASURED
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return f"{middle} (once)"
    return f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f}, {len(values)} runs)"


def number(step, name):
    value = result(step).get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def values(steps, name):
    return [v for v in (number(step, name) for step in steps) if v is not None]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return lines + [""]


def model_name(path):
    return pathlib.PurePosixPath(path).name


def parameters(steps, model):
    for step in steps:
        if step.get("kind") == "inspect" and step.get("model") == model:
            return result(step).get("parameters")
    return None


def is_reference_model(steps, model):
    """Is this a model that the users' figures may be divided by: about 4 thousand million parameters?"""
    count = parameters(steps, model)
    return count is not None and 3.5e9 <= count <= 4.7e9


def ratio(steps, name, reference):
    measured = values(steps, name)
    if not measured or not reference:
        return NOT_MEASURED
    return f"{statistics.median(measured) / float(reference):.2f} x"


def model_sections(steps, model):
    out = [f"## {model_name(model)}", ""]
    about = [step for step in steps if step.get("kind") == "inspect" and step.get("model") == model]
    for step in about:
        facts = result(step)
        mix = ", ".join(f"{t['type']} {t['share_percent']:.1f} %" for t in facts.get("types", []) if isinstance(t, dict))
        out += [f"{facts.get('architecture')}, {(facts.get('parameters') or 0) / 1e6:.1f} M parameters; bytes by type: {mix}", ""]
    for step in steps:
        if step.get("kind") == "file" and step.get("model") == model and step.get("outcome") == "passed":
            out += [f"sha256 `{(step.get('stdout') or '').split(' ')[0]}`", ""]
    comparable = is_reference_model(steps, model)
    runs = [step for step in steps if step.get("model") == model and step.get("kind") in ("run", "long")]
    groups = collections.OrderedDict()
    for step in runs:
        groups.setdefault((step["kind"], int(step.get("prompt") or 0), step.get("route")), []).append(step)
    for kind, title in (("run", "Routes"), ("long", "Long context")):
        rows = []
        for (group_kind, prompt, route), group in sorted(groups.items(), key=lambda item: item[0][1]):
            if group_kind != kind:
                continue
            good = [step for step in group if problem(step) is None]
            reference = REFERENCE.get(route, {"decode": "", "prefill": ""})
            tokens = sorted(set(values(good, "prompt_tokens")))
            made = sorted(set(values(good, "generated_tokens")))
            rows.append([
                prompt, route, f"{len(good)} of {len(group)}", "/".join(map(str, tokens)) or NOT_MEASURED,
                spread(values(good, "prefill_tps")), reference["prefill"] or NOT_MEASURED,
                ratio(good, "prefill_tps", reference["prefill"]) if comparable else NOT_MEASURED,
                spread(values(good, "decode_tps")), "/".join(map(str, made)) or NOT_MEASURED,
                reference["decode"] or NOT_MEASURED,
                ratio(good, "decode_tps", reference["decode"]) if comparable else NOT_MEASURED,
                spread(values(good, "ttft_ms"), 0),
                spread([v / 2**20 for v in values(good, "peak_rss_bytes")], 0),
            ])
        if rows:
            out += [f"### {title}", ""]
            out += table(["prompt asked", "route", "good runs", "prompt tokens", "prefill tok/s", "users' prefill", "ratio",
                          "decode tok/s", "tokens made", "users' decode", "ratio", "first token ms", "peak memory MiB"], rows)
    if any(row[0] == "run" for row in groups):
        out += ["The users' figures were measured with Qwen3-4B. " +
                ("This model is of that size; ratios are measured / users'."
                 if comparable else "This model is not of that size: no ratios."),
                f"For comparison, the users' figure for {EXECUTORCH}.", ""]
    return out + same_text(groups) + npu_counters(groups)


def same_text(groups):
    """Do the routes give the CPU's answer? Greedy, so that a difference is one of arithmetic."""
    rows = []
    for (kind, prompt, route), group in groups.items():
        if route == "cpu":
            continue
        texts = [result(step).get("text") for step in group if problem(step) is None]
        expected = [result(step).get("text") for step in groups.get((kind, prompt, "cpu"), []) if problem(step) is None]
        if not texts or not expected:
            continue
        if all(text == expected[0] for text in texts + expected):
            verdict = "the same"
        else:
            odd = next((text for text in texts if text != expected[0]), None)
            if odd is None:
                verdict = "the CPU's own runs differ from each other"
            else:
                same = next((i for i, pair in enumerate(zip(odd, expected[0])) if pair[0] != pair[1]),
                            min(len(odd), len(expected[0])))
                verdict = f"differs after {same} characters"
        rows.append([prompt, route, verdict])
    return ["### Greedy text against the CPU's", ""] + table(["prompt asked", "route", "text"], rows) if rows else []


def npu_counters(groups):
    rows = []
    for (_, prompt, route), group in groups.items():
        good = [step for step in group if problem(step) is None and isinstance(result(step).get("npu"), dict)]
        if good and route != "cpu":
            npu = result(good[-1])["npu"]
            rows.append([prompt, route] + [json.dumps(npu.get(name)) for name in
                        ("prefill_tokens", "nodes", "switches", "switch_us", "weight_bytes_resident", "weight_bytes_copied")])
    if not rows:
        return []
    return ["### NPU counters (last run)", ""] + table(["prompt asked", "route", "prefill tokens", "nodes", "switches",
            "switch us", "weight bytes resident", "weight bytes copied"], rows)


def soak_section(steps, samples):
    runs = [step for step in steps if step.get("kind") == "soak"]
    if not runs:
        return []
    good = [step for step in runs if problem(step) is None]
    length = sum(step.get("seconds") or 0 for step in runs)
    out = ["## Soak", "", f"{model_name(runs[0].get('model', ''))}, route {runs[0].get('route')}: {len(runs)} answers in "
           f"{length / 60:.1f} min, {len(runs) - len(good)} not good.", ""]
    if good:
        part = max(1, len(good) // 5)
        rows = [[name, spread(values(some, "prefill_tps")), spread(values(some, "decode_tps"))]
                for name, some in (("first fifth", good[:part]), ("last fifth", good[-part:]), ("all", good))]
        out += table(["", "prefill tok/s", "decode tok/s"], rows)
        texts = {result(step).get("text") for step in good}
        out += [f"{len(texts)} different answer{'s' if len(texts) > 1 else ''} to the same prompt (greedy).", ""]
    during = [sample for sample in samples if str(sample.get("step", "")).startswith("soak")]
    return out + (["Samples during the soak:", ""] + sample_table(during) if during else ["No samples during the soak.", ""])


def sample_table(samples):
    rows = []
    zones = collections.defaultdict(list)
    for sample in samples:
        for zone, value in sample.get("temperature_mc", {}).items():
            if 0 < value < 200000:  # disabled sensors report nonsense
                zones[zone].append(value / 1000)
    for zone, series in sorted(zones.items(), key=lambda item: -max(item[1]))[:8]:
        rows.append([f"temperature {zone}, C", f"{series[0]:.1f}", f"{min(series):.1f}", f"{max(series):.1f}", f"{series[-1]:.1f}"])
    clocks = [sample["clock_khz"] for sample in samples if sample.get("clock_khz")]
    for core in range(min((len(c) for c in clocks), default=0)):
        series = [c[core] / 1e6 for c in clocks]
        rows.append([f"clock of core {core}, GHz", f"{series[0]:.2f}", f"{min(series):.2f}", f"{max(series):.2f}", f"{series[-1]:.2f}"])
    memory = [sample["mem_available_kb"] / 1024 for sample in samples if sample.get("mem_available_kb")]
    if memory:
        rows.append(["free memory, MiB", f"{memory[0]:.0f}", f"{min(memory):.0f}", f"{max(memory):.0f}", f"{memory[-1]:.0f}"])
    for name in ("capacity", "level", "temp", "temperature", "current_now"):
        series = [sample["battery"][name] for sample in samples if name in sample.get("battery", {})]
        if series:
            rows.append([f"battery {name}", series[0], min(series), max(series), series[-1]])
    return table(["", "first", "lowest", "highest", "last"], rows) if rows else ["No sensor could be read.", ""]


def gaps(samples):
    """Times in which nothing was sampled for more than four intervals: the device slept, or the run was down."""
    times = [sample["uptime_s"] for sample in samples if "uptime_s" in sample]
    steps = [later - earlier for earlier, later in zip(times, times[1:])]
    usual = statistics.median(steps) if steps else 0
    return [step for step in steps if step > max(4 * usual, 1) or step < 0]


def summary(folder):
    all_steps, damaged = read_lines(folder / "report.jsonl")
    samples, damaged_samples = read_lines(folder / "samples.jsonl")
    steps = latest(all_steps)
    out = ["# Acceptance run", ""]
    for step in steps:
        if step.get("kind") == "device":
            facts = result(step)
            names = ("maker", "model", "soc", "android", "build", "kernel", "memory_total_kb", "max_clock_khz",
                     "package_name", "package_version", "package_commit", "package_preset")
            out += table(["", ""], [[name, facts[name]] for name in names if name in facts])
    if not (folder / "finished").exists():
        out += ["**The run is not finished: this is what there is so far.**", ""]
    counted = collections.Counter(step.get("outcome") for step in steps)
    out += [f"{len(steps)} steps: " + ", ".join(f"{count} {name}" for name, count in sorted(counted.items(), key=str)) + ".", ""]
    bad = [(step, problem(step)) for step in steps if problem(step)]
    if bad:
        out += ["## What gave no figure, and why", ""]
        out += table(["step", "outcome", "why"], [[step.get("step"), step.get("outcome"), why] for step, why in bad])
    for step in steps:
        if step.get("kind") == "doctor" and result(step):
            about = f", {model_name(step['model'])}" if step.get("model") else ""
            out += ["## `kazeia doctor --npu`" + about, "", "```json", json.dumps(result(step), indent=1, ensure_ascii=False), "```", ""]
    models = list(dict.fromkeys(step.get("model") for step in steps if step.get("model")))
    for model in models:
        out += model_sections(steps, model)
    out += soak_section(steps, samples)
    if samples:
        out += ["## Samples of the whole run", ""] + sample_table(samples)
        slept = gaps(samples)
        if slept:
            out += [f"{len(slept)} gap(s) without samples, the longest {max(map(abs, slept)):.0f} s: the device slept, was "
                    "restarted, or the run was stopped. Times around them are not comparable.", ""]
    if damaged or damaged_samples:
        out += [f"{damaged} damaged line(s) in report.jsonl and {damaged_samples} in samples.jsonl were left out.", ""]
    return "\n".join(out)


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1], "report.jsonl").is_file():
        sys.exit("summary.py DIR: the report folder, with report.jsonl in it")
    folder = pathlib.Path(sys.argv[1])
    (folder / "summary.md").write_text(summary(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
