"""Rules of sessions: what each is given, how long it is allowed anything, and by whom it may be used."""

import collections
import heapq

from ..calls import CLOCK_MS, OVER, holder_of, opened_session, option
from ..scene import SPANS

FOR_GOOD = ("STALE superseded", "STALE left", "STALE kicked", "STALE revoked", *OVER)


def epochs_rise(run, line):
    """A session that is opened after another one of its holder was has the greater epoch, even if the other one is lost by then."""
    asked, issued = {}, {}
    for call in run.calls:
        if call["op"] == "OPEN":
            asked.setdefault((call["room"], opened_session(call)), call["sent"])
    for call in run.replies("OPEN"):
        holder = *holder_of(call), run.life(call["room"], call["reply"]["gen"])
        issued.setdefault((holder, opened_session(call), call["reply"]["epoch"]), call)
    by_holder = collections.defaultdict(list)
    for (holder, session, epoch), call in issued.items():
        by_holder[holder].append((asked[call["room"], session], call["done"], epoch, session, line.on(call)))
    for holder, all_issued in by_holder.items():
        highest, waiting = 0, []
        for since, done, epoch, session, on_line in sorted(all_issued):
            while waiting and waiting[0][0] < since:
                highest = max(highest, heapq.heappop(waiting)[1])
            if on_line and epoch <= highest:
                yield f"{session} of {holder} got epoch {epoch} although {highest} had been given"
            heapq.heappush(waiting, (done, epoch))


def ended_stays_ended(run, line):
    """A session whose end stands in the stream, or that was told for good that it has ended, is allowed nothing any more."""
    ends, told, gone, anew = endings(run), {}, {}, opened_anew(run)
    for act in sorted(run.acts, key=lambda act: act.done):
        if act.verdict.startswith(FOR_GOOD) and line.on(act.call):
            told.setdefault(act.session, act)
        elif act.verdict.startswith(("STALE expired", "STALE unknown")) and line.on(act.call) and act.done > anew.get(act.session, 0):
            gone.setdefault(act.session, []).append(act)
    for act in run.acts:
        if not act.allowed or not line.on(act.call):
            continue
        end = ends.get(act.session)
        if end and end["at"] + CLOCK_MS < act.sent:
            yield f"{act} was allowed, but {act.session} was {end['type']} ({end.get('reason')}) at {end['at']}"
        refused = told.get(act.session)
        if refused and refused.done < act.sent and not line.may_be_lost(refused.call, by=act.done) and not run.forgotten(refused.call, act.done):
            yield f"{act} was allowed, but {act.session} had been told {refused.verdict} at {refused.done:.0f}"
        if any(refused.done < act.sent and not line.changed(refused.sent, act.done) for refused in gone.get(act.session, [])):
            yield f"{act} was allowed, but {act.session} had been refused within the same line"


def opened_anew(run):
    """When a session of a world that was evicted was first opened in this one: its epoch may be the same."""
    opened = {}
    for call in run.replies("OPEN") if run.former else ():
        opened.setdefault((call["room"], opened_session(call), call["reply"]["epoch"]), call["done"])
    return opened


def endings(run):
    """The event that ended a lease: its removal, or that its room's key had gone."""
    ends = {}
    for session, opened in run.survived("opened").items():
        room = session[0]
        life = run.life(room, opened["gen"])
        if life < len(run.closed[room]):
            ends[session] = run.closed[room][life]
    return ends | run.survived("removed")


def nobody_is_remembered(run, line):
    """Where every key was evicted no session of before is allowed anything, unless it was opened anew."""
    if not run.former:
        return
    before = {(call["room"], opened_session(call), call["reply"]["epoch"]) for call in run.former.replies("OPEN")}
    anew = {(call["room"], opened_session(call)) for call in run.calls if call["op"] == "OPEN"}
    for act in run.acts:
        if act.allowed and act.session in before and act.session[:2] not in anew:
            yield f"{act} was allowed, but all of {act.session} was evicted"


def nobody_expires_early(run, line):
    """Whoever was heard is not expired before its ttl is over, or the span its report left it, whatever happens to the servers meanwhile."""
    ttls, steps = {}, collections.defaultdict(list)
    for call in run.replies("OPEN"):
        session = call["room"], opened_session(call), call["reply"]["epoch"]
        if session not in ttls and line.on(call):  # a retry of a live session prolongs nothing
            ttls[session] = call["reply"]["ttl_ms"]
            steps[session].append((call["done"], call, None))
    for call in run.calls:
        if call["op"] == "RENEW" and (span := SPANS.get(option(call, "STATE"))) and "error" not in call:
            # Even without a reply, or answered `duplicate`, it may be what counts.
            steps[call["room"], *call["args"][:2]].append((call["done"], call, span))
    for act in run.acts:
        if act.verdict == "renewed" and line.on(act.call):
            steps[act.session].append((act.done, act.call, None))
    for act in run.acts:
        if act.verdict.startswith("STALE expired") and act.session in ttls and line.on(act.call):
            until = ends_at(
                sorted((step for step in steps[act.session] if step[0] < act.done), key=lambda step: step[0]), ttls[act.session], line, act.done
            )
            if act.done < until:
                yield f"{act} was told expired {until - act.done:.0f} ms before {act.session} was over"


def ends_at(steps, ttl, line, by):
    """When the lease ends at the earliest, after these steps. A heartbeat that was lost with its primary still counts, since the next
    primary gives as much anew; after a report of a bad connection it does not: what is left then is that report's span."""
    until, shortened = 0, False
    for _, call, span in steps:
        if span:
            until, shortened = min(until, call["sent"] + span), True
        elif not (shortened and line.may_be_lost(call, by)):
            until, shortened = call["sent"] + ttl, False
    return until


def tokens_are_asked_for(run, line):
    """Whoever lacks a session's token is allowed nothing, whoever has it is not refused for it."""
    for act in run.acts:
        token = run.tokens.get(act.session[:2])
        right = token is None or act.token == token
        if not right and (act.allowed or act.verdict in OVER):
            yield f"{act} was allowed with the token {act.token!r} of {act.session}"
        if right and act.verdict == "DENIED token":
            yield f"{act} was refused with the token of {act.session}"


def revoked_stay_out(run, line):
    """From the acknowledgement of a REVOKE until a GRANT is sent its user is allowed nothing, unless the REVOKE may be lost."""
    steps = collections.defaultdict(list)  # of (room, user): (time, call), a REVOKE when acknowledged, a GRANT when sent
    for call in run.calls:
        if call["op"] == "GRANT":
            steps[call["room"], call["args"][0]].append((call["sent"], call))
        elif call["op"] == "REVOKE" and call.get("reply", [None])[0] in ("ok", "stale"):
            steps[call["room"], call["args"][0]].append((call["done"], call))
    for known in steps.values():
        known.sort(key=lambda step: step[0])
    for call, user in allowed_to(run):
        before = [step for at, step in steps[call["room"], user] if at < call["sent"]]
        granted = any(step["op"] == "GRANT" and call["sent"] <= at <= call["done"] for at, step in steps[call["room"], user])
        if not before or before[-1]["op"] == "GRANT" or granted or not line.on(call):
            continue
        if not line.may_be_lost(before[-1], by=call["done"]) and not run.forgotten(before[-1], by=call["done"]):
            yield f"{call['op']} of {user} in {call['room']} was allowed by {call['node']} at {call['sent']:.0f}, revoked at {before[-1]['done']:.0f}"


def allowed_to(run):
    """(call, user) of everything that only those may do who are not revoked."""
    for call in run.replies("OPEN", "POST"):
        yield call, call["args"][0]
    for act in run.acts:
        if act.allowed:
            yield act.call, run.users.get(act.session[:2])
