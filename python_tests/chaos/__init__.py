"""Traffic and faults on a primary with two replicas or on a cluster, and a check of all that was seen.

    make chaos [SECONDS=60] [SEED=1] [REDIS_SERVER=…] [ARGS=--cluster]

The seed decides the faults, their order and the persistence (AOF always, everysec, or RDB alone; always in a cluster); what the threads
meet differs from run to run. Everything is written to a history, a file of one JSON object a line, which can be checked again:
`python -m chaos --check FILE`.

    scene.py     the rooms, their settings and who is there
    stage.py     the servers of a run
    nodes.py     a primary and two replicas: who is the primary, how far each replica is known to be
    proxy.py     the links between them, which can be cut or stalled
    shards.py    three primaries of a cluster with a replica each, and a client that goes where it is sent
    schedule.py  when what goes wrong, and what all faults are made of
    faults.py    those of a primary and two replicas
    slots.py     those of a cluster, and slots that move
    caller.py    a client that notes every request and its fate
    traffic.py   those who open, renew, send
    keepers.py   those who grant and revoke, hold and trim
    readers.py   those who follow messages and events
    history.py   the file
    final.py     what is there at the end
    line.py      which node counted as primary when, and what may be lost
    calls.py     requests and replies as the rules see them
    rules/       what must hold: each rule reads a history and tells violations
    report.py    how available RENEW was during each kind of fault
"""
