#!/usr/bin/env python3
"""Verifies a Belljar ledger, or the receipt of a run, and reports each damage with its position.

The script implements docs/ledger-format.md, with RFC 6962, RFC 8032, C2SP signed-note and C2SP tlog-checkpoint.
It shares no code with Belljar, needs only the standard library of Python 3.11, and writes no files.

The standard library of Python 3.11 has no zstd. The content of stored bodies is verified if the module
`compression.zstd`, the module `zstandard` or the command `zstd` is available. Otherwise only the checksums of
their files are verified, and the result counts these contents as not checked.

exit status: 0 intact, 1 damaged, 2 wrong usage or no ledger to verify
"""

from __future__ import annotations

import argparse, base64, hashlib, importlib, json, re, shutil, subprocess, sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Invalid(Exception):
    """The checked data is invalid. The message says why; the code that catches the error adds the position."""


def require(condition: object, message: str) -> None:
    """Raises `Invalid` with this message unless the condition is true."""
    if not condition:
        raise Invalid(message)


def H(*parts: bytes) -> bytes:
    """Returns the SHA-256 hash of the concatenated parts."""
    return hashlib.sha256(b"".join(parts)).digest()


def utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Invalid("a text is not valid UTF-8") from error


def from_base64(text: object, length: int | None = None) -> bytes:
    """Decodes canonical base64, optionally of a given number of bytes."""
    try:
        data = base64.b64decode(str(text), validate=True)
    except ValueError as error:
        raise Invalid("a text is not valid base64") from error
    require(base64.b64encode(data).decode() == text, "a base64 text is not in canonical form")
    require(length in (None, len(data)), f"a base64 text has {len(data)} bytes instead of {length}")
    return data


# ---- Ed25519, RFC 8032 section 5.1. Points are (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
# Verification is strict: only canonical encodings of points and scalars, no points of small order, no cofactor.

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int, int, int]
ZERO: Point = (0, 1, 1, 0)


def add(a: Point, b: Point) -> Point:
    """Returns the sum of two points."""
    m, n = (a[1] - a[0]) * (b[1] - b[0]), (a[1] + a[0]) * (b[1] + b[0])
    t, z = 2 * D * a[3] * b[3], 2 * a[2] * b[2]
    e, f, g, h = n - m, (z - t) % P, (z + t) % P, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar: int, point: Point) -> Point:
    """Returns a multiple of a point."""
    total = ZERO
    for bit in f"{scalar:b}":
        total = add(total, total)
        total = add(total, point) if bit == "1" else total
    return total


def equal_points(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def to_point(data: bytes) -> Point:
    """Decodes a point, and refuses other encodings and points of small order."""
    odd, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    require(y < P and odd < 2 and x * x % P == square and (x or not odd), "the bytes are not a point on the curve")
    x = x if x % 2 == odd else P - x
    point = (x, y, 1, x * y % P)
    require(not equal_points(multiply(8, point), ZERO), "a point has a small order")
    return point


BASE = to_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def check_signature(key: bytes, message: bytes, signature: bytes) -> None:
    """Checks the Ed25519 signature of a message."""
    require(len(signature) == 64, "a signature has a wrong length")
    r, s = to_point(signature[:32]), int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    fits = s < L and equal_points(multiply(s, BASE), add(r, multiply(k, to_point(key))))
    require(fits, "a signature does not match its text")


# ---- Keys and checkpoints


class Key(NamedTuple):
    """A public key of a ledger."""

    name: str
    public: bytes

    @staticmethod
    def parse(vkey: str) -> Key:
        name, _, rest = vkey.partition("+")
        id, _, data = rest.partition("+")
        require(re.fullmatch("belljar/[0-9a-f]{32}", name), "the name of a key is invalid")
        decoded = from_base64(data, 33)
        key = Key(name, decoded[1:])
        require(decoded[0] == 1 and key.id().hex() == id, "the id of a key does not match the key")
        to_point(key.public)
        return key

    def id(self) -> bytes:
        return H(self.name.encode(), b"\n\x01", self.public)[:4]

    def check_endorsement(self, new: str, signature: bytes) -> None:
        check_signature(self.public, b"belljar key rotation 1\0" + new.encode(), signature)


class Checkpoint(NamedTuple):
    """The text of a signed checkpoint."""

    origin: str
    size: int
    root: bytes
    extensions: list[str]

    @staticmethod
    def open(note: str, keys: list[Key]) -> Checkpoint:
        """Parses a checkpoint that one of these keys signed. Signatures of unknown keys are ignored."""
        text, gap, signatures = note.rpartition("\n\n")
        require(gap and signatures.endswith("\n"), "the text is not a signed note")
        require(not re.search(r"[\x00-\x09\x0b-\x1f]", note), "a note contains control characters")
        trusted = 0
        for line in signatures[:-1].split("\n"):
            dash, name, data, *more = line.split(" ") + ["", ""]
            require(dash == "\N{EM DASH}" and name and more == ["", ""], "a line of a note is not a signature")
            decoded = from_base64(data)
            require(len(decoded) > 4, "a signature has a wrong length")
            for key in keys:
                if (key.name, key.id()) == (name, decoded[:4]):
                    check_signature(key.public, f"{text}\n".encode(), decoded[4:])
                    trusted += 1
        require(trusted, "no trusted key signed the checkpoint")
        lines = text.split("\n")
        require(len(lines) >= 3, "a checkpoint lacks a line for origin, size or root")
        origin, size, root, *extensions = lines
        require(re.fullmatch("0|[1-9][0-9]{0,19}", size), "the size in a checkpoint is not a number")
        return Checkpoint(origin, int(size), from_base64(root, 32), extensions)


# ---- The tree


def leaf_hash(event: bytes) -> bytes:
    return H(b"\0", event)


def node_hash(left: bytes, right: bytes) -> bytes:
    return H(b"\1", left, right)


def right_edge(leaves: list[bytes]) -> list[bytes]:
    """Returns the hashes of the complete subtrees at the right edge of the tree, largest first."""
    edge: list[tuple[int, bytes]] = []
    for tree in leaves:
        size = 1
        while edge and edge[-1][0] == size:
            tree, size = node_hash(edge.pop()[1], tree), size * 2
        edge.append((size, tree))
    return [tree for _, tree in edge]


def root_hash(leaves: list[bytes]) -> bytes:
    """Returns the root of the tree with these leaf hashes."""
    edge = right_edge(leaves) or [H()]
    root = edge.pop()
    while edge:
        root = node_hash(edge.pop(), root)
    return root


def root_by_proof(leaf: bytes, index: int, size: int, proof: list[bytes]) -> bytes:
    """Returns the root that follows from a leaf, its index, the size of the tree and an inclusion proof."""
    require((size == 1) == (not proof), "an inclusion proof has a wrong length")
    if size == 1:
        return leaf
    half = 1 << (size - 1).bit_length() - 1
    if index < half:
        return node_hash(root_by_proof(leaf, index, half, proof[:-1]), proof[-1])
    return node_hash(proof[-1], root_by_proof(leaf, index - half, size - half, proof[:-1]))


# ---- Events


class Cursor:
    """Reads values from the start of a byte string, and raises `Invalid` if it is too short."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        self.at += length
        require(self.at <= len(self.data), "the data is too short")
        return self.data[self.at - length : self.at]

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def str8(self) -> str:
        return utf8(self.take(self.number(1)))

    def boolean(self) -> bool:
        byte = self.number(1)
        require(byte < 2, "a boolean is neither 0 nor 1")
        return byte == 1

    def end(self) -> None:
        require(self.at == len(self.data), "extra bytes follow the data")


class Body(NamedTuple):
    """The commitment of a body in an event."""

    commitment: bytes
    size: int
    kept: bool


TEXT, BYTES, NUMBER, BOOLEAN, LIST, HASH, BODY = range(1, 8)
ACTORS = ("operator", "supervisor", "broker", "engine", "importer", "driver")


def value_of(type: int, data: bytes) -> Any:
    """Decodes the value of a field of this type."""
    rest, value = Cursor(data), None
    match type:
        case 1: value = utf8(rest.take(len(data)))
        case 2: value = rest.take(len(data))
        case 3: value = rest.number(8)
        case 4: value = rest.boolean()
        case 5: value = [rest.take(rest.number(4)) for _ in range(rest.number(4))]
        case 6: value = rest.take(32)
        case 7: value = Body(rest.take(32), rest.number(8), rest.boolean())
        case _: raise Invalid("a field has an unknown type")
    rest.end()
    return value


@dataclass
class Event:
    """A parsed event."""

    kind: str
    run: str
    sequence: int
    previous: bytes
    cause: int | None
    time: int
    leaf: bytes
    fields: dict[str, tuple[int, Any]]

    @staticmethod
    def parse(data: bytes) -> Event:
        rest, fields, before = Cursor(data), dict[str, tuple[int, Any]](), ""
        require(rest.number(1) == 1, "the version of the event is not supported")
        kind, run, sequence, previous, actor = rest.str8(), rest.str8(), rest.number(8), rest.take(32), rest.str8()
        require(re.fullmatch("[a-z0-9._]+", kind) and actor in ACTORS, "the kind or the actor of the event is invalid")
        require(re.fullmatch("([0-9a-hjkmnp-tv-z]{16})?", run), "the run id of the event is invalid")
        cause = rest.number(8) if rest.boolean() else None
        time, _uptime, _boot = rest.number(8), rest.number(8), rest.take(16)
        for _ in range(rest.number(2)):
            name, type, value = rest.str8(), rest.number(1), rest.take(rest.number(4))
            require(re.fullmatch("[a-z0-9_]+", name) and name > before, "a field name is invalid or out of order")
            fields[name], before = (type, value_of(type, value)), name
        rest.end()
        return Event(kind, run, sequence, previous, cause, time, leaf_hash(data), fields)

    def get(self, name: str, type: int) -> Any:
        found, value = self.fields.get(name, (0, None))
        require(found == type, f"field {name} of {self.kind} is missing or has a wrong type")
        return value

    def check_order(self, index: int, last: tuple[int, bytes] | None) -> None:
        """Checks the event against the previous event of its run, given by its sequence and its leaf hash."""
        sequence, previous = (last[0] + 1, last[1]) if last else (0, bytes(32))
        require(self.sequence == sequence, f"the sequence is {self.sequence} instead of {sequence}")
        require(self.previous == previous, "the event does not contain the hash of the previous event of its run")
        require(self.cause is None or self.cause < index, "the cause of the event does not come before the event")
        require(last or not self.run or self.kind == "run.created", "the first event of a run is not run.created")

    def bodies(self) -> list[Body]:
        return [value for type, value in self.fields.values() if type == BODY]


# ---- The head and the log


@dataclass
class Report:
    """The result of a verification: damages, notes and counts."""

    findings: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)

    def damage(self, where: str, what: object) -> None:
        self.findings.append({"where": where, "what": str(what)})


class Head(NamedTuple):
    """A slot of the head."""

    generation: int
    size: int
    length: int
    own: tuple[int, bytes] | None
    edge: list[bytes]
    note: str

    @staticmethod
    def parse(slot: bytes) -> Head:
        rest = Cursor(slot)
        require(rest.take(4) == b"BJH1", "the slot contains no head")
        content, generation, size, length = rest.number(4), rest.number(8), rest.number(8), rest.number(8)
        has_own, own = rest.boolean(), (rest.number(8), rest.take(32))
        require(has_own or own == (0, bytes(32)), "the fields of a missing event are not zero")
        edge = [rest.take(32) for _ in range(rest.number(1))]
        note = utf8(rest.take(rest.number(2)))
        require(rest.at == 16 + content, "the content does not have the stated length")
        require(H(slot[: rest.at]) == rest.take(32), "the checksum is wrong")
        require(rest.take(4096 - rest.at).count(0) == 4096 - 48 - content, "the slot is not filled with zeros")
        return Head(generation, size, length, own if has_own else None, edge, note)

    def check(self, events: list[Event], ends: dict[int, int], origin: str, keys: list[Key]) -> None:
        """Checks the head against the log, and its checkpoint against the keys."""
        require(ends.get(self.size) == self.length, f"no batch ends with event {self.size} at byte {self.length}")
        leaves = [event.leaf for event in events[: self.size]]
        own = [(event.sequence, event.leaf) for event in events[: self.size] if not event.run]
        require(self.own == (own[-1] if own else None), "the last event of the ledger's own is a different one")
        require(self.edge == right_edge(leaves), "the subtrees at the right edge are different")
        checkpoint = Checkpoint.open(self.note, keys)
        require(checkpoint[:3] == (origin, self.size, root_hash(leaves)), "the checkpoint belongs to another tree")


def read_heads(data: bytes, report: Report) -> list[Head]:
    """Returns the valid slots of the head, newest first."""
    heads = []
    for slot in (0, 1):
        try:
            heads.append(Head.parse(data[slot * 4096 : slot * 4096 + 4096]))
        except Invalid as why:
            report.notes.append(f"slot {slot} of the head is invalid: {why}")
    return sorted(heads, key=lambda head: -head.generation)


def origin_of(data: bytes, magic: bytes) -> str:
    """Returns the origin of the ledger that the first 64 bytes of a file name."""
    require(data[:16] == magic + b"\1", "the file has another type or version")
    require(data[32:64] == H(data[:32]), "the checksum of the first 64 bytes is wrong")
    return "belljar/" + data[16:32].hex()


def batch_head(log: bytes, at: int) -> tuple[int, int, int, int]:
    """Returns payload length, index of the first event, number of events and writer of a batch."""
    rest = Cursor(log, at)
    require(rest.take(4) == b"BJB1", "no batch starts here")
    length, first, count, writer = rest.number(4), rest.number(8), rest.number(4), rest.number(8)
    require(length <= 16 << 20 and 1 <= count <= length // 2, "the batch is too long or has no events")
    return length, first, count, writer


def read_batch(log: bytes, at: int) -> tuple[int, list[bytes], int]:
    """Returns the index of the first event of a batch, its events, and the offset of its end."""
    length, first, count, _ = batch_head(log, at)
    rest = Cursor(log, at + 28)
    payload = Cursor(rest.take(length))
    events = [payload.take(payload.number(2)) for _ in range(count)]
    payload.end()
    check = H(b"belljar batch 1\0", log[at : at + 28], *map(leaf_hash, events))
    require(rest.take(32) == check, "the checksum of the batch is wrong")
    return first, events, rest.at


def find_batch_behind(log: bytes, torn: int) -> int | None:
    """Returns the offset of a complete batch which proves that the bytes at `torn` are not an interrupted append.

    The content of an event may look like a batch, but its author did not know the number of the writer.
    """
    try:
        length, _, _, writer = batch_head(log, torn)
    except Invalid:
        length, writer = 0, -1
    at = torn - 1
    while (at := log.find(b"BJB1", at + 1)) >= 0:
        try:
            end = read_batch(log, at)[2]
        except Invalid:
            continue
        if at in (torn, torn + 28 + length + 32) or end == len(log) or batch_head(log, at)[3] == writer:
            return at
    return None


def read_log(log: bytes, covered: int, report: Report) -> tuple[list[bytes], dict[int, int]]:
    """Returns the events, and for each end of a batch the length of the log by the number of events."""
    events, at, ends = list[bytes](), 64, {0: 64}
    try:
        while at < len(log):
            first, batch, end = read_batch(log, at)
            require(first == len(events), f"the batch starts with index {first} instead of {len(events)}")
            events += batch
            ends[len(events)] = at = end
        require(covered <= at, "the log ends here")
    except Invalid as why:
        if (behind := find_batch_behind(log, at)) is not None:
            report.damage(f"events.log byte {at}", f"{why}; a complete batch follows at byte {behind}")
        elif covered > at:
            report.damage(f"events.log byte {at}", f"{why}; the signed head covers {covered} bytes")
        else:
            report.notes.append(f"the last {len(log) - at} bytes of the log are an interrupted append: {why}")
    return events, ends


# ---- The ledger


def read(path: Path) -> bytes:
    """Returns the content of a file, or no bytes if the file does not exist."""
    return path.read_bytes() if path.exists() else b""


def check_keys(text: str, origin: str, events: list[Event]) -> tuple[Key, list[tuple[Key, Key]]]:
    """Returns the first key of the list, and the old and the new key of each rotation."""
    *lines, rest = text.split("\n")
    require(lines and not rest, "the list of keys is missing, or its last line has no line feed")
    listed = [Key.parse(line) for line in lines]
    keys, rotations = [listed[0]], list[tuple[Key, Key]]()
    for index, event in enumerate(events):
        if event.kind == "key.rotated" and not event.run:
            try:
                old, new = Key.parse(event.get("old", TEXT)), Key.parse(event.get("new", TEXT))
                require(old in keys and new not in keys, "the old key was not in use, or the new key was in use before")
                old.check_endorsement(event.get("new", TEXT), event.get("endorsement", BYTES))
            except Invalid as why:
                raise Invalid(f"the rotation at event {index}: {why}") from why
            keys.append(new)
            rotations.append((old, new))
    # The last keys may be missing from the list, because a rotation may be interrupted.
    require(listed == [key for key in keys if key in listed], "the listed keys do not match the rotations")
    require({key.name for key in keys} == {origin}, "a key belongs to another ledger")
    return listed[0], rotations


def verify_ledger(args: argparse.Namespace, report: Report) -> None:
    """Verifies log, keys, heads and given checkpoints, and with `--deep` also the bodies."""
    log, heads = read(args.ledger / "events.log"), read_heads(read(args.anchor / "head"), report)
    where, events, runs, signed = "events.log byte 0", list[Event](), dict[str, tuple[int, bytes]](), 0
    try:
        origin = origin_of(log, b"belljar ledger\n")
        entries, ends = read_log(log, max((head.length for head in heads), default=0), report)
        for index, entry in enumerate(entries):
            where = f"event {index}"
            event = Event.parse(entry)
            event.check_order(index, runs.get(event.run))
            runs[event.run] = event.sequence, event.leaf
            events.append(event)
        where, report.facts["events"] = "keys", len(events)
        first, rotations = check_keys(utf8(read(args.anchor / "keys")), origin, events)
        known, keys = [first] + [new for _, new in rotations], [Key.parse(args.key) if args.key else first]
        require(keys[0] in known, "the given key does not belong to this ledger")
        for old, new in rotations:
            keys += [new] if old in keys else []
        where = "head"
        require(heads or not events, "both slots are invalid, so the events are not signed")
        for place, head in enumerate(heads if not report.findings else []):
            head.check(events, ends, origin, known if place else keys)
        signed = report.facts["signed"] = heads[0].size if heads else 0
    except Invalid as why:
        return report.damage(where, why)
    for path in args.checkpoint:
        try:
            outside = Checkpoint.open(utf8(path.read_bytes()), keys)
            require(outside.origin == origin, "the checkpoint belongs to another ledger")
            enough = outside.size <= len(events)
            require(enough, f"the checkpoint covers {outside.size} events, but the log has only {len(events)}")
            root = root_hash([event.leaf for event in events[: outside.size]])
            require(root == outside.root, f"the root of the first {outside.size} events does not match the checkpoint")
            report.facts["anchored"] = max(report.facts.get("anchored", 0), outside.size)
        except Invalid as why:
            report.damage(f"checkpoint {path}", why)
    if args.deep:
        verify_bodies(args.ledger, origin, events, signed, report)


# ---- Bodies


def commitment_of(salt: bytes, content: bytes) -> bytes:
    return H(b"belljar body 1\0", salt, content)


def check_frame(data: bytes) -> None:
    """Checks that the data is exactly one zstd frame, as in RFC 8878 section 3.1.1."""
    rest = Cursor(data)
    require(rest.take(4) == b"\x28\xb5\x2f\xfd", "the content is not a zstd frame")
    flags = rest.number(1)
    single = flags >> 5 & 1
    rest.take(1 - single + (0, 1, 2, 4)[flags & 3] + (single, 2, 4, 8)[flags >> 6])
    last = 0
    while not last:
        block = int.from_bytes(rest.take(3), "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        rest.take(1 if kind == 1 else size)
    rest.take(4 * (flags >> 2 & 1))
    rest.end()


def unzstd(data: bytes) -> bytes | None:
    """Returns the content of a zstd frame, or None if no decompressor is available."""
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd = importlib.import_module(module)
            decompressor = zstd.ZstdDecompressor()
            return bytes(getattr(decompressor, "decompressobj", lambda: decompressor)().decompress(data))
        except ImportError:
            continue
        except zstd.ZstdError as error:
            raise Invalid("the zstd frame is damaged") from error
    if (command := shutil.which("zstd")) is None:
        return None
    done = subprocess.run([command, "-dcq"], input=data, capture_output=True, check=False)
    require(done.returncode == 0, "the zstd frame is damaged")
    return done.stdout


def read_salts(data: bytes, origin: str, report: Report) -> dict[bytes, bytes]:
    """Returns the salt of each commitment whose salt is neither erased nor damaged."""
    salts: dict[bytes, bytes] = {}
    try:
        require(origin_of(data, b"belljar salts \n") == origin, "the salts belong to another ledger")
    except Invalid as why:
        report.damage("salts byte 0", why)
    for at in range(64, len(data) - 71, 72):
        record = data[at : at + 72]
        commitment, salt = record[:32], record[32:64]
        if H(b"belljar salt 1\0", commitment, salt)[:8] == record[64:]:
            salts[commitment] = salt
        elif any(record[32:]):
            report.notes.append(f"the salt at byte {at} is damaged: its checksum is wrong")
    if len(data) > 64 and (cut := (len(data) - 64) % 72):
        report.notes.append(f"the last {cut} bytes of the salts are an interrupted append")
    return salts


def verify_bodies(ledger: Path, origin: str, events: list[Event], signed: int, report: Report) -> None:
    """Verifies the salt and the stored file of every body, except for redacted and pruned bodies."""
    salts, pruned, redacted = read_salts(read(ledger / "salts"), origin, report), list[tuple[int, int]](), set[bytes]()
    named: dict[bytes, list[tuple[int, Body]]] = {}
    for index, event in enumerate(events):
        for body in event.bodies():
            named.setdefault(body.commitment, []).append((index, body))
        if event.run or index >= signed:
            continue  # only signed events of the ledger's own permit that a body is missing
        (list_type, bodies), (type, before) = (event.fields.get(name, (0, None)) for name in ("bodies", "before_index"))
        if event.kind == "ledger.redacted" and list_type == LIST:
            redacted |= set(bodies)
        if event.kind == "ledger.pruned" and type == NUMBER:
            pruned.append((before, event.get("before_time", NUMBER)))
    report.facts |= {"bodies": len(named), "contents_checked": 0, "contents_not_checked": 0}
    for commitment, places in named.items():
        (index, body), name = max(places), commitment.hex()
        path = ledger / "bodies" / name[:2] / name[2:]
        time = max(events[other].time for other, _ in places)
        if commitment in redacted or any(index < before and time < until for before, until in pruned):
            continue
        try:
            require(commitment in salts, "the salt is missing, and no event permits that")
            require(all(other.size == body.size for _, other in places), "events state different sizes of the body")
            if any(other.kept for _, other in places):
                require(path.exists(), "the body is missing, and no event permits that")
                check_body(path.read_bytes(), body, salts[commitment], report)
        except Invalid as why:
            report.damage(f"body {name} of event {index}", why)


def check_body(data: bytes, body: Body, salt: bytes, report: Report) -> None:
    """Checks the file of a stored body against its event and its salt."""
    require(data[-32:] == H(data[:-32]), "the checksum of the file is wrong")
    head = b"BJBODY1\n" + body.commitment + body.size.to_bytes(8, "big")
    require(data[:48] == head, "the file belongs to another body")
    check_frame(data[48:-32])
    content = unzstd(data[48:-32])
    if content is None:
        report.facts["contents_not_checked"] += 1
        return
    require(commitment_of(salt, content) == body.commitment, "the content does not match the commitment")
    require(len(content) == body.size, "the content has a wrong size")
    report.facts["contents_checked"] += 1


# ---- Receipts


def values_of(value: Any, **types: Any) -> list[Any]:
    """Returns the values of a JSON object that has exactly these keys in this order."""
    require(isinstance(value, dict) and list(value) == list(types), "a JSON object has wrong keys")
    for name, type in types.items():
        require(isinstance(value[name], type) and not isinstance(value[name], bool), f"{name} has a wrong type")
    return list(value.values())


def check_chain(
    run: str, entries: list[str], index: int, proof: list[Any], checkpoint: Checkpoint
) -> tuple[list[Event], str]:
    """Checks the events of one run, of which the last one has this index, and returns them with their extent."""
    events, last, state = list[Event](), None, "open"
    for entry in entries:
        require(isinstance(entry, str), "an event is not a text")
        event = Event.parse(from_base64(entry))
        require(event.run == run, f"an event of run {run} belongs to another run")
        event.check_order(index, last)
        last = (event.sequence, event.leaf)
        state = "ended" if event.kind in ("run.ended", "run.failed", "plan.ended") else state
        events.append(event)
    if last is None:
        require(index == 0 and not proof, f"run {run} has a proof and no events")
        return events, f"belljar run {run} 0 - open"
    require(index < checkpoint.size, f"the index of run {run} is beyond the checkpoint")
    root = root_by_proof(last[1], index, checkpoint.size, [from_base64(node, 32) for node in proof])
    require(root == checkpoint.root, f"the events of run {run} are not in the tree of the checkpoint")
    return events, f"belljar run {run} {len(events)} {base64.b64encode(last[1]).decode()} {state}"


def verify_chains(run: str, chains: list[Any], checkpoint: Checkpoint) -> list[Event]:
    """Verifies the events of a plan and of its boxes. Returns all events."""
    all_events, extents, runs = list[list[Event]](), list[str](), list[str]()
    for chain in chains:
        of, index, proof, entries = values_of(chain, run=str, index=int, proof=list, events=list)
        require(index >= 0, "an index is negative")
        events, extent = check_chain(of, entries, index, proof, checkpoint)
        all_events.append(events)
        extents.append(extent)
        runs.append(of)
    require(runs and runs[0] == run and all_events[0], "the events of the plan are missing")
    plan = all_events[0]
    require(plan[0].fields.get("purpose") == (TEXT, "plan"), "the run is not a run of a plan")
    named = dict[str, None]()
    for event in plan:
        if "box_run" in event.fields:
            named[event.get("box_run", TEXT)] = None
        if "box_runs" in event.fields:
            named.update(dict.fromkeys(utf8(box) for box in event.get("box_runs", LIST)))
    named.pop(run, None)
    for box in named:
        require(box in runs[1:], f"the events of box run {box}, which the plan started, are missing")
    require(runs[1:] == list(named), "the receipt has events of a run that the plan did not start, or has them twice")
    lines = "".join(f"{extent}\n" for extent in extents).encode()
    hashed = base64.b64encode(H(b"belljar chains 1\0", lines)).decode()
    count, state = sum(len(events) for events in all_events), extents[0].rpartition(" ")[2]
    extent = f"belljar plan {run} {len(chains)} {count} {hashed} {state}"
    require(checkpoint.extensions == [extent], "the signed checkpoint does not match the events of the receipt")
    return [event for events in all_events for event in events]


def verify_events(run: str, listed: list[Any], checkpoint: Checkpoint) -> list[Event]:
    """Verifies the events of a single run, each with its own proof. Returns the events."""
    events, last, before, state = list[Event](), None, -1, "open"
    for listing in listed:
        index, entry, proof = values_of(listing, index=int, entry=str, proof=list)
        event = Event.parse(from_base64(entry))
        require(before < index < checkpoint.size, "an index does not increase or is beyond the checkpoint")
        require(event.run == run and run, f"event {index} belongs to another run")
        event.check_order(index, last)
        root = root_by_proof(event.leaf, index, checkpoint.size, [from_base64(node, 32) for node in proof])
        require(root == checkpoint.root, f"event {index} is not in the tree of the checkpoint")
        last, before = (event.sequence, event.leaf), index
        state = "ended" if event.kind in ("run.ended", "run.failed", "plan.ended") else state
        events.append(event)
    require(last, "the receipt has no events")
    extent = f"belljar run {run} {len(listed)} {base64.b64encode(last[1]).decode()} {state}"
    require(checkpoint.extensions == [extent], "the signed checkpoint does not match the events of the receipt")
    return events


def verify_receipt(data: bytes, given: Key, report: Report) -> None:
    """Verifies the receipt of a run, or of a plan with all its boxes, with the given key."""
    try:
        receipt = json.loads(utf8(data))
        spelling = json.dumps(receipt, ensure_ascii=False, separators=(",", ":")) + "\n"
    except (ValueError, RecursionError) as error:
        raise Invalid("the receipt is not JSON") from error
    require(spelling == utf8(data), "the receipt is not in canonical form")
    form = receipt.get("format") if isinstance(receipt, dict) else None
    require(form != "belljar receipt 1", "the receipt has format 1, which does not prove that its events are complete")
    require(form in ("belljar receipt 2", "belljar receipt 3"), "the format of the receipt is not supported")
    is_plan = form == "belljar receipt 3"
    parts = {"chains" if is_plan else "events": list}
    _, run, vkey, rotations, note, listed, bodies = values_of(
        receipt, format=str, run=str, key=str, rotations=list, checkpoint=str, **parts, bodies=list
    )
    chain = [Key.parse(vkey)]
    for rotation in reversed(rotations):
        old, new, endorsement = values_of(rotation, old=str, new=str, endorsement=str)
        require(Key.parse(new) == chain[0], "the rotations do not lead to the key of the receipt")
        chain.insert(0, Key.parse(old))
        chain[0].check_endorsement(new, from_base64(endorsement, 64))
    require(given in chain, "no rotation leads from the given key to the key of the receipt")
    checkpoint = Checkpoint.open(note, [chain[-1]])
    require({checkpoint.origin} == {key.name for key in chain}, "a key or the checkpoint belongs to another ledger")
    events = (verify_chains if is_plan else verify_events)(run, listed, checkpoint)
    sizes = {body.commitment: body.size for event in events for body in event.bodies()}
    for event in events if is_plan else []:
        (hashed, output), (number, size) = (event.fields.get(name, (0, None)) for name in ("output", "output_bytes"))
        if (hashed, number) == (HASH, NUMBER):
            sizes[output] = size
    names = [values_of(body, hash=str, salt=str, content=str)[0] for body in bodies]
    require(all(a < b for a, b in zip(names, names[1:])), "the bodies are not in ascending order")
    for body in bodies:
        require(re.fullmatch("[0-9a-f]{64}", body["hash"]), "the hash of a body is invalid")
        commitment, salt = bytes.fromhex(body["hash"]), from_base64(body["salt"], 32)
        require(commitment in sizes, f"no event names body {body['hash']}")
        content = from_base64(body["content"], sizes[commitment])
        require(commitment_of(salt, content) == commitment, f"body {body['hash']} does not match its commitment")
    report.facts |= {"events": len(events), "bodies": len(bodies), "tree_size": checkpoint.size}
    report.facts |= {"boxes": len(listed) - 1} if is_plan else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger", metavar="LEDGER_DIR", type=Path, nargs="?", help="$BELLJAR_HOME/ledger")
    parser.add_argument("anchor", metavar="ANCHOR_DIR", type=Path, nargs="?", help="$BELLJAR_HOME/anchor")
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, action="append", default=[], help="another checkpoint")
    parser.add_argument("--key", metavar="VKEY", help="the trusted key; by default the first key in the anchor")
    parser.add_argument("--deep", action="store_true", help="also verify the bodies")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--receipt", metavar="FILE", type=Path, help="verify this receipt with --key")
    args, report = parser.parse_args(), Report()
    if args.receipt is not None and (args.key is None or args.ledger is not None):
        parser.error("--receipt needs --key and no directories")
    if args.receipt is None and (args.anchor is None or not args.ledger.is_dir()):
        parser.error("no ledger to verify: LEDGER_DIR is not a directory, or ANCHOR_DIR is missing")
    try:
        given = Key.parse(args.key) if args.key else None
    except Invalid as why:
        parser.error(f"--key: {why}")
    try:
        if args.receipt is None:
            verify_ledger(args, report)
        elif given is not None:
            verify_receipt(args.receipt.read_bytes(), given, report)
    except Invalid as why:
        report.damage("receipt" if args.receipt else "ledger", why)
    except OSError as error:
        parser.error(str(error))
    if args.json:
        print(json.dumps({"sound": not report.findings, **vars(report)}))
        return int(bool(report.findings))
    for finding in report.findings:
        print(f"damage: {finding['where']}: {finding['what']}")
    for note in report.notes:
        print(f"note: {note}")
    facts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in report.facts.items())
    print(f"{'damaged' if report.findings else 'intact'}: {facts}")
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
