"""Many jobs as one: jobs selected by name, group, status and age; arrays with indices as written; a task for each word."""

import itertools
import json
import resource
import time
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.cli.job_options import moment
from fairlead.cli.word_lists import with_lists
from fairlead.client.connection import Connection
from fairlead.client.service_error import ServiceError
from fairlead.engines.local.instructions import filled
from fairlead.failure import Failure
from fairlead.model.ranges import number_at, ranges_of, read_ranges, written_ranges
from fairlead.model.specs import Job, Node, Queue, Settings, Work
from fairlead.scheduler import admission, job_index, tables
from fairlead.scheduler.effects import apply, new_state
from fairlead.scheduler.facts import Configured, JobCancelled, JobsForgotten, JobSubmitted, NodeJoined
from fairlead.scheduler.reports.listings import Listing, Selection
from fairlead.scheduler.snapshot import copy_of


@given(st.lists(st.integers(0, 60), min_size=1, unique=True).map(sorted))
def test_ranges_say_the_same_numbers(numbers):
    ranges = ranges_of(numbers)
    assert [number_at(ranges, place) for place in range(len(numbers))] == numbers
    assert read_ranges(written_ranges(ranges)) == numbers
    assert [Work().with_indices(numbers).known_as(place) for place in range(len(numbers))] == numbers


def test_indices_are_read_as_slurm_writes_them():
    assert read_ranges("1-10,15,20-30:2,9") == [*range(1, 11), 15, *range(20, 31, 2)]
    assert written_ranges(ranges_of([*range(1, 11), 15, *range(20, 31, 2)])) == "1-10,15,20-30:2"
    assert Work().with_indices([0, 1, 2]) == Work()
    for wrong in ("", "a", "3-1", "1-3:0", "1--3", "0-999999999", "1,", "-1"):
        with pytest.raises(ValueError, match=r"write|more than"):
            read_ranges(wrong)


@given(st.lists(st.lists(st.sampled_from(["a", "b/c.d", ".e", ""]), min_size=1, max_size=4), min_size=1, max_size=3))
def test_there_is_a_task_for_each_choice_of_words_the_last_list_fastest(lists):
    work = Work(values=lists)
    choices = list(itertools.product(*lists))
    assert [tuple(work.values_of(index)) for index in range(len(choices))] == choices
    words = [word for number, _ in enumerate(lists, 1) for word in (f"{{{number}}}", f"-{{{number}/}}")]
    for index, choice in enumerate(choices):
        expected = [word for value in choice for word in (value, f"-{value.rpartition('/')[2]}")]
        assert [filled(word, work.values_of(index)) for word in words] == expected


def test_places_are_filled_as_in_gnu_parallel():
    values = ["dir/a.tar.gz", "b"]
    for place, value in {
        "{1}": "dir/a.tar.gz", "{1.}": "dir/a.tar", "{1/}": "a.tar.gz", "{1//}": "dir", "{1/.}": "a.tar", "{2//}": ".",
        "{2.}": "b",         "{3}": "{3}", "{0}": "{0}", "{{1}}": "{1}", "{index}": "{index}",
        "{}": "{}", "x{2}{1/}": "xba.tar.gz",
    }.items():  # fmt: skip
        assert filled(place, values) == value
        if "{1" in place.replace("{{", "") and "2" not in place:
            assert filled(place.replace("1", ""), values[:1]) == value


def test_lists_of_words_are_read_as_gnu_parallel_does(tmp_path):
    file = tmp_path / "list"
    file.write_text("one two\n\nthree\n")
    for command, expected in {
        ("gzip", ":::", "a", "b"): (["gzip", "{}"], [["a", "b"]]),
        ("mv", "{}", "{.}.old", ":::", "a"): (["mv", "{}", "{.}.old"], [["a"]]),
        ("echo", "{}", "x{}", ":::", "a", ":::", "b"): (["echo", "{1}", "{2}", "x{1} {2}"], [["a"], ["b"]]),
        ("echo", "{2}", "::::", str(file), ":::", "b"): (["echo", "{2}"], [["one two", "", "three"], ["b"]]),
        ("parallel", "echo", ":::", "a"): (["parallel", "echo", ":::", "a"], []),
        ("find", "-exec", "rm", "{}", ";"): (["find", "-exec", "rm", "{}", ";"], []),
    }.items():
        assert with_lists([*command]) == expected
    assert filled("{} {.} {{}} {1}", ["a.b"]) == "a.b a {} a.b"
    for wrong in ([":::"], ["::::"], [":::", "a", "::::"], [":::", "a", ":::+", "b"], ["::::", "/no/such"], ["{#}", ":::", "a"]):
        with pytest.raises(Failure, match=r"what\?|linked|No such|index"):
            with_lists(["echo", *wrong])


def test_moments_are_read_as_people_write_them(monkeypatch):
    from datetime import datetime

    now = datetime.now().astimezone()
    assert abs(moment("--begin", "now+1h") - now.timestamp() - 3600) < 60
    assert abs(moment("--since", "2h", past=True) - now.timestamp() + 7200) < 60
    assert moment("--begin", "2026-05-01T16:00") == datetime(2026, 5, 1, 16).astimezone().timestamp()
    assert abs(moment("--begin", "now + 2 hours") - now.timestamp() - 7200) < 60
    assert moment("--begin", "05/01/26") == moment("--begin", "050126") == datetime(2026, 5, 1).timestamp()
    tomorrow = datetime.fromtimestamp(moment("--begin", "tomorrow"))
    assert 0 < (tomorrow - datetime.now()).total_seconds() <= 25 * 3600
    assert (tomorrow.hour, tomorrow.minute, tomorrow.second) == (0, 0, 0)
    assert moment("--begin", "noon") == moment("--begin", "12:00 PM") == moment("--begin", "12:00:00")
    for text in ("00:00", "9:30", "23:59:59"):
        ahead, ago = moment("--begin", text), moment("--since", text, past=True)
        assert 0 < ahead - datetime.now().timestamp() <= 25 * 3600
        assert 0 <= datetime.now().timestamp() - ago <= 25 * 3600
    assert moment("--since", "20261101", past=True) == datetime(2026, 11, 1).timestamp()
    assert abs(moment("--since", "5min", past=True) - now.timestamp() + 300) < 60
    assert abs(moment("--since", "2-12", past=True) - now.timestamp() + 60 * 3600) < 60
    for wrong in ("soon", "25:00", "13:99", "now-1h", "2026-13-01", ""):
        with pytest.raises(Failure, match="is not a time"):
            moment("--begin", wrong)


def test_an_array_keeps_its_indices_in_listings_logs_and_cancellations(idle):
    job = idle.submit(
        "-q", "A", "--array", "1-3,9,20-24:2%2", "--", "sh", "-c", "echo {index}=$FAIRLEAD_INDEX; test {index} != 9"
    )
    idle.call("wait", f"{job}")
    assert idle.job(job)["at_most"] == 2
    assert idle.ok("logs", f"{job}.22") == "22=22\n"
    refused = idle.call("logs", f"{job}.0")
    assert refused.stderr == f"fairlead: job {job} has no task 0: its tasks are 1-3,9,20-24:2\n"
    assert idle.ok("logs", "--failed", f"{job}") == "9: 9=9\n"
    assert [line.split()[:2] for line in idle.ok("job", f"{job}", "--tasks", "2-9").splitlines()[-3:]] == [
        ["2", "succeeded"], ["3", "succeeded"], ["9", "failed"],
    ]  # fmt: skip
    held = idle.submit("-q", "A", "--hold", "--array", "5,7,9", "--", "true")
    assert idle.ok("cancel", f"{held}.7-9") == f"2 tasks of job {held} are cancelled\n"
    assert "has no task 6" in idle.call("cancel", f"{held}.6").stderr
    for wrong in (["--array", "3-1"], ["--array", "1-3", "-n", "2"], ["--array", "1-3%x"]):
        assert "array" in idle.call("submit", "-q", "A", *wrong, "--", "true").stderr
    idle.ok("cancel", f"{held}")


def test_a_task_for_each_word_of_lists_and_files(idle):
    job = idle.submit("-q", "A", "--", "echo", "{2/.}-{1}-{index}", ":::", "a b", "{index}", ":::", "x/y.txt", "z")
    idle.ok("wait", f"{job}")
    assert idle.ok("logs", "--all", f"{job}") == "0: y-a b-0\n1: z-a b-1\n2: y-{index}-2\n3: z-{index}-3\n"
    line = "printf 'one\\ntwo\\n' | fairlead submit -q A -- sh -c 'echo $1; test $1 != two' - :::: -"
    job = int(idle.shell(line).stdout)
    assert idle.call("wait", f"{job}").returncode == 1
    again = int(idle.ok("rerun", "--failed", f"{job}"))
    assert idle.call("wait", f"{again}").returncode == 1
    assert idle.ok("logs", "--all", f"{again}") == "1: two\n"


def test_jobs_are_selected_alike_by_all_commands(idle):
    first = idle.submit("-q", "A", "--name", "fold-1", "--group", "sweep", "--", "sh", "-c", "echo one; exit 3")
    idle.submit("-q", "A", "--name", "fold-2", "--group", "sweep", "--", "echo", "two")
    idle.submit("-q", "B", "--name", "other", "--hold", "--", "true")
    assert idle.call("wait", "--group", "sweep").returncode == 1

    def listed(*options):
        found = json.loads(idle.ok("jobs", "--since", "1h", "--json", *options))["jobs"]
        return [job["id"] - first for job in found if job["id"] >= first]

    assert listed("--name", "fold-*") == listed("--group", "sweep") == [1, 0]
    assert listed("--status", "failed,held") == listed("--status", "failed", "--status", "held") == [2, 0]
    assert listed("--group", "swee") == listed("--name", "fold-3") == []
    assert idle.ok("logs", "--name", "fold-?") == f"{first}.0: one\n{first + 1}.0: two\n"
    written = idle.folder / "all.txt"
    idle.ok("logs", "--group", "sweep", "--output", str(written))
    assert written.read_text() == f"{first}.0: one\n{first + 1}.0: two\n"
    again = int(idle.ok("rerun", "--failed", "--group", "sweep"))
    assert again == first + 3
    assert "no jobs of yours with --name nothing" in idle.call("hold", "--name", "nothing").stderr
    assert idle.ok("release", "--name", "other") == f"job {first + 2} is released\n"
    idle.ok("wait", "--name", "other", "--name", "other")
    assert idle.ok("cancel", "--group", "sweep") == "no jobs of yours that have not ended with --group sweep\n"
    assert "not both" in idle.call("wait", "1", "--group", "sweep").stderr
    assert "wait for what?" in idle.call("wait").stderr


def test_a_cancellation_of_many_jobs_is_one_line(idle):
    (idle.folder / "jobs.csv").write_text("command\n" + "true\n" * 30)
    numbers = [*map(int, idle.ok("submit", "-q", "A", "--hold", "--group", "many", "--jobs", "jobs.csv").split())]
    assert idle.ok("cancel", "--group", "many", "--status", "held") == f"30 jobs are cancelled: {numbers[0]}-{numbers[-1]}\n"


def test_odd_selections_are_refused_and_a_job_that_is_chosen_twice_is_cancelled_once(idle):
    for asked in ({"since": "nan"}, {"name": "a\0"}, {"queue": "x" * 5000}):
        with pytest.raises(ServiceError) as refused:
            idle.ask("jobs", **asked)
        assert refused.value.status in (400, 422)
    job = idle.submit("-q", "A", "--hold", "--name", "twice", "--", "true")
    with Connection(idle.home) as connection:
        assert connection.post("/v1/cancel", {"jobs": [job], "name": "twice"})["cancelled"] == [job]


def test_a_cancellation_of_waiting_jobs_spares_one_that_started(idle):
    runs = idle.submit("-q", "A", "--cpu", "0.1", "--", "sleep", "60")
    idle.until(lambda: idle.ask(f"jobs/{runs}")["status"] == "running")
    waits = idle.submit("-q", "A", "--hold", "--", "true")
    with Connection(idle.home) as connection:
        for cancelled in ([waits], []):
            assert connection.post("/v1/cancel", {"jobs": [runs, waits], "only_waiting": True})["cancelled"] == cancelled


def test_the_output_of_all_tasks_is_followed(idle):
    script = "echo begun; until test -e go{index}; do sleep 0.05; done; printf done"
    job = idle.submit("-q", "A", "-n", "2", "--cpu", "0.1", "--", "sh", "-c", script)
    following = idle.start("logs", "-f", "--all", f"{job}")
    assert sorted(following.stdout.readline() for _ in range(2)) == [b"0: begun\n", b"1: begun\n"]
    (idle.folder / "go1").touch()
    assert following.stdout.readline() == b"1: done\n"
    (idle.folder / "go0").touch()
    assert following.communicate(timeout=60)[0] == b"0: done\n"


def test_jobs_wait_for_times_names_and_indices(idle):
    """Through the command line: what waits says for what, and runs once that has happened, and not before."""
    first = idle.submit("-q", "A", "--name", "w-one", "--array", "1-3", "--hold", "--", "sh", "-c", "test {index} != 2")
    pairs = idle.submit(
        "-q", "A", "--array", "1-3", "--after", f"{first}:index", "--name", "w-pair", "--", "echo", "after {index}"
    )
    lone = [idle.submit("-q", "A", "--name", "w-one", "--singleton", "--", "true") for _ in range(2)]
    named = idle.submit("-q", "A", "--after", "w-one:end", "--", "true")
    later = idle.submit("-q", "A", "--begin", "now+1h", "--name", "w-later", "--", "true")
    why = {job: " ".join(idle.ok("why", f"{job}").split()) for job in (pairs, *lone, named, later)}
    assert f"the success of the task of the same index of job {first}" in why[pairs]
    assert f"it comes after job {first}, which has to end first expected:" in why[lone[0]]
    assert f"job {first}, which has to end first and job {lone[0]} of the same name, as a singleton" in why[lone[1]]
    assert all(f"job {job}, which has to end first" in why[named] for job in (first, *lone))
    assert "its time to begin has not come: 20" in why[later]
    assert "expected: in 60 min" in why[later]
    assert idle.job(later)["begin"] == pytest.approx(time.time() + 3600, abs=100)
    idle.ok("release", f"{first}")
    idle.ok("wait", f"{named}", *map(str, lone))
    assert idle.call("wait", f"{pairs}").returncode == 1
    assert [idle.job(pairs)[status] for status in ("succeeded", "cancelled")] == [2, 1]
    assert idle.ok("logs", f"{pairs}.3") == "after 3\n"
    ends = [idle.job(job) for job in (first, *lone)]
    assert ends[0]["finished_at"] <= ends[1]["finished_at"] <= ends[2]["finished_at"]
    idle.ok("cancel", f"{later}")
    tried = idle.submit("-q", "A", "--retries", "1", "--retry-delay", "0.5s", "--", "sh", "-c", "date +%s.%N; exit 1")
    assert idle.call("wait", f"{tried}").returncode == 1
    one, two = map(float, idle.ok("logs", f"{tried}").split())
    assert two - one >= 0.5
    for wrong, why_not in {
        ("--after", "no-such-name"): "no job of the name or group 'no-such-name'",
        ("--after", "12:never"): "--after '12:never': write JOB",
        ("--begin", "soon"): "--begin 'soon' is not a time",
        ("--singleton",): "--singleton: needs a name: it waits for the earlier jobs of that name",
        ("--retry-delay", "5s"): "--retry-delay: has no effect without retries: give their number",
        ("--after", f"{first}:index"): f"--after: job {first} has no task 0",
    }.items():
        assert why_not in idle.call("submit", "-q", "A", *wrong, "--", "true").stderr


@pytest.mark.parametrize(("reserved", "moves"), [(tables.RESERVED, 1), (2**60, 4)])
def test_many_rows_grow_in_place_unless_the_system_refuses(reserved, moves, monkeypatch):
    monkeypatch.setattr(tables, "RESERVED", reserved)
    jobs = tables.Jobs([0])
    jobs.extend(tables.RESERVE_FROM - 1)
    jobs.id[:] = np.arange(jobs.n)
    places = set()
    for _ in range(10):
        jobs.extend(tables.RESERVE_FROM)
        places.add(jobs.rows.ctypes.data)
    assert len(places) == moves
    assert jobs.id[: tables.RESERVE_FROM].tolist() == [*range(tables.RESERVE_FROM - 1), 0]


def test_tables_that_reserve_are_as_long_as_others_and_who_holds_their_arrays_gets_the_longer_ones():
    """Kernels go through all rows of an array, whatever is reserved behind them."""
    moves = [0]
    tasks = tables.Tasks(moves)
    tasks.extend(10)
    tasks.set_cards("cards", slice(0, 10), np.ones((10, 2), np.int64))
    tasks.extend(tables.RESERVE_FROM)
    begins = tasks.rows.ctypes.data, tasks.cards.ctypes.data
    for _ in range(5):
        before, status = moves[0], tasks.status
        tasks.status[:] = 3
        tasks.extend(len(tasks.rows))
        assert moves[0] > before
        assert tasks.n <= len(tasks.rows) == len(tasks.cards) == len(tasks.status) <= 2 * tasks.n
        assert (tasks.rows.ctypes.data, tasks.cards.ctypes.data) == begins
        assert (tasks.status[: len(status)] == 3).all()
        assert not tasks.status[len(status) :].any()
        assert not tasks.cards[10:].any()
    tasks.keep(np.arange(3))
    tasks.extend(2)
    assert (tasks.status[:5].tolist(), len(tasks.rows)) == ([3, 3, 3, 0, 0], 16)
    assert tasks.cards[:5].tolist() == [[1, 1]] * 3 + [[0, 0]] * 2


def test_memory_for_the_next_rows_is_found_in_place(monkeypatch):
    """Whole pages, from the one that has the first of them; none of a table without rows. What is there stays."""
    tasks, asked, madvise = tables.Tasks([0]), [], tables._system.madvise
    tables.find_memory(tasks.ahead(10))
    tasks.extend(10)
    tasks.set_cards("cards", slice(0, 10), np.ones((10, 2), np.int64))
    tasks.extend(tables.RESERVE_FROM)
    tasks.code[: tasks.n] = 7

    def noting(*call):
        asked.append((call[0].value, call[1].value))
        return madvise(*call)

    monkeypatch.setattr(tables, "_system", SimpleNamespace(madvise=noting))
    tables.find_memory(tasks.ahead(3000))
    first = tasks.extend(3000)
    assert (tasks.code[:first] == 7).all()
    assert not tasks.rows[first : tasks.n].view(np.uint8).any()
    for (begin, size), rows in zip(asked, (tasks.rows, tasks.cards), strict=True):
        new = rows[first : tasks.n]
        assert begin % resource.getpagesize() == 0
        assert begin <= new.ctypes.data < begin + resource.getpagesize()
        assert begin + size == new.ctypes.data + new.nbytes


def test_all_that_is_reserved_is_used_before_rows_are_copied(monkeypatch):
    monkeypatch.setattr(tables, "RESERVED", 3 * tables.RESERVE_FROM * tables.Jobs.FIELDS.itemsize)
    jobs = tables.Jobs([0])
    jobs.extend(tables.RESERVE_FROM)
    begins = jobs.rows.ctypes.data
    jobs.extend(tables.RESERVE_FROM)
    jobs.extend(tables.RESERVE_FROM)
    assert (len(jobs.rows), jobs.rows.ctypes.data) == (3 * tables.RESERVE_FROM, begins)
    jobs.id[:] = 7
    jobs.extend(1)
    assert (len(jobs.rows), jobs.id[jobs.n - 2 : jobs.n].tolist()) == (6 * tables.RESERVE_FROM, [7, 0])


@pytest.mark.parametrize("limited", [None, "RLIMIT_AS", "RLIMIT_DATA", "overcommit"])
def test_nothing_is_reserved_where_it_counts_or_in_a_small_table(limited, monkeypatch):
    limits = {getattr(resource, limited): (2**32, 2**32)} if limited in ("RLIMIT_AS", "RLIMIT_DATA") else {}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, (resource.RLIM_INFINITY,) * 2))
    monkeypatch.setattr(tables, "_overcommits", lambda: limited != "overcommit")
    lengths, longer = [], tables.longer

    def noted(array, used, length):
        lengths.append(length)
        return longer(array, used, length)

    monkeypatch.setattr(tables, "longer", noted)
    jobs = tables.Jobs([0])
    for _ in range(8):
        jobs.extend(tables.RESERVE_FROM // 4)
        assert (max(lengths) > 2 * jobs.n) is (limited is None and jobs.n > tables.RESERVE_FROM // 2)


def test_jobs_by_number_are_as_in_a_dictionary_and_a_copy_stays_as_it_was(monkeypatch):
    monkeypatch.setattr(job_index, "BLOCK_BITS", 2)
    rng = Random(7)
    pairs = [(job_index.ByNumber[str](), dict[int, str]())]
    for turn in range(400):
        found, right = rng.choice(pairs)
        numbers = sorted(rng.sample(range(60), rng.randrange(12)))
        if turn % 4 == 0:
            found.add(numbers, [f"{turn} {number}" for number in numbers])
            right.update({number: f"{turn} {number}" for number in numbers})
        elif turn % 4 == 1 and numbers:
            found[numbers[0]] = right[numbers[0]] = str(turn)
        elif turn % 4 == 2:
            assert [found.pop(number, None) for number in numbers] == [right.pop(number, None) for number in numbers]
        elif len(pairs) < 8:
            pairs.append((found.copy(), right.copy()))
        for one, other in pairs:
            assert one == other
            assert (len(one), sorted(one)) == (len(other), sorted(other))
    with pytest.raises(KeyError, match="99"):
        del found[99]


def test_a_bulk_of_jobs_moves_none_that_are_there_and_a_copy_shares_them():
    jobs = job_index.ByNumber[int]()
    jobs.add(range(1, 50_001), range(50_000))
    before, copied = dict(jobs._blocks), jobs.copy()
    jobs.add(range(50_001, 60_001), range(10_000))
    del jobs[1]
    changed = [key for key, block in before.items() if jobs._blocks[key] is not block]
    assert changed == [0, 50_001 >> job_index.BLOCK_BITS], "only blocks that one of both changes"
    assert all(copied._blocks[key] is block for key, block in before.items())
    assert (len(jobs), len(copied)) == (59_999, 50_000)


def test_a_job_is_found_by_name_among_many_of_others_a_block_of_rows_at_a_time():
    state, job = new_state(), Job("a", {"cpu": 1000}, name="x", user="eve")
    apply(state, Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
    for jobs in ([job] * 10_000, [replace(job, name="mine")] * 3, [job] * 10_000):
        apply(state, JobSubmitted(at=0.0, id=state.index.last + 1, job=jobs[0], more=jobs[1:]))
    for most, reads in ((500, 6), (2, 7)):
        listing, count = Listing(Selection(where=lambda spec: spec.name == "mine")), 0
        while not listing.is_over:
            listing.read(state, most)
            count += 1
        assert [found["id"] for found in listing.found] == [10_003, 10_002, 10_001]
        assert count == reads, "a block that has several pieces of what is found is looked through as often"


def test_a_job_comes_after_those_of_a_name_or_group_that_are_known_whatever_was_forgotten(monkeypatch):
    monkeypatch.setattr(job_index, "BLOCK_BITS", 2)
    state, rng = new_state(), Random(7)
    apply(state, Configured(at=0.0, queues=[Queue("a")], settings=Settings()))
    apply(state, NodeJoined(at=0.0, node=Node("n", {"cpu": 1000})))
    names = ["", "x", "y", "z"]
    for _ in range(300):
        jobs = [Job("a", {"cpu": 1000}, name=rng.choice(names), group=rng.choice(names)) for _ in range(rng.randrange(1, 4))]
        apply(state, *admission.submit(state, jobs, 0.0))
        known = state.index.specs
        ended = [job for job in known if not np.isnan(state.jobs.finished_at[state.job_row(job)])]
        if rng.random() < 0.3:
            apply(state, JobsForgotten(at=0.0, ids=sorted(rng.sample(ended, rng.randrange(len(ended) + 1)))))
        elif rng.random() < 0.8:
            for job in rng.sample(sorted({*known} - {*ended}), 2):
                apply(state, JobCancelled(at=0.0, id=job))
        name = rng.choice(names[1:])
        called = sorted(number for number, job in known.items() if name in (job.name, job.group))
        waiting = [number for number in called if state.jobs.waiting[state.job_row(number)]]
        if called:
            (fact,) = admission.submit(rng.choice([state, copy_of(state)]), jobs[:1], 0.0, [[(name, "end")]])
            assert [before.job for before in fact.job.after] == (waiting or called[-1:])
