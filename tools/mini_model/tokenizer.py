"""Byte-level BPE with the splitting rule of Qwen3.5's tokenizer: learning, encoding, the vocabulary file.

Encoding gives the ids that the engine gives (tests/vectors/tokens.jsonl holds both to that).
"""

import collections
import json
import re
import unicodedata

VOCABULARY_SIZE = 2048
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
THOUGHT_TOKENS = ["<think>", "</think>"]
SPECIAL_TOKENS = CONTROL_TOKENS + THOUGHT_TOKENS
# Unicode's White_Space property, which str.isspace() exceeds by the separators U+001C..U+001F.
WHITE_SPACE = set("\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
                  "\u2028\u2029\u202f\u205f\u3000")


def _byte_characters():
    """The printable character that stands for each byte in a vocabulary (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table


BYTE_CHARACTER = _byte_characters()

# `re` knows no Unicode categories, so the rule is applied to a text of classes, one letter for each character:
# L letter or mark, N number, B blank, S other white space, R line end, O anything else.
_CONTRACTION = re.compile(r"'(?:[stmd]|re|ve|ll)", re.IGNORECASE | re.ASCII)
_PIECE = re.compile(r"[BSO]?L+|N|B?O+R*|[BSR]*R+|[BSR]+(?![LNO])|[BSR]+")


def _character_class(character):
    if character == " ":
        return "B"
    if character in "\r\n":
        return "R"
    if character in WHITE_SPACE:
        return "S"
    category = unicodedata.category(character)[0]
    if category in "LM":
        return "L"
    return "N" if category == "N" else "O"


def split_words(text):
    """The pieces inside which byte pairs are merged; together they are the text."""
    classes = "".join(map(_character_class, text))
    position = 0
    words = []
    while position < len(text):
        match = _CONTRACTION.match(text, position) or _PIECE.match(classes, position)
        words.append(text[position:match.end()])
        position = match.end()
    return words


def learn(text, vocabulary_size=VOCABULARY_SIZE):
    """Returns (tokens, merges) with room left for SPECIAL_TOKENS, which are not appended."""
    counted = collections.Counter(split_words(text))
    words = [([BYTE_CHARACTER[byte] for byte in word.encode()], count) for word, count in counted.items()]
    tokens = [BYTE_CHARACTER[byte] for byte in range(256)]
    merges = []
    pairs = collections.Counter()
    containing = collections.defaultdict(set)
    for index, (symbols, count) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += count
            containing[pair].add(index)
    while len(tokens) < vocabulary_size - len(SPECIAL_TOKENS):
        best = max(pairs, key=lambda pair: (pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        merges.append(" ".join(best))
        tokens.append("".join(best))
        for index in list(containing[best]):
            symbols, count = words[index]
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] -= count
            symbols = _merge(symbols, best)
            words[index] = (symbols, count)
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
                containing[pair].add(index)
        del pairs[best]
    return tokens, merges


def _merge(symbols, pair):
    merged = []
    index = 0
    while index < len(symbols):
        if tuple(symbols[index:index + 2]) == pair:
            merged.append(symbols[index] + symbols[index + 1])
            index += 2
        else:
            merged.append(symbols[index])
            index += 1
    return merged


class Tokenizer:
    """Ids: learned tokens from 0, unused ids, then SPECIAL_TOKENS at the end of VOCABULARY_SIZE."""

    def __init__(self, learned, merges):
        if len(learned) + len(SPECIAL_TOKENS) > VOCABULARY_SIZE:
            raise ValueError(f"{len(learned)} learned tokens do not fit a vocabulary of {VOCABULARY_SIZE}")
        self.merges = merges
        unused = VOCABULARY_SIZE - len(learned) - len(SPECIAL_TOKENS)
        self.tokens = learned + [f"[PAD{index}]" for index in range(unused)] + SPECIAL_TOKENS
        self.unused = range(len(learned), len(learned) + unused)
        self._id = {token: index for index, token in enumerate(self.tokens)}
        self._rank = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._special = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
        self._cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as file:
            vocabulary = json.load(file)
        return cls(vocabulary["tokens"][:-vocabulary["nspecial"]], vocabulary["merges"])

    def save(self, path):
        learned = self.tokens[:self.unused.start]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tokens": learned + SPECIAL_TOKENS, "merges": self.merges,
                       "nspecial": len(SPECIAL_TOKENS)}, file)

    def id(self, token):
        return self._id[token]

    def encode(self, text):
        """Special tokens in the text become their ids."""
        ids = []
        for part in self._special.split(text):
            if part in SPECIAL_TOKENS:
                ids.append(self._id[part])
                continue
            for word in split_words(part):
                if word not in self._cache:
                    self._cache[word] = self._encode_word(word)
                ids.extend(self._cache[word])
        return ids

    def _encode_word(self, word):
        symbols = [BYTE_CHARACTER[byte] for byte in word.encode()]
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self._rank.get(pair, len(self._rank)))
            if best not in self._rank:
                break
            symbols = _merge(symbols, best)
        return [self._id[symbol] for symbol in symbols]
