"""What a caller may observe: the promises hold, and a response is objected to just where no run gives it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_check.evaluate import Space, State
from model_check.explore import Verdict, explore
from reef_ref.engines.interface import Generation, PauseMode
from reef_ref.engines.interface import Request as Asked
from reef_ref.engines.simulated import (
    SimulatedEngine,
    SimulatedSettings,
    Weights,
    run_simulated,
    write_checkpoint,
)
from reef_ref.engines.simulated.scheduler import SchedulerSettings
from spec.client import MUTANTS, SCOPES, Response, Terms, client, objections


def test_the_promises_hold() -> None:
    found = explore(client, SCOPES["smoke"])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert found.never == ()


@pytest.mark.parametrize("name", MUTANTS)
def test_services_that_break_a_promise(name: str) -> None:
    """Every promise has a service that breaks it."""
    wrong = MUTANTS[name]
    found = explore(wrong.build(), SCOPES["smoke"], only=[wrong.breaks])
    assert found.verdict is Verdict.VIOLATED
    assert {mutant.breaks for mutant in MUTANTS.values()} == set(client.properties)


LOADS = 3
Seen = tuple[Terms, Response]


def observed(space: Space, state: State) -> Iterator[Seen]:
    """What a caller has seen when the answer is complete: of its tokens, the first and the last one."""

    def value(name: str) -> int:
        return state[space.offsets[name]]

    if value("ended"):
        terms = Terms(bool(value("sharing")), bool(value("restarting")))
        first, last = value("first") - 1, value("last") - 1
        loads = ((first,), (first, last)) if first == last else ((first, last),)
        for each in loads:
            yield terms, Response(value("asked") - 1, value("released"), each, value("reused"), value("sent_back"))


def test_a_response_is_objected_to_just_where_no_run_gives_it() -> None:
    """The sentences and the protocol say the same, of every response with tokens of one load or of two."""
    space = Space(client, SCOPES["smoke"])
    states = set(space.initial_states())
    fringe = list(states)
    while fringe:
        found = {after for state in fringe for _, after in space.successors(state)} - states
        states |= found
        fringe = list(found)
    possible = {seen for state in states for seen in observed(space, state)}
    judged = 0
    for sharing, restarting in ((False, False), (False, True), (True, True)):
        terms = Terms(sharing, restarting)
        for asked, answered in itertools.combinations_with_replacement(range(LOADS), 2):
            for size, reused, sent_back in itertools.product((1, 2), (0, 1), (0, 1)):
                for loads in itertools.product(range(LOADS), repeat=size):
                    response = Response(asked, answered, loads, reused, sent_back)
                    assert (not objections(response, terms)) == ((terms, response) in possible), response
                    judged += 1
    assert judged == 3 * 6 * 4 * (LOADS + LOADS**2)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Response(1, 1, (0,), 0, 0), "token 0 is of load 0, and load 1 was released before the request was sent"),
        (Response(0, 0, (0, 1), 0, 1), "token 1 is of load 1, which was not released when it arrived"),
        (Response(0, 1, (1, 0), 0, 1), "token 1 is of load 0, and the one before it of load 1"),
        (
            Response(0, 1, (0, 1), 0, 0),
            "token 1 is of another load than the one before it, and the request was never sent back",
        ),
        (Response(0, 0, (0,), 7, 0), "7 tokens of the prompt were reused, and nothing is shared"),
    ],
)
def test_objections_are_sentences(response: Response, words: str) -> None:
    assert objections(response, Terms(sharing=False, restarting=True)) == (words,)


def test_an_error_says_nothing() -> None:
    assert objections(Response(0, 0, (), 0, 0), Terms(sharing=False, restarting=False)) == ()


PROMPT = tuple(range(1, 40))


def response_of(answer: Generation, asked: int, answered: int) -> Response:
    """What the answer of an engine says; its load ids end in a number."""
    loads = tuple(
        int(span.load_id.rpartition(":")[2]) - 1 for span in answer.spans for _ in range(span.start, span.end)
    )
    return Response(asked, answered, loads, answer.cached_tokens, answer.retractions)


@pytest.mark.parametrize(("mode", "flush"), [(PauseMode.RETRACT, True), (PauseMode.IN_PLACE, False)])
def test_an_engine_keeps_the_promises(mode: PauseMode, flush: bool, tmp_path: Path) -> None:
    """Responses before, over and after a publication."""
    shares = mode is PauseMode.RETRACT

    async def main() -> None:
        settings = SimulatedSettings(scheduler=SchedulerSettings(share_prefixes=shares))
        engine = SimulatedEngine(0, Weights(1, "a:1"), settings=settings)
        terms = Terms(sharing=shares, restarting=shares)
        before = [await engine.generate(Asked(input_ids=PROMPT, max_new_tokens=4)) for _ in range(2)]
        over = asyncio.create_task(engine.generate(Asked(input_ids=PROMPT, max_new_tokens=8)))
        await asyncio.sleep(0.055)
        await engine.pause(mode)
        if flush:
            await engine.flush()
        await engine.update(write_checkpoint(tmp_path, 2), "a:2")
        await engine.continue_generation()
        responses = [response_of(answer, 0, 0) for answer in before] + [response_of(await over, 0, 1)]
        assert len(set(responses[-1].loads)) == 2, "the request ran over the publication"
        after = await engine.generate(Asked(input_ids=PROMPT, max_new_tokens=4))
        responses.append(response_of(after, 1, 1))
        assert [objections(response, terms) for response in responses] == [()] * 4

    run_simulated(main())
