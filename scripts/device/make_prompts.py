#!/usr/bin/env python3
"""Writes the prompts of the acceptance run: make_prompts.py FOLDER LENGTH...

FOLDER/LENGTH.txt is English-looking text of LENGTH words and punctuation marks. Every word is among the commonest of the
language, so that the tokenizers of large models (Qwen's, for one) make one token of each; what a model really made of it
is in its `prompt_tokens`. The text ends in the middle of a sentence: there is something to continue. Always the same
bytes for the same LENGTH.
"""
import pathlib
import random
import sys

PLACES = "town river house road field school garden market forest village church bridge island valley city".split()
PEOPLE = "man woman child teacher farmer doctor king writer friend brother sister mother father captain student".split()
THINGS = "book letter horse boat stone light door table picture story song bird tree fire window".split()
KINDS = "old new little great small good long white dark strong young quiet green cold deep".split()
ACTS = "found saw made carried wanted kept took brought left followed remembered needed called sold moved".split()
TIMES = "morning evening night summer winter year day week".split()


def sentence(choose):
    """One sentence as a list of words and marks."""
    kind, other = choose(KINDS), choose(KINDS)
    forms = [
        f"The {kind} {choose(PEOPLE)} {choose(ACTS)} the {choose(THINGS)} near the {choose(PLACES)} .",
        f"In the {choose(TIMES)} , the {choose(PEOPLE)} and the {choose(PEOPLE)} {choose(ACTS)} a {kind} {choose(THINGS)} .",
        f"When the {choose(PEOPLE)} came to the {kind} {choose(PLACES)} , there was a {other} {choose(THINGS)} on the road .",
        f"It was a {kind} {choose(TIMES)} , and no one in the {choose(PLACES)} {choose(ACTS)} the {choose(THINGS)} .",
        f"They said that the {choose(THINGS)} of the {choose(PEOPLE)} was more {kind} than the {choose(THINGS)} .",
        f"After that the {choose(PEOPLE)} {choose(ACTS)} every {choose(THINGS)} from the {choose(PLACES)} to the {choose(PLACES)} .",
    ]
    return choose(forms).split()


def prompt(length):
    numbers = random.Random(length)
    words = []
    while len(words) < length:
        words += sentence(numbers.choice)
    words = words[:length]
    # A mark at the end would invite the model to stop.
    if words[-1] in ".,":
        words[-1] = "and"
    text = " ".join(words)
    return text.replace(" .", ".").replace(" ,", ",")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for length in map(int, sys.argv[2:]):
        (folder / f"{length}.txt").write_text(prompt(length), encoding="ascii")


if __name__ == "__main__":
    main()
