"""Which machines may connect: what people and nodes ask for, as facts, against a plain account of it; and homes of before."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlead.engines.contract import NO_ATTEMPTS, NO_ENDS, NodeDown, Seen
from fairlead.engines.remote.joined import JoinedEngine, forget_files_of_before, members_of_before
from fairlead.engines.remote.keys import KeyRing, NotAdmitted, certificate_in, check_proof, make_certificate, normal, sign
from fairlead.engines.step import observe
from fairlead.model.specs import Node
from fairlead.scheduler import admission, snapshot
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.cluster import ACCOUNT, OLDER, ONLY_ACCOUNT, Cluster
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import NodeAdmitted, NodeForgotten, NodeJoined, NodeLeft, NodeLost, decode, encode
from fairlead.service.api.requests import NodeTokenRequest

NAMES = "abc"
tokens, names, keys = st.integers(0, 3), st.sampled_from(NAMES), st.integers(0, 5)
events = st.lists(
    st.one_of(
        st.tuples(st.just("token"), tokens, st.sampled_from(["", *NAMES]), st.integers(1, 4)),
        st.tuples(st.just("join"), tokens, names, keys),
        st.tuples(st.just("rotate"), keys, keys),
        st.tuples(st.just("leave"), names),
        st.tuples(st.just("forget"), names),
        st.tuples(st.just("wait"), st.integers(1, 3)),
    ),
    max_size=30,
)


class Account:
    """Members and tokens, as one writes them on a sheet."""

    def __init__(self):
        self.now, self.members, self.tokens = 0.0, {}, {}

    def token(self, token, node, seconds):
        self.tokens[token] = self.now + seconds, node

    def join(self, token, wanted, key):
        until, node = self.tokens.get(token, (0, ""))
        if until <= self.now or (not node and wanted in self.members) or key in self.members.values():
            return False
        self.members[node or wanted] = key
        del self.tokens[token]
        return True

    def rotate(self, before, key):
        (holds,) = [node for node, each in self.members.items() if each == before] or [None]
        if key not in self.members.values() and holds is not None:
            self.members[holds] = key
            return True
        return key in self.members.values()


@given(events)
def test_members_are_those_who_joined_and_did_not_leave(happens):
    state, sheet, kept = new_state(), Account(), []
    lost = {*NAMES[1:]}  # the first has joined and not come up yet, if it is a member
    for node in lost:
        apply(state, NodeJoined(at=0.0, node=Node(node, {"cpu": 1000})))
        apply(state, NodeLost(at=0.0, node=node))

    def record(facts):
        for fact in facts:
            kept.append(fact)
            apply(state, decode(encode(fact)))

    for what, *given_ in happens:
        if what == "wait":
            sheet.now += given_[0]
        elif what == "token":
            token, node, seconds = given_
            sheet.token(*given_)
            record([admission.make_node_token(state, str(token), node, sheet.now + seconds, sheet.now)])
        elif what in ("join", "rotate"):
            asks = admission.admit_node if what == "join" else admission.replace_certificate
            words = [str(each) for each in given_]
            try:
                record(asks(state, *words, sheet.now)[0])
                granted = True
            except Refused:
                granted = False
            assert granted == getattr(sheet, what)(*given_)
        elif what == "leave":
            seen = Seen(None, NO_ATTEMPTS, NO_ENDS, [NodeDown(given_[0], left=True)])
            record(observe(state, seen, sheet.now)[0])
            sheet.members.pop(given_[0], None)
        elif given_[0] in sheet.members or given_[0] in lost:
            record([admission.forget(state, given_[0], sheet.now)])
            sheet.members.pop(given_[0], None)
            lost.discard(given_[0])
        else:
            with pytest.raises(admission.Unknown):
                admission.forget(state, given_[0], sheet.now)
        assert state.cluster.members == {node: str(key) for node, key in sheet.members.items()}
    again = snapshot.load(snapshot.dump(state))
    assert (again.cluster.members, again.cluster.node_tokens) == (state.cluster.members, state.cluster.node_tokens)
    assert {type(fact) for fact in kept if getattr(fact, "certificate", "")} <= {NodeAdmitted}


def test_those_connect_whom_the_journal_has_as_members(tmp_path, caplog):
    first, other = (certificate_in(make_certificate(name)) for name in ("first", "other"))
    engine, opened = object.__new__(JoinedEngine), []
    engine._ring, engine._home, engine._listener = KeyRing(tmp_path / "keys"), tmp_path, None
    engine._connections = SimpleNamespace(listen=lambda *_: opened.append(names()))
    names = lambda: [engine._ring.name_of(der(each)) for each in (first, other)]  # noqa: E731
    engine.know({"a": first})
    assert opened == [["a", ""]], "nobody is turned away at the start"
    assert "scheduler.pem was missing: the journal's 1 nodes know another key: put it back, or let them join" in caplog.text
    engine.recorded([NodeAdmitted(at=0.0, node="b", certificate=other)])
    assert names() == ["a", "b"]
    engine.recorded([NodeAdmitted(at=0.0, node="a", certificate=other)])
    assert names() == ["", "a"]
    engine.recorded([NodeLeft(at=0.0, node="a")])
    engine.recorded([NodeForgotten(at=0.0, node="b")])
    assert names() == ["", ""]


def der(pem):
    from ssl import PEM_cert_to_DER_cert

    return PEM_cert_to_DER_cert(pem)


def test_members_in_files_of_before_are_read_once(tmp_path):
    folder = tmp_path / "keys" / "nodes"
    folder.mkdir(parents=True)
    made = {name: make_certificate(name) for name in ("joined", "made")}
    (folder / "1.json").write_text(json.dumps({"name": "joined", "own": certificate_in(made["joined"])}))
    (folder / "2.json").write_text(json.dumps({"name": "made", "own": made["made"]}))
    (folder / "3.json").write_text('{"name": "to')
    (folder / "4.json").write_text('{"name": "odd", "own": "PEM"}')
    (folder.parent / "tokens.json").write_text("[]")
    assert members_of_before(tmp_path) == {name: certificate_in(own) for name, own in made.items()}
    forget_files_of_before(tmp_path)
    assert list(folder.parent.iterdir()) == []
    assert members_of_before(tmp_path) == {}


def test_a_new_key_is_signed_by_the_last_one_while_that_is_valid(monkeypatch):
    last, fresh, other = (make_certificate(name) for name in ("last", "fresh", "other"))
    check_proof(normal(last[last.index("-----BEGIN CERT") :]), certificate_in(fresh), sign(last, fresh))
    for proof in (sign(other, fresh), sign(last, other), "no proof"):
        with pytest.raises(NotAdmitted, match="not signed with its key"):
            check_proof(certificate_in(last), certificate_in(fresh), proof)
    monkeypatch.setattr("fairlead.engines.remote.keys.YEARS", -1 / 365)
    expired = make_certificate("expired")
    with pytest.raises(NotAdmitted, match="has expired: join with a token of `fairlead node token --name NODE`"):
        check_proof(certificate_in(expired), certificate_in(fresh), sign(expired, fresh))
    for odd in ("", "PEM", certificate_in(last)[:200]):
        with pytest.raises(NotAdmitted, match="cannot be read"):
            normal(odd)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\x1bb", "a b", "n" * 254, "n" * 10_000, "é"])
def test_a_node_that_joins_has_a_name_by_the_rule_of_the_configuration(name):
    with pytest.raises(ValidationError) as refused:
        NodeTokenRequest(name=name)
    (error,) = refused.value.errors()
    assert "is not a node name: use at most 253 letters" in error["msg"]
    assert len(error["msg"]) < 1500
    assert "\n" not in error["msg"]
    engine = object.__new__(JoinedEngine)
    with pytest.raises(NotAdmitted, match=r"is not a node name: .* give another with --name$"):
        engine._check_name(name)
    assert [NodeTokenRequest(name="n-1.lab").name, NodeTokenRequest().name] == ["n-1.lab", None]


class CountedLabels(dict):
    """Labels that count how often they are read as a whole."""

    reads = 0

    def items(self):
        CountedLabels.reads += 1
        return super().items()


def joined_cluster(labels, count):
    """A cluster of `count` nodes after these joined, each in place of the one of its name."""
    state = new_state()
    for place, each in enumerate(labels):
        apply(state, NodeJoined(at=0.0, node=Node(f"n{place % count}", {"cpu": 1000}, each)))
    return state.cluster


ABOUT_ACCOUNTS = [f"{ACCOUNT}ada", f"{ACCOUNT}bob", ONLY_ACCOUNT, OLDER, "zone"]
KNOWN = ("closed_to", "only_to", "older")


@given(st.lists(st.dictionaries(st.sampled_from(ABOUT_ACCOUNTS), st.sampled_from(["ada", "bob"]), max_size=3), max_size=12))
def test_who_may_use_the_nodes_is_counted_as_it_would_be_anew(labels):
    cluster = joined_cluster(labels, 4)
    anew = Cluster(specs=[*cluster.specs])
    assert [getattr(cluster, each) for each in KNOWN] == [getattr(anew, each) for each in KNOWN]


def test_a_node_that_joins_costs_the_same_beside_any_number_of_others():
    CountedLabels.reads = 0
    joined_cluster([CountedLabels({ONLY_ACCOUNT: "ada"}) for _ in range(100)], 100)
    assert CountedLabels.reads <= 400
