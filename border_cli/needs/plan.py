"""What a run needs against what there is, before it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from border_cli.core.config import RunConfig
from border_cli.core.errors import ConfigError
from border_cli.core.interfaces import Agent
from border_cli.core.machine import Room, address_rooms, free_disk, memory_for, memory_rooms
from border_cli.core.spaces import EnvSpec
from border_cli.core.threads import available_cores
from border_cli.core.words import size
from border_cli.needs.disk import disk_needs, on_disk
from border_cli.needs.memory import memory_needs
from border_cli.needs.sizes import AgentSizes, Need, agent_sizes, replay_sizes

Parts: TypeAlias = list[tuple[Need, int]]  # with their bytes

CAPACITY = "replay_buffer.capacity"
MENTIONED = 0.02  # of all that is needed; what is less goes without its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run that shall begin."""

    config: RunConfig
    run_dir: Path
    spec: EnvSpec
    agent: AgentSizes
    name: str = "the run"
    cores: int = 1
    held: int = 0  # bytes that are in its run directory already

    @property
    def memory(self) -> list[Need]:
        """What it needs of memory at most, beside what this process holds."""
        replay = replay_sizes(self.config, self.spec)
        return memory_needs(
            self.config, self.spec, agent=self.agent, replay=replay, cores=self.cores
        )

    @property
    def disk(self) -> list[Need]:
        """What its run directory takes at most."""
        replay = replay_sizes(self.config, self.spec)
        return disk_needs(self.config, agent=self.agent, replay=replay)

    @property
    def memory_nbytes(self) -> int:
        """Of all processes together."""
        return sum(each.nbytes for each in self.memory)

    @property
    def reserved_nbytes(self) -> int:
        """Of the learner's address space."""
        return sum(each.reserved for each in self.memory)

    @property
    def disk_nbytes(self) -> int:
        """Beside what is there already."""
        return max(0, sum(each.nbytes for each in self.disk) - self.held)

    def with_capacity(self, rows: int) -> Plan:
        """The same with a replay buffer of at most so many rows."""
        smaller = min(rows, self.config.replay_buffer.capacity)
        replay_buffer = replace(self.config.replay_buffer, capacity=smaller)
        return replace(self, config=replace(self.config, replay_buffer=replay_buffer))


def plan(
    config: RunConfig, run_dir: Path, built: tuple[EnvSpec, Agent], name: str = "the run"
) -> Plan:
    """Counts what was built for the rehearsal; it need not be kept."""
    spec, agent = built
    sizes = sizes_of(config, agent)
    return Plan(
        config=config,
        run_dir=run_dir,
        spec=spec,
        agent=sizes,
        name=name,
        cores=available_cores(),
        held=on_disk(run_dir) if config.resume is not None else 0,
    )


def sizes_of(config: RunConfig, agent: Agent) -> AgentSizes:
    """Raises ConfigError where not even a copy of its weights fits into memory."""
    what = "the agent's weights and a copy of them do not fit in memory"
    with memory_for(what, config.agent.taking_memory(), ConfigError):
        return agent_sizes(agent)


def refuse_unmet(
    plans: Sequence[Plan],
    *,
    memory: Sequence[Room] | None = None,
    addresses: Sequence[Room] | None = None,
    disk: Callable[[Path], Room] = free_disk,
) -> None:
    """Raises ConfigError where memory or disk are too small for these runs, one after another.

    `memory` and `addresses` are what there is; by default this machine's.
    """
    if not plans:
        return
    rooms = memory_rooms() if memory is None else memory
    _refuse_memory(max(plans, key=lambda each: each.memory_nbytes), rooms, "nbytes")
    rooms = address_rooms() if addresses is None else addresses
    _refuse_memory(max(plans, key=lambda each: each.reserved_nbytes), rooms, "reserved")
    _refuse_disk(plans, disk(plans[0].run_dir))


def refuse_no_room(name: str, needs: Sequence[Need]) -> None:
    """The same for what is no run: `name` is what needs the memory of this process."""
    _refuse_parts(name, [(each, each.nbytes) for each in needs], memory_rooms())
    _refuse_parts(name, [(each, each.reserved) for each in needs], address_rooms())


def _refuse_memory(plan: Plan, rooms: Sequence[Room], which: str) -> None:
    def fitting(room: Room) -> int | None:
        def enough(rows: int) -> bool:
            needs = plan.with_capacity(rows).memory
            return sum(int(getattr(each, which)) for each in needs) <= room.nbytes

        return _fitting([plan], enough)

    parts = [(each, int(getattr(each, which))) for each in plan.memory]
    _refuse_parts(plan.name, parts, rooms, fitting)


def _refuse_parts(
    name: str,
    parts: Parts,
    rooms: Sequence[Room],
    fitting: Callable[[Room], int | None] = lambda _: None,
) -> None:
    """`fitting` gives the capacity of the replay buffer with which a room would do."""
    if not rooms:
        return
    room = min(rooms, key=lambda each: each.nbytes)
    needed = sum(nbytes for _, nbytes in parts)
    if needed <= room.nbytes:
        return
    raise ConfigError(
        f"{name} needs {size(needed)} of memory, but {size(room.nbytes)} is available "
        f"({room.limit}): {_listed(parts)}. To reduce it: {_smaller(parts, fitting(room))}"
    )


def _refuse_disk(plans: Sequence[Plan], room: Room) -> None:
    needed = sum(each.disk_nbytes for each in plans)
    if needed <= room.nbytes:
        return
    largest = max(plans, key=lambda each: each.disk_nbytes)
    parts = [(each, each.nbytes) for each in largest.disk]

    def enough(rows: int) -> bool:
        return sum(each.with_capacity(rows).disk_nbytes for each in plans) <= room.nbytes

    who, listed = largest.name, _listed(parts)
    if len(plans) > 1:
        who, listed = f"the sweep of {len(plans)} jobs", f"the largest is {largest.name}, {listed}"
    if any(each.held for each in plans):
        listed += f"; {size(sum(each.held for each in plans))} is already written"
    raise ConfigError(
        f"{who} writes up to {size(needed)}, but {size(room.nbytes)} is free ({room.limit}): "
        f"{listed}. To reduce it: {_smaller(parts, _fitting(plans, enough))}; or set run_dir to "
        "another disk"
    )


def _large(parts: Parts) -> Parts:
    """Those that count, by their size."""
    least = MENTIONED * sum(nbytes for _, nbytes in parts)
    return sorted((each for each in parts if each[1] >= least), key=lambda each: -each[1])


def _listed(parts: Parts) -> str:
    """The parts by their size; the small ones together."""
    large = _large(parts)
    said = [
        f"{need.what} {size(nbytes)}" + (f" ({need.because})" if need.settings else "")
        for need, nbytes in large
    ]
    rest = sum(nbytes for _, nbytes in parts) - sum(nbytes for _, nbytes in large)
    return ", ".join([*said, f"other {size(rest)}"] if rest else said)


def _smaller(parts: Parts, capacity: int | None) -> str:
    """A capacity that would do, and the settings behind the parts that count."""
    found = [each for need, _ in _large(parts) for each in need.settings.items()]
    names = [f"{name}=false" if value == "true" else name for name, value in found]
    if capacity is not None:
        names = [each for each in names if each != CAPACITY]
        names.insert(0, f"{CAPACITY}={capacity}")
    return ", ".join(dict.fromkeys(names))


def _fitting(plans: Sequence[Plan], enough: Callable[[int], bool]) -> int | None:
    """The largest capacity that is enough, in two digits; None where none is allowed and enough."""
    low = max(each.config.trainer.warmup_period for each in plans)
    low, high = max(1, low), max(each.config.replay_buffer.capacity for each in plans)
    if low > high or not enough(low):
        return None
    least = low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    step = int(10 ** max(0, len(str(low)) - 2))
    return max(least, low // step * step)
