"""Who may do what, as pure rules: over queues, callers and jobs that a test writes down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.model.specs import Job, Queue
from fairlead.people.accounts import Person
from fairlead.people.placing import leaf_of
from fairlead.people.rules import (
    Caller,
    Forbidden,
    Rules,
    acts_on,
    administers,
    check_acts,
    check_operates,
    check_submits,
    hidden_leaves,
    job_as_seen,
    operates,
    rules_of,
    seen_queue,
    sees_names,
    submits,
    used_as_seen,
    without,
)
from fairlead.scheduler.admission import Refused
from fairlead.scheduler.facts import JobEdited, JobSubmitted, encode
from fairlead.service.feed import fact_as_seen
from test_scheduling import World

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
    there = rules(Queue("research", submit=["@vision"]), Queue("research/*"))
    assert submits(there, ALICE, "research/alice")
    assert not submits(there, BOB, "research/bob"), "he is not in the group"
    assert not submits(there, ALICE, "research/bob"), "it has another's name"


def test_a_queue_that_is_declared_beside_a_star_is_for_whom_submit_names_and_not_for_whom_it_is_called_after():
    there = rules(Queue("research", submit=["@vision"]), Queue("research/*"), Queue("research/bob"))
    assert [submits(there, who, "research/bob") for who in (ALICE, BOB)] == [True, False]
    there = rules(Queue("research"), Queue("research/*", admin=["alice"], private=True), Queue("research/bob"))
    assert [submits(there, who, "research/bob") for who in (ALICE, BOB)] == [False, False]
    assert not acts_on(there, ALICE, job_of(ROOT, "research/bob")), "the star stands for those that are not declared"
    assert sees_names(there, ALICE, job_of(ROOT, "research/bob"))
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


def test_a_job_is_known_by_the_number_and_the_name_of_its_owner():
    there = rules(Queue("a"))
    later, heir = Caller(Person("alice", 4000, 4000)), Caller(Person("zoe", 1001, 1001))
    assert acts_on(there, ALICE, job_of(ALICE, "a"))
    assert not acts_on(there, later, job_of(ALICE, "a")), "another account under an old name"
    assert not acts_on(there, heir, job_of(ALICE, "a")), "another account under an old number"
    assert acts_on(there, later, Job("a", {"cpu": 1}, user="alice")), "from before numbers were kept"


def test_what_others_see_of_a_job():
    told = {
        "argv": ["x"],
        "cwd": "/x",
        "name": "n",
        "group": "g",
        "user": "alice",
        "queue": "a",
        "status": "running",
        "revoked": None,
    }
    plain, private = rules(Queue("a")), rules(Queue("top", private=True), Queue("top/a"))
    assert job_as_seen(plain, ALICE, job_of(ALICE, "a"), told) == told
    assert job_as_seen(plain, BOB, job_of(ALICE, "a"), told) == {**told, "argv": [], "cwd": ""}
    told["queue"] = "top/a"
    hidden = job_as_seen(private, BOB, job_of(ALICE, "top/a"), told)
    assert hidden == {**told, "argv": [], "cwd": "", "name": "", "group": "", "user": ""}
    assert job_as_seen(private, ROOT, job_of(ALICE, "top/a"), told) == told


@pytest.mark.parametrize("where", ["secret", "secret/*"])
def test_a_leaf_in_a_private_queue_is_told_to_others_as_the_queue(where):
    there = rules(*(Queue(name, private=name == where, admin=["carol"]) for name in ("secret", "secret/*")), Queue("open/*"))
    carol = Caller(Person("carol", 1003, 1003))
    seen = {who.person.name: seen_queue(there, who, "secret/alice") for who in (ALICE, BOB, carol, ROOT)}
    assert seen == {"alice": "secret/alice", "bob": "secret", "carol": "secret/alice", "root": "secret/alice"}
    assert seen_queue(there, ALICE._replace(queues=("open",)), "secret/alice") == "secret"
    assert seen_queue(there, BOB, "open/alice") == "open/alice"
    assert seen_queue(rules(Queue("*", private=True)), BOB, "alice") == ""
    told = {"argv": ["x"], "cwd": "/x", "name": "n", "group": "g", "user": "alice", "queue": "secret/alice", "revoked": None}
    assert job_as_seen(there, BOB, job_of(ALICE, "secret/alice"), told)["queue"] == "secret"
    with pytest.raises(Forbidden, match=r"job 1 is another person's: .* admins of queue 'secret' may do that, not bob"):
        check_acts(there, BOB, 1, job_of(ALICE, "secret/alice"))
    facts = [
        JobSubmitted(at=0.0, id=1, job=job_of(ALICE, "secret/alice")),
        JobEdited(at=0.0, id=1, queue="secret/alice"),
        JobEdited(at=0.0, id=1, priority=1),
    ]
    for fact in facts:
        assert b"alice" not in fact_as_seen(there, BOB, encode(fact))
        assert fact_as_seen(there, ALICE, encode(fact)) == encode(fact)


def test_the_jobs_of_a_leaf_that_others_were_below_are_its_persons_as_before():
    """They are in a leaf of their own there, which nobody knows by its name."""
    private, leaf = rules(Queue("lab", private=True), Queue("lab/*")), "lab/alice/./jobs"
    job = Job(leaf, {"cpu": 1000}, 1, user="alice", uid=1001)
    assert submits(private, ALICE, leaf)
    assert not submits(private, BOB, leaf)
    assert (seen_queue(private, ALICE, leaf), seen_queue(private, BOB, leaf)) == ("lab/alice", "lab")
    assert hidden_leaves(private, ALICE, [leaf]) == {}
    with pytest.raises(Forbidden, match="may not submit to queue 'lab/alice': it is another person's personal leaf"):
        check_submits(private, BOB, leaf, None)
    seen, own = (fact_as_seen(private, who, encode(JobSubmitted(at=0.0, id=1, job=job))) for who in (BOB, ALICE))
    assert b'"queue":"lab",' in seen
    assert b'"queue":"lab/alice",' in own


def test_whole_answers_are_told_without_the_leaves_in_private_queues():
    there = rules(Queue("secret", private=True), Queue("secret/*"), Queue("open/*"))
    names = ["", "secret", "secret/alice", "secret/bob", "open/alice"]
    hidden = hidden_leaves(there, BOB, names)
    assert hidden == {"secret/alice": "secret"}
    told = {
        "queues": [{"name": name, "passed_over_for": ["secret/alice", "open/alice"]} for name in names],
        "text": "queue secret/alice, at 3%, and secret/alice.b: open/alice's is secret/alice.",
        "series": {"secret/alice": [1], "secret/bob": [2]},
    }
    assert without(told, hidden) == {
        "queues": [{"name": name, "passed_over_for": ["secret", "open/alice"]} for name in names if name != "secret/alice"],
        "text": "queue secret, at 3%, and secret/alice.b: open/alice's is secret.",
        "series": {"secret/bob": [2]},
    }
    assert hidden_leaves(there, ROOT, names) == {}
    row = {
        "tasks": 1,
        "failed": 1,
        "asked": {"cpu": 2.0},
        "lost": {},
        "cpu_hours": 0.5,
        "calls": 1,
        "call_hours": 0.25,
        "entitled": 0.25,
        "got": 0.0,
        "waiting": 0,
    }
    rows = [
        {"queue": "secret/alice", "user": "", "day": None, "job": None, "peak_memory": None, **row},
        {"queue": "secret/carol", "user": "", "day": None, "job": None, "peak_memory": 7, **row},
        {"queue": "secret/bob", "user": "bob", "day": None, "job": None, "peak_memory": 9, **row},
    ]
    both = {
        "tasks": 2,
        "failed": 2,
        "asked": {"cpu": 4.0},
        "lost": {},
        "cpu_hours": 1.0,
        "calls": 2,
        "call_hours": 0.5,
        "entitled": 0.5,
        "got": 0.0,
        "waiting": 0,
    }
    assert used_as_seen(there, BOB, rows) == [
        {"queue": "secret", "user": "", "day": None, "job": None, "peak_memory": 7, **both},
        rows[2],
    ]


def test_a_token_reaches_no_further_than_it_says():
    there = rules(Queue("a", submit=["*"]), Queue("b", submit=["*"]), Queue("b/c", submit=["*"]))
    limited = ALICE._replace(queues=("b",))
    assert [submits(there, limited, leaf) for leaf in ("a", "b/c")] == [False, True]
    assert [acts_on(there, limited, job_of(ALICE, leaf)) for leaf in ("a", "b/c")] == [False, True]
    assert not operates(there, ROOT._replace(queues=("b",)))
    assert not acts_on(there, ROOT._replace(queues=("b",)), job_of(ALICE, "a"))
    with pytest.raises(Forbidden, match="this token is for b only, not for queue 'a'"):
        check_submits(there, limited, "a", None)
    with pytest.raises(Forbidden, match="this token is for b only, and job 1 is in queue 'a'"):
        check_acts(there, limited, 1, job_of(ALICE, "a"))
    with pytest.raises(Forbidden, match="job 1 is bob's: only they and the admins"):
        check_acts(there, limited, 1, job_of(BOB, "a"))
    with pytest.raises(Forbidden, match="this token is for b only, not to operate"):
        check_operates(there, ROOT._replace(queues=("b",)))


def usual(queues, *callers):
    """Where the jobs of each go that name no queue; or what they are told."""
    state = World(list(queues)).state
    found = []
    for caller in callers:
        try:
            found.append(leaf_of(state, rules_of(state, personal=False), caller, None, None))
        except Refused as refused:
            found.append(str(refused).partition(": ")[2])
    return found


def test_a_job_that_names_no_queue_goes_to_the_one_place_that_its_person_has():
    people, vision = [Queue("people"), Queue("people/*")], Queue("vision", submit=["@vision"])
    assert usual([*people, vision], ALICE, BOB) == ["people/alice", "people/bob"]
    staff = Queue("staff/*", submit=["bob"])
    assert usual([vision, Queue("staff"), staff], ALICE, BOB) == ["vision", "staff/bob"]
    assert usual([*people, Queue("staff"), staff], ALICE, BOB) == ["people/alice", "choose one of people/bob, staff/bob"]
    assert usual([*people, vision, Queue("hers", submit=["alice"])], ALICE, BOB) == [
        "choose one of hers, people/alice, vision",
        "people/bob",
    ]
    assert usual([Queue("a"), Queue("b")], ALICE) == ["a, b"]
    assert usual([*people, vision], ALICE._replace(queues=("vision",))) == ["vision"]


NAMES = ["a", "a/b", "a/b/c", "a/*", "d", "d/*"]
WHO = st.lists(st.sampled_from(["alice", "bob", "@vision", "@bob", "*"]), max_size=2)
QUEUES = st.lists(
    st.builds(
        Queue, st.sampled_from(NAMES), submit=st.none() | WHO, admin=WHO.filter(lambda who: "*" not in who), private=st.booleans()
    ),
    unique_by=lambda queue: queue.name,
)


@given(QUEUES, st.sampled_from(["a", "a/b", "a/b/c", "a/alice", "a/bob", "d", "d/alice"]), st.sampled_from([ALICE, BOB]))
def test_whatever_is_configured(queues, leaf, caller):
    """What one may, from the definitions."""
    there = rules(*queues)
    above = [leaf[:end] for end in range(1, len(leaf) + 1) if end == len(leaf) or leaf[end] == "/"]
    star = f"{leaf.rpartition('/')[0]}/*".lstrip("/")
    personal = leaf not in there.queues and star in there.queues
    said = [there.queues[name] for name in [*[star] * personal, *above[::-1]] if name in there.queues]  # the nearest first
    mine = {caller.person.name, "*", *(f"@{group}" for group in caller.person.groups)}
    lists = [queue.submit for queue in said if queue.submit is not None]
    named = bool(mine & set(lists[0])) if lists else personal
    assert submits(there, caller, leaf) == (named and (not personal or leaf.rpartition("/")[2] == caller.person.name))
    others = job_of(ROOT, leaf)
    assert acts_on(there, caller, others) == any(mine & set(queue.admin) for queue in said)
    assert sees_names(there, caller, others) or any(queue.private for queue in said)
    assert acts_on(there, caller, job_of(caller, leaf))
