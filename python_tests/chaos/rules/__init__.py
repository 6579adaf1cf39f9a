"""What must hold, rule by rule. Each takes a run (one world of the history) and its line and yields a text for every violation; `check` puts them together.

`May be lost` is always the judgement of `line.py`: a rule forgives only what an asynchronous replica or a late flush may cost.
"""

from ..calls import worlds
from .readers import consumers_get_all_events, listeners_are_told_of_gaps, readers_miss_nothing, resyncs_have_a_reason
from .rooms import (
    acknowledged_is_kept,
    gens_begin_with_a_line,
    holds_hold,
    nodes_agree,
    nothing_unexpected,
    one_answer_a_message,
    one_ending_a_lease,
    one_seq_a_message,
    orphans_are_held,
    settings_are_kept,
)
from .sessions import ended_stays_ended, epochs_rise, nobody_expires_early, nobody_is_remembered, revoked_stay_out, tokens_are_asked_for

RULES = (
    nothing_unexpected,
    epochs_rise,
    acknowledged_is_kept,
    settings_are_kept,
    one_ending_a_lease,
    gens_begin_with_a_line,
    one_seq_a_message,
    one_answer_a_message,
    holds_hold,
    orphans_are_held,
    nodes_agree,
    ended_stays_ended,
    nobody_is_remembered,
    nobody_expires_early,
    tokens_are_asked_for,
    revoked_stay_out,
    readers_miss_nothing,
    resyncs_have_a_reason,
    consumers_get_all_events,
    listeners_are_told_of_gaps,
)


def check(records):
    """Every violation in a history."""
    return [f"{rule.__name__}: {text}" for run in worlds(records) for rule in RULES for text in rule(run, run.line)]
