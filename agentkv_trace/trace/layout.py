"""The layout of a trace's prompts: which part stands where, of what kind, and never its text.

Parts form a tree as chunks do: a prompt is the chain of parts from its head to its last one, and
a part that follows the same parts is stored once. Parts are numbered by first appearance, so a
call stores those that no call before it had, in the order of its path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agentkv_trace.errors import InputError
from agentkv_trace.trace.parts import PART_KINDS, READINGS, ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

_PART = pa.struct(
    [
        pa.field("parent", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("role", pa.string(), nullable=False),
        *(pa.field(reading, pa.uint32(), nullable=False) for reading in READINGS),
    ]
)
LAYOUT = pa.field(
    "layout",
    pa.struct(
        [
            pa.field("prompt", pa.int32(), nullable=False),
            pa.field("path", pa.int32(), nullable=False),
            pa.field("parts", pa.list_(_PART), nullable=False),
        ]
    ),
    nullable=False,
)
"""The optional column: the parts that end prompt and path, and the parts that are new."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The parts of all calls of a trace.

    `prompt` and `path` (int32[calls]) are the parts that end each call's prompt and path, -1 of
    an empty one; those new with call i are `offsets[i]` up to `offsets[i+1]` (int64[calls+1]).
    Of each part: `parent` (int32, -1 of a head), `end` (int32, tokens from the prompt's start
    to its end), `kind` and `role` (int8, places in PART_KINDS and ROLES) and `digests`
    (uint32[parts, readings], 0 where it is that of `keys`, and there that of `text`).
    """

    prompt: Int32
    path: Int32
    offsets: Int64
    parent: Int32
    end: Int32
    kind: npt.NDArray[np.int8]
    role: npt.NDArray[np.int8]
    digests: npt.NDArray[np.uint32]

    def __len__(self) -> int:
        return int(self.parent.size)

    @property
    def start(self) -> Int32:
        """Return where each part starts, int32[parts], in tokens."""
        return np.where(self.parent >= 0, self.end[self.parent], 0).astype(np.int32)

    def chain(self, part: int) -> list[int]:
        """Return the parts of a prompt from its head to `part`."""
        found = []
        while part >= 0:
            found.append(part)
            part = int(self.parent[part])
        return found[::-1]

    def column(self) -> pa.StructArray:
        """Return the layout as the column of a trace file, a row per call."""
        parts = pa.StructArray.from_arrays(
            [
                pa.array(self.parent),
                pa.array(self.end),
                _words(self.kind, PART_KINDS),
                _words(self.role, ROLES),
                *(pa.array(self.digests[:, at]) for at in range(len(READINGS))),
            ],
            fields=list(_PART),
        )
        lists = pa.ListArray.from_arrays(
            pa.array(self.offsets.astype(np.int32)), parts, type=pa.list_(_PART)
        )
        values = [pa.array(self.prompt), pa.array(self.path), lists]
        return pa.StructArray.from_arrays(values, fields=list(LAYOUT.type))

    @staticmethod
    def of_column(column: pa.ChunkedArray, where: str) -> Layout:
        """Read a trace file's column. Raises InputError, naming `where`, if it is damaged."""
        try:
            rows = column.cast(LAYOUT.type).combine_chunks()
            if isinstance(rows, pa.ChunkedArray):  # of no rows
                rows = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], rows.type)
            prompt, path, lists = rows.flatten()
            fields = lists.flatten().flatten()
            layout = Layout(
                prompt.to_numpy(zero_copy_only=False).astype(np.int32),
                path.to_numpy(zero_copy_only=False).astype(np.int32),
                np.concatenate([[0], np.cumsum(lists.value_lengths().to_numpy())]).astype(np.int64),
                fields[0].to_numpy().astype(np.int32),
                fields[1].to_numpy().astype(np.int32),
                _codes(fields[2], PART_KINDS),
                _codes(fields[3], ROLES),
                np.stack([field.to_numpy() for field in fields[4:]], axis=1).astype(np.uint32),
            )
        except (pa.ArrowException, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{where}: damaged layout ({reason}); ingest again") from None
        layout._check(where)
        return layout

    def _check(self, where: str) -> None:
        parts = np.arange(len(self))
        inside = (self.parent >= -1) & (self.parent < parts)
        good = bool(inside.all()) and bool((self.end >= self.start).all())
        for leaves in (self.prompt, self.path):
            good &= bool(((leaves >= -1) & (leaves < self.offsets[1:])).all())
        if not good:
            raise InputError(f"{where}: damaged layout (a part is out of order); ingest again")


def select_rows(layouts: Sequence[Layout], origin: Sequence[int], number: Sequence[int]) -> Layout:
    """Return the layout of some calls of some traces: row i is `number[i]` of `origin[i]`.

    Equal parts behind equal parts become one, also where they come from different traces.
    """
    known: dict[tuple[int, ...], int] = {}
    places = [np.full(len(layout), -1, np.int64).tolist() for layout in layouts]
    parents = [layout.parent.tolist() for layout in layouts]
    source: list[tuple[int, int]] = []
    parent: list[int] = []
    offsets, prompts, paths = [0], [], []
    for which, row in zip(origin, number, strict=True):
        layout, place, above = layouts[which], places[which], parents[which]
        leaf, fresh = int(layout.path[row]), []
        at = leaf
        while at >= 0 and place[at] < 0:
            fresh.append(at)
            at = above[at]
        for part in reversed(fresh):
            before = place[above[part]] if above[part] >= 0 else -1
            key = (before, *(int(v[part]) for v in (layout.end, layout.kind, layout.digests[:, 0])))
            if key not in known:
                known[key] = len(parent)
                parent.append(before)
                source.append((which, part))
            place[part] = known[key]
        offsets.append(len(parent))
        prompts.append(place[layout.prompt[row]] if layout.prompt[row] >= 0 else -1)
        paths.append(place[leaf] if leaf >= 0 else -1)
    trace_of = np.array([of for of, _ in source], np.int64)
    part_of = np.array([at for _, at in source], np.int64)

    def taken(name: str) -> Any:
        first = getattr(layouts[0], name)
        values = np.empty((part_of.size, *first.shape[1:]), first.dtype)
        for at, layout in enumerate(layouts):
            mine = trace_of == at
            values[mine] = getattr(layout, name)[part_of[mine]]
        return values

    return Layout(
        np.array(prompts, np.int32),
        np.array(paths, np.int32),
        np.array(offsets, np.int64),
        np.array(parent, np.int32),
        *(taken(name) for name in ("end", "kind", "role", "digests")),
    )


def _words(codes: npt.NDArray[np.int8], words: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words)).cast(pa.string())


def _codes(words: pa.Array, known: tuple[str, ...]) -> npt.NDArray[np.int8]:
    found = words.dictionary_encode()
    table = np.array([known.index(word) for word in found.dictionary.to_pylist()], np.int8)
    indices = found.indices.to_numpy(zero_copy_only=False)
    return table[indices] if table.size else np.empty(0, np.int8)
