"""Tables at 80 columns: what must be read whole is, whatever stands beside it."""

import io

from rich.console import Console

from fairlead.cli.tables import log_table


def test_the_log_is_readable_with_a_long_refusal_in_it():
    entries = [
        {"at": 0.0, "by": "olga", "what": "drained node n1", "outcome": "done", "why": ""},
        {
            "at": 60.0,
            "by": "bob",
            "what": "POST /v1/jobs/1/cancel",
            "outcome": "refused",
            "why": "job 1 is " + "alice's " * 20,
        },
    ]
    out = io.StringIO()
    Console(file=out, width=80, highlight=False).print(log_table(entries))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["when", "who", "what"]
    assert any("1970" in line and "olga  drained node n1" in line for line in lines)
    assert any("bob" in line and "POST /v1/jobs/1/cancel" in line for line in lines)
    assert out.getvalue().count("alice's") == 20, "nothing is cut off"
