"""The benchmarks in short: they run, and what they measure is right. How fast is for `make bench` to say."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from bench import (
    calls,
    claims,
    end_to_end,
    heart,
    kernel,
    machines,
    mixtures,
    offers,
    people,
    plain_drf,
    policies,
    promises,
    recovery,
    remote,
    scarce,
    service,
    start,
)
from bench import simulate as simulator

from conftest import until
from fairlead.journal import Journal
from fairlead.journal.sql import SqlStore
from fairlead.model.specs import Settings
from fairlead.scheduler.decide import decide
from fairlead.scheduler.reports.listings import describe_job
from fairlead.simulate.run import simulate
from fairlead.simulate.traces import read_trace
from fairlead.simulate.workload import Jobs, synthetic_nodes


def test_the_kernel_places_what_plain_python_places(capsys):
    state = kernel.make_state(20, 10, 100_000)
    placed = sum(len(fact.job) for fact in decide(state, 1.0).facts if hasattr(fact, "node"))
    assert kernel.place_in_python(kernel.make_state(20, 10, 100_000), 10**9) == placed
    kernel.run(50, 10, 1000)
    assert "tasks/s" in capsys.readouterr().out


def test_what_taking_back_costs(capsys):
    claims.run(jobs=200, rounds=1, nodes=20, tasks=100)
    shown = capsys.readouterr().out
    assert "of CPU time with revocation" in shown
    assert "a plan over 20 nodes and 100 running tasks" in shown


def test_tasks_go_through_the_whole_of_fairlead(capsys):
    end_to_end.run(tasks=16, at_once=4, places=end_to_end.PLACES[1:])
    assert "through xargs -P 4" in capsys.readouterr().out


def test_tasks_start_as_oneself_and_as_another(capsys):
    people.run(tasks=3)
    assert "started and ended, as" in capsys.readouterr().out


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_recovered_history_is_the_one_that_was_written(tmp_path, monkeypatch, snapshots):
    monkeypatch.setattr("fairlead.journal.journal.SNAPSHOT_AFTER", 20_000)
    state = recovery.write_history(tmp_path / "j.db", 5000, snapshots, jobs=5)
    journal = Journal(SqlStore(tmp_path / "j.db"))
    again = journal.recover()
    assert again.tasks.n == 5000
    assert (again.tasks.status[:5000] == state.tasks.status[:5000]).all()
    assert len(again.ended_jobs()) == 5
    journal.close()


def test_the_service_answers_many_clients(capsys):
    service.run(requests=16, sizes=(1, 8))
    shown = capsys.readouterr().out
    assert "8 clients  submit" in shown
    assert "reached" in shown
    assert "16 jobs in a request" in shown


def test_a_connection_that_is_closed_is_opened_again(tmp_path):
    """Closed in place of an answer, and after a 429."""
    answers = [b"", b"429 Too Many Requests\r\nretry-after: 0\r\nconnection: close", b"200 OK"]

    async def answer(reader, writer):
        while answers and await reader.readuntil(b"\r\n\r\n"):
            if not (head := answers.pop(0)):
                break
            writer.write(b"HTTP/1.1 " + head + b"\r\ncontent-length: 2\r\n\r\n{}")
            if b"close" in head:
                break
        writer.close()

    async def main():
        async with await asyncio.start_unix_server(answer, tmp_path / "socket"):
            connection = service.Connection(f"unix://{tmp_path}/socket", "")
            await connection.open()
            return await connection.ask("GET", "/")

    assert asyncio.run(main()) == b"{}"


def test_calls_beside_a_process_pool(capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # Ray takes long to start
    calls.run(calls=12, seconds=0.1, sizes=(3,), together=200, mebibytes=1)
    assert "ProcessPoolExecutor" in capsys.readouterr().out


def test_policies_beside_solvers(capsys):
    policies.run(many=3000, some=60, few=20)
    shown = capsys.readouterr().out
    assert "HiGHS, called directly" in shown
    problem = policies.make(40, 3)
    found = policies.fairlead.allocate(problem, "drf")
    assert policies.by_highs(problem) == pytest.approx(found.tasks, rel=1e-6)


def test_the_simulator_beside_simpy(capsys, monkeypatch):
    monkeypatch.setenv("FAIRLEAD_DATA", "/nonexistent")
    monkeypatch.setattr(simulator, "SIZES", ((100, 10), (1000, 100)))
    simulator.run(0.001)
    shown = capsys.readouterr().out
    assert "completions/s" in shown
    assert "times as long" in shown
    assert "no traces in /nonexistent" in shown
    assert shown.count("a plain Python loop") == 2


def test_the_plain_loop_starts_the_same_jobs_at_the_same_moments(tmp_path):
    simulator.write_trace(tmp_path / "t.csv", 3000)
    case = replace(read_trace(tmp_path / "t.csv"), nodes=synthetic_nodes(100, "cpu=16,memory=64GiB"))
    run = simulate(case, history=0.0, settings=Settings(idle_budget=0.0, revoke=False))
    assert run.begun.tolist() == plain_drf.run(str(tmp_path / "t.csv"), 100, 16, 64)


def test_the_score_places_as_its_formula_says():
    """By the definition, one task at a time: the least stranded of GPUs, the only resource that some nodes lack."""
    world = scarce.Openb.__new__(scarce.Openb)
    rng = np.random.default_rng(3)
    sizes = np.array([[96, 384, 8], [104, 512, 2], [32, 256, 0], [128, 768, 8], [16, 120, 2], [8, 32, 1]])
    world.capacity, world.models = sizes[rng.integers(6, size=60)], [""] * 60
    world.demand = np.stack([rng.integers(1, 24, 40), rng.integers(1, 99, 40), rng.choice([0, 1, 2, 8], 40)], axis=1)
    world.spec, world.allowed = [""] * 40, np.ones((40, 60), np.bool_)
    arrivals = rng.integers(40, size=600).tolist()

    class Stranded(scarce.FirstFit):
        def _of(self, n, free):
            largest = self.world.capacity.max(axis=0)
            with np.errstate(divide="ignore"):
                about = largest / 2.0 ** np.floor(np.log2(largest / self.world.capacity[n]))
            taken = (world.demand / np.where(about, about, np.inf)).max(axis=1)
            return np.round(taken * about[2] - world.demand[:, 2], 9)

    found = scarce.schedule(world, arrivals)
    assert found == scarce.place(Stranded, world, arrivals)
    assert 100 < sum(found) < 600


def test_mixtures_of_newcomers(capsys):
    mixtures.run(scale=0.01)
    shown = capsys.readouterr().out
    assert "## 3 random mixtures" in shown
    assert "less than half of its part in 0" in shown


def test_the_heart(capsys):
    heart.run(scale=0.001)
    out = capsys.readouterr().out
    assert out.count("a plain Python loop") == 2
    assert out.count("a burst of") == 4
    assert "a live step" in out


def test_the_plain_loop_ends_every_task():
    assert heart.in_python(heart.one_task_jobs(200, 4.0)) == 200


def test_gangs_are_made_of_large_jobs_and_all_ways_run_them(capsys):
    jobs = Jobs()
    for k in range(10):
        jobs.add(float(k), "a", {"cpu": 1000, "gpu": 8000 if k % 2 else 1000}, 10.0 + k)
    pods = jobs.workload("pods", synthetic_nodes(4, "cpu=8,gpu=8"), [])
    gangs = promises.with_gangs(pods)
    assert gangs.tasks.tolist() == [1, 1, 1, 1, 4, 1]  # the fifth large one has nobody to start with
    assert gangs.submit.tolist() == [0.0, 2.0, 4.0, 6.0, 7.0, 8.0]
    assert gangs.duration[gangs.first[4] :].tolist()[:4] == [11.0, 13.0, 15.0, 17.0]
    assert promises.large_jobs(gangs).tolist() == gangs.gang.tolist() == [False] * 4 + [True, False]
    parallel = simulator.workload(40, 2, 6, tasks=60)
    large = promises.large_jobs(parallel)
    assert promises.with_gangs(parallel).gang.tolist() == large.tolist()
    assert large.any()
    runs = {way: [how(promises.at_load(gangs, 2.0))] for way, how in promises.WAYS.items()}
    assert all(run.completed == gangs.tasks.sum() for (run,) in runs.values())
    assert promises.row("pods", 2.0, runs).startswith("| pods | 200% | ")


def test_what_promises_add_to_a_step_is_measured(capsys, monkeypatch):
    monkeypatch.setattr(promises, "busy", lambda scale: [])
    monkeypatch.setattr(promises, "seeded", lambda seed, scale: [])
    promises.run(scale=0.003, rounds=1)
    table = capsys.readouterr().out.splitlines()
    assert len([line for line in table if line.endswith("%")]) == 3


def test_many_nodes_over_real_sockets(capsys):
    remote.run(counts=(30,), tasks=600, lost_after=2.0)
    assert "30 nodes: there after" in capsys.readouterr().out


def test_what_a_slow_machine_does_not_come_to_is_a_dash(capsys):
    machines.run(counts=(2,), within=0.0)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["2", *["-"] * 7]


def test_every_task_of_many_nodes_ends_though_lines_are_slow_and_break():
    with remote.world(20, delay=0.002, tears=20) as over:
        over.until(lambda: over.up() == 20)
        jobs = [over.submit(tasks) for tasks in (300, 50, 1, 200)]
        over.until(lambda: all(over.is_done(job) for job in jobs))
        assert all(describe_job(over.state, job)["status"] == "succeeded" for job in jobs)
        attempts = over.state.tasks.attempt[: over.state.tasks.n]
        assert (attempts == 1).all(), "none was lost with a line that broke"


def test_offers_and_tasks_of_frameworks(capsys):
    offers.run(agents=40, roles=5, count=10, rounds=2, tasks=20, at_once=8)
    shown = capsys.readouterr().out
    assert "20 commands through pymesos" in shown
    assert "ms of the scheduler's CPU time each" in shown


SPIN = "import time\nwhile time.process_time() < 0.1: pass"


def test_what_a_start_costs_is_what_its_processes_used(tmp_path):
    env = start.environment(tmp_path, {"PATH": os.environ["PATH"], "UV_CACHE_DIR": "/mine", "MAKEFLAGS": "-j"})
    assert set(env) == {"PATH", "XDG_CACHE_HOME", "FAIRLEAD_HOME"}
    assert start.cost_of(["sh", "-c", f'"{sys.executable}" -c "{SPIN}"; true'], tmp_path, env).cpu >= 0.1
    assert start.line("all", start.Cost(1, 2) + start.Cost(0.5, 1), "more").split() == ["all", "1.50", "3.00", "more"]
    with pytest.raises(SystemExit, match="exit status 3\nwhy"):
        start.cost_of(["sh", "-c", "echo why; exit 3"], tmp_path, env)


def test_a_session_is_all_its_processes():
    shell = ["sh", "-c", f'"{sys.executable}" -c "{SPIN}\ninput()"; true']
    with subprocess.Popen(shell, stdin=subprocess.PIPE, start_new_session=True) as process:
        until(lambda: len(list(start.of_session(process.pid))) == 2 and start.cpu_seconds(process.pid))
        rss, pss = start.memory(process.pid)
        assert rss >= pss > 0
        process.stdin.close()
