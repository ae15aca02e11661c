"""Fetches a URL with one of Python's libraries: fetch.py LIBRARY URL."""

import os
import sys

library, url = sys.argv[1:]
headers = {"Authorization": "Bearer " + os.environ["API_TOKEN"]}


def with_urllib():
    import urllib.request

    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.read().decode()


def with_requests():
    import requests

    answer = requests.get(url, headers=headers)
    answer.raise_for_status()
    return answer.text


def with_httpx():
    import httpx

    with httpx.Client(http2=True) as client:
        answer = client.get(url, headers=headers)
        answer.raise_for_status()
        assert answer.http_version == "HTTP/2", answer.http_version
        return answer.text


def with_aiohttp():
    import asyncio

    import aiohttp

    async def get():
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            async with session.get(url, headers=headers) as answer:
                return await answer.text()

    return asyncio.run(get())


print(globals()["with_" + library]())
