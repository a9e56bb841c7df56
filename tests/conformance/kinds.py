"""Which steps of the publication protocol differ in what the coordinator sees or does, and which it never takes."""

from __future__ import annotations

from model_check.cover import Cover, Look, View, cover
from model_check.evaluate import Instance
from spec.lang import Scope
from spec.publication import publication
from spec.publication.scopes import SMOKE
from spec.publication.state import Errand, Marker, Mode, Slot, Stage


def value(member: Errand | Marker | Mode | Slot | Stage) -> int:
    """The number of a member of an enumeration, as states have it."""
    return list(type(member)).index(member)


EMPTY, LIVE, DEAD = (value(slot) for slot in (Slot.EMPTY, Slot.LIVE, Slot.DEAD))
RECORD = ("status", "parent", "parent_content", "content", "target")
SEEN = View(
    fields=(
        *("colocated", "mode", "stage", "errand", "phase", "latch", "full", "rebuilt", "done", "slot"),
        *(f"{where}_{name}" for where in ("disk", "memory") for name in RECORD),
    ),
    alike={"slot": {DEAD: LIVE}},
    actors=frozenset({"coordinator", "disk"}),
    unseen=frozenset({"admit", "start", "start_on_hit", "finish", "retract", "migrate"}),
)
"""What the coordinator sees. Whether a process is behind a handle it learns only when a call fails."""

BY_DIFFERENCE = "every transfer is complete: a difference needs a base, which a retry does not have"
BEFORE_TRAINING = "engines stay fenced where the barrier before training fails: health has the next life replace them"
NOBODY = "no engine is there whose call could fail"
FULL = "every slot is full: nothing is started that could fail"
ASKED_ALREADY = "an engine that was asked stays asked, and its call fails, though the monitor may empty its slot"
VERIFIED_FIRST = "after a rejection every engine is verified before any is continued, and nobody is not verified"
CALLS_FAIL = ("barrier_fails", "transfer_fails", "continue_fails")


def excuse(instance: Instance, before: Look, after: Look) -> str:
    """Why the coordinator does not take a step that the protocol allows; empty if it does."""
    name, slots = instance.action.name, before["slot"]
    (stage,), (errand,) = before["stage"], before["errand"]
    publishing = after if name == "begin_publish" else before
    if publishing["errand"] == (value(Errand.PUBLISH),) and not publishing["full"][0]:
        return BY_DIFFERENCE
    if errand == value(Errand.TRAIN) and name in ("retire", "all_retired"):
        return BEFORE_TRAINING
    if name == "transfer_fails" and stage == value(Stage.REBUILD):
        return "" if EMPTY in slots else FULL
    if name == "empty_slot" and list(Stage)[stage] in (Stage.RESUME_WEIGHTS, Stage.RESUME_KV, Stage.CONTINUE):
        return ASKED_ALREADY
    if name in CALLS_FAIL and set(slots) == {EMPTY}:
        return NOBODY
    if errand == value(Errand.REJECT) and stage == value(Stage.CONTINUE):
        waits = {slot for slot, done in zip(slots, before["done"], strict=True) if not done}
        if (name == "continue_generation" and DEAD in waits) or (name == "all_continued" and set(slots) == {EMPTY}):
            return VERIFIED_FIRST
    return ""


def runs(scope: Scope = SMOKE) -> Cover:
    """The runs that take every kind of step in a scope."""
    return cover(publication, scope, SEEN, excuse)
