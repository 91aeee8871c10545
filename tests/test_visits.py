"""Who is signed in to the page: codes, cookies, the names they are for, and the attacks on them."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from browser import Browser, signed_in, trusting
from conftest import FAIRLEAD, Live
from fairlead.model.documents import DocumentError, read_configuration
from fairlead.people.accounts import Person
from fairlead.people.rules import Caller
from fairlead.policies.registry import find_policy
from fairlead.scheduler.admission import Refused
from fairlead.service.connections.acceptor import peer_of
from fairlead.service.connections.slots import ConnectionSlots
from fairlead.service.page.door import CODE_SECONDS, IDLE_SECONDS, MOST_CODES, MOST_VISITS, Door, Visits, open_loopback
from fairlead.service.page.entrance import MOST_FORMS
from fairlead.sockets import account_of_caller, uid_of_caller
from random_cases import cases

PEOPLE = [Caller(Person(name, uid, uid)) for uid, name in enumerate(("ada", "ben"), 1001)]
KINDS = ("code", "code", "code", "enter", "enter", "find", "leave", "wait")
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 5), st.integers(0, 5)), min_size=10, max_size=40
)


@settings(max_examples=cases(20), deadline=None)
@given(STEPS)
def test_a_code_is_used_once_and_a_cookie_is_for_its_host_and_person(steps):
    """Compared with lists of what was made and when: what is used, over, of another host or too many is good for nothing."""
    now = [0.0]
    visits = Visits(lambda: now[0])
    codes, cookies = [], []  # [secret, caller, host, made or last seen, still good]
    for what, who, one, other in steps:
        code = codes[one % len(codes)] if codes else None
        cookie = cookies[one % len(cookies)] if cookies else None
        used = code if what == "enter" else cookie
        host = used[2] if used and other else "x.localhost"
        if what == "code":
            secret, host = visits.new_code(PEOPLE[who])
            codes.append([secret, PEOPLE[who], host, now[0], True])
            mine = [each for each in codes if each[1] == PEOPLE[who] and each[4] and each[3] + CODE_SECONDS > now[0]]
            for each in mine[:-MOST_CODES]:
                each[4] = False
        elif what == "wait":
            now[0] += (1.0, 30.0, 59.0, 61.0, IDLE_SECONDS / 2, IDLE_SECONDS + 1)[one]
        elif what == "enter" and code:
            good = code[4] and code[2] == host and code[3] + CODE_SECONDS > now[0]
            found = visits.enter(code[0], host)
            assert (found is not None) == good
            if good:
                code[4] = False
                cookies.append([found, code[1], host, now[0], True])
        elif what in ("find", "leave") and cookie:
            good = cookie[4] and cookie[2] == host and cookie[3] + IDLE_SECONDS > now[0]
            if what == "leave":
                visits.leave(cookie[0], host)
                cookie[4] = cookie[4] and not good
            else:
                assert visits.find(cookie[0], host) == (cookie[1] if good else None)
                cookie[3] = now[0] if good else cookie[3]
                assert visits.find(cookie[0] + "x", host) is None
    for secret, caller, host, made, good in codes:
        assert visits.code_of(secret, host) == (caller if good and made + CODE_SECONDS > now[0] else None)


def test_of_one_person_the_visit_that_is_longest_silent_ends_for_a_new_one():
    visits = Visits()
    cookies = [visits.begin(PEOPLE[0], "h") for _ in range(MOST_VISITS)]
    other = visits.begin(PEOPLE[1], "h")
    visits.find(cookies[0], "h")
    visits.begin(PEOPLE[0], "h")
    assert [visits.find(each, "h") is None for each in (*cookies[:3], other)] == [False, True, False, False]


@pytest.fixture(scope="module")
def world(shared):
    return shared


def code_of(world):
    return world.http("POST", "/v1/page", {})[1]


def refusals(world):
    """What the log has of refused attempts."""
    return [each for each in world.http("GET", "/v1/log")[1]["log"] if each["outcome"] == "refused"]


def test_a_browser_signs_in_by_a_code_once(world):
    found = code_of(world)
    browser, second = Browser(found["url"]), Browser(found["url"])
    assert re.fullmatch(r"http://[0-9a-f]{24}\.localhost:\d+", found["url"])
    assert browser.ask("/")[0] == 401
    status, head, text = browser.ask("/page/enter", {"code": found["code"]}, Origin="null")
    assert status == 200
    assert 'http-equiv="refresh" content="0;url=/page/now"' in text  # the browser would send its cookie to no redirect
    cookie, *attributes = head["Set-Cookie"].split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    browser.cookie = cookie
    assert browser.ask("/")[0] == 200
    assert second.enter(found["code"]) == 401
    status, _, text = second.ask("/page/enter", {"code": found["code"]}, Origin="null")
    assert "the code is used, or older than a minute" in text.lower()
    assert any(each["what"] == "POST /page/enter" and "code" in each["why"] for each in refusals(world))
    assert browser.ask("/page/leave", {})[0] == 401
    assert browser.ask("/")[0] == 421  # nobody visits under this name


def test_a_cookie_is_for_one_name_and_the_page_has_no_others(world):
    """Cookies are sent to every port of a name: each visit has a name of its own, and none is plain 127.0.0.1."""
    mine, other = signed_in(world), signed_in(world)
    assert mine.parts.hostname != other.parts.hostname
    assert mine.ask("/", Cookie=other.cookie)[0] == 401
    port = mine.parts.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "evil.example", "a.localhost", f"{port}.localhost"):
        assert mine.ask("/", Host=host)[0] == 421, host
        assert mine.ask("/page/enter", {"code": code_of(world)["code"]}, Host=host, Origin="null")[0] == 421
    assert mine.ask("/", Host=mine.parts.netloc.upper())[0] == 200
    for odd in ('a{"b":1}', "a b=c", "=", "$Version=1", 'x="', "fairlead2=x"):  # what other services set
        assert mine.ask("/", Cookie=f"{odd}; {mine.cookie}; {odd}")[0] == 200, odd


def test_a_change_comes_from_the_page_itself(world):
    browser, url = signed_in(world), f"http://{'0' * 24}.localhost"
    job = world.submit("-q", "A", "--cpu", "100", "--", "true")
    foreign = ("https://evil.example", "null", None, url, browser.url.replace("http:", "https:"), browser.url.rpartition(":")[0])
    for origin in foreign:
        assert browser.ask(f"/page/jobs/{job}/hold", {}, Origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site", "none"):
        assert browser.ask(f"/page/jobs/{job}/hold", {}, Sec_Fetch_Site=site)[0] == 403
    assert world.job(job)["status"] == "waiting"
    assert browser.ask("/page/enter", {"code": code_of(world)["code"]}, Origin="https://evil.example")[0] == 403
    status, head, _ = browser.ask(f"/page/jobs/{job}/hold", {}, Sec_Fetch_Site=None)
    assert (status, head["Location"]) == (303, f"/page/jobs/{job}")
    assert world.job(job)["status"] == "held"
    world.ok("cancel", str(job))


def test_the_page_s_port_has_the_page_alone_and_says_what_browsers_may_do(world):
    browser = signed_in(world)
    for path in ("/v1/jobs", "/v1/status", "/docs", "/metrics", "/healthz", "/page/none"):
        assert browser.ask(path)[0] == 404, path
    assert browser.ask("/v1/tokens", {})[0] == 404
    assert browser.ask("/page/leave", {"code": "x" * 70_000})[0] == 413
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    for path in ("/", "/page/jobs", "/page/none", "/page/page.css", "/page/page.js"):
        head = browser.ask(path)[1]
        assert head["Content-Security-Policy"] == policy
        assert head["X-Content-Type-Options"] == "nosniff"
        assert head["Referrer-Policy"] == "same-origin"
    assert browser.ask("/")[1]["Cache-Control"] == "no-store"


def test_nobody_else_can_have_the_other_loopback_address_of_the_port(world):
    """A browser may try either address for a name below localhost: who had the other would get the cookie."""
    port = signed_in(world).parts.port
    for address in ("127.0.0.1", "::1", "0.0.0.0", "::"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.closing(socket.socket(family)) as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            with pytest.raises(OSError, match=r"in use|assign"):
                taken.bind((address, port))
    with contextlib.closing(socket.socket(socket.AF_INET)) as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        with pytest.raises(OSError, match="cannot listen"):
            open_loopback(first.getsockname()[1])


def test_a_command_opens_a_private_file_whose_name_says_nothing(world, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/argv\n')
    browser.chmod(0o755)
    tmp_path.chmod(0o700)
    env = {**world.env, "BROWSER": f"{browser} %s", "XDG_RUNTIME_DIR": str(tmp_path)}
    found = subprocess.run([FAIRLEAD, "page"], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout == "opened in the browser; if it cannot read the file: fairlead page --print\n", found.stderr
    given, file = (tmp_path / "argv").read_text(), tmp_path / "fairlead-page.html"
    assert given == f"{file.as_uri()}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text()
    url, code = (re.search('action="(http://[^/]+)/page/enter"', text)[1], re.search('name="code" value="([^"]+)"', text)[1])
    assert code not in given + found.stdout
    assert Browser(url).enter(code) == 200


def test_the_file_with_the_code_is_in_no_folder_that_others_may_enter(world, tmp_path):
    """A runtime folder that is somebody else's, a link or open to others is not used; our own must be private too."""
    open_to_all, own = tmp_path / "run", tmp_path / "state" / "fairlead" / "page"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    link = tmp_path / "link"
    (tmp_path / "private").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "private")
    env = {**world.env, "BROWSER": "true %s", "XDG_STATE_HOME": str(tmp_path / "state")}

    def page(folder):
        more = {**env, "XDG_RUNTIME_DIR": str(folder)}
        return subprocess.run([FAIRLEAD, "page"], env=more, capture_output=True, text=True, timeout=60, check=False)

    for folder in (open_to_all, link, "/proc/1", tmp_path / "none"):
        own.joinpath("fairlead-page.html").unlink(missing_ok=True)
        assert page(folder).returncode == 0
        assert own.joinpath("fairlead-page.html").is_file()
        assert own.stat().st_mode & 0o777 == 0o700
    assert [*open_to_all.iterdir(), *link.iterdir()] == []
    own.chmod(0o755)
    found = page(open_to_all)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert "others may read or own it: remove it" in found.stderr


def test_it_prints_where_and_which_code(world):
    text = world.ok("page", "--print")
    url, code = re.search(r"^open +(\S+)/$", text, re.MULTILINE)[1], re.search(r"^code +(\S+)$", text, re.MULTILINE)[1]
    assert "within  60 s" in text
    assert Browser(url).enter(code, Origin=url, Sec_Fetch_Site="same-origin") == 200  # typed at the page itself


def test_what_turns_it_off(tmp_path):
    def read(text):
        path = tmp_path / "fairlead.toml"
        path.write_text(text)
        return read_configuration(path, find_policy).page

    assert [read(""), read("page = false"), read("page = 7374")] == [True, False, 7374]
    for wrong in ("page = 0", "page = 70000", 'page = "no"'):
        with pytest.raises(DocumentError, match="page"):
            read(wrong)
    with pytest.raises(Refused, match="page = false"):
        Door(False, "", lambda: None).code(PEOPLE[0])


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A scheduler with TLS under a name of its own."""
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("cluster.example", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    with Live(folder) as world:
        world.up("--listen", "127.0.0.1:0", "--tls-cert", str(folder / "server.pem"))
        world.context = trusting(authority)
        yield world


def test_with_tls_it_has_the_scheduler_s_own_name_and_takes_tokens(certified):
    found = certified.http("POST", "/v1/page", {})[1]
    assert re.fullmatch(r"https://cluster\.example:\d+", found["url"])
    browser = Browser(found["url"], certified.context)
    status, head, _ = browser.ask("/page/enter", {"code": found["code"]}, Origin="null")
    assert status == 200
    assert re.fullmatch(r"__Host-fairlead=\S+; Path=/; HttpOnly; SameSite=Strict; Secure", head["Set-Cookie"])
    browser.cookie = head["Set-Cookie"].partition(";")[0]
    assert browser.ask("/")[0] == 200
    assert browser.ask("/v1/jobs")[0] == 401  # the API takes no cookie
    assert browser.ask("/", Host=f"127.0.0.1:{browser.parts.port}")[0] == 421

    token = certified.http("POST", "/v1/tokens", {"read_only": True})[1]
    by_token = Browser(found["url"], certified.context)
    assert by_token.ask("/page/enter", {"code": "fairlead_wrong"})[0] == 401
    assert by_token.enter(token["token"]) == 401  # Origin: null, as from a frame of another page
    itself = {"Origin": by_token.url, "Sec_Fetch_Site": "same-origin"}
    assert [by_token.enter(token["token"], Sec_Fetch_Dest=dest, **itself) for dest in ("iframe", "empty")] == [403, 403]
    assert by_token.enter(token["token"], Sec_Fetch_Dest="document", **itself) == 200
    job = certified.submit("-q", "A", "--cpu", "100", "--", "true")
    assert "/hold" not in by_token.ask(f"/page/jobs/{job}")[2]
    assert by_token.ask(f"/page/jobs/{job}/hold", {})[0] == 403
    certified.ok("token", "revoke", token["id"])
    assert by_token.ask("/")[0] == 401


ATTACK = """
import http.client
wire = http.client.HTTPConnection({address!r}, {port})
wire.request({method!r}, {path!r}, {body!r}, {headers!r})
answer = wire.getresponse()
print(answer.status, (answer.headers["Set-Cookie"] or "None").split()[0])
"""


def as_somebody(person, browser, path, body=None, **headers):
    """The status that somebody gets who knows all that a browser sends; what signs in is kept in the browser."""
    given = {"Host": browser.parts.netloc, "Cookie": browser.cookie, "Origin": browser.url, **headers}
    method = "GET" if body is None else "POST"
    code = ATTACK.format(address="127.0.0.1", port=browser.parts.port, method=method, path=path, body=body, headers=given)
    done = person.python(code)
    assert done.returncode == 0, done.stderr
    status, cookie = done.stdout.split()
    browser.cookie = browser.cookie if cookie == "None" else cookie.rstrip(";")
    return int(status)


def test_another_account_of_the_machine_gets_nowhere_with_what_it_finds(machine):
    """Bob knows the port, Alice's host name, her cookie and an unused code of hers: the kernel says that he is Bob."""
    alice, bob = machine["alice"], machine["bob"]
    (browser, code), (own, other) = (
        (Browser(found["url"]), found["code"]) for found in (each.http("POST", "/v1/page", {})[1] for each in (alice, bob))
    )
    assert as_somebody(bob, browser, "/page/enter", f"code={code}", Origin="null") == 403
    assert as_somebody(alice, browser, "/page/enter", f"code={code}", Origin="null") == 200
    assert as_somebody(alice, browser, "/") == 200
    assert as_somebody(bob, browser, "/") == 403
    assert as_somebody(bob, browser, "/page/leave", "") == 403
    assert as_somebody(machine["stranger"], browser, "/") == 403
    job = alice.ok("submit", "-q", "vision", "--cpu", "100", "--", "true").strip()
    assert as_somebody(bob, browser, f"/page/jobs/{job}/cancel", "") == 403
    assert as_somebody(bob, own, "/page/enter", f"code={other}", Origin="null") == 200
    assert as_somebody(bob, own, f"/page/jobs/{job}") == 200
    assert as_somebody(bob, own, f"/page/jobs/{job}/cancel", "") == 403  # it is Alice's
    assert as_somebody(alice, browser, f"/page/jobs/{job}/cancel", "") == 303
    assert machine["stranger"].http("POST", "/v1/page", {})[0] == 403
    assert any(each["what"] == "opened the page" for each in bob.http("GET", "/v1/log?user=bob")[1]["log"])


def test_a_connection_whose_account_nobody_knows_is_refused(world):
    """By a mapped address the account is known. From the machine's other address it is not: anybody might come from there."""
    browser = signed_in(world)
    browser.address = "::ffff:127.0.0.1"
    assert browser.ask("/")[0] == 200
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        accepted, there = server.accept()
        with accepted:
            assert uid_of_caller(server.getsockname(), there) == os.getuid()
            assert account_of_caller(accepted.getsockname(), there) == os.getuid()
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as away:
        try:
            away.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has one address")
        other = away.getsockname()[0]
    wire = http.client.HTTPConnection("127.0.0.1", browser.parts.port, timeout=30, source_address=(other, 0))
    wire.request("GET", "/", headers={"Host": browser.parts.netloc, "Cookie": browser.cookie})
    assert wire.getresponse().status == 403
    assert any(each["what"] == "GET /" and "kernel" in each["why"] for each in refusals(world))
    wire.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can connect as another account")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_connections_of_this_machine_are_counted_by_account(host):
    """From the kernel, before the first byte: one account's connections take no places of another's."""
    connect = f"import socket, sys; s = socket.create_connection(({host!r}, int(sys.argv[1]))); sys.stdin.read()"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    parties = []
    with socket.create_server((host, 0), family=family) as server:
        for uid in (65533, 65534):
            command = ["/usr/bin/env", "python3", "-c", connect, str(server.getsockname()[1])]
            with subprocess.Popen(command, stdin=subprocess.PIPE, user=uid, cwd="/") as client:
                accepted, address = server.accept()
                peer = peer_of(accepted, address)
                client.stdin.close()
                accepted.close()
            assert (peer.uid, peer.account) == (None, uid)  # it counts, and authenticates nobody
            parties.append(ConnectionSlots().party_of(peer))
    assert parties == [65533, 65534]
    assert account_of_caller(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    assert account_of_caller(("192.0.2.1", 1), ("192.0.2.2", 2)) is None


def test_forms_that_do_not_come_hold_little_and_not_for_long(world):
    """Of one account a few may be on their way; they are given up before their places are missed."""
    browser = signed_in(world)
    head = {"Host": browser.parts.netloc, "Origin": browser.url, "Cookie": browser.cookie, "Content-Length": "65000"}
    wires = [http.client.HTTPConnection("127.0.0.1", browser.parts.port, timeout=15) for _ in range(MOST_FORMS + 1)]
    for wire in wires:
        wire.request("POST", "/page/leave", headers=head)
    answers = [wire.getresponse() for wire in wires]
    assert sorted(answer.status for answer in answers) == [408] * MOST_FORMS + [429]
    assert all(answer.read() and answer.headers["Connection"] == "close" for answer in answers)
    assert browser.ask("/page/leave", {})[0] == 401


def arguments():
    """The command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")


def test_no_list_of_processes_has_the_code(machine):
    """While Alice's browser runs, with her file as its argument, the arguments of all processes are read."""
    alice, folder = machine["alice"], machine.folder / "alice"
    browser = folder / "browser"
    browser.write_text("#!/bin/sh\nsleep 1\n")
    browser.chmod(0o755)
    own = folder / "run"
    own.mkdir(mode=0o700)
    os.chown(own, folder.stat().st_uid, folder.stat().st_gid)
    seen = set()
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(alice.run, "page", BROWSER=f"{browser} %s", XDG_RUNTIME_DIR=str(own))
        while not going.done():
            seen.update(arguments())
            time.sleep(0.05)
    assert going.result().returncode == 0, going.result().stderr
    file = own / "fairlead-page.html"
    code = re.search('name="code" value="([^"]+)"', file.read_text())[1]
    assert file.stat().st_mode & 0o777 == 0o600
    assert any("fairlead-page.html" in each for each in seen)
    assert not any(code in each or re.search(r"[0-9a-f]{24}\.localhost", each) for each in seen)
