"""What the simulator's kernels know of Python; see `fairlead.scheduler.kernel.declarations`."""

from fairlead.engines.kernel import declared as engine
from fairlead.scheduler.kernel.declarations import constants_of
from fairlead.scheduler.tables import NONE
from fairlead.simulate.kernel import line, tape

CONSTANTS = {
    "advance_constants": constants_of(tape),
    "in_line_constants": {**constants_of(line), "NONE": NONE, "RUNNING": engine.RUNNING},
}
TYPES = {"advance": {"Tape": tape.TAPE}, "in_line": {"Line": line.LINE}}
