"""Raw sockets for programs in a box that do not play by the rules."""

import concurrent.futures
import http.client
import json
import os
import re
import socket
import ssl
import struct
import sys
import time


def context(alpn=("http/1.1",), verify=True):
    made = ssl.create_default_context()
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(list(alpn))
    return made


def tcp(host, port):
    return socket.create_connection((host, port), timeout=20)


def tls(sni, dial=None, port=443, alpn=("http/1.1",), verify=True):
    """A TLS connection that names `sni` to whatever answers at `dial`."""
    return context(alpn, verify).wrap_socket(tcp(dial or sni, port), server_hostname=sni)


def hear(stream, quiet=1.0):
    """All that comes until the end, or until it is quiet."""
    stream.settimeout(quiet)
    heard = b""
    try:
        while True:
            piece = stream.recv(65536)
            if not piece:
                return heard
            heard += piece
    except (TimeoutError, OSError):
        return heard


def say(stream, bytes_, quiet=1.0):
    """Sends and hears; what was heard before the other end broke off counts."""
    try:
        stream.sendall(bytes_)
    except OSError:
        pass
    return hear(stream, quiet).decode("latin-1")


def statuses(heard):
    """The status of each answer in what was heard over HTTP/1."""
    return [int(status) for status in re.findall(r"HTTP/1\.[01] ([0-9]{3}) ", heard)]


def fetch(url, method="GET", headers=None, body=None, dial=None, verify=True):
    """One request without any cleverness: status, headers, body. A failure is its name."""
    scheme, rest = url.split("://", 1)
    host, _, path = rest.partition("/")
    host, _, port = host.partition(":")
    port = int(port or (443 if scheme == "https" else 80))
    try:
        stream = tls(host, dial, port, verify=verify) if scheme == "https" else tcp(dial or host, port)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = stream
        connection.request(method, "/" + path, body, headers or {})
        answer = connection.getresponse()
        return {
            "status": answer.status,
            "belljar": answer.headers.get("x-belljar"),
            "headers": [list(pair) for pair in answer.headers.items()],
            "reason": answer.reason,
            "body": answer.read().decode("latin-1"),
        }
    except ssl.SSLError as error:
        return {"status": "tls", "why": error.reason}
    except socket.gaierror:
        return {"status": "no such name"}
    except OSError as error:
        return {"status": f"errno {error.errno}"}
    except http.client.HTTPException as error:
        return {"status": type(error).__name__}


def once_answered(ask, patience=30):
    """The first 200, or the last status when there is none in time."""
    until = time.monotonic() + patience
    while (status := ask()) != 200 and time.monotonic() < until:
        time.sleep(0.05)
    return status


def at_once(function, arguments, most=16):
    """The results for all of them, in order."""
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        return list(pool.map(function, arguments))


def tell(value):
    print(json.dumps(value))
