"""What a caller may observe: which load each token of a response came from, and what reuse means.

For readers who know nothing of markers. One service releases loads, one after the other; a caller sends a request and
gets tokens, each labelled with a load, how many tokens of the prompt were reused, and how often the request was sent
back to the queue. The promises:

* Tokens come from loads that were released: not older than when the request was sent, not newer than when the last
  token arrived, and never older than the token before.
* Where publications send running requests back (`restarting`), the tokens of one load are what they would be if the
  service had never had another: everything that they were computed from was made by that load. Elsewhere a response may
  go on over a publication, and then its later tokens were computed from KV of earlier loads as well: its own, nobody
  else's.
* A prefix that is reported as reused was made by the load of the first token, and changes nothing but the time it
  takes. For a request that was sent back this report proves nothing: it was made before, and what was reused then is
  gone.

`client` is this as a protocol, `objections` holds one response against it. A test says that they are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from spec.lang import Bool, Fields, Maybe, Natural, Protocol, Scope, Step, all_of, field, ghost, ite, when
from spec.lang.mutants import Mutants, not_writing

# A response


@dataclass(frozen=True)
class Terms:
    """How a service is set up.

    `sharing`: requests share prefixes. `restarting`: a publication sends running requests back to the queue.
    """

    sharing: bool
    restarting: bool


@dataclass(frozen=True)
class Response:
    """What a caller knows of one response.

    Loads are numbered in the order of their release. `asked` was released when the request was sent, `answered` when
    the last token arrived. `loads` labels each token, `reused` counts reused tokens of the prompt, `sent_back` says how
    often the request was sent back to the queue.
    """

    asked: int
    answered: int
    loads: tuple[int, ...]
    reused: int
    sent_back: int


def objections(response: Response, terms: Terms) -> tuple[str, ...]:
    """What in a response cannot be, one sentence each; nothing where it may be so.

    A response without tokens is an error, and says nothing.
    """
    return tuple(_objections(response, terms)) if response.loads else ()


def _objections(response: Response, terms: Terms) -> Iterator[str]:
    first, last = response.loads[0], response.loads[-1]
    if first < response.asked:
        yield f"token 0 is of load {first}, and load {response.asked} was released before the request was sent"
    if last > response.answered:
        yield f"token {len(response.loads) - 1} is of load {last}, which was not released when it arrived"
    for place, (before, after) in enumerate(itertools.pairwise(response.loads), 1):
        if after < before:
            yield f"token {place} is of load {after}, and the one before it of load {before}"
        if after > before and terms.restarting and not response.sent_back:
            yield f"token {place} is of another load than the one before it, and the request was never sent back"
    if response.reused and not terms.sharing:
        yield f"{response.reused} tokens of the prompt were reused, and nothing is shared"


# The same as a protocol


class Load(Natural):
    """A load, in the order of release; 0 is the initial one."""


class State(Fields):
    """One caller's one request, and what is released meanwhile."""

    sharing: Bool = field("requests share prefixes")
    restarting: Bool = field("a publication sends running requests back to the queue")
    released: Load = field("the newest released load")
    asked: Maybe[Load] = field("what was released when the request was sent; none: it was not sent")
    runs: Bool = field("the request is computed")
    ended: Bool = field("the answer is complete")
    first: Maybe[Load] = field("the load of the first token")
    last: Maybe[Load] = field("the load of the newest token")
    reused: Bool = field("a part of the prompt is reported as reused")
    sent_back: Bool = field("the request was sent back to the queue")

    prefix: Maybe[Load] = ghost("the load that made the reused prefix that the KV begins with")
    oldest: Maybe[Load] = ghost("the oldest load that made some of the KV")


client = Protocol("client", State, __doc__)


@client.initially
def nothing_asked(sharing: Bool, restarting: Bool) -> Step:
    """The initial load is released; prefixes are shared only where a publication sends requests back."""
    return when(sharing.implies(restarting)).then(
        sharing=sharing,
        restarting=restarting,
        released=0,
        asked=None,
        runs=False,
        ended=False,
        first=None,
        last=None,
        reused=False,
        sent_back=False,
        prefix=None,
        oldest=None,
    )


@client.action(by="client")
def ask(s: State) -> Step:
    """The request is sent."""
    return when(s.asked.is_none).then(asked=s.released)


@client.action(by="service")
def start(s: State, hit: Bool) -> Step:
    """The request is computed, perhaps on a prefix that the released load has made.

    Reuse is reported where the request was never sent back.
    """
    return when(~s.asked.is_none, ~s.runs, ~s.ended, s.sharing | ~hit).then(
        runs=True,
        reused=s.reused | (hit & ~s.sent_back),
        prefix=ite(~hit, s.prefix, s.released),
        oldest=s.released,
    )


@client.action(by="service")
def sample(s: State) -> Step:
    """A token is made, by the released load."""
    return when(s.runs, ~s.ended).then(last=s.released, first=ite(~s.first.is_none, s.first, s.released))


@client.action(by="service")
def send_back(s: State) -> Step:
    """The request waits again. What it has of tokens it keeps; its KV is gone."""
    return when(s.runs, ~s.ended).then(runs=False, sent_back=True, prefix=None, oldest=None)


@client.action(by="service")
def release(s: State) -> Step:
    """The next load is released, and sends what runs back, or lets it go on with the KV that it has."""
    back = s.runs & s.restarting & ~s.ended
    return when().then(
        released=s.released + 1,
        runs=s.runs & ~back,
        sent_back=s.sent_back | back,
        prefix=ite(~back, s.prefix, None),
        oldest=ite(~back, s.oldest, None),
    )


@client.action(by="service")
def answer(s: State) -> Step:
    """The last token has arrived."""
    return when(s.runs, ~s.ended, ~s.last.is_none).then(ended=True)


# The promises


@client.property
def tokens_are_of_released_loads(s: State) -> Bool:
    """Not older than what was released when the request was sent, not newer than what is, the first not the newest."""
    return s.last.is_none | all_of(
        ~s.asked.is_none,
        s.asked.or_else(0) <= s.first.or_else(0),
        s.first.or_else(0) <= s.last.or_else(0),
        s.last.or_else(0) <= s.released,
    )


@client.step_property
def loads_never_go_back(s: State, t: State) -> Bool:
    """No token is of an older load than the one before it, and the first one stays the first."""
    return s.last.is_none | ((s.last.or_else(0) <= t.last.or_else(0)) & (t.first == s.first))


@client.step_property
def restarted_tokens_are_of_one_load(s: State, t: State) -> Bool:
    """Where publications send requests back, all that a token was computed from was made by its load."""
    sampled = s.runs & (s.last.is_none | (t.last != s.last)) & ~t.last.is_none
    return (sampled & s.restarting).implies((s.oldest == t.last) & (s.prefix.is_none | (s.prefix == t.last)))


@client.property
def reuse_is_of_the_first_load(s: State) -> Bool:
    """A prefix that is reported as reused was made by the first token's load, if the request was never sent back."""
    return all_of(s.reused, ~s.sent_back, ~s.first.is_none).implies(s.sharing & (s.prefix == s.first))


@client.goal
def reported_before_a_publication(s: State) -> Bool:
    """Reuse is reported, and no token is of the load that made what was reused: the request was sent back since."""
    return all_of(s.reused, s.sent_back, s.ended, s.first == 1, s.asked == 0)


@client.goal
def of_two_loads(s: State) -> Bool:
    """A response has tokens of two loads, and was never sent back."""
    return all_of(s.ended, ~s.sent_back, s.first == 0, s.last == 1)


SMOKE = Scope("smoke", {"Load": 2}, "two publications: before the first token and after it, or both between two tokens")
SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE,)})
"""Every scope by its name."""

MUTANTS = Mutants(client)
"""Services that break a promise."""


@MUTANTS.register("restarted_tokens_are_of_one_load", "M1", "C49")
def publications_let_requests_go_on(p: Protocol) -> None:
    """A publication leaves requests with the KV they have, whatever was promised."""
    not_writing(p, "release", "runs", "sent_back", "prefix", "oldest")


@MUTANTS.register("reuse_is_of_the_first_load", "C01")
def reuse_counted_for_the_next(p: Protocol) -> None:
    """A reused prefix is reported, and it is not the one that the KV begins with."""
    not_writing(p, "start", "prefix")


@MUTANTS.register("loads_never_go_back", "M28")
def first_is_relabelled(p: Protocol) -> None:
    """Tokens that were delivered are labelled anew."""

    def sample(s: State) -> Step:
        return when(s.runs, ~s.ended).then(last=s.released, first=s.released)

    p.replace_action(sample)


@MUTANTS.register("tokens_are_of_released_loads", "M27")
def labelled_before_the_release(p: Protocol) -> None:
    """A token is labelled with a load that is still under way."""

    def sample(s: State) -> Step:
        return when(s.runs, ~s.ended).then(last=s.released + 1, first=ite(~s.first.is_none, s.first, s.released + 1))

    p.replace_action(sample)
