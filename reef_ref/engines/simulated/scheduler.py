"""The scheduler of one engine: a loop that launches a batch, then processes the result of the one before.

That order is *overlap*: while the device works on a batch, the host takes in what the last one sampled. So at any
moment one result may be under way, sampled by weights that are about to be replaced.

Who holds KV: a running request, a request between two chunks of its prompt, and whatever the result under way belongs
to. The flush refuses while anybody does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from reef_ref import events
from reef_ref.engines.interface import PauseMode, Region, Request
from reef_ref.engines.simulated.model import Kv, Weights, forward, next_token
from reef_ref.engines.simulated.radix import RadixTree

__all__ = ["Scheduler", "SchedulerSettings", "Work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Sizes in tokens and requests; `grammar_steps` is how many rounds a constraint takes to compile.

    `grammar_blocks_flush` is SGLang as it comes: a flush under a pause is refused while a constraint compiles, and
    compiles no further. The engine-side plugin lifts that, so it is off.
    """

    page_size: int = 2
    chunk: int = 8
    max_running: int = 4
    cache_capacity: int = 4096
    share_prefixes: bool = True
    grammar_steps: int = 3
    grammar_blocks_flush: bool = False


@dataclass(slots=True, eq=False)
class Work:
    """A request on its way. `output` is what the host has seen; `sampled` is on the device, one token ahead of it."""

    request: Request
    name: str
    finish: Callable[[Work], None]
    adapter: int = 0
    """The content of the request's adapter; 0 is none."""
    output: list[int] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    """For each output token, the load whose weights sampled it."""
    kv: list[Kv] = field(default_factory=list)
    sampled: int | None = None
    cached_tokens: int = 0
    retractions: int = 0
    grammar_left: int = 0
    done: bool = False

    @property
    def known(self) -> tuple[int, ...]:
        """The tokens whose KV has to be there before the next one can be sampled."""
        return (*self.request.input_ids, *self.output)


@dataclass(frozen=True, slots=True)
class Result:
    """What a batch sampled, on its way to the host: each token with the load that was there at the launch."""

    tokens: tuple[tuple[Work, int | None], ...]
    load_id: str
    prefill: bool


class Scheduler:
    """Queues, the cache and the weights of one engine. Nothing here waits; `step` is one round of the loop."""

    def __init__(self, settings: SchedulerSettings, weights: Weights, *, slot: int, tell: events.Teller) -> None:
        self._settings = settings
        self._slot = slot
        self._tell = tell
        self.weights = weights
        self.tree = RadixTree(settings.page_size, settings.cache_capacity)
        self.waiting: deque[Work] = deque()
        self.grammar: list[Work] = []
        self.running: list[Work] = []
        self.chunked: Work | None = None
        self.result: Result | None = None
        self.paused: PauseMode | None = None
        self.released: set[Region] = set()

    # Requests.

    def admit(self, work: Work) -> None:
        """Queue a request; one with a constraint waits for its compilation first."""
        self._tell(events.Admit, self._slot, work.name)
        if work.request.json_schema is not None:
            work.grammar_left = self._settings.grammar_steps
            self.grammar.append(work)
        else:
            self.waiting.append(work)

    @property
    def unfinished(self) -> tuple[Work, ...]:
        """Every request that was admitted and not answered."""
        chunked = () if self.chunked is None else (self.chunked,)
        return (*self.running, *chunked, *self.waiting, *self.grammar)

    def step(self) -> bool:
        """One round; whether anything was there to do. A paused engine does nothing, compilation included."""
        if self.paused is not None:
            return False
        compiling = bool(self.grammar)
        self._poll_grammar()
        previous, self.result = self.result, self._launch()
        if previous is not None:
            self._process(previous)
        return compiling or previous is not None or self.result is not None

    def _poll_grammar(self) -> None:
        for work in self.grammar:
            work.grammar_left -= 1
        self.waiting.extend(work for work in self.grammar if work.grammar_left <= 0)
        self.grammar = [work for work in self.grammar if work.grammar_left > 0]

    def _launch(self) -> Result | None:
        """Prefill one chunk of a prompt if there is room for another request; otherwise one token for all."""
        if self.chunked is None and self.waiting and len(self.running) < self._settings.max_running:
            self.chunked = self._begin(self.waiting.popleft())
        if self.chunked is not None:
            return self._prefill(self.chunked)
        if self.running:
            return self._decode()
        return None

    def _begin(self, work: Work) -> Work:
        """Take what the cache has of a prompt. At least one token is left to compute: something must be sampled."""
        if self._settings.share_prefixes:
            work.kv = self.tree.match(work.request.adapter, work.known[:-1])
        if work.retractions == 0:
            work.cached_tokens = len(work.kv)  # SGLang counts no reuse of a request that was ever retracted.
        if work.kv:
            made_by = tuple(sorted(work.kv[-1].made_by))
            self._tell(events.StartOnHit, self._slot, work.name, self.weights.load_id, len(work.kv), made_by)
        else:
            self._tell(events.Start, self._slot, work.name, self.weights.load_id)
        return work

    def _prefill(self, work: Work) -> Result:
        known, start = work.known, len(work.kv)
        self._compute(work, known[start : start + self._settings.chunk])
        if len(work.kv) < len(known):
            return Result(((work, None),), self.weights.load_id, prefill=True)
        self.chunked = None
        self.running.append(work)
        return Result(((work, self._sample(work)),), self.weights.load_id, prefill=True)

    def _decode(self) -> Result:
        tokens: list[tuple[Work, int | None]] = []
        for work in self.running:
            assert work.sampled is not None
            self._compute(work, (work.sampled,))
            tokens.append((work, self._sample(work)))
        return Result(tuple(tokens), self.weights.load_id, prefill=False)

    def _compute(self, work: Work, tokens: tuple[int, ...]) -> None:
        for token in tokens:
            work.kv.append(forward(work.kv[-1] if work.kv else None, token, self.weights, work.adapter))

    @staticmethod
    def _sample(work: Work) -> int:
        work.sampled = next_token(work.kv[-1])
        return work.sampled

    def _process(self, result: Result) -> None:
        """Take in a result: cache what a prefill made, append tokens, answer what is complete."""
        for work, token in result.tokens:
            if work.done:
                continue  # It was complete a round ago; the device did not know that yet.
            if result.prefill:
                self._cache(work, len(work.known))
            if token is None:
                continue
            work.output.append(token)
            work.loads.append(result.load_id)
            if len(work.output) >= work.request.max_new_tokens:
                self._finish(work)

    def _finish(self, work: Work) -> None:
        self._cache(work, len(work.known) - 1)
        work.done = True
        work.kv = []
        self.running.remove(work)
        self._tell(events.Finish, self._slot, work.name, tuple(dict.fromkeys(work.loads)))
        work.finish(work)

    def _cache(self, work: Work, length: int) -> None:
        if self._settings.share_prefixes:
            self.tree.insert(work.request.adapter, work.kv[:length])

    # Control.

    def pause(self, mode: PauseMode) -> None:
        """Stop. To retract, take the result under way in first; then every request gives its KV back and waits again.

        What is in the tree stays there, and stays matchable.
        """
        if mode is PauseMode.RETRACT:
            if self.result is not None:
                self._process(self.result)
                self.result = None
            chunked = [] if self.chunked is None else [self.chunked]
            for work in (*self.running, *chunked):
                work.kv, work.sampled = [], None
                work.retractions += 1
                self.waiting.append(work)
                self._tell(events.Retract, self._slot, work.name)
            self.running, self.chunked = [], None
        self.paused = mode

    def resume_generation(self) -> None:
        """Go on."""
        self.paused = None

    def busy_with(self) -> str | None:
        """What keeps a flush from succeeding, or none. Under a pause, requests that hold no KV may wait."""
        if self.running:
            return f"{len(self.running)} running"
        if self.chunked is not None:
            return "a prompt between two chunks"
        if self.result is not None:
            return "a result under way"
        if self.waiting and self.paused is None:
            return f"{len(self.waiting)} waiting"
        ignored = self.paused is PauseMode.RETRACT and not self._settings.grammar_blocks_flush
        if self.grammar and not ignored:
            return f"{len(self.grammar)} compiling"
        return None

    def flush(self) -> str | None:
        """Empty the tree; or leave it as it is and answer what was in the way."""
        busy = self.busy_with()
        if busy is None:
            self.tree.clear()
        return busy

    def release(self, regions: frozenset[Region]) -> None:
        """Give memory back; what the KV region held is gone."""
        self.released |= regions
        if Region.KV_CACHE in regions:
            self.tree.clear()
