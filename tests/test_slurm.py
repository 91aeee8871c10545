"""Scripts with `#SBATCH` lines: what their options come to, what is refused, and what they find when they run."""

import re
import shlex
from pathlib import Path

import pytest
from bench.slurm import count

from fairlead.cli import slurm_options
from fairlead.cli.script_options import script_options
from fairlead.cli.slurm_prologue import check_body
from fairlead.failure import Failure
from fairlead.model.quantity import parse_seconds

DOCS = Path(__file__).parent.parent / "docs"
NODES = [{"gpu_model": "NVIDIA-A100-SXM4-80GB", "zone": "a"}, {"gpu_model": "NVIDIA-A100-PCIE"}, {"gpu_model": "Tesla-V100"}]


def read(tmp_path, line, commands="echo hello"):
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/bash\n# a comment\n\n#SBATCH {line}\n{commands}\n#SBATCH -J late\n")
    return script_options(str(script), labels=lambda: NODES)


def parsed(words):
    """What options of `fairlead submit` come to."""
    from typer.main import get_command

    from fairlead.cli.main import app

    found = get_command(app).get_command(None, "submit").make_context("submit", list(words)).params
    limit = found["time_limit"]
    return found | {"time_limit": limit and parse_seconds(limit)}


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("-J train -c4 --mem=4000", "--name train --cpu 4 --memory 4000Mi"),
        ("--mem 8G --time=2:00:00", "--time-limit 7200s --memory 8Gi"),
        ("-t 90", "--time-limit 5400s"),
        ("-t 1:30", "--time-limit 90s"),
        ("-t 0 -t UNLIMITED", ""),
        ("--time=1-12", "--time-limit 129600s"),
        ("--time 2-03:04:05", "--time-limit 183845s"),
        ("-a 1-9,12-20:4%4", "--array 1-9,12-20:4%4"),
        ("--array=0", "--array 0"),
        ("--gres=gpu:2 -N 1", "--gpu 2"),
        ("--gres=gpu --requeue", "--gpu 1"),
        ("--gres=gpu:a100:4", "--gpu 4 --on 'gpu_model=NVIDIA-A100-PCIE|NVIDIA-A100-SXM4-80GB'"),
        ("-N 2 --ntasks-per-node=1 -c 4 -G 5 --mem-per-cpu=1G", "--nodes 2 --cpu 4 --gpu 3 --memory 4Gi"),
        ("-N 3-4 -n 3 --gres=gpu:2", "--nodes 3 --cpu 1 --gpu 2"),
        ("-G v100:2 --nodes=1-3", "--gpu 2 --on gpu_model=Tesla-V100"),
        ("--gpus-per-task=2 -n 3 --mem-per-gpu=1G", "--gpu 6 --cpu 3 --memory 6Gi"),
        ("--gpus-per-node=1 --gpus-per-task=1", "--gpu 1"),
        ("--gpus=2 --cpus-per-gpu=3", "--gpu 2 --cpu 6"),
        ("-C a100|V100", "--on 'gpu_model=NVIDIA-A100-PCIE|NVIDIA-A100-SXM4-80GB|Tesla-V100'"),
        ("-n 4 -c 2 --mem-per-cpu=1G", "--cpu 8 --memory 8Gi"),
        ("--ntasks-per-node=3", "--cpu 3"),
        ("--tasks-per-node=3 -n 2", "--cpu 2"),
        ("-c 3 --cpus-per-task=5", "--cpu 5"),
        ("--job=a --part=b", "--name a --queue b"),
        ("-p vision --nice", "--priority -100 --queue vision"),
        ("--nice=-5 -A lab", "--priority 5 --queue lab"),
        ("--priority=7", "--priority 7"),
        ("--mail-type END --mail-user http://x/y", "--notify http://x/y"),
        ("--mail-type BEGIN,FAIL --mail-user http://x/y", "--notify http://x/y --notify-on start,failure"),
        ("-d after:12", "--after 12:start"),
        ("-d afterok:12:13", "--after 12 --after 13"),
        ("-d afterok:1:2,afterany:3", "--after 1 --after 2 --after 3:end"),
        ("-d aftercorr:7,singleton", "--after 7:index --singleton"),
        ("--begin=now+1hour", "--begin now+1hour"),
        ("-b 16:00", "--begin 16:00"),
        ("-D /tmp --hold", "--cwd /tmp --hold"),
        ("--export=ALL,A=1,B=2", "--export-all --env A=1 --env B=2"),
        ("--export=A=1", "--no-export-all --env A=1"),
        ("--export NONE", "--no-export-all"),
        ("-o x.%j -e y --input=z --open-mode=append --no-requeue", ""),
    ],
)
def test_options_mean_what_they_say(tmp_path, line, ours):
    found = read(tmp_path, line)
    assert all("the whole script runs on each node" in each for each in found.warnings)
    words = shlex.split(ours)
    words = [word for word in words if word != "--no-export-all"] if "--no-export-all" in words else ["--export-all", *words]
    assert parsed(found.slurm) == parsed(["--name", "job.sh", *words])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-N 2 -n 4", "--nodes=2: a script runs on several nodes only with one task on each"),
        ("-N 2 --ntasks-per-node=2", "--nodes=2: a script runs on several nodes only with one task on each"),
        ("-N x", "--nodes=x: write a number"),
        ("--exclusive", "--exclusive: has no equivalent here: ask for what the node has"),
        ("-b soon", "--begin=soon: 'soon' is not a time"),
        ("-C gpu80", "--constraint=gpu80: no node has such a label: use #FAIRLEAD --on LABEL=VALUE"),
        ("-C a", "--constraint=a: gpu_model and zone are labels of nodes with it"),
        ("--gres=gpu:h100:2", "--gres=gpu:h100:2: no node has such a label"),
        ("--gres=dcu:4", "--gres=dcu:4: only gpu has an equivalent here"),
        ("--gpus=a:b:c", "--gpus=a:b:c: write a number, or TYPE:NUMBER"),
        ("-w n1", "--nodelist=n1: has no equivalent here: use #FAIRLEAD --on"),
        ("-x n1", "--exclude=n1: has no equivalent here"),
        ("--signal=B:USR1@90", "--signal=B:USR1@90: has no equivalent here: a stopped task gets the signal in all its"),
        ("--time=soon", "--time=soon: write minutes"),
        ("-n x", "--ntasks=x: write a number"),
        ("--mem=0", "--mem=0: write how much, such as 8G"),
        ("--mem=1G --mem-per-cpu=2G", "--mem-per-cpu=2G: excludes --mem"),
        ("-a 9-1", "--array=9-1: '9-1' ends before it begins: write FIRST-LAST"),
        ("-a 1-9:0", "--array=1-9:0: '1-9:0' has steps of 0: write FIRST-LAST:STEP"),
        ("-d afterok:1?afterok:2", "--dependency=afterok:1?afterok:2: has no equivalent here"),
        ("-d afterok:x", "--dependency=afterok:x: has no equivalent here"),
        ("--speed=9", "--speed=9: is not an option of sbatch"),
        ("--m=1", "--m=1: is not an option of sbatch"),
        ("run", "run: is not an option of sbatch"),
        ("--nice=x", "--nice=x: write a number of at most six digits"),
    ],
)
def test_what_would_change_a_job_is_refused_with_its_place(tmp_path, line, said):
    with pytest.raises(Failure) as failure:
        read(tmp_path, line)
    assert str(failure.value).startswith(f"{tmp_path}/job.sh:4: #SBATCH {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--hint=nomultithread", "--hint=nomultithread: has no effect here"),
        ("-A lab -p fast", "--partition=fast: has no effect here: --account names the queue"),
        (
            "--mail-type=BEGIN",
            '--mail-type=BEGIN: no mail is sent: name who gets it with --mail-user, or with notify = "TO" in your client.toml',
        ),
        (
            "--mail-type=STAGE_OUT",
            "--mail-type=STAGE_OUT: --notify TO --notify-on reports start, failure and end, and nothing else",
        ),
        ("--mail-user=http://x", "--mail-user=http://x: has no effect here without --mail-type"),
        ("-q high", "--qos=high: has no effect here"),
    ],
)
def test_what_has_no_effect_is_reported_with_its_place(tmp_path, line, said):
    assert read(tmp_path, line).warnings == [f"{tmp_path}/job.sh:4: #SBATCH {said}"]


def test_each_option_of_sbatch_is_known_once():
    theirs = {*slurm_options.TRANSLATED}, {*slurm_options.REFUSED}, {*slurm_options.WITHOUT_EFFECT}
    assert sum(map(len, theirs)) == len(set.union(*theirs))
    assert {*slurm_options.SHORT.values(), *slurm_options.FLAGS} <= slurm_options.KNOWN


def test_lines_may_have_a_tab_after_their_mark(tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH\t-c 3\n#FAIRLEAD\t--name mine\n")
    found = script_options(str(script))
    assert (found.slurm, found.own) == (["--name", "job.sh", "--export-all", "--cpu", "3"], ["--name", "mine"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("srun ./a.out", "1: srun: would start 4 processes, and starts one here: use mpirun -n 4"),
        ("if x; then srun -n 4 ./a.out; fi", "1: srun: would start 4 processes"),
        ("srun -n 1 ./a.out & srun --ntasks=1 --exclusive ./b.out", None),
        ("# srun ./a.out\necho srun\nmysrun x\nsrun.sh", None),
        ("echo $(scontrol show job $SLURM_NODELIST) | cat", "1: scontrol: is no command here"),
        ("echo $(scontrol show hostnames $SLURM_NODELIST) | cat", None),
        ("echo $SLURM_NTASKS ${SLURM_TMPDIR}", " $SLURM_TMPDIR: is not set here"),
    ],
)
def test_commands_that_a_script_would_miss_are_found(line, said):
    options = {"ntasks": slurm_options.Given("4", "x")}
    try:
        found = check_body("x", line, options, ["bash"], "SLURM_NTASKS SLURM_NODELIST")
    except Failure as failure:
        found = [str(failure)]
    assert [each.partition(":")[2].startswith(said or "") for each in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("srun ./a.out\nsrun -N 2 -n2 ./b.out", ""),
        ("mpirun ./a.out", "x: only srun starts something on the other nodes, and it has none: use --nodes=1"),
        ("srun -n 1 ./a.out", "x:1: srun: would start on 1 of the nodes, and starts on each here"),
    ],
)
def test_a_script_for_several_nodes_runs_what_srun_starts_on_each(body, said):
    options = {"nodes": slurm_options.Given("2", "x")}
    if not said:
        assert check_body("x", body, options, ["bash"], "") == []
        return
    with pytest.raises(Failure) as failure:
        check_body("x", body, options, ["bash"], "")
    assert str(failure.value).startswith(said)


def test_a_script_runs_as_under_slurm(idle, monkeypatch):
    monkeypatch.setitem(idle.env, "KEPT", "kept")
    (idle.folder / "job.sh").write_text(
        "#!/bin/bash\n#SBATCH --array=3,5 -n 2 -c 1 --mem=100M -o 'it is/%x_%A_%3a.out' -e %x.%a.err --export=ALL,COLOUR=red\n"
        "#SBATCH -p A --no-requeue\n"
        "echo $0 $1 $COLOUR $KEPT $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT\n"
        "echo $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_CPUS_PER_TASK\n"
        "echo $SLURM_MEM_PER_NODE $SLURM_PROCID $SLURM_JOB_PARTITION ${FAIRLEAD_PROLOGUE-unset} >&2\n"
        '[ "$SLURM_JOB_ID" != "$SLURM_ARRAY_JOB_ID" ] && [ "$SLURM_SUBMIT_DIR" = "$PWD" ] || exit 9\n'
        "srun -n 1 --mpi=pmix sh -c 'echo in step'\neval 'srun -n 2 true'\n"
    )
    (idle.folder / "it is").mkdir()
    job = idle.submit("job.sh", "hello")
    assert idle.call("wait", str(job)).returncode == 1  # the last srun fails
    assert idle.ok("logs", f"{job}.5") == f"fairlead: output goes to it is/job.sh_{job}_005.out\n"
    assert (idle.folder / f"it is/job.sh_{job}_005.out").read_text() == ("job.sh hello red kept 5 of 2\njob.sh 2 1\nin step\n")
    assert (idle.folder / "job.sh.5.err").read_text() == (
        "100 0 A unset\nfairlead: srun: starts one process, not 2: use mpirun -n 2, or torchrun --nproc-per-node 2\n"
    )


def test_a_script_that_names_no_variable_gets_those_of_a_login(idle, monkeypatch):
    for name in ("KEPT", "CONDA_PREFIX"):
        monkeypatch.setitem(idle.env, name, "/kept")
    (idle.folder / "job.sh").write_text(
        "#!/bin/sh\n#SBATCH --export=NONE --output missing/x.out --mem 100M\n"
        "echo ${KEPT-unset} ${CONDA_PREFIX-unset} $SLURM_NTASKS\n"
    )
    job = idle.submit("-q", "A", "job.sh")
    assert idle.call("wait", str(job)).returncode == 1
    assert "missing/x.out" in idle.call("logs", str(job)).stderr
    (idle.folder / "missing").mkdir()
    idle.ok("wait", idle.ok("rerun", str(job)).strip())
    assert (idle.folder / "missing/x.out").read_text() == "unset unset 1\n"


def test_the_count_of_public_scripts_is_the_one_of_the_page():
    accepted, refused, _ = count()
    said = (DOCS / "slurm.md").read_text()
    assert f"**{accepted} of 100**" in said
    assert {what: int(n) for n, what in re.findall(r"^\| ([0-9]+) \| `([a-z-]+)", said, re.MULTILINE)} == refused


SLURM = (DOCS / "slurm.md").read_text()
SLURM_ROWS = re.findall(r"^\| ([^|]*[^0-9| ]) \| (.*) \|.*\|$", SLURM, re.MULTILINE)[2:]


@pytest.mark.parametrize("row", SLURM_ROWS, ids=[row[0][:40] for row in SLURM_ROWS])
def test_the_page_about_slurm_is_true_line_by_line(tmp_path, monkeypatch, row):
    from typer.main import get_command

    from fairlead.cli.main import app

    monkeypatch.setattr("fairlead.client.notify.sendmail", lambda: "/usr/sbin/sendmail")
    theirs, ours = (re.findall(r"`([^`]+)`", cell) for cell in row)
    for line in ours:
        if line.startswith("fairlead "):
            name, *words = shlex.split(line)[1:]
            get_command(app).get_command(None, name).make_context(name, words)
    options = [line for line in theirs if line.startswith("--")]
    for k, line in enumerate(options):
        found = read(tmp_path, line)
        meant = [each for each in ours if each.startswith("--")]
        assert not found.warnings
        words = shlex.split(meant[min(k, len(meant) - 1)]) if meant else []
        more = [] if line.startswith("--export") else ["--export-all"]
        assert parsed(found.slurm) == parsed(["--name", "job.sh", *more, *words])
