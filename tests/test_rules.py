"""Who may do what, as pure rules: over queues, callers and jobs that a test writes down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.specs import Job, Queue
from fairlead.people.accounts import Person
from fairlead.people.rules import (
    Caller,
    Forbidden,
    Rules,
    acts_on,
    administers,
    as_seen,
    check_submits,
    operates,
    sees_names,
    submits,
)

ALICE = Caller(Person("alice", 1001, 1001, frozenset({"alice", "vision"})))
BOB = Caller(Person("bob", 1002, 1002, frozenset({"bob"})))
ROOT = Caller(Person("root", 0, 0, frozenset({"root"})))


def rules(*queues, operators=(), personal=False):
    return Rules({queue.name: queue for queue in queues}, tuple(operators), personal=personal)


def job_of(caller, queue, **more):
    return Job(queue, {"cpu": 1}, user=caller.person.name, uid=caller.person.uid, gid=caller.person.gid, **more)


def test_by_default_everybody_has_a_leaf_of_their_own_and_nothing_else():
    there = rules(Queue("*"), Queue("shared"))
    assert submits(there, ALICE, "alice")
    for caller, leaf in ((BOB, "alice"), (ALICE, "made-up"), (ALICE, "shared"), (ROOT, "alice")):
        assert not submits(there, caller, leaf), (caller.person.name, leaf)


def test_submit_is_inherited_and_the_nearest_says_it():
    there = rules(
        Queue("org", submit=["@vision"]),
        Queue("org/a"),
        Queue("org/b", submit=["bob"]),
        Queue("org/c", submit=[]),
        Queue("org/d", submit=["*"]),
    )
    found = {leaf: [submits(there, who, f"org/{leaf}") for who in (ALICE, BOB)] for leaf in "abcd"}
    assert found == {"a": [True, False], "b": [False, True], "c": [False, False], "d": [True, True]}


def test_a_leaf_under_a_star_is_for_whoever_may_submit_under_their_own_name():
    there = rules(Queue("research", submit=["@vision"]), Queue("research/*"), Queue("research/bob"))
    assert submits(there, ALICE, "research/alice")
    assert not submits(there, BOB, "research/bob"), "he is not in the group"
    assert not submits(there, ALICE, "research/bob"), "it has another's name"
    there = rules(Queue("research/*"), Queue("research/bob", submit=["alice"]))
    assert submits(there, ALICE, "research/bob"), "the queue itself says so"


def test_nobody_submits_as_somebody_else():
    there = rules(Queue("open", submit=["*"]))
    assert check_submits(there, BOB, "open", None) == check_submits(there, BOB, "open", "bob") == "bob"
    for caller in (BOB, ROOT):
        with pytest.raises(Forbidden, match="nobody can submit as 'alice'"):
            check_submits(there, caller, "open", "alice")
    own = rules(Queue("open"), personal=True)
    assert check_submits(own, BOB, "open", "alice") == "alice"


def test_admins_are_those_of_all_queues_above():
    there = rules(Queue("org", admin=["bob"]), Queue("org/a", admin=["@vision"]), Queue("org/a/x"))
    assert [administers(there, who, "org/a/x") for who in (ALICE, BOB, ROOT)] == [True, True, True]
    assert [administers(there, who, "org") for who in (ALICE, BOB, ROOT)] == [False, True, True]


def test_operators_see_to_the_whole_and_not_to_jobs():
    there = rules(Queue("a"), operators=["bob"])
    assert [operates(there, who) for who in (ALICE, BOB, ROOT)] == [False, True, True]
    assert not acts_on(there, BOB, job_of(ALICE, "a"))


def test_a_job_is_known_by_the_number_of_its_owner_and_not_by_the_name():
    there = rules(Queue("a"))
    later = Caller(Person("alice", 4000, 4000))
    assert acts_on(there, ALICE, job_of(ALICE, "a"))
    assert not acts_on(there, later, job_of(ALICE, "a")), "another account under an old name"
    assert acts_on(there, later, Job("a", {"cpu": 1}, user="alice")), "from before numbers were kept"


def test_what_others_see_of_a_job():
    told = {"argv": ["x"], "cwd": "/x", "name": "n", "user": "alice", "queue": "a", "status": "running"}
    plain, private = rules(Queue("a")), rules(Queue("top", private=True), Queue("top/a"))
    assert as_seen(plain, ALICE, job_of(ALICE, "a"), told) == told
    assert as_seen(plain, BOB, job_of(ALICE, "a"), told) == {**told, "argv": [], "cwd": ""}
    hidden = as_seen(private, BOB, job_of(ALICE, "top/a"), told)
    assert hidden == {**told, "argv": [], "cwd": "", "name": "", "user": ""}
    assert as_seen(private, ROOT, job_of(ALICE, "top/a"), told) == told


def test_a_token_reaches_no_further_than_it_says():
    there = rules(Queue("a", submit=["*"]), Queue("b", submit=["*"]), Queue("b/c", submit=["*"]))
    limited = ALICE._replace(queues=("b",))
    assert [submits(there, limited, leaf) for leaf in ("a", "b/c")] == [False, True]
    assert [acts_on(there, limited, job_of(ALICE, leaf)) for leaf in ("a", "b/c")] == [False, True]
    assert not operates(there, ROOT._replace(queues=("b",)))
    assert not acts_on(there, ROOT._replace(queues=("b",)), job_of(ALICE, "a"))
    with pytest.raises(Forbidden, match="this token is for b only"):
        check_submits(there, limited, "a", None)


NAMES = ["a", "a/b", "a/b/c", "a/*", "d", "d/*"]
WHO = st.lists(st.sampled_from(["alice", "bob", "@vision", "@bob", "*"]), max_size=2)
QUEUES = st.lists(
    st.builds(
        Queue,
        st.sampled_from(NAMES),
        submit=st.none() | WHO,
        admin=WHO.filter(lambda who: "*" not in who),
        private=st.booleans(),
    ),
    unique_by=lambda queue: queue.name,
)


@given(
    QUEUES, st.sampled_from(["a", "a/b", "a/b/c", "a/alice", "a/bob", "d", "d/alice"]), st.sampled_from([ALICE, BOB])
)
def test_whatever_is_configured(queues, leaf, caller):
    """What one may at most, from the definitions."""
    there = rules(*queues)
    above = [leaf[:end] for end in range(1, len(leaf) + 1) if end == len(leaf) or leaf[end] == "/"]
    star = f"{leaf.rpartition('/')[0]}/*".lstrip("/")
    said = [there.queues[name] for name in [star, *above] if name in there.queues]
    mine = {caller.person.name, "*", *(f"@{group}" for group in caller.person.groups)}
    if submits(there, caller, leaf):
        by_list = any(mine & set(queue.submit or ()) for queue in said)
        own = star in there.queues and leaf.rpartition("/")[2] == caller.person.name
        assert by_list or own
    others = job_of(ROOT, leaf)
    assert acts_on(there, caller, others) == any(mine & set(queue.admin) for queue in said)
    assert sees_names(there, caller, others) or any(queue.private for queue in said)
    assert acts_on(there, caller, job_of(caller, leaf))
