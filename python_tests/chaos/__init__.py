"""Traffic and faults on a primary with two replicas, and a check of all that was seen.

    make chaos [SECONDS=60] [SEED=1] [REDIS_SERVER=…]

The seed decides the faults, their order and the persistence (AOF always, everysec, or RDB alone); what the threads meet differs from
run to run. Everything is written to a history, a file of one JSON object a line, which can be checked again: `python -m chaos --check FILE`.

    nodes.py     three servers, who is the primary, how far each replica is known to be
    proxy.py     the links between them, which can be cut or stalled
    faults.py    what goes wrong
    caller.py    a client that notes every request and its fate
    scene.py     the rooms and who is there
    traffic.py   those who open, renew, send
    keepers.py   those who revoke, hold, trim
    readers.py   those who follow messages and events
    history.py   the file; final.py: what it says of the end
    line.py      which node counted as primary when, and what may be lost
    calls.py     requests and replies as the rules see them
    rules/       what must hold: each rule reads a history and tells violations
    report.py    how available RENEW was during each kind of fault
"""
