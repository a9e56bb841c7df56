------------------------------- MODULE adapters --------------------------------
(* adapters. Written by reef-ref export from the protocol: change that. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  None,
  Slot,
  Adapter,
  Scenario,
  Engine

Stage == {"DOWN", "IDLE", "REBUILD", "RECONCILE", "CHOOSE", "MAKE_ROOM", "EVICT", "LOAD", "CLEAN_UP",
  "COMMIT", "RETIRE"}
Bytes == {"NONE", "OWN", "OTHER", "MIXED"}
Request == {"NONE", "WAITING", "RUNNING"}

VARIABLES
  reserved,
    (* taken for good, by an adapter that engines were started with *)
  scenario,
    (* whose revision the name stands for; none: no such revision yet *)
  current,
    (* the adapter that the scenario is served with *)
  job,
    (* the adapter that is to become its scenario's current one *)
  gate,
    (* requests of the scenario are admitted *)
  pinned,
    (* kept while somebody may still go back to it *)
  stage,
    (* what it does next *)
  target,
    (* the adapter that is being loaded *)
  victim,
    (* the adapter that is being unloaded *)
  holds,
    (* the adapter in the slot, by the books *)
  leaked,
    (* an unload failed, so that engines may or may not hold what the slot says *)
  alive,
    (* its process runs *)
  paused,
    (* engines do not schedule *)
  bytes,
    (* what it has loaded under the name *)
  request,
    (* its work *)
  uses,
    (* the name in its request *)
  cached,
    (* its prefix tree holds an entry whose key says this name *)
  kv,
    (* ghost: what made the running request's KV, seen from the name in the request *)
  made_by
    (* ghost: what made the entries under the key, seen from its name *)

vars == <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive, paused,
  bytes, request, uses, cached, kv, made_by>>

TypeOK ==
  /\ reserved \in [Slot -> BOOLEAN]
  /\ scenario \in [Adapter -> Scenario \cup {None}]
  /\ current \in [Scenario -> Adapter \cup {None}]
  /\ job \in Adapter \cup {None}
  /\ gate \in [Scenario -> BOOLEAN]
  /\ pinned \in Adapter \cup {None}
  /\ stage \in Stage
  /\ target \in Adapter \cup {None}
  /\ victim \in Adapter \cup {None}
  /\ holds \in [Slot -> Adapter \cup {None}]
  /\ leaked \in [Slot -> BOOLEAN]
  /\ alive \in [Engine -> BOOLEAN]
  /\ paused \in BOOLEAN
  /\ bytes \in [Engine \X Adapter -> Bytes]
  /\ request \in [Engine -> Request]
  /\ uses \in [Engine -> Adapter \cup {None}]
  /\ cached \in [Engine \X Adapter -> BOOLEAN]
  /\ kv \in [Engine -> Bytes]
  /\ made_by \in [Engine \X Adapter -> Bytes]

(* What a scope cuts off: steps that lead out of it are not taken. *)
InScope ==
  TRUE

(* Some slot has leaked. *)
leaks == \E s \in Slot : leaked[s]

(* The adapter is the current one of some scenario. *)
serves(n) == \E s \in Scenario : current[s] = n

(* The scenario's requests are admitted, or it never had an adapter. *)
is_served(x) == gate[x] \/ current[x] = None

(* The slot can take an adapter. *)
free(i) ==
  /\ holds[i] = None
  /\ ~reserved[i]

(* No slot is free. *)
is_full == \A s \in Slot : ~free(s)

(* The scenario is served with an adapter, or is about to be. *)
wants_a_slot(x) == current[x] = None => (IF job = None THEN None ELSE scenario[job]) = x

(* No engine that runs has the victim. *)
unloaded_everywhere ==
  \A e \in Engine : alive[e] => (IF victim = None THEN "NONE" ELSE bytes[e, victim]) = "NONE"

(* Somebody uses the adapter, or may go back to it. *)
spared(n) == (\E e \in Engine : uses[e] = n) \/ pinned = n

(* The scheduler runs, and has a request for the adapter. *)
can_start(e, n) ==
  /\ request[e] = "WAITING"
  /\ ~paused
  /\ uses[e] = n

(* The target needs a slot: it has none, or has leaked. *)
wants_room ==
  /\ stage = "MAKE_ROOM"
  /\ ~(\E s \in Slot : holds[s] = target /\ ~leaked[s])

(* An engine has an adapter that the books do not know. *)
stray(e, n) ==
  /\ bytes[e, n] # "NONE"
  /\ ~(\E s \in Slot : holds[s] = n /\ ~leaked[s])

(* There is one more, so that no scenario has to do without while its next adapter is loaded. *)
a_slot_to_spare ==
  Cardinality({s \in Scenario : wants_a_slot(s)}) < Cardinality({s \in Slot : ~reserved[s]})

(* The step finds no room and gives up. *)
refuses ==
  /\ stage = "MAKE_ROOM"
  /\ stage' \notin {"MAKE_ROOM", "EVICT", "LOAD", "COMMIT", "DOWN"}

(* There is a slot for every scenario that wants one. *)
a_slot_each ==
  Cardinality({s \in Slot : ~reserved[s]}) >= Cardinality({s \in Scenario : wants_a_slot(s)})

(* The scenario has lost its adapter, and no other is about to take its place. *)
to_restore(x) ==
  /\ current[x] # None
  /\ ~(\E s \in Slot : holds[s] = current[x] /\ ~leaked[s])
  /\ (IF job = None THEN None ELSE scenario[job]) # x

(* Every scenario has its adapter, or will have another. *)
nothing_lost == \A s \in Scenario : ~to_restore(s)

(* The adapter has a slot, and nothing and nobody needs it. *)
idle_in_slot(n) ==
  /\ \E s \in Slot : holds[s] = n /\ ~leaked[s]
  /\ ~serves(n)
  /\ ~spared(n)

(* An engine is gone, or a scenario has lost its adapter. *)
needs_repair == (\E e \in Engine : ~alive[e]) \/ (\E s \in Scenario : to_restore(s))

(* The coordinator has nothing to do, and nothing has to be repaired first. *)
takes_calls ==
  /\ stage = "IDLE"
  /\ ~needs_repair

(* The adapter serves the scenario of the job that is being loaded, and no request names it. *)
about_to_be_superseded(n) ==
  /\ \E s \in Slot : holds[s] = n /\ ~leaked[s]
  /\ ~spared(n)
  /\ target = job
  /\ \E s \in Scenario : current[s] = n /\ (IF target = None THEN None ELSE scenario[target]) = s

(* No slot is free, and nothing in one may be evicted. *)
nothing_may_go ==
  /\ is_full
  /\ ~leaks
  /\ \A a \in Adapter : ~idle_in_slot(a) /\ ~about_to_be_superseded(a)

(* Engines run, and no scenario has an adapter yet; one slot may be taken for good. *)
Init ==
  \E tight \in BOOLEAN, i \in Slot :
    /\ reserved = [s \in Slot |-> tight /\ s = i]
    /\ scenario = [a \in Adapter |-> None]
    /\ current = [s \in Scenario |-> None]
    /\ job = None
    /\ gate = [s \in Scenario |-> FALSE]
    /\ pinned = None
    /\ stage = "IDLE"
    /\ target = None
    /\ victim = None
    /\ holds = [s \in Slot |-> None]
    /\ leaked = [s \in Slot |-> FALSE]
    /\ alive = [e \in Engine |-> TRUE]
    /\ paused = FALSE
    /\ bytes = [e \in Engine, a \in Adapter |-> "NONE"]
    /\ request = [e \in Engine |-> "NONE"]
    /\ uses = [e \in Engine |-> None]
    /\ cached = [e \in Engine, a \in Adapter |-> FALSE]
    /\ kv = [e \in Engine |-> "NONE"]
    /\ made_by = [e \in Engine, a \in Adapter |-> "NONE"]

(* A scenario has a new revision, under a name that nothing ever had. *)
begin_publish(x, n) ==
  /\ takes_calls
  /\ job = None
  /\ scenario[n] = None
  /\ scenario' = [scenario EXCEPT ![n] = x]
  /\ job' = n
  /\ stage' = "CHOOSE"
  /\ UNCHANGED <<reserved, current, gate, pinned, target, victim, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* A scenario goes back to a revision that it was served with before. *)
begin_rollback(n) ==
  /\ takes_calls
  /\ job = None
  /\ scenario[n] # None
  /\ ~serves(n)
  /\ job' = n
  /\ stage' = "CHOOSE"
  /\ UNCHANGED <<reserved, scenario, current, gate, pinned, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* A publication that was refused or failed is tried again; where no engine was lost, the books are still
   right. *)
begin_retry ==
  /\ takes_calls
  /\ job # None
  /\ stage' = "CHOOSE"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* Engines were lost, or adapters: admission closes until everything is back. *)
begin_repair ==
  /\ stage = "IDLE"
  /\ needs_repair
  /\ stage' = "REBUILD"
  /\ gate' = [s \in Scenario |-> FALSE]
  /\ UNCHANGED <<reserved, scenario, current, job, pinned, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* A new coordinator knows the record and no more. Engines continue, so that no request waits for the books. *)
restart ==
  /\ stage = "DOWN"
  /\ stage' = "REBUILD"
  /\ paused' = FALSE
  /\ gate' = [s \in Scenario |-> FALSE]
  /\ UNCHANGED <<reserved, scenario, current, job, pinned, target, victim, holds, leaked, alive, bytes,
       request, uses, cached, kv, made_by>>

(* A new process takes the place of a lost one. It has no adapter. *)
rebuild(e) ==
  /\ stage = "REBUILD"
  /\ ~alive[e]
  /\ alive' = [alive EXCEPT ![e] = TRUE]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, paused,
       bytes, request, uses, cached, kv, made_by>>

(* Every engine says what it has: what some engine lacks, or what leaked, leaves the books. *)
reconcile ==
  /\ stage = "REBUILD"
  /\ \A e \in Engine : alive[e]
  /\ holds' = [s \in Slot |->
       IF ~leaked[s] /\ (\A e \in Engine : (IF holds[s] = None THEN "NONE" ELSE bytes[e, holds[s]]) # "NONE")
         THEN holds[s]
       ELSE None]
  /\ leaked' = [s \in Slot |-> FALSE]
  /\ stage' = "RECONCILE"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* An engine unloads what the books do not know, once no request names it. *)
unload_stray(e, n) ==
  /\ stage = "RECONCILE"
  /\ alive[e]
  /\ stray(e, n)
  /\ uses[e] # n
  /\ bytes' = [bytes EXCEPT ![e, n] = "NONE"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, request, uses, cached, kv, made_by>>

(* No engine has anything that the books do not know. *)
all_reconciled ==
  /\ stage = "RECONCILE"
  /\ \A e \in Engine : \A a \in Adapter : ~stray(e, a)
  /\ stage' = "CHOOSE"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* A scenario that lost its adapter gets it back, before the job is looked at. *)
choose_lost(x) ==
  /\ stage = "CHOOSE"
  /\ to_restore(x)
  /\ target' = current[x]
  /\ stage' = "MAKE_ROOM"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, victim, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* The job's adapter is next. *)
choose_job ==
  /\ stage = "CHOOSE"
  /\ nothing_lost
  /\ job # None
  /\ target' = job
  /\ stage' = "MAKE_ROOM"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, victim, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Nothing is lost, and there is no job. *)
choose_nothing ==
  /\ stage = "CHOOSE"
  /\ nothing_lost
  /\ job = None
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, holds, leaked, alive, bytes, request, uses,
       cached, kv, made_by>>

(* The target still has its slot: no byte moves. *)
point_at ==
  /\ stage = "MAKE_ROOM"
  /\ \E s \in Slot : holds[s] = target /\ ~leaked[s]
  /\ stage' = "COMMIT"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* What has leaked goes first. *)
evict_leaked(n) ==
  /\ wants_room
  /\ \E s \in Slot : holds[s] = n /\ leaked[s]
  /\ victim' = n
  /\ stage' = "EVICT"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Then some adapter that nobody needs; the oldest one upstream, any one here. *)
evict(n) ==
  /\ wants_room
  /\ ~leaks
  /\ is_full
  /\ idle_in_slot(n)
  /\ victim' = n
  /\ stage' = "EVICT"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Last, the adapter that is to be superseded: its scenario is not served until the new one is there. *)
evict_own(x, n) ==
  /\ wants_room
  /\ ~leaks
  /\ is_full
  /\ \A a \in Adapter : ~idle_in_slot(a)
  /\ current[x] = n
  /\ about_to_be_superseded(n)
  /\ victim' = n
  /\ stage' = "EVICT"
  /\ gate' = [gate EXCEPT ![x] = FALSE]
  /\ UNCHANGED <<reserved, scenario, current, job, pinned, target, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Every slot is in legitimate use: nothing changes, and the job waits to be tried again. *)
refuse ==
  /\ wants_room
  /\ ~leaks
  /\ is_full
  /\ \A a \in Adapter : ~idle_in_slot(a) /\ ~about_to_be_superseded(a)
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, holds, leaked, alive, bytes, request, uses,
       cached, kv, made_by>>

(* Every engine has unloaded the victim: its slot is free. *)
all_evicted ==
  /\ stage = "EVICT"
  /\ unloaded_everywhere
  /\ holds' = [s \in Slot |-> IF holds[s] # victim THEN holds[s] ELSE None]
  /\ leaked' = [s \in Slot |-> leaked[s] /\ holds[s] # victim]
  /\ victim' = None
  /\ stage' = "MAKE_ROOM"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, alive, paused, bytes, request, uses,
       cached, kv, made_by>>

(* An engine that did not unload must be replaced: every process is shut down. *)
retire ==
  /\ stage = "RETIRE"
  /\ alive' = [e \in Engine |-> FALSE]
  /\ bytes' = [e \in Engine, a \in Adapter |-> "NONE"]
  /\ request' = [e \in Engine |-> "NONE"]
  /\ uses' = [e \in Engine |-> None]
  /\ cached' = [e \in Engine, a \in Adapter |-> FALSE]
  /\ kv' = [e \in Engine |-> "NONE"]
  /\ made_by' = [e \in Engine, a \in Adapter |-> "NONE"]
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, holds, leaked>>

(* There is a slot: engines pause, to receive the bytes. *)
begin_load ==
  /\ wants_room
  /\ ~leaks
  /\ ~is_full
  /\ stage' = "LOAD"
  /\ paused' = TRUE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, holds, leaked, alive, bytes,
       request, uses, cached, kv, made_by>>

(* An engine receives the adapter, under its name. *)
load(e) ==
  /\ stage = "LOAD"
  /\ alive[e]
  /\ (IF target = None THEN "NONE" ELSE bytes[e, target]) = "NONE"
  /\ bytes' = IF target = None THEN bytes ELSE [bytes EXCEPT ![e, target] = "OWN"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, request, uses, cached, kv, made_by>>

(* Every engine has the adapter, and its checksum is right: it takes a slot. *)
register(i) ==
  /\ stage = "LOAD"
  /\ \A e \in Engine : alive[e] /\ ((IF target = None THEN "NONE" ELSE bytes[e, target]) = "OWN")
  /\ free(i)
  /\ holds' = [holds EXCEPT ![i] = target]
  /\ stage' = IF target = job THEN "COMMIT" ELSE "CHOOSE"
  /\ paused' = (target = job)
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, leaked, alive, bytes,
       request, uses, cached, kv, made_by>>

(* An engine was lost during the load. *)
find_dead ==
  /\ stage = "LOAD"
  /\ \E e \in Engine : ~alive[e]
  /\ stage' = "CLEAN_UP"
  /\ victim' = target
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Every engine has answered, and some checksum is wrong. *)
find_mismatch ==
  /\ stage = "LOAD"
  /\ \A e \in Engine : (IF target = None THEN "NONE" ELSE bytes[e, target]) # "NONE"
  /\ ~(\A e \in Engine : alive[e] /\ ((IF target = None THEN "NONE" ELSE bytes[e, target]) = "OWN"))
  /\ stage' = "CLEAN_UP"
  /\ victim' = target
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, holds, leaked, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* No engine has anything of the load: no slot was taken, and the job waits to be tried again. *)
all_cleaned ==
  /\ stage = "CLEAN_UP"
  /\ unloaded_everywhere
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, holds, leaked, alive, bytes, request, uses,
       cached, kv, made_by>>

(* Durable: the job's adapter is its scenario's current one. Engines continue. *)
commit ==
  /\ stage = "COMMIT"
  /\ current' = [s \in Scenario |->
       IF (IF job = None THEN None ELSE scenario[job]) = s THEN job
       ELSE current[s]]
  /\ job' = None
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, gate, pinned, holds, leaked, alive, bytes, request, uses, cached, kv,
       made_by>>

(* The service admits a scenario's requests when its adapter is in the books, and stays there. *)
open_gate(x) ==
  /\ ~gate[x]
  /\ current[x] # None
  /\ \E s \in Slot : holds[s] = current[x] /\ ~leaked[s]
  /\ stage = "IDLE"
  /\ gate' = [gate EXCEPT ![x] = TRUE]
  /\ UNCHANGED <<reserved, scenario, current, job, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, request, uses, cached, kv, made_by>>

(* Somebody may go back to an adapter that is still there, and wants it kept. *)
pin(n) ==
  /\ pinned = None
  /\ \E s \in Slot : holds[s] = n /\ ~leaked[s]
  /\ ~serves(n)
  /\ victim # n
  /\ pinned' = n
  /\ UNCHANGED <<reserved, scenario, current, job, gate, stage, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* Nobody wants the adapter kept any more. *)
unpin ==
  /\ pinned # None
  /\ pinned' = None
  /\ UNCHANGED <<reserved, scenario, current, job, gate, stage, target, victim, holds, leaked, alive, paused,
       bytes, request, uses, cached, kv, made_by>>

(* The service admits a request, names the scenario's current adapter in it and routes it to a live engine. *)
admit(e, x) ==
  /\ gate[x]
  /\ alive[e]
  /\ request[e] = "NONE"
  /\ current[x] # None
  /\ request' = [request EXCEPT ![e] = "WAITING"]
  /\ uses' = [uses EXCEPT ![e] = current[x]]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, cached, kv, made_by>>

(* A request starts without a hit; its prompt enters the tree, under a key that names its adapter. *)
start(e, n) ==
  /\ can_start(e, n)
  /\ request' = [request EXCEPT ![e] = "RUNNING"]
  /\ kv' = [kv EXCEPT ![e] = bytes[e, n]]
  /\ cached' = [cached EXCEPT ![e, n] = TRUE]
  /\ made_by' = [made_by EXCEPT ![e, n] =
       IF made_by[e, n] = "NONE" THEN bytes[e, n]
       ELSE IF made_by[e, n] = bytes[e, n] \/ bytes[e, n] = "NONE" THEN made_by[e, n]
       ELSE "MIXED"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, uses>>

(* A request starts on a cached prefix whose key names its adapter. The entry may be older than what is
   loaded: unloading an adapter empties no tree, and a name that comes back, comes back with the same bytes. *)
start_on_hit(e, n) ==
  /\ can_start(e, n)
  /\ cached[e, n]
  /\ request' = [request EXCEPT ![e] = "RUNNING"]
  /\ kv' = [kv EXCEPT ![e] =
       IF made_by[e, n] = "NONE" THEN bytes[e, n]
       ELSE IF made_by[e, n] = bytes[e, n] \/ bytes[e, n] = "NONE" THEN made_by[e, n]
       ELSE "MIXED"]
  /\ cached' = [cached EXCEPT ![e, n] = TRUE]
  /\ made_by' = [made_by EXCEPT ![e, n] =
       IF made_by[e, n] = "NONE" THEN bytes[e, n]
       ELSE IF made_by[e, n] = bytes[e, n] \/ bytes[e, n] = "NONE" THEN made_by[e, n]
       ELSE "MIXED"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, uses>>

(* A request is answered. *)
finish(e) ==
  /\ request[e] = "RUNNING"
  /\ ~paused
  /\ request' = [request EXCEPT ![e] = "NONE"]
  /\ uses' = [uses EXCEPT ![e] = None]
  /\ kv' = [kv EXCEPT ![e] = "NONE"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, cached, made_by>>

(* A paused engine may send its request back to the queue without its KV: it still names the adapter. *)
retract(e) ==
  /\ request[e] = "RUNNING"
  /\ paused
  /\ request' = [request EXCEPT ![e] = "WAITING"]
  /\ kv' = [kv EXCEPT ![e] = "NONE"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, bytes, uses, cached, made_by>>

(* An engine unloads an adapter. It waits until no request names it, also where none can end for a pause. *)
unload(e) ==
  /\ alive[e]
  /\ (IF victim = None THEN "NONE" ELSE bytes[e, victim]) # "NONE"
  /\ uses[e] # victim
  /\ bytes' = IF victim = None THEN bytes ELSE [bytes EXCEPT ![e, victim] = "NONE"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, request, uses, cached, kv, made_by>>

(* Fault. A load is refused or times out; the adapter may be there all the same. *)
load_fails(e, arrived_) ==
  /\ stage = "LOAD"
  /\ alive[e]
  /\ (IF target = None THEN "NONE" ELSE bytes[e, target]) = "NONE"
  /\ bytes' =
       IF target = None THEN bytes
       ELSE [bytes EXCEPT ![e, target] = IF arrived_ THEN "OWN" ELSE "NONE"]
  /\ stage' = "CLEAN_UP"
  /\ victim' = target
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, holds, leaked, alive, paused,
       request, uses, cached, kv, made_by>>

(* Fault. A load answers success and leaves bytes that nobody sent. *)
load_tears(e) ==
  /\ stage = "LOAD"
  /\ alive[e]
  /\ (IF target = None THEN "NONE" ELSE bytes[e, target]) = "NONE"
  /\ bytes' = IF target = None THEN bytes ELSE [bytes EXCEPT ![e, target] = "MIXED"]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked, alive,
       paused, request, uses, cached, kv, made_by>>

(* Fault. An engine does not answer an unload: the slot has leaked. It may still do what it was told
   (`unload`). *)
eviction_fails(e) ==
  /\ stage = "EVICT"
  /\ alive[e]
  /\ (IF victim = None THEN "NONE" ELSE bytes[e, victim]) # "NONE"
  /\ leaked' = [s \in Slot |-> leaked[s] \/ holds[s] = victim]
  /\ stage' = "RETIRE"
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, target, victim, holds, alive, paused, bytes,
       request, uses, cached, kv, made_by>>

(* Fault. An engine does not unload what a failed load left: that takes a slot, and the slot has leaked. *)
cleaning_fails(e, i) ==
  /\ stage = "CLEAN_UP"
  /\ alive[e]
  /\ (IF victim = None THEN "NONE" ELSE bytes[e, victim]) # "NONE"
  /\ free(i)
  /\ holds' = [holds EXCEPT ![i] = victim]
  /\ leaked' = [leaked EXCEPT ![i] = TRUE]
  /\ stage' = "IDLE"
  /\ target' = None
  /\ victim' = None
  /\ paused' = FALSE
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, alive, bytes, request, uses, cached, kv,
       made_by>>

(* Fault. An engine's process is gone. *)
die(e) ==
  /\ alive[e]
  /\ alive' = [alive EXCEPT ![e] = FALSE]
  /\ bytes' = [e2 \in Engine, a \in Adapter |-> IF e2 = e THEN "NONE" ELSE bytes[e2, a]]
  /\ request' = [request EXCEPT ![e] = "NONE"]
  /\ uses' = [uses EXCEPT ![e] = None]
  /\ cached' = [e2 \in Engine, a \in Adapter |-> IF e2 = e THEN FALSE ELSE cached[e2, a]]
  /\ kv' = [kv EXCEPT ![e] = "NONE"]
  /\ made_by' = [e2 \in Engine, a \in Adapter |-> IF e2 = e THEN "NONE" ELSE made_by[e2, a]]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, pinned, stage, target, victim, holds, leaked,
       paused>>

(* Fault. The coordinator's process is gone, its books and what was pinned in them; engines stay as they are. *)
crash ==
  /\ stage # "DOWN"
  /\ stage' = "DOWN"
  /\ pinned' = None
  /\ target' = None
  /\ victim' = None
  /\ holds' = [s \in Slot |-> None]
  /\ leaked' = [s \in Slot |-> FALSE]
  /\ UNCHANGED <<reserved, scenario, current, job, gate, alive, paused, bytes, request, uses, cached, kv,
       made_by>>

(* What is done, and not only suffered. *)
Ordinary ==
  \/ \E x \in Scenario, n \in Adapter : begin_publish(x, n)
  \/ \E n \in Adapter : begin_rollback(n)
  \/ begin_retry
  \/ begin_repair
  \/ restart
  \/ \E e \in Engine : rebuild(e)
  \/ reconcile
  \/ \E e \in Engine, n \in Adapter : unload_stray(e, n)
  \/ all_reconciled
  \/ \E x \in Scenario : choose_lost(x)
  \/ choose_job
  \/ choose_nothing
  \/ point_at
  \/ \E n \in Adapter : evict_leaked(n)
  \/ \E n \in Adapter : evict(n)
  \/ \E x \in Scenario, n \in Adapter : evict_own(x, n)
  \/ refuse
  \/ all_evicted
  \/ retire
  \/ begin_load
  \/ \E e \in Engine : load(e)
  \/ \E i \in Slot : register(i)
  \/ find_dead
  \/ find_mismatch
  \/ all_cleaned
  \/ commit
  \/ \E x \in Scenario : open_gate(x)
  \/ \E n \in Adapter : pin(n)
  \/ unpin
  \/ \E e \in Engine, x \in Scenario : admit(e, x)
  \/ \E e \in Engine, n \in Adapter : start(e, n)
  \/ \E e \in Engine, n \in Adapter : start_on_hit(e, n)
  \/ \E e \in Engine : finish(e)
  \/ \E e \in Engine : retract(e)
  \/ \E e \in Engine : unload(e)

(* What goes wrong. *)
Fault ==
  \/ \E e \in Engine, arrived_ \in BOOLEAN : load_fails(e, arrived_)
  \/ \E e \in Engine : load_tears(e)
  \/ \E e \in Engine : eviction_fails(e)
  \/ \E e \in Engine, i \in Slot : cleaning_fails(e, i)
  \/ \E e \in Engine : die(e)
  \/ crash

Next ==
  /\ Ordinary \/ Fault
  /\ InScope'

Spec == Init /\ [][Next]_vars

(* A request starts on KV that nothing made but what its engine has under the name in it (S1). *)
no_stale_hit ==
  [][\A e \in Engine : (request[e] = "WAITING" /\ request'[e] = "RUNNING") => kv'[e] = (IF uses[e] = None THEN
    "NONE" ELSE bytes'[e, uses[e]])]_vars

(* No running request holds KV that another adapter made, though all adapters share one tree (S5). *)
kv_of_one_adapter == \A e \in Engine : kv[e] \in {"NONE", "OWN"}

(* What an engine has under a name does not become other bytes: a name is never used for two contents (S6). *)
one_content_per_name ==
  [][\A e \in Engine : \A a \in Adapter : (bytes[e, a] = "NONE" \/ bytes'[e, a] = "NONE") \/ bytes'[e, a] =
    bytes[e, a]]_vars

(* A name is given to the job that publishes it, and stands for that revision of one scenario for ever (S6). *)
names_are_kept ==
  [][\A a \in Adapter : scenario'[a] = scenario[a] \/ (scenario[a] = None /\ job' = a /\ job = None)]_vars

(* A request runs on the bytes that the name in it stands for, whole. *)
requests_run_on_their_adapter ==
  \A e \in Engine : request[e] = "RUNNING" => (IF uses[e] = None THEN "NONE" ELSE bytes[e, uses[e]]) = "OWN"

(* Whatever an admitted request names, its engine has for as long as the request is there. *)
requests_find_their_adapter ==
  \A e \in Engine : request[e] # "NONE" => (IF uses[e] = None THEN "NONE" ELSE bytes[e, uses[e]]) # "NONE"

(* A running request has KV, an entry of the tree has KV, a request names an adapter, and nothing else does. *)
provenance_is_complete ==
  \A e \in Engine : (request[e] = "NONE") = (uses[e] = None) /\ (request[e] = "RUNNING") = (kv[e] # "NONE") /\
    (\A a \in Adapter : cached[e, a] = (made_by[e, a] # "NONE"))

(* No request starts on a paused engine. *)
starts_between_pauses ==
  [][paused => (\A e \in Engine : request[e] = "RUNNING" \/ request'[e] # "RUNNING")]_vars

(* A request that was admitted ends only where it runs and no pause holds it, or with its engine's process
   (L1). *)
nobody_is_lost ==
  [][\A e \in Engine : (request[e] # "NONE" /\ request'[e] = "NONE") => (alive'[e] => (request[e] = "RUNNING"
    /\ ~paused))]_vars

(* Where there is no room, no byte moves, no adapter goes, no engine is retired, and engines generate (P18). *)
refusal_is_harmless ==
  [][refuses => (stage' = "IDLE" /\ ~paused' /\ job' = job /\ (\A s \in Slot : holds'[s] = holds[s]) /\ (\A s
    \in Scenario : gate'[s] = gate[s]) /\ (\A e \in Engine : alive'[e] = alive[e] /\ (\A a \in Adapter :
    bytes'[e, a] = bytes[e, a])))]_vars

(* A job is refused only where no slot is free or has leaked, and somebody needs whatever is in them (P18). *)
refused_only_for_want_of_room ==
  [][refuses => nothing_may_go]_vars

(* What another scenario is served with, what is pinned and what a request names is not evicted (P19). What
   has leaked is not there to be pinned. A scenario's own adapter is evicted only for its successor, and while
   none of its requests is admitted. *)
protected_adapters_stay ==
  stage = "EVICT" => (((pinned = None \/ pinned # victim) \/ ~(\E s \in Slot : holds[s] = victim /\
    ~leaked[s])) /\ (\A e \in Engine : uses[e] = None \/ uses[e] # victim) /\ (\A s \in Scenario : (victim #
    None /\ current[s] = victim) => (~gate[s] /\ target = job /\ (IF target = None THEN None ELSE
    scenario[target]) = s)))

(* What has leaked goes before anything else, and what a scenario is served with after everything else. *)
needless_ones_go_first ==
  [][(stage = "MAKE_ROOM" /\ stage' = "EVICT") => (leaks = (\E s \in Slot : leaked[s] /\ holds[s] = victim')
    /\ ((\E s \in Scenario : current[s] = victim') => ((\E s \in Slot : leaked[s] /\ holds[s] = victim') \/
    (\A a \in Adapter : ~idle_in_slot(a)))) /\ ((\E s \in Slot : leaked[s] /\ holds[s] = victim') \/
    is_full))]_vars

(* An adapter that still has its slot is only pointed at. *)
resident_targets_move_no_bytes ==
  [][(stage = "MAKE_ROOM" /\ (\E s \in Slot : holds[s] = target /\ ~leaked[s])) => stage' \in {"MAKE_ROOM",
    "COMMIT", "DOWN"}]_vars

(* What has a slot, every engine that runs has, right and whole; what leaked or is being evicted aside (P20). *)
books_within_engines ==
  stage \in {"DOWN", "REBUILD", "RECONCILE", "RETIRE"} \/ (\A a \in Adapter : ((\E s \in Slot : holds[s] = a
    /\ ~leaked[s]) /\ victim # a) => (\A e \in Engine : alive[e] => bytes[e, a] = "OWN"))

(* Whatever an engine has, has a slot or is being loaded: the books know how full engines are (P20). *)
engines_within_books ==
  stage \in {"DOWN", "REBUILD", "RECONCILE", "RETIRE"} \/ (\A e \in Engine : \A a \in Adapter : (bytes[e, a] =
    "NONE" \/ target = a) \/ (\E s \in Slot : holds[s] = a))

(* No adapter has two slots, none has one that is taken for good, and only a taken slot leaks. *)
one_slot_each ==
  \A s \in Slot : (holds[s] = None \/ ~reserved[s]) /\ (leaked[s] => holds[s] # None) /\ (\A s2 \in Slot : (s
    = s2 \/ holds[s] = None) \/ holds[s] # holds[s2])

(* What is loaded is there while room is made for it, and what is unloaded while it goes; otherwise neither
   is. What is evicted has a slot, what is committed is the job, and a coordinator that rests or repairs has
   no target. *)
stages_have_their_adapters ==
  /\ stage \in {"DOWN", "IDLE", "REBUILD", "RECONCILE"} => target = None
  /\ stage \in {"MAKE_ROOM", "EVICT", "RETIRE", "LOAD", "CLEAN_UP", "COMMIT"} => target # None
  /\ (stage \in {"EVICT", "RETIRE", "CLEAN_UP"}) = (victim # None)
  /\ stage \in {"EVICT", "RETIRE"} => (\E s \in Slot : holds[s] = victim)
  /\ stage = "COMMIT" => target = job

(* Where there is no process, there is no adapter, no request and no tree. *)
lost_engines_have_nothing ==
  \A e \in Engine : alive[e] \/ (request[e] = "NONE" /\ (\A a \in Adapter : bytes[e, a] = "NONE" /\ ~cached[e,
    a]))

(* Where a scenario's requests are admitted, every engine that runs has its adapter, right and whole (P7). *)
served_adapters_are_loaded ==
  \A s \in Scenario : gate[s] => (current[s] # None /\ (\A e \in Engine : alive[e] => (IF current[s] = None
    THEN "NONE" ELSE bytes[e, current[s]]) = "OWN"))

(* The current adapter of a scenario is a revision of this scenario. *)
scenarios_are_served_with_their_own ==
  \A s \in Scenario : current[s] = None \/ (IF current[s] = None THEN None ELSE scenario[current[s]]) = s

(* A job ends only as its scenario's current adapter, and an adapter becomes current only as a job. *)
jobs_end_as_current ==
  [][((job = None \/ job' = job) \/ (job' = None /\ (\E s \in Scenario : current'[s] = job))) /\ (\A s \in
    Scenario : current'[s] = current[s] \/ current'[s] = job)]_vars

(* What a scenario has lost is turned to before the job, and the coordinator rests only where there is
   neither. *)
nothing_is_passed_over ==
  [][(stage = "CHOOSE" /\ stage' \notin {"CHOOSE", "DOWN"}) => (IF \E s \in Scenario : to_restore(s) THEN \E s
    \in Scenario : to_restore(s) /\ target' = current[s] ELSE target' = job)]_vars

(* A scenario's admission closes only for a repair, a restart, or an eviction of its own adapter (P18). *)
admission_closes_for_cause ==
  [][\A s \in Scenario : ~gate[s] \/ gate'[s] \/ stage = "DOWN" \/ needs_repair \/ (stage' = "EVICT" /\
    victim' = current[s])]_vars

(* Engines are retired only where one of them did not unload what it was told to, and then always (P18). *)
retired_only_for_cause ==
  [][((stage # "RETIRE" /\ stage' = "RETIRE") => (stage = "EVICT" /\ (\E s \in Slot : leaked'[s] /\ holds'[s]
    = victim'))) /\ ((stage = "EVICT" /\ stage' = "MAKE_ROOM") => (\A e \in Engine : alive'[e] => (IF victim =
    None THEN "NONE" ELSE bytes'[e, victim]) = "NONE"))]_vars

(* Engines are paused only while a load or its end is under way, or where a coordinator died in that. *)
pauses_are_short == paused => stage \in {"LOAD", "CLEAN_UP", "COMMIT", "DOWN"}

(* Where nothing but a fault can happen, the protocol may rest. *)
no_dead_end == ENABLED Ordinary

(* Reachable, so that TLC refutes its opposite as an invariant: Two engines run requests of different
   scenarios. *)
two_served ==
  \E e \in Engine : \E e2 \in Engine : request[e] = "RUNNING" /\ request[e2] = "RUNNING" /\ uses[e] # None /\
    (IF uses[e] = None THEN None ELSE scenario[uses[e]]) # (IF uses[e2] = None THEN None ELSE
    scenario[uses[e2]])

(* Reachable, so that TLC refutes its opposite as an invariant: An adapter was unloaded and came back, a
   request for it waits, and entries from before are there to be hit. *)
reloaded ==
  \E e \in Engine : \E a \in Adapter : request[e] = "WAITING" /\ uses[e] = a /\ cached[e, a] /\ bytes[e, a] =
    "OWN" /\ (\E a2 \in Adapter : cached[e, a2] /\ bytes[e, a2] = "NONE")

(* Reachable, so that TLC refutes its opposite as an invariant: A request still names an adapter that its
   scenario is no longer served with. *)
outlived == \E e \in Engine : \E a \in Adapter : uses[e] = a /\ ~serves(a)

(* Reachable, so that TLC refutes its opposite as an invariant: There is no room: every slot is in use, one of
   them by a request for what was superseded. *)
refused ==
  /\ wants_room
  /\ nothing_may_go

(* Reachable, so that TLC refutes its opposite as an invariant: A scenario's own adapter is being evicted,
   while another scenario is served. *)
out_of_service ==
  /\ stage = "EVICT"
  /\ \E s \in Scenario : victim # None /\ current[s] = victim
  /\ \E s \in Scenario : gate[s]

(* Reachable, so that TLC refutes its opposite as an invariant: A scenario goes back to an adapter that still
   has its slot. *)
rolled_back ==
  /\ stage = "COMMIT"
  /\ ~paused

(* Reachable, so that TLC refutes its opposite as an invariant: Something has leaked, and has to go before a
   job gets on. *)
leaked_ ==
  /\ stage = "MAKE_ROOM"
  /\ leaks

(* Reachable, so that TLC refutes its opposite as an invariant: A load answered success, and the bytes are
   nobody's. *)
torn ==
  /\ stage = "LOAD"
  /\ \E e \in Engine : (IF target = None THEN "NONE" ELSE bytes[e, target]) = "MIXED"

(* Reachable, so that TLC refutes its opposite as an invariant: A load has failed, and every engine has the
   adapter all the same, right and whole. *)
arrived ==
  /\ stage = "CLEAN_UP"
  /\ \A e \in Engine : alive[e] /\ ((IF victim = None THEN "NONE" ELSE bytes[e, victim]) = "OWN")

(* Reachable, so that TLC refutes its opposite as an invariant: One engine was replaced, and the other still
   runs a request for what the new one lacks. *)
half_replaced ==
  /\ stage = "RECONCILE"
  /\ \E e \in Engine : request[e] = "RUNNING" /\ (\E a \in Adapter : uses[e] = a /\ ~(\E s \in Slot : holds[s]
       = a /\ ~leaked[s]))

(* Reachable, so that TLC refutes its opposite as an invariant: A retracted request names an adapter on a
   paused engine. *)
retracted ==
  /\ paused
  /\ \E e \in Engine : request[e] = "WAITING" /\ (\E a \in Adapter : uses[e] = a /\ cached[e, a])

(* Reachable, so that TLC refutes its opposite as an invariant: An engine did not unload, and engines are to
   be retired. *)
condemned == stage = "RETIRE"

(* Reachable, so that TLC refutes its opposite as an invariant: An adapter is pinned, and another is evicted. *)
kept ==
  /\ stage = "EVICT"
  /\ \E a \in Adapter : pinned = a /\ (\E s \in Slot : holds[s] = a /\ ~leaked[s])

(* From every reachable state of unloads_return_from, some run without faults, and without restart leads to
   unloads_return_to: An unload that was asked for is answered: no request that it waits for waits for it. *)
unloads_return_from == stage \in {"EVICT", "CLEAN_UP", "RECONCILE"}
unloads_return_to == stage \notin {"EVICT", "CLEAN_UP", "RECONCILE"}

(* From every reachable state of publications_complete_from, some run without faults leads to
   publications_complete_to: With a slot for each scenario, a job can become current, once requests have ended
   and pins are gone (L8). *)
publications_complete_from ==
  /\ job # None
  /\ a_slot_each
publications_complete_to == job = None

(* From every reachable state of a_spare_slot_avoids_outage_from, some run without faults, and without
   evict_own, restart leads to a_spare_slot_avoids_outage_to: With a slot to spare, a job can become current
   while every scenario is served all the time (L8). *)
a_spare_slot_avoids_outage_from ==
  /\ takes_calls
  /\ job # None
  /\ a_slot_to_spare
  /\ \A s \in Scenario : is_served(s)
a_spare_slot_avoids_outage_to ==
  /\ job = None
  /\ \A s \in Scenario : is_served(s) \/ current[s] = job

(* From every reachable state of everything_is_repaired_from, some run without faults leads to
   everything_is_repaired_to: With a slot for each: every engine can run, every scenario with an adapter be
   served, and no job be left. *)
everything_is_repaired_from == a_slot_each
everything_is_repaired_to ==
  /\ stage = "IDLE"
  /\ job = None
  /\ \A e \in Engine : alive[e]
  /\ \A s \in Scenario : is_served(s)

(* From every reachable state of requests_end_from, some run without faults, and without retire leads to
   requests_end_to: Every admitted request can be answered, and no engine need be retired for it (L1). *)
requests_end_from ==
  /\ \E e \in Engine : request[e] # "NONE"
  /\ stage # "RETIRE"
requests_end_to == \A e \in Engine : request[e] = "NONE"
================================================================================
