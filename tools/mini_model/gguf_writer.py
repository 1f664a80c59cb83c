"""Writes GGUF version 3 files: metadata, tensor directory, aligned data. Little-endian."""

import struct

MAGIC = b"GGUF"
VERSION = 3
ALIGNMENT = 32

# Value types of metadata.
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
_SCALAR_FORMAT = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
# Tensor types.
F32, F16 = 0, 1
_ELEMENT_BYTES = {F32: 4, F16: 2}


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    return _string(value) if kind == STRING else struct.pack(_SCALAR_FORMAT[kind], value)


def _padding(length):
    return b"\0" * (-length % ALIGNMENT)


class GgufWriter:
    def __init__(self):
        self._metadata = []
        self._tensors = []

    def add(self, key, kind, value):
        self._metadata.append(_string(key) + struct.pack("<I", kind) + _value(kind, value))

    def add_array(self, key, kind, values):
        values = list(values)
        self._metadata.append(_string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) +
                              b"".join(_value(kind, value) for value in values))

    def add_tensor(self, name, shape, kind, data):
        """`shape`: rows first. `data`: the elements, row after row, already in the type `kind`."""
        elements = 1
        for length in shape:
            elements *= length
        if len(data) != elements * _ELEMENT_BYTES[kind]:
            raise ValueError(f"tensor {name}: {len(data)} bytes do not make the shape {shape}")
        self._tensors.append((name, shape, kind, data))

    def write(self, path):
        header = [MAGIC, struct.pack("<IQQ", VERSION, len(self._tensors), len(self._metadata)), *self._metadata]
        offset = 0
        for name, shape, kind, data in self._tensors:
            header.append(_string(name) + struct.pack("<I", len(shape)) +
                          b"".join(struct.pack("<Q", length) for length in reversed(shape)) +
                          struct.pack("<IQ", kind, offset))
            offset += len(data) + len(_padding(len(data)))
        with open(path, "wb") as file:
            head = b"".join(header)
            file.write(head + _padding(len(head)))
            for _, _, _, data in self._tensors:
                file.write(data + _padding(len(data)))
