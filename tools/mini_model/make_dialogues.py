"""Writes unseen dialogues with their only right last answer, one JSON object a line, for `kazeia quality`."""

import argparse
import json
import pathlib
import sys

from dialogues import DialogueGenerator

HERE = pathlib.Path(__file__).parent
SEED = 4242  # of no training or validation data (prepare.py)


def records(seed, count, passages):
    generator = DialogueGenerator(seed, passages)
    for _ in range(count):
        dialogue = generator.dialogue()
        last = dialogue.turns[-1]
        yield {"language": dialogue.language, "kind": last.kind, "recall": last.recall,
               "messages": dialogue.messages(), "expect": last.answer}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--passages", type=pathlib.Path, default=HERE / "passages-sample.json",
                        help="default: the shipped sample")
    options = parser.parse_args()
    passages = json.loads(options.passages.read_text(encoding="utf-8"))
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
             for record in records(options.seed, options.count, passages)]
    options.output.write_text("".join(lines), encoding="utf-8")
    print(f"{options.output}: {len(lines)} dialogues", file=sys.stderr)


if __name__ == "__main__":
    main()
