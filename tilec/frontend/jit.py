"""`@tc.kernel`: tracing, compiling and launching on demand, each result kept for as long as it holds.

What specialises an object is gathered in one record, `Specialisation`; everything else about the arguments is only seen
at launch. Results are kept by specialisation and by the fingerprint of the function; objects also on disk (`cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilec import config
from tilec.compile import Compiled, compile
from tilec.errors import TilecError
from tilec.frontend import cache, schedules
from tilec.frontend.fingerprint import distinct, fingerprint
from tilec.frontend.signature import Binding, Const, Signature
from tilec.frontend.trace import definition, trace
from tilec.frontend.tracer import is_tracing
from tilec.ir import grid_order, machine
from tilec.ir.core import Program, ScalarType, TensorType
from tilec.ir.schedule import NAMED, GridOrder, Schedule, parse_schedule
from tilec.passes.dots import suggested_waves
from tilec.passes.grid_order import declare
from tilec.runtime import emulated, hip
from tilec.runtime.arguments import Argument, Executable
from tilec.target import target

if TYPE_CHECKING:
    from tilec.emulator.findings import Finding
    from tilec.register_map import RegisterMap

__all__ = ["Const", "CompiledKernel", "Kernel", "kernel"]

MOST_WAVES = 8  # what the compiler takes by itself
MAX_WAVES = 16  # 1024 threads
KEPT = 16  # compiled kernels with all their stages, megabytes each; what launches need is kept without end


@dataclass(frozen=True)
class Specialisation:
    """All that tells two objects of one kernel apart, apart from the source. Of the schedule's grid order only the
    kind: its numbers are arguments of a launch."""

    types: tuple[tuple[str, TensorType | ScalarType], ...]
    consts: tuple[tuple[str, Any], ...]
    arch: str
    schedule: Schedule
    waves: int | None


class Kernel:
    """A kernel function. Called with tensors it launches where they live: on a GPU, or for CPU memory on the
    emulator."""

    def __init__(self, function: Callable[..., Any], waves: int | None = None):
        self.function, self.name, self.waves = function, function.__name__, _checked_waves(waves, function)
        self.signature = Signature.of(function)
        self.schedules: dict[str, Schedule] = {}
        self._compiled: dict[Any, CompiledKernel] = {}
        self._executables: dict[Any, Executable] = {}
        self.__doc__, self.__name__, self.__wrapped__ = function.__doc__, self.name, function

    def __repr__(self) -> str:
        return f"<kernel {self.name}({', '.join(p.name for p in self.signature.parameters)})>"

    # -- schedules

    def schedule(
        self, *, waves: int | None = None, order: GridOrder | None = None
    ) -> Callable[[Callable[[Any], None]], Schedule]:
        """Decorator: a custom schedule of this kernel, known by its function's name."""

        def decorate(function: Callable[[Any], None]) -> Schedule:
            if function.__name__ in NAMED:
                raise TilecError(
                    f"a schedule named {function.__name__!r}",
                    where=definition(function),
                    limit=f"{', '.join(NAMED)} are tilec's own",
                    fix="give it another name",
                )
            built = schedules.build(function, _checked_waves(waves, function), order)
            self.schedules[built.name] = built
            return built

        return decorate

    def _schedule(self, given: Schedule | str | None, order: GridOrder | None = None) -> Schedule:
        if given is None:
            plan = schedules.simple()
        elif isinstance(given, str):
            plan = self.schedules.get(given) or parse_schedule(given)
        else:
            plan = given
        return plan if order is None else replace(plan, order=order)

    def specialise(self, binding: Binding, arch: str | None, schedule: Schedule | str | None) -> Specialisation:
        plan = self._schedule(schedule)
        return Specialisation(
            tuple(binding.types.items()),
            tuple(binding.consts.items()),
            arch or config.current().arch,
            replace(plan, order=GridOrder(plan.order.kind)),
            plan.waves or self.waves,
        )

    # -- what users call

    def trace(
        self,
        *args: Any,
        arch: str | None = None,
        schedule: Schedule | str | None = None,
        order: GridOrder | None = None,
        **kwargs: Any,
    ) -> Program:
        """The traced program for these arguments (tensors, or `tc.spec(...)` in their place)."""
        binding = self.signature.bind(args, kwargs, values_needed=False)
        return self._trace(self.specialise(binding, arch, self._schedule(schedule, order)))

    def compile(
        self,
        *args: Any,
        arch: str | None = None,
        schedule: Schedule | str | None = None,
        order: GridOrder | None = None,
        verify: bool | None = None,
        **kwargs: Any,
    ) -> CompiledKernel:
        """The kernel compiled for these arguments, with all its stages. Run-time scalars may be left out. `order`
        stands in for that of the schedule, here and in all launches."""
        plan = self._schedule(schedule, order)
        special = self.specialise(self.signature.bind(args, kwargs, values_needed=False), arch, plan)
        compiled = self._compile(special, config.current().verify if verify is None else verify)
        return compiled if compiled.order == plan.order else replace(compiled, order=plan.order)

    def run(
        self,
        *args: Any,
        on: str = "emulator",
        check: str = "all",
        seed: int = 0,
        landing: str = "late",
        arch: str | None = None,
        schedule: Schedule | str | None = None,
        order: GridOrder | None = None,
        **kwargs: Any,
    ) -> tuple[Finding, ...]:
        """Compiles and runs once; on the emulator, what its checks found is returned. See `CompiledKernel.run`."""
        binding, plan = self.signature.bind(args, kwargs), self._schedule(schedule, order)
        executable = self._executable(self.specialise(binding, arch or _architecture(binding), plan))
        return _run(executable, binding, plan.order, on, check, seed, landing)

    def __call__(
        self, *args: Any, schedule: Schedule | str | None = None, order: GridOrder | None = None, **kwargs: Any
    ) -> None:
        """Launches where the tensors live. On the emulator all checks are on, and what they find is an error."""
        if is_tracing():
            raise TilecError(f"kernel {self.name} is called inside a kernel", fix="make it a plain function of tiles")
        binding, plan = self.signature.bind(args, kwargs), self._schedule(schedule, order)
        executable = self._executable(self.specialise(binding, _architecture(binding), plan))
        on = "gpu" if binding.device.kind == "gpu" else "emulator"
        findings = _run(executable, binding, plan.order, on, "all", 0, "late")
        if findings:
            raise TilecError(
                f"kernel {self.name}: the emulator's checks found {len(findings)} faults",
                limit="\n".join(map(str, findings)),
            )

    # -- specialised and compiled

    def _key(self, special: Specialisation) -> Any:
        return fingerprint(self.function), special, distinct(special.consts)

    def _trace(self, special: Specialisation) -> Program:
        types, consts = dict(special.types), dict(special.consts)
        program = trace(self.function, types, consts, special.arch, special.waves or MOST_WAVES)
        program = program if special.waves else program.replace(waves=suggested_waves(program))
        return declare(program, special.schedule.order)

    def _compile(self, special: Specialisation, verify: bool, traced: Program | None = None) -> CompiledKernel:
        key = self._key(special), verify
        if key not in self._compiled:
            compiled = compile(traced or self._trace(special), special.arch, special.schedule, verify)
            order = special.schedule.order
            if len(self._compiled) >= KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = CompiledKernel(**vars(compiled), kernel=self, specialisation=special, order=order)
        return self._compiled[key]

    def _executable(self, special: Specialisation) -> Executable:
        """What a launch needs: from this process, from disk, or compiled now."""
        key = self._key(special)
        if key not in self._executables:
            program = self._trace(special)
            name = cache.key(program, special.arch, special.schedule)
            found = _stored(program, cache.load(name), special.arch)
            if found is None:
                found = Executable(
                    program, self._compile(special, config.current().verify, program).object, special.arch
                )
                cache.store(name, found.object)
            self._executables[key] = found
        return self._executables[key]


@dataclass(frozen=True, eq=False)
class CompiledKernel(Compiled):
    """A kernel compiled for one specialisation: a `Compiled` that knows its kernel, and so can run. `order` is the grid
    order of launches that name no other."""

    kernel: Kernel = field(kw_only=True, repr=False)
    specialisation: Specialisation = field(kw_only=True)
    order: GridOrder = field(kw_only=True)

    @cached_property
    def executable(self) -> Executable:
        return Executable(self.traced, self.object, self.arch)

    def explain(self, tile: str = "") -> str:
        """What became of a tile, by its name in the kernel's source, or of all tiles of the steady loop: layout, LDS,
        registers, clusters, waits."""
        from tilec.explain import explain

        return explain(self, tile)

    def register_map(self) -> RegisterMap:
        """Which tile lives in which vector registers, and when; `print` draws it."""
        from tilec.register_map import register_map

        virtual = self.stages["lower"]
        assert isinstance(virtual, machine.Program)
        return register_map(virtual)

    def run(
        self,
        *args: Any,
        on: str = "emulator",
        check: str = "all",
        seed: int = 0,
        landing: str = "late",
        order: GridOrder | None = None,
        **kwargs: Any,
    ) -> tuple[Finding, ...]:
        """Runs this very object on these arguments, in a grid order of the kind that it was compiled for.

        `on`: 'emulator' (CPU tensors) or 'gpu'. For the emulator, `check` is 'all', 'none' or names of checks; `seed`
        orders the waves, `landing` says when loads land ('late', 'early', 'random'); what the checks found is returned.
        """
        binding = self.kernel.signature.bind(args, kwargs, fixed=dict(self.specialisation.consts))
        order = order or self.order
        if order.kind != self.order.kind:
            raise TilecError(
                f"kernel {self.name} launched in grid order {order}",
                limit=f"it was compiled for order {self.order.kind!r}; its numbers may change, its kind can't",
                fix="compile it with this order, or call the kernel itself",
            )
        return _run(self.executable, binding, order, on, check, seed, landing)


def launch_values(binding: Binding, order: GridOrder, arch: str) -> Mapping[str, Argument]:
    """All arguments of a launch: the caller's, and the numbers of the grid order."""
    return {**binding.values, **grid_order.arguments(order, target(arch).chiplets)}


def _run(
    executable: Executable, binding: Binding, order: GridOrder, on: str, check: str, seed: int, landing: str
) -> tuple[Finding, ...]:
    device, values = binding.device, launch_values(binding, order, executable.arch)
    if on == "emulator":
        if device.kind != "cpu":
            raise TilecError(
                "the emulator runs on CPU memory",
                limit=f"the tensors live on {device}",
                fix="move them to the CPU, or run on='gpu'",
            )
        return emulated.run(executable, values, checks=check, seed=seed, landing=landing).findings
    if on == "gpu":
        if device.kind != "gpu":
            raise TilecError(
                "a GPU can't reach tensors in CPU memory", fix="move them to the GPU, or run on='emulator'"
            )
        hip.launch(executable, values, device)
        return ()
    raise TilecError(f"on={on!r}", limit="a kernel runs on 'emulator' or 'gpu'")


def _architecture(binding: Binding) -> str:
    """That of the device where the tensors live; for the emulator the configured one."""
    return hip.architecture(binding.device) if binding.device.kind == "gpu" else config.current().arch


def _stored(program: Program, content: bytes | None, arch: str) -> Executable | None:
    """An object from disk, if it is whole and fits the program."""
    if content is None:
        return None
    try:
        found = Executable(program, content, arch)
        return found if found.code else None
    except TilecError:
        return None


def kernel(function: Callable[..., Any] | None = None, *, waves: int | None = None) -> Any:
    """Decorator: `@tc.kernel` or `@tc.kernel(waves=8)`. `waves` is the size of a workgroup unless the schedule says
    otherwise."""
    if function is None:
        return lambda f: Kernel(f, waves)
    return Kernel(function, waves)


def _checked_waves(waves: int | None, function: Callable[..., Any]) -> int | None:
    if waves is None:
        return None
    if not isinstance(waves, int) or not 1 <= waves <= MAX_WAVES:
        raise TilecError(
            f"{function.__name__} with waves={waves!r}",
            where=definition(function),
            limit=f"a workgroup has 1 to {MAX_WAVES} waves",
        )
    return waves
