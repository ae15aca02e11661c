#!/usr/bin/env python3
"""Verifies a Belljar ledger, or the receipt of one run, and says what is wrong and where.

It does what docs/ledger-format.md says, with RFC 6962, RFC 8032 and C2SP signed-note and tlog-checkpoint;
it shares no code with Belljar and needs only the standard library of Python 3.11. That has no zstd: the
content of kept bodies is checked when `compression.zstd`, `zstandard` or the command `zstd` is there;
otherwise only their files are, and the answer counts them as not checked. It writes nothing.

exit status: 0 sound, 1 damage, 2 wrong usage or nothing there to verify
"""

from __future__ import annotations

import argparse, base64, hashlib, importlib, json, re, shutil, subprocess, sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Bad(Exception):
    """What is wrong with the thing at hand; whoever catches it knows where that was."""


def need(holds: object, otherwise: str) -> None:
    if not holds:
        raise Bad(otherwise)


def H(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Bad("text that is not UTF-8") from error


def from_base64(text: object, length: int | None = None) -> bytes:
    try:
        data = base64.b64decode(str(text), validate=True)
    except ValueError as error:
        raise Bad("this is not base64") from error
    need(base64.b64encode(data).decode() == text, "base64 that is not canonical")
    need(length in (None, len(data)), f"base64 of {len(data)} bytes, not {length}")
    return data


# ---- Ed25519, RFC 8032 section 5.1, on points (X, Y, Z, T) with x = X/Z, y = Y/Z, xy = T/Z.
# Strict: one encoding of points and scalars, no points of small order, no cofactor.

P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int, int, int]
ZERO: Point = (0, 1, 1, 0)


def add(a: Point, b: Point) -> Point:
    m, n = (a[1] - a[0]) * (b[1] - b[0]), (a[1] + a[0]) * (b[1] + b[0])
    t, z = 2 * D * a[3] * b[3], 2 * a[2] * b[2]
    e, f, g, h = n - m, (z - t) % P, (z + t) % P, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def times(scalar: int, point: Point) -> Point:
    total = ZERO
    for bit in f"{scalar:b}":
        total = add(total, total)
        total = add(total, point) if bit == "1" else total
    return total


def same(a: Point, b: Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


def to_point(data: bytes) -> Point:
    odd, y = divmod(int.from_bytes(data, "little"), 2**255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    need(y < P and odd < 2 and x * x % P == square and (x or not odd), "this is no point of the curve")
    x = x if x % 2 == odd else P - x
    point = (x, y, 1, x * y % P)
    need(not same(times(8, point), ZERO), "a point of small order")
    return point


BASE = to_point((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def check_signature(key: bytes, message: bytes, signature: bytes) -> None:
    need(len(signature) == 64, "a signature of another length")
    r, s = to_point(signature[:32]), int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % L
    need(s < L and same(times(s, BASE), add(r, times(k, to_point(key)))), "a signature does not fit its text")


# ---- Keys and checkpoints


class Key(NamedTuple):
    name: str
    public: bytes

    @staticmethod
    def parse(vkey: str) -> Key:
        name, _, rest = vkey.partition("+")
        id, _, data = rest.partition("+")
        need(re.fullmatch("belljar/[0-9a-f]{32}", name), "the name of a key")
        decoded = from_base64(data, 33)
        key = Key(name, decoded[1:])
        need(decoded[0] == 1 and key.id().hex() == id, "the id of a key does not fit it")
        to_point(key.public)
        return key

    def id(self) -> bytes:
        return H(self.name.encode(), b"\n\x01", self.public)[:4]

    def check_endorsement(self, new: str, signature: bytes) -> None:
        check_signature(self.public, b"belljar key rotation 1\0" + new.encode(), signature)


class Checkpoint(NamedTuple):
    origin: str
    size: int
    root: bytes
    extensions: list[str]

    @staticmethod
    def open(note: str, keys: list[Key]) -> Checkpoint:
        """One that a key of these signed. Signatures of keys that we do not know do no harm."""
        text, gap, signatures = note.rpartition("\n\n")
        need(gap and signatures.endswith("\n"), "this is not a signed note")
        need(not re.search(r"[\x00-\x09\x0b-\x1f]", note), "a note with control characters")
        trusted = 0
        for line in signatures[:-1].split("\n"):
            dash, name, data, *more = line.split(" ") + ["", ""]
            need(dash == "\N{EM DASH}" and name and more == ["", ""], "a line that is not a signature")
            decoded = from_base64(data)
            need(len(decoded) > 4, "a signature of another length")
            for key in keys:
                if (key.name, key.id()) == (name, decoded[:4]):
                    check_signature(key.public, f"{text}\n".encode(), decoded[4:])
                    trusted += 1
        need(trusted, "no trusted key signed the checkpoint")
        lines = text.split("\n")
        need(len(lines) >= 3, "a checkpoint has lines for origin, size and root")
        origin, size, root, *extensions = lines
        need(re.fullmatch("0|[1-9][0-9]{0,19}", size), "a size that is not a number")
        return Checkpoint(origin, int(size), from_base64(root, 32), extensions)


# ---- The tree


def leaf_hash(event: bytes) -> bytes:
    return H(b"\0", event)


def node_hash(left: bytes, right: bytes) -> bytes:
    return H(b"\1", left, right)


def right_edge(leaves: list[bytes]) -> list[bytes]:
    """The complete subtrees at the right edge, largest first."""
    edge: list[tuple[int, bytes]] = []
    for tree in leaves:
        size = 1
        while edge and edge[-1][0] == size:
            tree, size = node_hash(edge.pop()[1], tree), size * 2
        edge.append((size, tree))
    return [tree for _, tree in edge]


def root_hash(leaves: list[bytes]) -> bytes:
    edge = right_edge(leaves) or [H()]
    root = edge.pop()
    while edge:
        root = node_hash(edge.pop(), root)
    return root


def root_by_proof(leaf: bytes, index: int, size: int, proof: list[bytes]) -> bytes:
    need((size == 1) == (not proof), "a proof of another length")
    if size == 1:
        return leaf
    half = 1 << (size - 1).bit_length() - 1
    if index < half:
        return node_hash(root_by_proof(leaf, index, half, proof[:-1]), proof[-1])
    return node_hash(proof[-1], root_by_proof(leaf, index - half, size - half, proof[:-1]))


# ---- Events


class Bytes:
    """Takes bytes from the front; says so when there are too few."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, length: int) -> bytes:
        self.at += length
        need(self.at <= len(self.data), "cut short")
        return self.data[self.at - length : self.at]

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def str8(self) -> str:
        return utf8(self.take(self.number(1)))

    def truth(self) -> bool:
        byte = self.number(1)
        need(byte < 2, "a truth that is neither 0 nor 1")
        return byte == 1

    def end(self) -> None:
        need(self.at == len(self.data), "bytes are left over")


class Body(NamedTuple):
    commitment: bytes
    size: int
    kept: bool


TEXT, BYTES, NUMBER, TRUTH, LIST, HASH, BODY = range(1, 8)
ACTORS = ("operator", "supervisor", "broker", "engine", "importer")


def value_of(type: int, data: bytes) -> Any:
    rest, value = Bytes(data), None
    match type:
        case 1: value = utf8(rest.take(len(data)))
        case 2: value = rest.take(len(data))
        case 3: value = rest.number(8)
        case 4: value = rest.truth()
        case 5: value = [rest.take(rest.number(4)) for _ in range(rest.number(4))]
        case 6: value = rest.take(32)
        case 7: value = Body(rest.take(32), rest.number(8), rest.truth())
        case _: raise Bad("a field of unknown type")
    rest.end()
    return value


@dataclass
class Event:
    kind: str
    run: str
    sequence: int
    previous: bytes
    cause: int | None
    leaf: bytes
    fields: dict[str, tuple[int, Any]]

    @staticmethod
    def parse(data: bytes) -> Event:
        rest, fields, before = Bytes(data), dict[str, tuple[int, Any]](), ""
        need(rest.number(1) == 1, "an event of another version")
        kind, run, sequence, previous, actor = rest.str8(), rest.str8(), rest.number(8), rest.take(32), rest.str8()
        need(re.fullmatch("[a-z0-9._]+", kind) and actor in ACTORS, "its kind or its actor")
        need(re.fullmatch("([0-9a-hjkmnp-tv-z]{16})?", run), "the name of its run")
        cause = rest.number(8) if rest.truth() else None
        _time, _uptime, _boot = rest.number(8), rest.number(8), rest.take(16)
        for _ in range(rest.number(2)):
            name, type, value = rest.str8(), rest.number(1), rest.take(rest.number(4))
            need(re.fullmatch("[a-z0-9_]+", name) and name > before, "the name of a field, or its place")
            fields[name], before = (type, value_of(type, value)), name
        rest.end()
        return Event(kind, run, sequence, previous, cause, leaf_hash(data), fields)

    def get(self, name: str, type: int) -> Any:
        found, value = self.fields.get(name, (0, None))
        need(found == type, f"{self.kind} without a proper {name}")
        return value

    def check_place(self, index: int, last: tuple[int, bytes] | None) -> None:
        """Given the sequence and the leaf of its run's event before it."""
        sequence, previous = (last[0] + 1, last[1]) if last else (0, bytes(32))
        need(self.sequence == sequence, f"sequence {self.sequence} where {sequence} is due")
        need(self.previous == previous, "it does not name the hash of the event before it")
        need(self.cause is None or self.cause < index, "its cause is not before it")
        need(last or not self.run or self.kind == "run.created", "the first event of a run is not run.created")

    def bodies(self) -> list[Body]:
        return [value for type, value in self.fields.values() if type == BODY]


# ---- The head and the log


@dataclass
class Report:
    findings: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)

    def damage(self, where: str, what: object) -> None:
        self.findings.append({"where": where, "what": str(what)})


class Head(NamedTuple):
    generation: int
    size: int
    length: int
    own: tuple[int, bytes] | None
    edge: list[bytes]
    note: str

    @staticmethod
    def parse(slot: bytes) -> Head:
        rest = Bytes(slot)
        need(rest.take(4) == b"BJH1", "no head is there")
        content, generation, size, length = rest.number(4), rest.number(8), rest.number(8), rest.number(8)
        has_own, own = rest.truth(), (rest.number(8), rest.take(32))
        need(has_own or own == (0, bytes(32)), "an own event where there is none")
        edge = [rest.take(32) for _ in range(rest.number(1))]
        note = utf8(rest.take(rest.number(2)))
        need(rest.at == 16 + content, "another length than it says")
        need(H(slot[: rest.at]) == rest.take(32), "its check does not fit")
        need(rest.take(4096 - rest.at).count(0) == 4096 - 48 - content, "it is not filled up with zeros")
        return Head(generation, size, length, own if has_own else None, edge, note)

    def check(self, events: list[Event], ends: dict[int, int], origin: str, keys: list[Key]) -> None:
        """Against the log, and its checkpoint against the keys."""
        need(ends.get(self.size) == self.length, f"no batch ends with event {self.size} at byte {self.length}")
        leaves = [event.leaf for event in events[: self.size]]
        own = [(event.sequence, event.leaf) for event in events[: self.size] if not event.run]
        need(self.own == (own[-1] if own else None), "another last event of the ledger's own")
        need(self.edge == right_edge(leaves), "other subtrees at the right edge")
        checkpoint = Checkpoint.open(self.note, keys)
        need(checkpoint[:3] == (origin, self.size, root_hash(leaves)), "its checkpoint is of another tree")


def read_heads(data: bytes, report: Report) -> list[Head]:
    """The valid slots, the newest first."""
    heads = []
    for slot in (0, 1):
        try:
            heads.append(Head.parse(data[slot * 4096 : slot * 4096 + 4096]))
        except Bad as why:
            report.notes.append(f"slot {slot} of the head is not valid: {why}")
    return sorted(heads, key=lambda head: -head.generation)


def origin_of(data: bytes, magic: bytes) -> str:
    """The ledger that the first 64 bytes of a file name."""
    need(data[:16] == magic + b"\1", "a file of another kind or version")
    need(data[32:64] == H(data[:32]), "the check of its first 64 bytes")
    return "belljar/" + data[16:32].hex()


def batch_head(log: bytes, at: int) -> tuple[int, int, int, int]:
    """The length of its payload, the index of its first event, their number, the writer."""
    rest = Bytes(log, at)
    need(rest.take(4) == b"BJB1", "no batch begins here")
    length, first, count, writer = rest.number(4), rest.number(8), rest.number(4), rest.number(8)
    need(length <= 16 << 20 and 1 <= count <= length // 2, "a batch that is too long or has no events")
    return length, first, count, writer


def read_batch(log: bytes, at: int) -> tuple[int, list[bytes], int]:
    """The index of its first event, its events, and where it ends."""
    length, first, count, _ = batch_head(log, at)
    rest = Bytes(log, at + 28)
    payload = Bytes(rest.take(length))
    events = [payload.take(payload.number(2)) for _ in range(count)]
    payload.end()
    check = H(b"belljar batch 1\0", log[at : at + 28], *map(leaf_hash, events))
    need(rest.take(32) == check, "the check of the batch does not fit")
    return first, events, rest.at


def whole_batch_from(log: bytes, torn: int) -> int | None:
    """A batch that shows that what is at `torn` is no append that was cut short.

    An event may hold what looks like a batch; but whoever chose its bytes did not know the writer.
    """
    try:
        length, _, _, writer = batch_head(log, torn)
    except Bad:
        length, writer = 0, -1
    at = torn - 1
    while (at := log.find(b"BJB1", at + 1)) >= 0:
        try:
            end = read_batch(log, at)[2]
        except Bad:
            continue
        if at in (torn, torn + 28 + length + 32) or end == len(log) or batch_head(log, at)[3] == writer:
            return at
    return None


def read_log(log: bytes, vouched: int, report: Report) -> tuple[list[bytes], dict[int, int]]:
    """The events, and the length of the log by how many there are at the end of a batch."""
    events, at, ends = list[bytes](), 64, {0: 64}
    try:
        while at < len(log):
            first, batch, end = read_batch(log, at)
            need(first == len(events), f"index {first} where {len(events)} is due")
            events += batch
            ends[len(events)] = at = end
        need(vouched <= at, "the log ends here")
    except Bad as why:
        if (whole := whole_batch_from(log, at)) is not None:
            report.damage(f"events.log byte {at}", f"{why}; there is a whole batch at byte {whole}")
        elif vouched > at:
            report.damage(f"events.log byte {at}", f"{why}; the head had vouched for {vouched} bytes")
        else:
            report.notes.append(f"the last {len(log) - at} bytes are of an append that was cut short: {why}")
    return events, ends


# ---- The ledger


def read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def check_keys(text: str, origin: str, events: list[Event]) -> tuple[Key, list[tuple[Key, Key]]]:
    """The first key of the list, and the rotations: who endorsed whom."""
    *lines, rest = text.split("\n")
    need(lines and not rest, "there is no list of keys, or its last line does not end")
    listed = [Key.parse(line) for line in lines]
    keys, rotations = [listed[0]], list[tuple[Key, Key]]()
    for index, event in enumerate(events):
        if event.kind == "key.rotated" and not event.run:
            try:
                old, new = Key.parse(event.get("old", TEXT)), Key.parse(event.get("new", TEXT))
                need(old in keys and new not in keys, "from a key that was not in use, or to one that was")
                old.check_endorsement(event.get("new", TEXT), event.get("endorsement", BYTES))
            except Bad as why:
                raise Bad(f"the rotation at event {index}: {why}") from why
            keys.append(new)
            rotations.append((old, new))
    # The last may be missing from the list: an exchange that was cut short.
    need(listed == [key for key in keys if key in listed], "the keys are not those of the rotations, in order")
    need({key.name for key in keys} == {origin}, "a key of another ledger")
    return listed[0], rotations


def verify_ledger(args: argparse.Namespace, report: Report) -> None:
    log, heads = read(args.ledger / "events.log"), read_heads(read(args.anchor / "head"), report)
    where, events, runs, signed = "events.log byte 0", list[Event](), dict[str, tuple[int, bytes]](), 0
    try:
        origin = origin_of(log, b"belljar ledger\n")
        entries, ends = read_log(log, max((head.length for head in heads), default=0), report)
        for index, entry in enumerate(entries):
            where = f"event {index}"
            event = Event.parse(entry)
            event.check_place(index, runs.get(event.run))
            runs[event.run] = event.sequence, event.leaf
            events.append(event)
        where, report.facts["events"] = "keys", len(events)
        first, rotations = check_keys(utf8(read(args.anchor / "keys")), origin, events)
        known, keys = [first] + [new for _, new in rotations], [Key.parse(args.key) if args.key else first]
        need(keys[0] in known, "the given key is none of this ledger's")
        for old, new in rotations:
            keys += [new] if old in keys else []
        where = "head"
        need(heads or not events, "neither slot is valid: nothing vouches for the events")
        for place, head in enumerate(heads if not report.findings else []):
            head.check(events, ends, origin, known if place else keys)
        signed = report.facts["signed"] = heads[0].size if heads else 0
    except Bad as why:
        return report.damage(where, why)
    for path in args.checkpoint:
        try:
            outside = Checkpoint.open(utf8(path.read_bytes()), keys)
            need(outside.origin == origin, "a checkpoint of another ledger")
            need(outside.size <= len(events), f"of {outside.size} events {len(events)} are left")
            root = root_hash([event.leaf for event in events[: outside.size]])
            need(root == outside.root, f"it was not made of these {outside.size} events")
            report.facts["anchored"] = max(report.facts.get("anchored", 0), outside.size)
        except Bad as why:
            report.damage(f"checkpoint {path}", why)
    if args.deep:
        verify_bodies(args.ledger, origin, events, signed, report)


# ---- Bodies


def commitment_of(salt: bytes, content: bytes) -> bytes:
    return H(b"belljar body 1\0", salt, content)


def check_frame(data: bytes) -> None:
    """That this is one zstd frame and nothing else, by RFC 8878 section 3.1.1."""
    rest = Bytes(data)
    need(rest.take(4) == b"\x28\xb5\x2f\xfd", "its content is not a zstd frame")
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
    """The content of a zstd frame; None when nothing here can tell."""
    for module in ("compression.zstd", "zstandard"):
        try:
            zstd = importlib.import_module(module)
            decompressor = zstd.ZstdDecompressor()
            return bytes(getattr(decompressor, "decompressobj", lambda: decompressor)().decompress(data))
        except ImportError:
            continue
        except zstd.ZstdError as error:
            raise Bad("its zstd frame is damaged") from error
    if (command := shutil.which("zstd")) is None:
        return None
    done = subprocess.run([command, "-dcq"], input=data, capture_output=True, check=False)
    need(done.returncode == 0, "its zstd frame is damaged")
    return done.stdout


def read_salts(data: bytes, origin: str, report: Report) -> dict[bytes, bytes]:
    salts: dict[bytes, bytes] = {}
    try:
        need(origin_of(data, b"belljar salts \n") == origin, "the salts of another ledger")
    except Bad as why:
        report.damage("salts byte 0", why)
    for at in range(64, len(data) - 71, 72):
        record = data[at : at + 72]
        commitment, salt = record[:32], record[32:64]
        if H(b"belljar salt 1\0", commitment, salt)[:8] == record[64:]:
            salts[commitment] = salt
        elif any(record[32:]):
            report.notes.append(f"the salt at byte {at} is damaged: its check does not fit")
    if len(data) > 64 and (cut := (len(data) - 64) % 72):
        report.notes.append(f"the last {cut} bytes of the salts are of an append that was cut short")
    return salts


def verify_bodies(ledger: Path, origin: str, events: list[Event], signed: int, report: Report) -> None:
    salts, pruned, redacted = read_salts(read(ledger / "salts"), origin, report), 0, set[bytes]()
    named: dict[bytes, list[tuple[int, Body]]] = {}
    for index, event in enumerate(events):
        for body in event.bodies():
            named.setdefault(body.commitment, []).append((index, body))
        if event.run or index >= signed:
            continue  # only the ledger's own events excuse an absence, and only when they are signed
        (list_type, bodies), (type, before) = (event.fields.get(name, (0, None)) for name in ("bodies", "before_index"))
        if event.kind == "ledger.redacted" and list_type == LIST:
            redacted |= set(bodies)
        if event.kind == "ledger.pruned" and type == NUMBER:
            pruned = max(pruned, before)
    report.facts |= {"bodies": len(named), "contents_checked": 0, "contents_not_checked": 0}
    for commitment, places in named.items():
        (index, body), name = max(places), commitment.hex()
        path = ledger / "bodies" / name[:2] / name[2:]
        if commitment in redacted or index < pruned:
            continue
        try:
            need(commitment in salts, "its salt is gone and no event says why")
            need(all(other.size == body.size for _, other in places), "it has two sizes")
            if any(other.kept for _, other in places):
                need(path.exists(), "it is gone and no event says why")
                check_body(path.read_bytes(), body, salts[commitment], report)
        except Bad as why:
            report.damage(f"body {name} of event {index}", why)


def check_body(data: bytes, body: Body, salt: bytes, report: Report) -> None:
    need(data[-32:] == H(data[:-32]), "the check of its file does not fit")
    need(data[:48] == b"BJBODY1\n" + body.commitment + body.size.to_bytes(8, "big"), "its file is of another body")
    check_frame(data[48:-32])
    content = unzstd(data[48:-32])
    if content is None:
        report.facts["contents_not_checked"] += 1
        return
    need(commitment_of(salt, content) == body.commitment, "its content is another")
    need(len(content) == body.size, "its content has another size")
    report.facts["contents_checked"] += 1


# ---- Receipts


def shaped(value: Any, **types: Any) -> list[Any]:
    """The values of an object with exactly these keys in this order."""
    need(isinstance(value, dict) and list(value) == list(types), "an object with other keys")
    for name, type in types.items():
        need(isinstance(value[name], type) and not isinstance(value[name], bool), f"{name} is of another type")
    return list(value.values())


def verify_receipt(data: bytes, given: Key, report: Report) -> None:
    try:
        receipt = json.loads(utf8(data))
        spelling = json.dumps(receipt, ensure_ascii=False, separators=(",", ":")) + "\n"
    except (ValueError, RecursionError) as error:
        raise Bad("this is not JSON") from error
    need(spelling == utf8(data), "another spelling than that of receipts")
    form, run, vkey, rotations, note, listed, bodies = shaped(
        receipt, format=str, run=str, key=str, rotations=list, checkpoint=str, events=list, bodies=list
    )
    need(form != "belljar receipt 1", "a receipt of format 1, which cannot show that its last events were not cut off")
    need(form == "belljar receipt 2", "a receipt of another format")
    chain = [Key.parse(vkey)]
    for rotation in reversed(rotations):
        old, new, endorsement = shaped(rotation, old=str, new=str, endorsement=str)
        need(Key.parse(new) == chain[0], "rotations that do not lead to the key")
        chain.insert(0, Key.parse(old))
        chain[0].check_endorsement(new, from_base64(endorsement, 64))
    need(given in chain, "the given key does not lead to that of the receipt")
    checkpoint = Checkpoint.open(note, [chain[-1]])
    need({checkpoint.origin} == {key.name for key in chain}, "a key or a checkpoint of another ledger")
    sizes, last, before, state = dict[bytes, int](), None, -1, "open"
    for listing in listed:
        index, entry, proof = shaped(listing, index=int, entry=str, proof=list)
        event = Event.parse(from_base64(entry))
        need(before < index < checkpoint.size, "indices that do not rise, or beyond the checkpoint")
        need(event.run == run and run, f"event {index} is of another run")
        event.check_place(index, last)
        root = root_by_proof(event.leaf, index, checkpoint.size, [from_base64(node, 32) for node in proof])
        need(root == checkpoint.root, f"event {index} is not in the tree of the checkpoint")
        sizes |= {body.commitment: body.size for body in event.bodies()}
        last, before = (event.sequence, event.leaf), index
        state = "ended" if event.kind in ("run.ended", "run.failed") else state
    need(last, "a receipt without events")
    extent = f"belljar run {run} {len(listed)} {base64.b64encode(last[1]).decode()} {state}"
    need(checkpoint.extensions == [extent], "the signed checkpoint names other events: some were cut off")
    names = [shaped(body, hash=str, salt=str, content=str)[0] for body in bodies]
    need(all(a < b for a, b in zip(names, names[1:])), "bodies that are not in order")
    for body in bodies:
        need(re.fullmatch("[0-9a-f]{64}", body["hash"]), "the hash of a body")
        commitment, salt = bytes.fromhex(body["hash"]), from_base64(body["salt"], 32)
        need(commitment in sizes, f"no event names body {body['hash']}")
        content = from_base64(body["content"], sizes[commitment])
        need(commitment_of(salt, content) == commitment, f"body {body['hash']} does not fit its commitment")
    report.facts |= {"events": len(listed), "bodies": len(bodies), "tree_size": checkpoint.size}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger", metavar="LEDGER_DIR", type=Path, nargs="?", help="$BELLJAR_HOME/ledger")
    parser.add_argument("anchor", metavar="ANCHOR_DIR", type=Path, nargs="?", help="$BELLJAR_HOME/anchor")
    parser.add_argument("--checkpoint", metavar="FILE", type=Path, action="append", default=[], help="one from elsewhere")
    parser.add_argument("--key", metavar="VKEY", help="the key to trust, instead of the first in the anchor")
    parser.add_argument("--deep", action="store_true", help="verify the bodies too")
    parser.add_argument("--json", action="store_true", help="answer with one JSON object")
    parser.add_argument("--receipt", metavar="FILE", type=Path, help="verify this receipt, by --key")
    args, report = parser.parse_args(), Report()
    if args.receipt is not None and (args.key is None or args.ledger is not None):
        parser.error("--receipt goes with --key and without directories")
    if args.receipt is None and (args.anchor is None or not args.ledger.is_dir()):
        parser.error("there is no ledger to verify")
    try:
        given = Key.parse(args.key) if args.key else None
    except Bad as why:
        parser.error(f"--key: {why}")
    try:
        if args.receipt is None:
            verify_ledger(args, report)
        elif given is not None:
            verify_receipt(args.receipt.read_bytes(), given, report)
    except Bad as why:
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
    print(f"{'damaged' if report.findings else 'sound'}: {facts}")
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main())
