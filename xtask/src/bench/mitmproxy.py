"""An addon of mitmproxy that does the same work as the broker: rule, log, secret, scrubbing."""

import base64
import json
import os
import re
from urllib.parse import quote

from mitmproxy import http

with open(os.environ["BENCH_CONF"]) as file:
    CONF = json.load(file)

PATHS = re.compile(r"/small|/big/[^/]*")
LOG = os.open(CONF["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def encodings(value: bytes) -> set[bytes]:
    """Returns the encodings in which the broker finds a value."""
    found = {value, value.hex().encode(), value.hex().upper().encode()}
    found.add(quote(value, safe="").encode())
    found.add(json.dumps(value.decode())[1:-1].encode())
    for offset in range(3):
        # Drop the first and last characters, which depend on the neighbouring bytes.
        text = base64.b64encode(b"\0" * offset + value)
        start, end = (0, 2, 3)[offset], len(text) - (4 if (offset + len(value)) % 3 else 0)
        found.add(text[start:end])
        found.add(text[start:end].replace(b"+", b"-").replace(b"/", b"_"))
    return found


def pattern() -> re.Pattern[bytes]:
    every = {text for secret in CONF["secrets"] for text in encodings(secret["value"].encode())}
    return re.compile(b"|".join(re.escape(text) for text in sorted(every, key=len, reverse=True)))


SCRUB = pattern()


def record(**fields: object) -> None:
    os.write(LOG, json.dumps(fields).encode() + b"\n")
    os.fsync(LOG)


class Swap:
    def server_connect(self, data) -> None:
        data.server.address = ("127.0.0.1", CONF["port"])

    def request(self, flow: http.HTTPFlow) -> None:
        request = flow.request
        path = request.path.split("?")[0]
        if request.method != "GET" or request.pretty_host != CONF["host"] or not PATHS.fullmatch(path):
            record(verdict="denied", host=request.pretty_host, path=path)
            flow.response = http.Response.make(403, b"no rule allows it")
            return
        used = []
        for secret in CONF["secrets"]:
            value = request.headers.get(secret["header"])
            if value is not None and secret["placeholder"] in value:
                used.append(secret["header"])
                request.headers[secret["header"]] = value.replace(secret["placeholder"], secret["value"])
        record(verdict="allowed", method="GET", host=request.pretty_host, path=path, secrets=used)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        if flow.request.path.startswith("/big/"):
            flow.response.stream = lambda chunk: SCRUB.sub(b"[scrubbed]", chunk)

    def response(self, flow: http.HTTPFlow) -> None:
        if not flow.response.stream:
            flow.response.content = SCRUB.sub(b"[scrubbed]", flow.response.content)


addons = [Swap()]
