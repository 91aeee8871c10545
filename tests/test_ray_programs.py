"""Ray's own libraries within jobs: they find room in the job's group, or the job is stopped and says why."""

import os
import signal
import sys

import pytest

from ray_cluster import Cluster, ended

TUNE = """
import sys, time
import fairlead.ray
with fairlead.ray.session(log_to_driver=False) as group:
    from ray import tune
    def trial(config):
        time.sleep(1)
        return {"x": config["x"]}
    inside = tune.PlacementGroupFactory([fairlead.ray.inside(group, {"CPU": 1})])
    trial = trial if "beside" in sys.argv else tune.with_resources(trial, inside)
    run = tune.RunConfig(storage_path=sys.argv[1], verbose=0)
    found = tune.Tuner(trial, param_space={"x": tune.grid_search([1, 2, 3])}, run_config=run).fit()
    print("tuned", sum(each.metrics["x"] for each in found))
"""
DATA = """
import sys, time
import fairlead.ray
with fairlead.ray.session(log_to_driver=False) as group:
    import ray.data
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    context = ray.data.DataContext.get_current()
    if "beside" not in sys.argv:
        context.scheduling_strategy = context.scheduling_strategy_large_args = PlacementGroupSchedulingStrategy(group)
    def double(row):
        time.sleep(0.1)
        return {"id": 2 * row["id"]}
    print("summed", ray.data.range(10).map(double).sum("id"))
"""


@pytest.mark.skipif("FAIRLEAD_LONG" not in os.environ, reason="`make ray-torture` runs it; test_ray.py has the short version")
@pytest.mark.timeout(400)
def test_two_people_with_tune_and_data_end_and_what_waits_in_vain_is_stopped(tmp_path):
    with ended(Cluster(tmp_path)) as cluster:
        cluster.config.write_text('[[queue]]\nname = "ada"\n[[queue]]\nname = "ben"\n')
        for name, program in (("tune.py", TUNE), ("data.py", DATA)):
            (tmp_path / name).write_text(program)
        cluster.start_up(2)

        def submit(queue, bundles, *words):
            more = ["--env", "FAIRLEAD_RAY_PATIENCE=10"] if "beside" in words else []
            asked = ["--ray", "--bundle", "cpu=1", "--bundles", bundles, *more, "--", sys.executable]
            return cluster.submit("--queue", queue, *asked, *words)

        tune, data = submit("ada", "1", "tune.py", str(tmp_path / "found")), submit("ben", "1", "data.py")
        for job in (tune, data):
            cluster.until(lambda job=job: cluster.job(job)["status"] in ("succeeded", "failed"), 150)
        assert "tuned 6\n" in cluster.ok("logs", str(tune))
        assert "summed 90\n" in cluster.ok("logs", str(data))

        # All CPUs are the job's, and what it asks for beside its group can never be there.
        for words in (["tune.py", str(tmp_path / "more"), "beside"], ["data.py", "beside"]):
            stuck, after = submit("ada", "2", *words), cluster.submit("--queue", "ben", "--cpu", "1", "--", "true")
            cluster.until(lambda stuck=stuck: cluster.job(stuck)["status"] == "failed", 150)
            reason = "for 10 s this program asked Ray for room outside its placement group, got none, and used none of the group"
            assert f"fairlead: stopped: {reason}: " in cluster.call("logs", str(stuck)).stderr
            assert cluster.tasks(stuck)[0]["exit"] == 128 + signal.SIGALRM
            assert "it asked Ray for room outside its placement group, got none, and used" in cluster.ok("why", str(stuck))
            cluster.ok("wait", str(after))
        assert cluster.end() == 0
