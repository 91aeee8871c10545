"""A fair-scheduler.xml as fairlead.toml: each line names its source, and settings without a counterpart are listed.

docs/yarn.md maps the settings. YARN and fairlead inherit the same settings down the tree, except the right to submit: YARN adds
the grants of all queues above, fairlead takes the nearest list. So the lists are written out.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.imports.imported import Imported, document, toml_key
from fairlead.imports.yarn_amounts import Amounts, drops_fractions, no_more_than, read_amounts, read_people, written
from fairlead.imports.yarn_file import Allocations, Rule, Setting, YarnQueue, policy_of, read_allocations, read_site
from fairlead.model.documents import LONGEST_GRACE, LONGEST_TIMEOUT
from fairlead.model.quantity import Percent
from fairlead.model.specs import LEAST_WEIGHT, USERS
from fairlead.plain_text import plain

LONGEST_OF_YARN = 2**63
"""Exclusive upper bound of YARN's times, in seconds."""
SITE = "yarn.scheduler.fair."
NOT_HERE = {
    **dict.fromkeys(("maxAMShare", "queueMaxAMShareDefault"), "fairlead has no application masters"),
    **dict.fromkeys((
        "reservation", "aclAdministerReservations", "aclListReservations", "aclSubmitReservations", "reservation-agent",
        "reservation-policy", "reservation-planner",
    ), "queues cannot be reserved in advance"),
}  # fmt: skip
ROUNDS = re.compile(
    r"yarn\.scheduler\.(increment|minimum)-allocation-.*|yarn\.resource-types\..*\.(increment|minimum)-allocation"
)
BOUNDS_OF_TYPES = re.compile(r"yarn\.resource-types\..*\.maximum-allocation")
LONGEST_NAME = 100
SITE_READ = {
    "preemption", "user-as-default-queue", "allow-undeclared-pools", "waitTimeBeforeKill", "allocation.file",
}  # fmt: skip


@dataclass
class _Block:
    """A table of the document: header and lines."""

    header: str
    lines: list[str] = field(default_factory=list)

    def put(self, key: str, value: str, source: Setting | str) -> None:
        comment = source if isinstance(source, str) else f"line {source.line}: {source.word}"
        self.lines.append(f"{key} = {value}  # {comment}")


@dataclass
class _Import:
    """An import in progress."""

    file: Allocations
    site: dict[str, Setting]
    site_path: Path | None
    left_out: list[str] = field(default_factory=list)
    blocks: list[_Block] = field(default_factory=list)
    settings: _Block = field(default_factory=lambda: _Block("[scheduler]"))

    def leave_out(self, setting: Setting, why: str) -> None:
        note = f"line {setting.line}: {plain(setting.word)}: {plain(why)}"
        if note not in self.left_out:
            self.left_out.append(note)

    def leave_out_of_site(self, setting: Setting, why: str) -> None:
        self.left_out.append(f"yarn-site.xml: {plain(setting.word)} = {plain(setting.text)}: {plain(why)}")

    def amounts(self, setting: Setting) -> Amounts:
        """Read amounts; on an error, record it and return none."""
        try:
            return read_amounts(setting.text)
        except ValueError as error:
            self.file.wrong(setting.line, f"{setting.word}: {error}")
            return {}

    def number(self, setting: Setting, kind: type[int] | type[float], most: int = 10**9) -> float | None:
        """Read a number from 0 to below `most`, else return None: a number is left out; other text is an error, as for YARN."""
        pattern = r"[+-]?\d+" if kind is int else r"[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?)"
        if not re.fullmatch(pattern, setting.text, re.ASCII):
            self.file.wrong(setting.line, f"{setting.word}: {setting.text!r} is not a number")
            return None
        found = kind(setting.text)
        if 0 <= found < most:
            return found
        self.leave_out(setting, f"{setting.text} is not from 0 to {most:,}: ignored")
        return None

    def is_on(self, name: str, default: bool) -> bool:
        setting = self.site.get(name)
        return default if setting is None else setting.text.lower() == "true"


def import_yarn(path: Path, site: Path | None = None) -> Imported:
    """Convert a fair-scheduler.xml, and optionally a yarn-site.xml, to a fairlead.toml.

    Raises DocumentError with the lines of all errors, if YARN refuses the file or it cannot be read.
    """
    found = _Import(read_allocations(path), read_site(site) if site else {}, site)
    default = found.file.defaults.get("defaultQueueSchedulingPolicy")
    if default and policy_of(default) == "fifo":
        found.file.wrong(default.line, "YARN accepts fifo only for leaf queues")
    _drop_refused(found, found.file.root)
    rules = _rules(found)
    _declare_defaults(found, rules)
    submit = _submitters(found, found.file.root, None)
    _write_root(found, rules, submit)
    for queue in found.file.root.children:
        _write_queue(found, queue, submit, rules)
    _write_placement(found, rules)
    _write_settings(found)
    _note_the_rest(found)
    found.file.check()
    source = f"{plain(path.name)}{f' and {plain(site.name)}' if site else ''} of YARN's fair scheduler"
    unknown = [f"line {setting.line}: {plain(setting.word)}" for setting in found.file.unknown]
    notes = {"Left out": found.left_out, "YARN itself does not know": unknown}
    blocks = ["\n".join([block.header, *block.lines]) for block in found.blocks]
    return Imported(document(source, notes, blocks), found.left_out)


def _policy(found: _Import, queue: YarnQueue) -> str:
    """Return the policy of a queue: its own if it is one of YARN's, else the default, else fair."""
    for setting in (queue.settings.get("schedulingPolicy"), found.file.defaults.get("defaultQueueSchedulingPolicy")):
        policy = policy_of(setting) if setting else None
        if policy:
            return policy
        if setting:
            found.leave_out(setting, f"{setting.text!r} is not one of YARN's own policies, fair, drf and fifo: the default holds")
    return "fair"


def _drop_refused(found: _Import, queue: YarnQueue) -> None:
    """Leave out the queues that YARN itself refuses: drf below fair, and fifo above other queues."""
    own = queue.settings.get("schedulingPolicy")
    if not queue.path and own and _policy(found, queue) == "fifo":
        found.file.wrong(own.line, "YARN accepts fifo only for leaf queues")
    kept = []
    for child in queue.children:
        policy, line = _policy(found, child), Setting("", child.line, f"queue {child.path!r}")
        if policy == "drf" and _policy(found, queue) == "fair":
            found.leave_out(line, "YARN refuses it, and all below it: its policy is drf, and its parent's is fair")
        elif policy == "fifo" and _is_inner(child):
            found.leave_out(line, "YARN refuses it, and all below it: its policy is fifo, which only leaf queues can have")
        else:
            _drop_refused(found, child)
            kept.append(child)
    queue.children = kept


def _is_inner(queue: YarnQueue) -> bool:
    return bool(queue.children) or queue.is_parent or not queue.path


def _rules(found: _Import) -> list[Rule]:
    if found.file.rules is not None:
        return found.file.rules
    create = found.is_on(f"{SITE}allow-undeclared-pools", default=True)
    first = [Rule("specified", 0, create)]
    first += [Rule("user", 0, create)] if found.is_on(f"{SITE}user-as-default-queue", default=True) else []
    return first if first[-1].is_terminal else [*first, Rule("default", 0, create=True)]


def _declare_defaults(found: _Import, rules: list[Rule]) -> None:
    """Add the queues that exist without being declared: root.default, and those that rules name."""
    named = [("default", False), *((rule.queue, False) for rule in rules if rule.name == "default")]
    named += [(rule.inner.queue, True) for rule in rules if rule.inner and rule.inner.name == "default"]
    for name, is_parent in named:
        above = found.file.root
        for depth in range(1, name.count("/") + 2):
            path = "/".join(name.split("/")[:depth])
            there = next((child for child in above.children if child.path == path), None)
            if there is None:
                there = YarnQueue(path, 0)
                above.children.append(there)
            above = there
        above.is_parent |= is_parent


def _makes_queues(rules: list[Rule], queue: YarnQueue) -> bool:
    """Return True if rules create queues directly below a queue."""
    creating = {rule.name for rule in rules if rule.create}
    if "specified" in creating or queue.is_parent or "maxChildResources" in queue.settings:
        return True
    if queue.path:
        return "nestedUserQueue" in creating and bool(queue.children)
    return bool(creating & {"user", "primaryGroup"})


def _write_root(found: _Import, rules: list[Rule], submit: list[str]) -> None:
    root = found.file.root
    block = _Block('[[queue]]\nname = "/"')
    found.blocks.append(block)
    _put_policy(found, block, root)
    for word in ("minResources", "maxResources", "weight"):
        if word in root.settings:
            found.leave_out(root.settings[word], "the root has the whole cluster")
    if "maxContainerAllocation" in root.settings:
        why = "YARN ignores it for the root too; see yarn.scheduler.maximum-allocation"
        found.leave_out(root.settings["maxContainerAllocation"], why)
    _put_apps(found, block, root.settings.get("maxRunningApps"))
    _put_largest(found, block)
    _put_people(found, block, root, submit)
    _put_preemption(found, block, root)
    _leave_out_unknown_here(found, root)
    if _makes_queues(rules, root):
        _write_star(found, root, submit)


def _write_queue(found: _Import, queue: YarnQueue, above: list[str], rules: list[Rule]) -> None:
    settings, defaults = queue.settings, found.file.defaults
    where = f"line {queue.line}" if queue.line else "YARN always has it" if queue.path == "default" else "a rule names it"
    block = _Block(f"[[queue]]  # {where}\nname = {json.dumps(queue.path)}")
    found.blocks.append(block)
    inner = _is_inner(queue) and (bool(queue.children) or _makes_queues(rules, queue))
    if inner or _policy(found, queue) != "fifo":
        _put_policy(found, block, queue, is_leaf=not inner)
    if "weight" in settings:
        weight = found.number(settings["weight"], float)
        if weight is not None and 0 < weight < LEAST_WEIGHT:
            found.leave_out(settings["weight"], f"less than {LEAST_WEIGHT:g}, the least weight here other than 0")
        if weight is not None:
            block.put("weight", f"{max(weight, LEAST_WEIGHT) if weight else 0:.12g}", settings["weight"])
    most = settings.get("maxResources") or defaults.get("queueMaxResourcesDefault")
    limit = found.amounts(most) if most else {}
    if "minResources" in settings:
        declared = found.amounts(settings["minResources"])
        least = no_more_than(declared, limit)
        bounded = ", which the maximum bounds" * (least != declared)
        block.put("guarantee", written(least), _source(settings["minResources"]) + bounded)
    if most:
        block.put("limit", written(limit), _source(most))
    if "maxContainerAllocation" in settings:
        largest = found.amounts(settings["maxContainerAllocation"])
        if any(isinstance(amount, Percent) for amount in largest.values()):
            found.leave_out(settings["maxContainerAllocation"], "the largest task cannot be a percentage here: write amounts")
        else:
            block.put("largest_task", written(largest), _source(settings["maxContainerAllocation"]))
    _put_apps(found, block, settings.get("maxRunningApps") or defaults.get("queueMaxAppsDefault"))
    submit = _submitters(found, queue, above)
    _put_people(found, block, queue, submit)
    _put_preemption(found, block, queue)
    _leave_out_unknown_here(found, queue)
    if inner and _makes_queues(rules, queue):
        _write_star(found, queue, submit)
    for child in queue.children:
        _write_queue(found, child, submit, rules)


def _source(setting: Setting) -> str:
    """Return the source of amounts, with a note if YARN drops their fractions."""
    return f"line {setting.line}: {setting.word}" + ", whose fractions YARN drops" * drops_fractions(setting.text)


def _write_star(found: _Import, queue: YarnQueue, submit: list[str]) -> None:
    """Write the table of the queues that are created on demand below a queue."""
    defaults = found.file.defaults
    name = f"{queue.path}/*".lstrip("/")
    block = _Block(f'[[queue]]  # queues created on demand\nname = "{name}"')
    most = queue.settings.get("maxChildResources") or defaults.get("queueMaxResourcesDefault")
    if most:
        block.put("limit", written(found.amounts(most)), _source(most))
    _put_apps(found, block, defaults.get("queueMaxAppsDefault"))
    block.put("submit", json.dumps(submit), "as in its parent: by default each is only for the person of its name")
    found.blocks.append(block)


def _put_policy(found: _Import, block: _Block, queue: YarnQueue, is_leaf: bool = False) -> None:
    """Write the policy. A fair leaf is fair between users here, and each user's jobs go in order; in YARN it is between jobs."""
    setting = queue.settings.get("schedulingPolicy") or found.file.defaults.get("defaultQueueSchedulingPolicy")
    where = f"line {setting.line}: {setting.word}" if setting else "YARN's default"
    if is_leaf:
        block.put("order", '"fair"', f"{where}, between users: a user's jobs go by priority, then by submission")
    block.put("policy", f'"yarn-{_policy(found, queue)}"', where)


def _put_apps(found: _Import, block: _Block, setting: Setting | None) -> None:
    if setting and (number := found.number(setting, int)) is not None:
        block.put("max_jobs", str(number), setting)


def _put_largest(found: _Import, block: _Block) -> None:
    """Write the largest container of all, from yarn-site.xml."""
    words = {"memory-mb": "yarn.scheduler.maximum-allocation-mb", "vcores": "yarn.scheduler.maximum-allocation-vcores"}
    amounts: Amounts = {}
    there = {resource: found.site[word] for resource, word in words.items() if word in found.site}
    for resource, setting in there.items():
        try:
            amounts |= read_amounts(f"{resource}={setting.text}")
        except ValueError as error:
            assert found.site_path is not None
            found.file.faults.append((found.site_path, setting.line, f"{setting.word}: {error}"))
    if there:
        block.put("largest_task", written(amounts), f"yarn-site.xml: {', '.join(setting.word for setting in there.values())}")


def _checks_people(found: _Import) -> bool:
    return found.is_on("yarn.acl.enable", default=found.site_path is None)


def _submitters(found: _Import, queue: YarnQueue, above: list[str] | None) -> list[str]:
    """Return who may submit to a queue: those that it names, and those who may in the queues above."""
    if not _checks_people(found):
        return ["*"]
    own = read_people(queue.settings["aclSubmitApps"].raw)[0] if "aclSubmitApps" in queue.settings else None
    if own is None and above is None:
        return ["*"]
    both = list(dict.fromkeys([*(above or []), *(own or [])]))
    return ["*"] if "*" in both else both


def _put_people(found: _Import, block: _Block, queue: YarnQueue, submit: list[str]) -> None:
    if not _checks_people(found):
        if not queue.path:
            block.put("submit", '["*"]', "yarn-site.xml: without yarn.acl.enable everybody may")
        return
    for word in ("aclSubmitApps", "aclAdministerApps"):
        if word in queue.settings:
            setting = queue.settings[word]
            names, bad = read_people(setting.raw)
            for name in bad:
                found.leave_out(setting, f"{name!r} cannot be an account or group here")
            if word == "aclSubmitApps":
                block.put("submit", json.dumps(submit), setting)
            elif names:
                block.put("admin", json.dumps(names), setting)
    if not queue.path and "aclSubmitApps" not in queue.settings:
        block.put("submit", json.dumps(submit), "YARN's default; it holds in all queues below")


def _put_preemption(found: _Import, block: _Block, queue: YarnQueue) -> None:
    settings, defaults = dict(queue.settings), found.file.defaults
    if not queue.path:
        for word in ("MinSharePreemptionTimeout", "FairSharePreemptionTimeout", "FairSharePreemptionThreshold"):
            if f"default{word}" in defaults:
                settings.setdefault(word[0].lower() + word[1:], defaults[f"default{word}"])
        if "minSharePreemptionTimeout" not in settings:
            block.put("guarantee_timeout", '"never"', "YARN's default")
    for word, key in (("minSharePreemptionTimeout", "guarantee_timeout"), ("fairSharePreemptionTimeout", "fair_share_timeout")):
        if word in settings:
            seconds = found.number(settings[word], int, LONGEST_OF_YARN)
            if seconds is not None:
                block.put(key, f'"{seconds}s"' if seconds <= LONGEST_TIMEOUT else '"never"', settings[word])
    if "fairSharePreemptionThreshold" in settings:
        threshold = settings["fairSharePreemptionThreshold"]
        part = found.number(threshold, float)
        if part is not None:
            block.put("fair_share_threshold", f"{min(1.0, part):g}", threshold)
    if "allowPreemptionFrom" in settings and settings["allowPreemptionFrom"].text.lower() == "false":
        block.put("revocable", "false", settings["allowPreemptionFrom"])
    wait = found.site.get(f"{SITE}waitTimeBeforeKill")
    if wait and not queue.path:
        if re.fullmatch(r"\d{1,9}", wait.text, re.ASCII) and int(wait.text) <= 1000 * LONGEST_GRACE:
            block.put("grace", f'"{int(wait.text) / 1000:g}s"', f"yarn-site.xml: {wait.word}")
        else:
            found.leave_out_of_site(wait, f"not a grace period from 0 to {LONGEST_GRACE:g} s")


def _leave_out_unknown_here(found: _Import, queue: YarnQueue) -> None:
    for word, why in NOT_HERE.items():
        if word in queue.settings:
            found.leave_out(queue.settings[word], why)
    if "maxChildResources" in queue.settings and not _is_inner(queue):
        found.leave_out(queue.settings["maxChildResources"], "it is a leaf, which has no queues below it")


def _write_placement(found: _Import, rules: list[Rule]) -> None:
    for rule in rules:
        where = f"line {rule.line}: {rule.name}" if rule.line else f"YARN's own rules: {rule.name}"
        if rule.name == "reject":
            if len(rules) == 1:
                found.leave_out(Setting("", rule.line, "reject"), "without another rule, jobs go to the queue that they name")
            continue
        found.blocks.append(_Block(f"[[placement]]  # {where}", _rule_lines(rule.inner or rule, nested=rule.inner is not None)))
        if rule.inner:
            found.blocks[-1].lines += ["own = true", *["create_own = false"] * (not rule.create)]
            if rule.inner.create and rule.inner.name in ("specified", "primaryGroup"):
                why = f"users get queues below the queue that {rule.inner.name} finds only if that one is declared here"
                found.leave_out(Setting("", rule.line, rule.name), why)


def _rule_lines(rule: Rule, nested: bool) -> list[str]:
    by = {"specified": "asked", "user": "user", "primaryGroup": "group", "secondaryGroupExistingQueue": "groups"}
    lines = [f"queue = {json.dumps(rule.queue)}" if rule.name == "default" else f'by = "{by[rule.name]}"']
    if rule.name == "specified":
        lines.append('not_asked = ["default"]')
    elif rule.name != "default":
        lines.append('dot = "_dot_"')
    create = rule.name == "default" or (rule.create and not nested and rule.name != "secondaryGroupExistingQueue")
    return lines + ["create = false"] * (not create)


def _write_settings(found: _Import) -> None:
    operators = found.site.get("yarn.admin.acl")
    if operators:
        names, bad = read_people(operators.raw)
        for name in bad:
            found.left_out.append(f"yarn-site.xml: {operators.word}: {name!r} cannot be an account or group here")
        top = _Block("# who operates the scheduler")
        top.put("operators", json.dumps(names), f"yarn-site.xml: {operators.word}")
        found.blocks.insert(0, top)
    if found.site_path and not found.is_on(f"{SITE}preemption", default=False):
        found.settings.put("revoke", "false", f"yarn-site.xml: {SITE}preemption is not on")
    people = {USERS: found.file.defaults["userMaxAppsDefault"]} if "userMaxAppsDefault" in found.file.defaults else {}
    for name, setting in found.file.users.items():
        if not 1 <= len(name) <= LONGEST_NAME or name == USERS:
            found.leave_out(setting, f"user {name[:LONGEST_NAME]!r}: not a user's name here")
        else:
            people[name] = setting
    bounds = {name: (found.number(setting, int), setting) for name, setting in people.items()}
    some = {name: (most, setting) for name, (most, setting) in bounds.items() if most is not None}
    if some:
        most = ", ".join(f"{toml_key(name)} = {most}" for name, (most, _) in some.items())
        where = ", ".join(f"line {setting.line}: {setting.word}" for _, setting in some.values())
        found.settings.put("max_jobs_of", f"{{ {most} }}", where)
    if found.settings.lines:
        found.blocks.append(found.settings)


def _note_the_rest(found: _Import) -> None:
    for word, setting in found.file.defaults.items():
        if word in NOT_HERE:
            found.leave_out(setting, NOT_HERE[word])
    for word, setting in found.site.items():
        if word.startswith(SITE) and word.removeprefix(SITE) not in SITE_READ:
            found.leave_out_of_site(setting, "it has no counterpart here")
        elif ROUNDS.fullmatch(word):
            found.leave_out_of_site(setting, "requests are not rounded up here")
        elif BOUNDS_OF_TYPES.fullmatch(word):
            found.leave_out_of_site(setting, "write it as largest_task of the queues")
