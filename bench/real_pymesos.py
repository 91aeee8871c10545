"""Load the real pymesos, unchanged, with a substitute for its HTTP parser."""

import signal
import sys
import types

import httptools


class HttpParser:
    """The part of `http_parser` that pymesos uses, over httptools: the original builds for one Python version only."""

    def __init__(self):
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._body = {}, []
        self._head = self._whole = False

    def on_header(self, name, value):
        self._headers[name.decode()] = value.decode()

    def on_headers_complete(self):
        self._head = True

    def on_body(self, data):
        self._body.append(data)

    def on_message_complete(self):
        self._whole = True

    def execute(self, data, length):
        self._parser.feed_data(data)
        return length

    def get_errno(self):
        return 0

    def get_status_code(self):
        return self._parser.get_status_code()

    def get_headers(self):
        return self._headers

    def is_headers_complete(self):
        return self._head

    def is_chunked(self):
        return self._headers.get("transfer-encoding") == "chunked"

    def is_partial_body(self):
        return bool(self._body)

    def is_message_complete(self):
        return self._whole

    def recv_body(self):
        body, self._body = b"".join(self._body), []
        return body


def load():
    """Import pymesos and return it."""
    try:
        import http_parser.http  # noqa: F401
    except ImportError:
        package, module = types.ModuleType("http_parser"), types.ModuleType("http_parser.http")
        module.HttpParser = HttpParser
        sys.modules["http_parser"], sys.modules["http_parser.http"] = package, module
    before = signal.getsignal(signal.SIGINT)
    import pymesos

    signal.signal(signal.SIGINT, before)  # its import replaces the handler
    return pymesos
