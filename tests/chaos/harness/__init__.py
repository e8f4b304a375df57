"""The chaos harness: turns whose effects are counted outside, while everything dies around them.

plan.py        what is run, and where workers are to die: all from one seed
effects.py     the counters outside: a file, a database, and the service of counter.py
deaths.py      deaths that are planned, and those that happened      attempts.py  who is at work on what
worker.py      a worker to be killed, with ledger.py and tools.py    nursery.py   where workers come from
fleet.py       workers that are started again                        proxy.py     their network
disk.py        the ledgers' disk                                     storm.py     what befalls all of these
drive.py       starts the turns and waits for them                   person.py    answers what is asked
judging.py     what is right and what is wrong                       report.py    in numbers
cleaning.py    nothing is left behind                                sabotage.py  faults to be found
run.py         one run of it all

make chaos SEED=7 CALLS=520 KILLS=300
"""
