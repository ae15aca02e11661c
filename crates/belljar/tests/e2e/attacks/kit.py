"""Sockets, TLS and HTTP requests for hostile programs in a box."""

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
    new = ssl.create_default_context()
    if not verify:
        new.check_hostname = False
        new.verify_mode = ssl.CERT_NONE
    new.set_alpn_protocols(list(alpn))
    return new


def tcp(host, port):
    return socket.create_connection((host, port), timeout=20)


def tls(sni, dial=None, port=443, alpn=("http/1.1",), verify=True):
    """Opens a TLS connection to `dial` with the server name `sni`."""
    return context(alpn, verify).wrap_socket(tcp(dial or sni, port), server_hostname=sni)


def receive(stream, timeout=1.0):
    """Returns the bytes received until the end of the stream or until none arrive for `timeout` seconds."""
    stream.settimeout(timeout)
    received = b""
    try:
        while True:
            piece = stream.recv(65536)
            if not piece:
                return received
            received += piece
    except (TimeoutError, OSError):
        return received


def exchange(stream, data, timeout=1.0):
    """Sends data and returns the response, also when the peer closes the connection early."""
    try:
        stream.sendall(data)
    except OSError:
        pass
    return receive(stream, timeout).decode("latin-1")


def statuses(received):
    """Returns the status of each HTTP/1 response in the received text."""
    return [int(status) for status in re.findall(r"HTTP/1\.[01] ([0-9]{3}) ", received)]


def fetch(url, method="GET", headers=None, body=None, dial=None, verify=True):
    """Makes one request and returns status, headers and body; on failure the status names the error."""
    scheme, rest = url.split("://", 1)
    host, _, path = rest.partition("/")
    host, _, port = host.partition(":")
    port = int(port or (443 if scheme == "https" else 80))
    try:
        stream = tls(host, dial, port, verify=verify) if scheme == "https" else tcp(dial or host, port)
        connection = http.client.HTTPConnection(host, port)
        connection.sock = stream
        connection.request(method, "/" + path, body, headers or {})
        response = connection.getresponse()
        return {
            "status": response.status,
            "belljar": response.headers.get("x-belljar"),
            "headers": [list(pair) for pair in response.headers.items()],
            "reason": response.reason,
            "body": response.read().decode("latin-1"),
        }
    except ssl.SSLError as error:
        return {"status": "tls", "why": error.reason}
    except socket.gaierror:
        return {"status": "no such name"}
    except OSError as error:
        return {"status": f"errno {error.errno}"}
    except http.client.HTTPException as error:
        return {"status": type(error).__name__}


def retry_until_ok(ask, timeout=30):
    """Calls `ask` until it returns 200 or the timeout ends, and returns the last status."""
    deadline = time.monotonic() + timeout
    while (status := ask()) != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    return status


def in_parallel(function, arguments, threads=16):
    """Calls a function with each argument in parallel and returns the results in order."""
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, arguments))


def print_json(value):
    print(json.dumps(value))
