"""Keeps a server busy that a test kills again and again. Each client continues where it was.

Usage: kill_load.py URL TOKEN_FILE STOP_FILE

The load ends when STOP_FILE exists. The last line of the output is a JSON report.
"""

import asyncio
import json
import os
import struct
import sys
import uuid

import aiohttp

URL, TOKEN, STOP = sys.argv[1], open(sys.argv[2]).read().strip(), sys.argv[3]
BOX = "busy"
PIECE = 1024
RETRY = 0.02
FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)
report = {"repeated": 0, "unknown": 0}


def stopped():
    return os.path.exists(STOP)


async def request(session, method, path, body=None, key=None):
    """Sends a request until a server answers it. Returns the status and the document."""
    headers = {"Idempotency-Key": key} if key else {}
    first = True
    while True:
        try:
            sent = session.request(method, path, json=body, headers=headers)
            async with sent as response:
                text = await response.text()
                if response.status not in (429, 503):
                    is_json = "json" in response.headers.get("Content-Type", "")
                    return response.status, json.loads(text) if is_json else text
        except FAILURES:
            if key and first:
                report["repeated"] += 1
                first = False
        await asyncio.sleep(RETRY)


async def posts(session, name, path, make, check=None):
    """Sends numbered POST requests. Returns the documents of those that succeeded by their numbers, and the
    numbers of those with an unknown result."""
    done, unknown, number = {}, [], 0
    while not stopped():
        status, document = await request(session, "POST", path, make(number), str(uuid.uuid4()))
        if status in (200, 201, 202):
            done[number] = document
            if check:
                await check(number, document)
        elif status == 409 and document["type"] == "/problems/needs-attention":
            unknown.append(number)
            report["unknown"] += 1
        else:
            raise RuntimeError(f"{name} {number}: {status} {document}")
        number += 1
        await asyncio.sleep(0.05)
    return done, unknown


async def boxes(session):
    make = lambda number: {"name": f"box-{number}", "start": False}
    done, unknown = await posts(session, "box", "/v1/boxes", make)
    listed, query = [], "?limit=200&q=box-"
    while query:
        _, page = await request(session, "GET", f"/v1/boxes{query}")
        listed += [item["name"] for item in page["items"]]
        query = f"?limit=200&q=box-&cursor={page['next']}" if page["next"] else None
    allowed = {f"box-{number}" for number in [*done, *unknown]}
    missing = {f"box-{number}" for number in done} - set(listed)
    assert not missing and set(listed) <= allowed, (missing, set(listed) - allowed)
    assert len(listed) == len(set(listed)), listed
    report["boxes"] = len(done)


async def commands(session):
    make = lambda number: {"command": ["/bin/echo", f"command-{number}."], "wait_ms": 0}

    # A later check would not find the result of each run: only those of the last 500 runs are kept.
    async def check(number, document):
        status = 202
        while status == 202:
            await asyncio.sleep(0.05)
            status, result = await request(session, "GET", f"/v1/runs/{document['run']}/result")
        assert status == 200, (status, result)
        assert result["stdout"]["text"] == f"command-{number}.\n", result

    done, unknown = await posts(session, "command", "/v1/run", make, check)
    report["commands"] = {"done": [it["run"] for it in done.values()], "unknown": unknown}


async def plans(session):
    plan = "[run]\nname = 'plan-{}'\n[task.one]\ndo.command = ['/bin/true']\n"
    make = lambda number: {"plan": plan.format(number)}
    done, unknown = await posts(session, "plan", "/v1/runs", make)
    for number, document in done.items():
        while True:
            _, run = await request(session, "GET", f"/v1/runs/{document['id']}?wait_ms=60000")
            if run["state"] != "running":
                break
        assert run["state"] == "succeeded", (number, run)
    report["plans"] = {"done": [it["id"] for it in done.values()], "unknown": unknown}


class Exec:
    """A client of an exec that survives the server. It has all bytes of the output and of the input."""

    def __init__(self, session, argv):
        self.session, self.argv = session, argv
        self.output, self.input, self.connections, self.ended = bytearray(), bytearray(), 0, None

    async def run(self):
        body = {"command": self.argv}
        path = f"/v1/boxes/{BOX}/execs"
        status, document = await request(self.session, "POST", path, body, str(uuid.uuid4()))
        assert status == 201, document
        self.path = f"/v1/execs/{document['id']}"
        while self.ended is None:
            try:
                await self.connect()
            except FAILURES:
                pass
            await asyncio.sleep(RETRY)
        assert self.ended.get("code") == 0, self.ended

    async def connect(self):
        path = f"{self.path}/stream?out={len(self.output)}"
        async with self.session.ws_connect(path, protocols=["belljar.stream.v1"]) as socket:
            self.connections += 1
            sender = None
            try:
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.TEXT:
                        control = json.loads(message.data)
                        if control["type"] == "started":
                            sender = asyncio.create_task(self.send(socket, control["stdin_offset"]))
                        elif control["type"] == "exit":
                            self.ended = control
                            return
                        elif control["type"] in ("gap", "error"):
                            raise RuntimeError(control)
                    elif message.type == aiohttp.WSMsgType.BINARY:
                        await self.receive(socket, message.data)
            finally:
                if sender:
                    sender.cancel()

    async def receive(self, socket, data):
        channel, offset = struct.unpack(">BQ", data[:9])
        assert channel == 1 and offset == len(self.output), (channel, offset, len(self.output))
        self.output += data[9:]
        await socket.send_str(json.dumps({"type": "ack", "stream": "out", "offset": len(self.output)}))

    async def send(self, socket, offset):
        raise NotImplementedError


class Numbers(Exec):
    """Receives numbers until the end of the load, then ends the program with a signal."""

    def __init__(self, session):
        script = "trap 'exit 0' TERM; n=0; while :; do echo $n; n=$((n+1)); sleep 0.01; done"
        super().__init__(session, ["/bin/sh", "-c", script])

    async def send(self, socket, offset):
        while not stopped():
            await asyncio.sleep(0.1)
        await socket.send_str(json.dumps({"type": "signal", "signal": 15}))

    def check(self):
        lines = bytes(self.output).split(b"\n")[:-1]
        assert lines == [str(number).encode() for number in range(len(lines))], lines[-20:]
        report["numbers"] = {"lines": len(lines), "connections": self.connections}


class Echo(Exec):
    """Sends pieces of input until the end of the load and receives them again."""

    def __init__(self, session):
        super().__init__(session, ["/bin/cat"])

    async def send(self, socket, offset):
        while True:
            if offset == len(self.input):
                if stopped():
                    break
                self.input += os.urandom(PIECE)
            data = bytes(self.input[offset:offset + PIECE])
            await socket.send_bytes(struct.pack(">BQ", 0, offset) + data)
            offset += len(data)
            await asyncio.sleep(0.03)
        await socket.send_str(json.dumps({"type": "eof"}))

    def check(self):
        assert self.output == self.input, (len(self.output), len(self.input))
        report["echo"] = {"bytes": len(self.output), "connections": self.connections}


async def screen(session):
    """Types into the terminal of a box and reads what it shows."""
    number, connections = 0, 0
    while not stopped():
        try:
            path = f"/v1/boxes/{BOX}/screen"
            async with session.ws_connect(path, protocols=["belljar.stream.v1"]) as socket:
                connections += 1
                typed, shown = 0, b""
                while not stopped():
                    keys = f"echo shown-$(({number} + 1000))\r".encode()
                    await socket.send_bytes(struct.pack(">BQ", 0, typed) + keys)
                    typed += len(keys)
                    while f"shown-{number + 1000}".encode() not in shown:
                        message = await socket.receive(timeout=20)
                        if message.type == aiohttp.WSMsgType.BINARY:
                            shown += message.data[9:]
                        elif message.type != aiohttp.WSMsgType.TEXT:
                            raise ConnectionError(message)
                    number += 1
                    await asyncio.sleep(0.05)
        except FAILURES:
            await asyncio.sleep(RETRY)
    report["screen"] = {"commands": number, "connections": connections}


async def events(session, last):
    """Receives the events of the tenant. The ids have no gap and no repetition."""
    first, connections = last, 0
    while not stopped():
        try:
            headers = {"Last-Event-ID": str(last)}
            async with session.get("/v1/events", headers=headers) as response:
                if response.status != 200:
                    raise ConnectionError(response.status)
                connections += 1
                async for line in response.content:
                    if line.startswith(b"id: "):
                        number = int(line[4:])
                        assert number == last + 1, (number, last)
                        last = number
                    if stopped():
                        break
        except FAILURES:
            await asyncio.sleep(RETRY)
    report["events"] = {"received": last - first, "connections": connections}


async def main():
    headers = {"Authorization": f"Bearer {TOKEN}"}
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        URL, headers=headers, timeout=timeout, connector=connector
    ) as session:
        new = {"name": BOX, "program": ["/bin/sh", "-i"]}
        status, document = await request(session, "POST", "/v1/boxes", new, "busy")
        assert status == 201, document
        _, checkpoint = await request(session, "GET", "/v1/ledger/checkpoint")
        # The second line of a checkpoint is the number of events.
        last = int(checkpoint.split("\n")[1]) - 1
        numbers, echo = Numbers(session), Echo(session)
        print("ready", flush=True)
        await asyncio.gather(
            boxes(session), commands(session), plans(session), numbers.run(), echo.run(),
            screen(session), events(session, last),
        )
        numbers.check()
        echo.check()
    print(json.dumps(report), flush=True)


asyncio.run(main())
