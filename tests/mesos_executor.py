"""A custom executor with the real pymesos: what a task's data says, it does; what its framework says, it says back."""

import base64
import os
import sys
import threading
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from bench import real_pymesos

pymesos = real_pymesos.load()


class Executor(pymesos.Executor):
    """A task with the data ``wait`` goes on until it is killed, ``die`` ends the executor, ``eat 100`` takes 100 MiB for good."""

    def launchTask(self, driver, task):
        does = base64.b64decode(task.get("data", "")).decode()
        if does == "die":
            os._exit(3)
        self.say(driver, task["task_id"], "TASK_RUNNING", data=base64.b64encode(str(os.getpid()).encode()).decode())
        if does.startswith("eat "):
            self.eaten = b"x" * (int(does[4:]) << 20)
        if does != "wait":
            self.say(driver, task["task_id"], "TASK_FINISHED", message=f"{does} is done")

    def launchTaskGroup(self, driver, tasks):
        for task in tasks:
            self.say(driver, task["task_id"], "TASK_RUNNING", message=f"one of {len(tasks)}")

    def killTask(self, driver, task_id):
        self.say(driver, task_id, "TASK_KILLED")

    def frameworkMessage(self, driver, message):
        # pymesos waits for an answer in the thread that reads the stream
        driver.sendFrameworkMessage(message)

    def say(self, driver, task_id, state, **more):
        driver.sendStatusUpdate({"task_id": task_id, "state": state, **more})


if __name__ == "__main__":
    driver = pymesos.MesosExecutorDriver(Executor())
    threading.stack_size(2**18)
    driver.run()
