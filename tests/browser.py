"""A browser as far as tests of the page need one: it keeps a cookie, and sends the headers that browsers send."""

import html.parser
import http.client
import re
import ssl
from urllib.parse import urlencode, urlsplit


class Browser:
    """Visits one scheduler's page over TCP, after `enter`."""

    def __init__(self, url, context=None, address="127.0.0.1"):
        self.url, self.context, self.address = url.rstrip("/"), context, address
        self.parts = urlsplit(url)
        self.cookie = ""

    def ask(self, path, form=None, **headers):
        """The status, headers and text of an answer; a form is posted as from the page itself. None leaves a header out."""
        kind = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
        more = {"context": self.context} if self.context else {}
        wire = kind(self.address, self.parts.port, timeout=60, **more)
        sent = {"Host": self.parts.netloc, "Cookie": self.cookie or None, "Connection": "close"}
        if form is not None:
            sent |= {"Origin": self.url, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in sent.items() if value is not None}
        try:
            wire.request("GET" if form is None else "POST", path, None if form is None else urlencode(form), sent)
            answer = wire.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            wire.close()

    def enter(self, code, **headers):
        """Use a code, as from a file; the status."""
        status, head, _ = self.ask("/page/enter", {"code": code}, **{"Origin": "null", "Sec_Fetch_Site": "cross-site", **headers})
        if head["Set-Cookie"]:
            self.cookie = head["Set-Cookie"].partition(";")[0]
        return status


def signed_in(world):
    """A browser that visits a live scheduler's page."""
    found = world.http("POST", "/v1/page", {})[1]
    browser = Browser(found["url"])
    assert browser.enter(found["code"]) == 200
    return browser


def trusting(authority):
    """A TLS context that trusts one authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.check_hostname = False
    return context


class Page(html.parser.HTMLParser):
    """A page's links, forms, labels and ids, and what the policy of content would refuse."""

    def __init__(self, text):
        super().__init__()
        self.links, self.posts, self.ids, self.labels, self.fields, self.refused, self.open = ([], [], [], set(), [], [], [])
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in ("meta", "link", "input", "br", "img"):
            self.open.append(tag)
        self.refused += [(tag, name) for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and not given.get("src", "").startswith("/page/")):
            self.refused.append((tag, given.get("src")))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.posts += [given["action"]] if tag == "form" and given.get("method") == "post" else []
        self.labels |= {given["for"]} if tag == "label" else set()
        if tag in ("input", "select") and given.get("type") != "hidden":
            self.fields.append(given["id"])

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag in self.open[-1:]:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def region(text, name):
    """The HTML of a region of a page."""
    return re.search(f'<section id="{name}".*?</section>', text, re.DOTALL)[0]
