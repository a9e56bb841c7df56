-------------------------------- MODULE serving --------------------------------
(* serving. Written by reef-ref export from the protocol: change that. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  None,
  Request,
  Adapter,
  MaxLoad

Mode == {"IN_PLACE", "RETRACT", "ABORT"}
Stage == {"SERVING", "PAUSING", "PAUSED", "FLUSHED"}
Phase == {"DONE", "GRAMMAR", "WAITING", "PREFILLING", "PREFILLED", "RUNNING"}
Load == 0 .. MaxLoad

VARIABLES
  mode,
    (* how a publication pauses the engine *)
  sharing,
    (* the engine keeps a prefix tree that requests share *)
  offloads,
    (* a publication releases the engine's memory while the trainer works *)
  limited,
    (* the waiting queue takes one request, as the smallest queue limit has it *)
  stage,
    (* how far the publication is *)
  complete,
    (* the last that was sent of a load was all of it, and it is still there *)
  phase,
    (* where the request is *)
  adapter,
    (* what it is to be answered with; none once it is answered *)
  gone,
    (* its client has left, and the front end waits for it no more *)
  stamp,
    (* the load that the newest token is labelled with *)
  counted,
    (* reused tokens were counted; on the wire: cached_tokens *)
  retracted,
    (* it was retracted, at least once; on the wire: num_retractions *)
  ahead,
    (* whose result is computed and not processed: the batch that ran ahead *)
  ahead_label,
    (* the label when that batch was launched *)
  told_idle,
    (* since the last request came, a health check was told that the engine is idle *)
  cached,
    (* the tree holds an entry under this adapter's key *)
  weights,
    (* the bytes that are the serving weights, as their checksum tells *)
  label,
    (* the load that the engine reports; on the wire: weight_version *)
  loaded,
    (* bytes are loaded under the adapter's name *)
  weights_out,
    (* the memory of the weights is released *)
  kv_out,
    (* the memory of the KV is released *)
  kv,
    (* ghost: the weights that made the request's KV *)
  kv_with,
    (* ghost: the adapters that made it *)
  reused,
    (* ghost: its KV begins, or began when it was answered, with a prefix from the tree *)
  made_by,
    (* ghost: the weights that made the entry *)
  made_with,
    (* ghost: the adapters that made it *)
  ahead_weights,
    (* ghost: the weights that computed the result that is not processed *)
  overwritten,
    (* ghost: other bytes were put under the adapter's name *)
  unpaired
    (* ghost: the engine was told to take back memory that it had not released *)

vars == <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted, retracted,
  ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with, reused,
  made_by, made_with, ahead_weights, overwritten, unpaired>>

TypeOK ==
  /\ mode \in Mode
  /\ sharing \in BOOLEAN
  /\ offloads \in BOOLEAN
  /\ limited \in BOOLEAN
  /\ stage \in Stage
  /\ complete \in BOOLEAN
  /\ phase \in [Request -> Phase]
  /\ adapter \in [Request -> Adapter \cup {None}]
  /\ gone \in [Request -> BOOLEAN]
  /\ stamp \in [Request -> Load \cup {None}]
  /\ counted \in [Request -> BOOLEAN]
  /\ retracted \in [Request -> BOOLEAN]
  /\ ahead \in Request \cup {None}
  /\ ahead_label \in Load
  /\ told_idle \in BOOLEAN
  /\ cached \in [Adapter -> BOOLEAN]
  /\ weights \in Load
  /\ label \in Load
  /\ loaded \in [Adapter -> BOOLEAN]
  /\ weights_out \in BOOLEAN
  /\ kv_out \in BOOLEAN
  /\ kv \in [Request \X Load -> BOOLEAN]
  /\ kv_with \in [Request \X Adapter -> BOOLEAN]
  /\ reused \in [Request -> BOOLEAN]
  /\ made_by \in [Adapter \X Load -> BOOLEAN]
  /\ made_with \in [Adapter \X Adapter -> BOOLEAN]
  /\ ahead_weights \in Load
  /\ overwritten \in [Adapter -> BOOLEAN]
  /\ unpaired \in BOOLEAN

(* What a scope cuts off: steps that lead out of it are not taken. *)
InScope ==
  /\ stamp \in [Request -> Load \cup {None}]
  /\ ahead_label \in Load
  /\ weights \in Load
  /\ label \in Load
  /\ ahead_weights \in Load

(* The publication's pause is one that a flush belongs to. *)
must_flush == mode # "IN_PLACE"

(* Somebody waits for an answer. *)
unanswered(r) == phase[r] # "DONE"

(* No region is released. *)
memory_is_there ==
  /\ ~weights_out
  /\ ~kv_out

(* A later load than the initial one is served. *)
published ==
  /\ stage = "SERVING"
  /\ 1 < label

(* No request is in the phase. *)
none_is(phase_) == ~(\E r \in Request : phase[r] = phase_)

(* In this step, the engine computes for the request. *)
launches(r) ==
  /\ ahead = None
  /\ ahead' = r

(* The scheduler schedules nothing. A pause that aborts never reaches it. *)
paused ==
  /\ stage # "SERVING"
  /\ mode # "ABORT"

(* The driver has what it waits for before it sends or continues. *)
may_send == stage = "FLUSHED" \/ ~must_flush

(* Some of the request's KV was made by other weights than those that are there. *)
older(r) == \E l \in Load : kv[r, l] /\ weights # l

(* The waiting queue takes no more (``_abort_on_queued_limit``). *)
full ==
  /\ limited
  /\ ~none_is("WAITING")

(* Nobody waits for an answer here, and no batch still computes for one who did. *)
answered(r) ==
  /\ phase[r] = "DONE"
  /\ ahead # r

(* The engine is paused and flushed; or paused in place, where no flush belongs to the pause. *)
barrier_passed == stage = "FLUSHED" \/ (stage = "PAUSED" /\ mode = "IN_PLACE")

(* The request holds KV, as the scheduler's batches say. *)
on_device(r) == phase[r] \in {"PREFILLING", "PREFILLED", "RUNNING"}

(* No stamp, no count, no retraction; and nobody has left. *)
reports_nothing(r) ==
  /\ stamp[r] = None
  /\ ~counted[r]
  /\ ~retracted[r]
  /\ ~gone[r]

(* In this step, the request goes from the queue to the device. *)
starts(r) ==
  /\ phase[r] = "WAITING"
  /\ on_device(r)'

(* The request's KV is in use: by its batch, or by one that ran ahead and left it behind. *)
holds_kv(r) == on_device(r) \/ ahead = r

(* The request's result ran ahead, and the scheduler runs, or drains before it retracts. *)
can_process(r) ==
  /\ ahead = r
  /\ paused => (stage = "PAUSING" /\ mode = "RETRACT")

(* The request's turn has come; between its chunks there is one request at most. *)
can_start(r, chunked) ==
  /\ ~paused
  /\ ahead = None
  /\ phase[r] = "WAITING"
  /\ chunked => none_is("PREFILLING")

(* In this step, a token is appended to what the request's client gets. *)
delivers(r) ==
  /\ phase[r] \in {"PREFILLED", "RUNNING"}
  /\ ahead = r
  /\ ahead' = r => phase'[r] = "DONE"
  /\ stamp'[r] # None

(* The engine serves the initial load, in any configuration that may run, and nobody has come yet. A tree that
   is shared needs the flush, which a pause in place does not allow for. Released memory needs it too, and a
   queue that may refuse what is retracted loses requests. *)
Init ==
  \E mode_ \in Mode, sharing_ \in BOOLEAN, offloads_ \in BOOLEAN, limited_ \in BOOLEAN :
    /\ sharing_ => mode_ # "IN_PLACE"
    /\ offloads_ => mode_ = "RETRACT"
    /\ limited_ => mode_ # "RETRACT"
    /\ mode = mode_
    /\ sharing = sharing_
    /\ offloads = offloads_
    /\ limited = limited_
    /\ stage = "SERVING"
    /\ complete = TRUE
    /\ phase = [r \in Request |-> "DONE"]
    /\ adapter = [r \in Request |-> None]
    /\ gone = [r \in Request |-> FALSE]
    /\ stamp = [r \in Request |-> None]
    /\ counted = [r \in Request |-> FALSE]
    /\ retracted = [r \in Request |-> FALSE]
    /\ ahead = None
    /\ ahead_label = 0
    /\ told_idle = FALSE
    /\ cached = [a \in Adapter |-> FALSE]
    /\ weights = 1
    /\ label = 1
    /\ loaded = [a \in Adapter |-> FALSE]
    /\ weights_out = FALSE
    /\ kv_out = FALSE
    /\ kv = [r \in Request, l \in Load |-> FALSE]
    /\ kv_with = [r \in Request, a \in Adapter |-> FALSE]
    /\ reused = [r \in Request |-> FALSE]
    /\ made_by = [a \in Adapter, l \in Load |-> FALSE]
    /\ made_with = [a \in Adapter, a2 \in Adapter |-> FALSE]
    /\ ahead_weights = 0
    /\ overwritten = [a \in Adapter |-> FALSE]
    /\ unpaired = FALSE

(* A request comes and is queued, after its grammar is compiled if it has one. While the engine is paused,
   calls that were past the front end's gate still come, and are queued. A pause that aborts waits for those,
   so that here they have all come before. *)
admit(r, a, constrained) ==
  /\ answered(r)
  /\ loaded[a]
  /\ mode = "ABORT" => stage = "SERVING"
  /\ ~full
  /\ phase' = [phase EXCEPT ![r] = IF constrained THEN "GRAMMAR" ELSE "WAITING"]
  /\ adapter' = [adapter EXCEPT ![r] = a]
  /\ stamp' = [stamp EXCEPT ![r] = None]
  /\ counted' = [counted EXCEPT ![r] = FALSE]
  /\ retracted' = [retracted EXCEPT ![r] = FALSE]
  /\ reused' = [reused EXCEPT ![r] = FALSE]
  /\ told_idle' = FALSE
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, gone, ahead, ahead_label, cached, weights,
       label, loaded, weights_out, kv_out, kv, kv_with, made_by, made_with, ahead_weights, overwritten,
       unpaired>>

(* A client leaves, and the front end forgets the call before the scheduler does. Only a pause that aborts
   asks whether calls are under way, so that it makes no difference to the others. *)
disconnect(r) ==
  /\ mode = "ABORT"
  /\ unanswered(r)
  /\ gone' = [gone EXCEPT ![r] = TRUE]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* A grammar is compiled, and its request joins the waiting queue. A paused scheduler does not look. *)
compile_grammar(r) ==
  /\ ~paused
  /\ phase[r] = "GRAMMAR"
  /\ phase' = [phase EXCEPT ![r] = IF full THEN "DONE" ELSE "WAITING"]
  /\ adapter' = [adapter EXCEPT ![r] = IF ~full THEN adapter[r] ELSE None]
  /\ gone' = [gone EXCEPT ![r] = gone[r] /\ ~full]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, stamp, counted, retracted, ahead,
       ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with, reused,
       made_by, made_with, ahead_weights, overwritten, unpaired>>

(* A request starts without a hit: all of its prompt is computed, or the first chunk of it. *)
start(r, chunked) ==
  /\ can_start(r, chunked)
  /\ phase' = [phase EXCEPT ![r] = IF chunked THEN "PREFILLING" ELSE "PREFILLED"]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN weights = l ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |-> IF r2 = r THEN adapter[r] = a ELSE kv_with[r2, a]]
  /\ ahead' = r
  /\ ahead_label' = label
  /\ ahead_weights' = weights
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, adapter, gone, stamp, counted, retracted,
       told_idle, cached, weights, label, loaded, weights_out, kv_out, reused, made_by, made_with,
       overwritten, unpaired>>

(* A request starts on an entry of the tree; the rest of its prompt, at least one token, is computed. What it
   reuses is counted, unless it was ever retracted (``prepare_for_extend``). *)
start_on_hit(r, chunked) ==
  /\ can_start(r, chunked)
  /\ IF adapter[r] = None THEN FALSE ELSE cached[adapter[r]]
  /\ phase' = [phase EXCEPT ![r] = IF chunked THEN "PREFILLING" ELSE "PREFILLED"]
  /\ counted' = [counted EXCEPT ![r] = counted[r] \/ ~retracted[r]]
  /\ kv' = [r2 \in Request, l \in Load |->
       IF r2 = r THEN (IF adapter[r] = None THEN FALSE ELSE made_by[adapter[r], l]) \/ weights = l
       ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |->
       IF r2 = r THEN (IF adapter[r] = None THEN FALSE ELSE made_with[adapter[r], a]) \/ adapter[r] = a
       ELSE kv_with[r2, a]]
  /\ reused' = [reused EXCEPT ![r] = TRUE]
  /\ ahead' = r
  /\ ahead_label' = label
  /\ ahead_weights' = weights
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, adapter, gone, stamp, retracted,
       told_idle, cached, weights, label, loaded, weights_out, kv_out, made_by, made_with, overwritten,
       unpaired>>

(* The chunk that is there enters the tree (``stash_chunked_request``), and the last one is computed. *)
prefill_rest(r) ==
  /\ ~paused
  /\ ahead = None
  /\ phase[r] = "PREFILLING"
  /\ phase' = [phase EXCEPT ![r] = "PREFILLED"]
  /\ cached' = IF adapter[r] = None THEN cached ELSE [cached EXCEPT ![adapter[r]] = sharing]
  /\ made_by' =
       IF adapter[r] = None THEN made_by
       ELSE [a \in Adapter, l \in Load |-> IF a = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_by[adapter[r], l]) \/ (sharing /\ kv[r, l]) ELSE made_by[a, l]]
  /\ made_with' =
       IF adapter[r] = None THEN made_with
       ELSE [a2 \in Adapter, a \in Adapter |-> IF a2 = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_with[adapter[r], a]) \/ (sharing /\ kv_with[r, a]) ELSE made_with[a2, a]]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN kv[r, l] \/ weights = l ELSE kv[r2, l]]
  /\ ahead' = r
  /\ ahead_label' = label
  /\ ahead_weights' = weights
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, adapter, gone, stamp, counted, retracted,
       told_idle, weights, label, loaded, weights_out, kv_out, kv_with, reused, overwritten, unpaired>>

(* A request joins the running batch, if it is not in it, and its next token is computed. *)
decode(r) ==
  /\ ~paused
  /\ ahead = None
  /\ phase[r] \in {"PREFILLED", "RUNNING"}
  /\ phase' = [phase EXCEPT ![r] = "RUNNING"]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN kv[r, l] \/ weights = l ELSE kv[r2, l]]
  /\ ahead' = r
  /\ ahead_label' = label
  /\ ahead_weights' = weights
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, adapter, gone, stamp, counted, retracted,
       told_idle, cached, weights, label, loaded, weights_out, kv_out, kv_with, reused, made_by, made_with,
       overwritten, unpaired>>

(* The result of a chunk is processed: there is no token in it. *)
take_chunk(r) ==
  /\ can_process(r)
  /\ phase[r] = "PREFILLING"
  /\ ahead' = None
  /\ ahead_label' = 0
  /\ ahead_weights' = 0
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with, reused,
       made_by, made_with, overwritten, unpaired>>

(* The result of a prefill is processed: the prompt enters the tree, and the first token is stamped. *)
take_prompt(r) ==
  /\ can_process(r)
  /\ phase[r] = "PREFILLED"
  /\ cached' = IF adapter[r] = None THEN cached ELSE [cached EXCEPT ![adapter[r]] = sharing]
  /\ made_by' =
       IF adapter[r] = None THEN made_by
       ELSE [a \in Adapter, l \in Load |-> IF a = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_by[adapter[r], l]) \/ (sharing /\ kv[r, l]) ELSE made_by[a, l]]
  /\ made_with' =
       IF adapter[r] = None THEN made_with
       ELSE [a2 \in Adapter, a \in Adapter |-> IF a2 = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_with[adapter[r], a]) \/ (sharing /\ kv_with[r, a]) ELSE made_with[a2, a]]
  /\ stamp' = [stamp EXCEPT ![r] = ahead_label]
  /\ ahead' = None
  /\ ahead_label' = 0
  /\ ahead_weights' = 0
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, counted, retracted,
       told_idle, weights, label, loaded, weights_out, kv_out, kv, kv_with, reused, overwritten, unpaired>>

(* The result of a decode is processed: one more token is stamped. *)
take_token(r) ==
  /\ can_process(r)
  /\ phase[r] = "RUNNING"
  /\ stamp' = [stamp EXCEPT ![r] = ahead_label]
  /\ ahead' = None
  /\ ahead_label' = 0
  /\ ahead_weights' = 0
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, counted, retracted,
       told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with, reused, made_by,
       made_with, overwritten, unpaired>>

(* The last token is processed: all of the request's KV enters the tree, and the answer goes out. Where the
   next batch was launched with it before anybody knew, that batch still computes for it `once_more`. *)
finish(r, once_more) ==
  /\ can_process(r)
  /\ phase[r] \in {"PREFILLED", "RUNNING"}
  /\ cached' = IF adapter[r] = None THEN cached ELSE [cached EXCEPT ![adapter[r]] = sharing]
  /\ made_by' =
       IF adapter[r] = None THEN made_by
       ELSE [a \in Adapter, l \in Load |-> IF a = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_by[adapter[r], l]) \/ (sharing /\ kv[r, l]) ELSE made_by[a, l]]
  /\ made_with' =
       IF adapter[r] = None THEN made_with
       ELSE [a2 \in Adapter, a \in Adapter |-> IF a2 = adapter[r] THEN (IF adapter[r] = None THEN FALSE ELSE
         made_with[adapter[r], a]) \/ (sharing /\ kv_with[r, a]) ELSE made_with[a2, a]]
  /\ phase' = [phase EXCEPT ![r] = "DONE"]
  /\ adapter' = [adapter EXCEPT ![r] = None]
  /\ gone' = [gone EXCEPT ![r] = FALSE]
  /\ stamp' = [stamp EXCEPT ![r] = ahead_label]
  /\ ahead' = IF once_more THEN ahead ELSE None
  /\ ahead_label' = 0
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN once_more /\ weights = l ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |->
       IF r2 = r THEN once_more /\ adapter[r] = a
       ELSE kv_with[r2, a]]
  /\ ahead_weights' = 0
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, counted, retracted, told_idle, weights,
       label, loaded, weights_out, kv_out, reused, overwritten, unpaired>>

(* A result for a request that has left its batch meanwhile is thrown away, and its KV with it. *)
drop_result(r) ==
  /\ can_process(r)
  /\ ~on_device(r)
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN FALSE ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |-> IF r2 = r THEN FALSE ELSE kv_with[r2, a]]
  /\ ahead' = None
  /\ ahead_label' = 0
  /\ ahead_weights' = 0
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, told_idle, cached, weights, label, loaded, weights_out, kv_out, reused, made_by, made_with,
       overwritten, unpaired>>

(* A pause takes a request back, after the result that ran ahead was processed. *)
retract(r) ==
  /\ stage = "PAUSING"
  /\ mode = "RETRACT"
  /\ ahead = None
  /\ on_device(r)
  /\ phase' = [phase EXCEPT ![r] = IF full THEN "DONE" ELSE "WAITING"]
  /\ adapter' = [adapter EXCEPT ![r] = IF ~full THEN adapter[r] ELSE None]
  /\ gone' = [gone EXCEPT ![r] = gone[r] /\ ~full]
  /\ stamp' = [stamp EXCEPT ![r] = IF ~full THEN stamp[r] ELSE None]
  /\ counted' = [counted EXCEPT ![r] = counted[r] /\ ~full]
  /\ retracted' = [retracted EXCEPT ![r] = ~full]
  /\ reused' = [reused EXCEPT ![r] = FALSE]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN ahead = r /\ kv[r, l] ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |->
       IF r2 = r THEN ahead = r /\ kv_with[r, a]
       ELSE kv_with[r2, a]]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, ahead, ahead_label, told_idle, cached,
       weights, label, loaded, weights_out, kv_out, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* Memory is short, and the scheduler takes a running request back; a result that ran ahead will be dropped. *)
preempt(r) ==
  /\ ~paused
  /\ phase[r] = "RUNNING"
  /\ phase' = [phase EXCEPT ![r] = IF full THEN "DONE" ELSE "WAITING"]
  /\ adapter' = [adapter EXCEPT ![r] = IF ~full THEN adapter[r] ELSE None]
  /\ gone' = [gone EXCEPT ![r] = gone[r] /\ ~full]
  /\ stamp' = [stamp EXCEPT ![r] = IF ~full THEN stamp[r] ELSE None]
  /\ counted' = [counted EXCEPT ![r] = counted[r] /\ ~full]
  /\ retracted' = [retracted EXCEPT ![r] = ~full]
  /\ reused' = [reused EXCEPT ![r] = FALSE]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN ahead = r /\ kv[r, l] ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |->
       IF r2 = r THEN ahead = r /\ kv_with[r, a]
       ELSE kv_with[r2, a]]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, ahead, ahead_label, told_idle, cached,
       weights, label, loaded, weights_out, kv_out, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* A request that has no token coming is ended with an error, one between its chunks without its KV. One that
   has ends when that token is processed, as any other does. *)
abort(r) ==
  /\ gone[r] \/ (stage = "PAUSING" /\ mode = "ABORT")
  /\ phase[r] \in {"GRAMMAR", "WAITING", "PREFILLING"}
  /\ phase' = [phase EXCEPT ![r] = "DONE"]
  /\ adapter' = [adapter EXCEPT ![r] = None]
  /\ gone' = [gone EXCEPT ![r] = FALSE]
  /\ stamp' = [stamp EXCEPT ![r] = None]
  /\ counted' = [counted EXCEPT ![r] = FALSE]
  /\ retracted' = [retracted EXCEPT ![r] = FALSE]
  /\ reused' = [reused EXCEPT ![r] = FALSE]
  /\ kv' = [r2 \in Request, l \in Load |-> IF r2 = r THEN ahead = r /\ kv[r, l] ELSE kv[r2, l]]
  /\ kv_with' = [r2 \in Request, a \in Adapter |->
       IF r2 = r THEN ahead = r /\ kv_with[r, a]
       ELSE kv_with[r2, a]]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, ahead, ahead_label, told_idle, cached,
       weights, label, loaded, weights_out, kv_out, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* A health check is told that the engine has nothing to do: every term of the idle test, paused or not. *)
tell_idle ==
  /\ none_is("PREFILLING")
  /\ none_is("PREFILLED")
  /\ none_is("RUNNING")
  /\ ahead = None
  /\ (\E r \in Request : phase[r] = "WAITING") => FALSE
  /\ (\E r \in Request : phase[r] = "GRAMMAR") => FALSE
  /\ ~told_idle
  /\ told_idle' = TRUE
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, ahead, ahead_label, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* The driver pauses the engine. In place, that is all. *)
pause ==
  /\ stage = "SERVING"
  /\ stage' = IF mode = "IN_PLACE" THEN "PAUSED" ELSE "PAUSING"
  /\ UNCHANGED <<mode, sharing, offloads, limited, complete, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* Everything is drained and retracted; or, aborting, the front end has no call under way. *)
pause_returns ==
  /\ stage = "PAUSING"
  /\ mode = "RETRACT" => (ahead = None /\ (\A r \in Request : ~on_device(r)))
  /\ mode = "ABORT" => (\A r \in Request : phase[r] = "DONE" \/ gone[r])
  /\ stage' = "PAUSED"
  /\ UNCHANGED <<mode, sharing, offloads, limited, complete, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* The tree and the pools of KV are emptied, if nobody holds any: a publication asks for it, and anybody may.
   Paused, requests that wait are in nobody's way; paused to retract, nor are those whose grammar compiles,
   for nobody looks at it until the engine continues. *)
flush ==
  /\ none_is("PREFILLING")
  /\ none_is("PREFILLED")
  /\ none_is("RUNNING")
  /\ ahead = None
  /\ paused \/ none_is("WAITING")
  /\ (paused /\ mode = "RETRACT") \/ none_is("GRAMMAR")
  /\ stage' = IF stage = "PAUSED" THEN "FLUSHED" ELSE stage
  /\ cached' = [a \in Adapter |-> FALSE]
  /\ made_by' = [a \in Adapter, l \in Load |-> FALSE]
  /\ made_with' = [a \in Adapter, a2 \in Adapter |-> FALSE]
  /\ kv' = [r \in Request, l \in Load |-> holds_kv(r) /\ l = 0]
  /\ kv_with' = [r \in Request, a \in Adapter |-> FALSE]
  /\ UNCHANGED <<mode, sharing, offloads, limited, complete, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, weights, label, loaded, weights_out, kv_out, reused, ahead_weights,
       overwritten, unpaired>>

(* After a flush, the KV's memory is given to the trainer, perhaps the weights' too, and what was in it is
   gone. *)
release(weights_too) ==
  /\ offloads
  /\ stage = "FLUSHED"
  /\ weights_out' = (weights_out \/ weights_too)
  /\ kv_out' = TRUE
  /\ weights' = IF ~weights_too THEN weights ELSE 0
  /\ complete' = (complete /\ ~weights_too)
  /\ made_by' = [a \in Adapter, l \in Load |-> cached[a] /\ l = 0]
  /\ kv' = [r \in Request, l \in Load |-> holds_kv(r) /\ l = 0]
  /\ kv_with' = [r \in Request, a \in Adapter |-> FALSE]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, label, loaded, reused, made_with, ahead_weights, overwritten,
       unpaired>>

(* The memory of the weights comes back, with nothing in it. *)
resume_weights ==
  /\ weights_out
  /\ weights_out' = FALSE
  /\ unpaired' = (unpaired \/ ~weights_out)
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, ahead, ahead_label, told_idle, cached, weights, label, loaded, kv_out, kv, kv_with, reused,
       made_by, made_with, ahead_weights, overwritten>>

(* The memory of the KV comes back, with nothing in it; the driver has sent the weights before. *)
resume_kv ==
  /\ kv_out
  /\ complete
  /\ kv_out' = FALSE
  /\ unpaired' = (unpaired \/ ~kv_out)
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten>>

(* All of a load has arrived, in one part or with the last of several: only now does the label advance. It is
   the next load, or the same one `again`. *)
update(again) ==
  /\ barrier_passed
  /\ ~weights_out
  /\ weights' = IF again THEN label ELSE label + 1
  /\ label' = IF again THEN label ELSE label + 1
  /\ complete' = TRUE
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, loaded, weights_out, kv_out, kv, kv_with, reused, made_by,
       made_with, ahead_weights, overwritten, unpaired>>

(* Some of a load arrives. Where nothing follows, the update has failed, and another one has to be complete. *)
update_part ==
  /\ barrier_passed
  /\ ~weights_out
  /\ weights' = 0
  /\ complete' = FALSE
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, label, loaded, weights_out, kv_out, kv, kv_with, reused,
       made_by, made_with, ahead_weights, overwritten, unpaired>>

(* The engine schedules again: a load is complete, and all memory is back. *)
continue_generation ==
  /\ barrier_passed
  /\ complete
  /\ ~kv_out
  /\ stage' = "SERVING"
  /\ UNCHANGED <<mode, sharing, offloads, limited, complete, phase, adapter, gone, stamp, counted, retracted,
       ahead, ahead_label, told_idle, cached, weights, label, loaded, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, overwritten, unpaired>>

(* An adapter is loaded, under a name that no other bytes ever had: this needs no pause, and no flush. *)
load_adapter(a) ==
  /\ ~loaded[a]
  /\ loaded' = [loaded EXCEPT ![a] = TRUE]
  /\ overwritten' = [overwritten EXCEPT ![a] = overwritten[a] \/ loaded[a]]
  /\ UNCHANGED <<mode, sharing, offloads, limited, stage, complete, phase, adapter, gone, stamp, counted,
       retracted, ahead, ahead_label, told_idle, cached, weights, label, weights_out, kv_out, kv, kv_with,
       reused, made_by, made_with, ahead_weights, unpaired>>

(* What is done, and not only suffered. *)
Ordinary ==
  \/ \E r \in Request, a \in Adapter, constrained \in BOOLEAN : admit(r, a, constrained)
  \/ \E r \in Request : disconnect(r)
  \/ \E r \in Request : compile_grammar(r)
  \/ \E r \in Request, chunked \in BOOLEAN : start(r, chunked)
  \/ \E r \in Request, chunked \in BOOLEAN : start_on_hit(r, chunked)
  \/ \E r \in Request : prefill_rest(r)
  \/ \E r \in Request : decode(r)
  \/ \E r \in Request : take_chunk(r)
  \/ \E r \in Request : take_prompt(r)
  \/ \E r \in Request : take_token(r)
  \/ \E r \in Request, once_more \in BOOLEAN : finish(r, once_more)
  \/ \E r \in Request : drop_result(r)
  \/ \E r \in Request : retract(r)
  \/ \E r \in Request : preempt(r)
  \/ \E r \in Request : abort(r)
  \/ tell_idle
  \/ pause
  \/ pause_returns
  \/ flush
  \/ \E weights_too \in BOOLEAN : release(weights_too)
  \/ resume_weights
  \/ resume_kv
  \/ \E again \in BOOLEAN : update(again)
  \/ update_part
  \/ continue_generation
  \/ \E a \in Adapter : load_adapter(a)

Next ==
  /\ Ordinary
  /\ InScope'

Spec == Init /\ [][Next]_vars

(* While the engine schedules, each request gets on, however often others do or a publication comes between. *)
every_request_has_its_turn ==
  \A r \in Request :
    /\ SF_vars(compile_grammar(r) /\ InScope')
    /\ SF_vars(prefill_rest(r) /\ InScope')
    /\ SF_vars(decode(r) /\ InScope')

(* Requests are started in chunks or whole: now and then, there is time for a whole prompt between two pauses.
   Without it a prompt that is sent back after every first chunk never gets anywhere. *)
pauses_leave_time ==
  \A r \in Request, chunked \in BOOLEAN :
    /\ SF_vars(start(r, chunked) /\ InScope')

(* What ran ahead is taken in, and no request has tokens without end. *)
results_are_processed ==
  \A r \in Request :
    /\ SF_vars(take_chunk(r) /\ InScope')
    /\ SF_vars(\E once_more \in BOOLEAN : finish(r, once_more) /\ InScope')
    /\ SF_vars(drop_result(r) /\ InScope')

(* The scheduler takes requests back one after the other. *)
pauses_are_settled ==
  \A r \in Request :
    /\ WF_vars(retract(r) /\ InScope')

(* A pause that the scheduler is through with returns. *)
pauses_return ==
  /\ WF_vars(pause_returns /\ InScope')

(* After a pause that a flush belongs to, the driver flushes, and asks again where that is refused. *)
the_driver_flushes ==
  /\ WF_vars((stage = "PAUSED") /\ flush /\ InScope')

(* The driver sends a whole load where half of one is, and brings the KV's memory back, at last. *)
the_driver_restores ==
  /\ SF_vars(\E again \in BOOLEAN : may_send /\ update(again) /\ InScope')
  /\ SF_vars(may_send /\ resume_kv /\ InScope')

(* The driver brings the memory of the weights back before it sends. *)
the_driver_resumes ==
  /\ WF_vars(may_send /\ resume_weights /\ InScope')

(* The driver continues the engine when nothing is missing, and not before the flush. *)
the_driver_continues ==
  /\ SF_vars(may_send /\ continue_generation /\ InScope')

(* A run that is fair: it has finitely many faults, and nobody fails for ever to do their part. *)
FairSpec ==
  /\ Spec
  /\ every_request_has_its_turn
  /\ pauses_leave_time
  /\ results_are_processed
  /\ pauses_are_settled
  /\ pauses_return
  /\ the_driver_flushes
  /\ the_driver_restores
  /\ the_driver_resumes
  /\ the_driver_continues

(* A request starts on KV that the engine's own weights made, whatever prefix it reuses (S1). *)
no_stale_hit ==
  [][\A r \in Request : starts(r) => (\A l \in Load : kv'[r, l] => weights' = l)]_vars

(* Whatever is in the tree was made by the weights that are there (S1). *)
tree_is_fresh == \A a \in Adapter : \A l \in Load : made_by[a, l] => weights = l

(* From the flush until the engine continues, the tree is empty (S3). *)
flush_point == stage = "FLUSHED" => (\A a \in Adapter : ~cached[a])

(* No request holds KV that no load made: nothing empties the pools under it, or computes on half a load (S4). *)
no_kv_pulled_away == \A r \in Request : \A l \in Load : kv[r, l] => l # 0

(* Where a pause retracts or aborts, no request holds KV that other weights made than those there (S4). *)
kept_kv_is_pure == must_flush => (\A r \in Request : \A l \in Load : kv[r, l] => weights = l)

(* A request runs on KV that its own adapter made (S5). *)
adapters_are_apart ==
  \A r \in Request : on_device(r) => (\A a \in Adapter : kv_with[r, a] => adapter[r] = a)

(* No name of an adapter has ever stood for other bytes (S6). *)
name_is_content == \A a \in Adapter : ~overwritten[a]

(* Paused in place, KV of several loads stays with the request that made it: no tree holds any (S11). *)
in_place_keeps_kv_private == mode = "IN_PLACE" => (\A a \in Adapter : ~cached[a])

(* Entries and requests on the device have KV that some weights and some adapter made, and nothing else has.
   What ran ahead left its mark, and what waits has reused nothing. *)
provenance_is_complete ==
  /\ \A a \in Adapter : cached[a] = (\E l \in Load : made_by[a, l]) /\ cached[a] = (\E a2 \in Adapter :
       made_with[a, a2])
  /\ \A r \in Request : holds_kv(r) = (\E l \in Load : kv[r, l]) /\ holds_kv(r) = (\E a \in Adapter :
       kv_with[r, a]) /\ ((on_device(r) /\ ahead = r) => kv[r, ahead_weights]) /\ (reused[r] => (on_device(r)
       \/ ~unanswered(r)))

(* A tree is emptied only where no request holds KV and, but for a pause that lets them be, none waits (S4,
   S13). *)
flush_meets_nobody ==
  [][((\E a \in Adapter : cached[a] /\ ~cached'[a]) \/ (stage # "FLUSHED" /\ stage' = "FLUSHED")) => (\A r \in
    Request : ~holds_kv(r) /\ (phase[r] = "WAITING" => paused) /\ (phase[r] = "GRAMMAR" => (paused /\ mode =
    "RETRACT")))]_vars

(* A request leaves its queue to be started or compiled, while the engine schedules, or with an answer (S12). *)
queues_keep_work ==
  [][\A r \in Request : (phase[r] = "GRAMMAR" => (((phase'[r] = "GRAMMAR") \/ (phase'[r] = "WAITING" /\
    ~paused)) \/ (phase'[r] = "DONE" /\ (limited \/ mode = "ABORT")))) /\ (phase[r] = "WAITING" => ((phase'[r]
    = "WAITING" \/ (launches(r) /\ on_device(r)' /\ ~paused)) \/ (phase'[r] = "DONE" /\ mode =
    "ABORT")))]_vars

(* A health check is told that the engine is idle only where nobody waits for an answer, paused or not (S13). *)
idle_means_idle == told_idle => (ahead = None /\ (\A r \in Request : ~unanswered(r)))

(* On a paused engine nothing is computed, and a pause in place touches no request. *)
pauses_mean_what_they_say ==
  [][(paused \/ paused') => (\A r \in Request : ~launches(r) /\ ((mode = "IN_PLACE" /\ on_device(r)) =>
    on_device(r)') /\ ((mode = "IN_PLACE" /\ ahead = r) => (ahead' = r /\ ahead_label' = ahead_label)))]_vars

(* A request comes to the device, and from one batch to another, only where it is computed for. *)
batches_change_by_launch ==
  [][\A r \in Request : (on_device(r)' /\ phase'[r] # phase[r]) => launches(r)]_vars

(* A pause that retracts takes requests back after the result that ran ahead; or memory is short, and one
   runs. *)
retraction_is_orderly ==
  [][\A r \in Request : (on_device(r) /\ phase'[r] = "WAITING") => ((stage = "PAUSING" /\ mode = "RETRACT" /\
    ahead = None) \/ (~paused /\ phase[r] = "RUNNING"))]_vars

(* A pause that retracts leaves no KV in use; one that aborts, nobody who waits for an answer. *)
quiet_after_a_pause ==
  [][(stage = "PAUSING" /\ stage' = "PAUSED") => (\A r \in Request : (mode = "RETRACT" => ~holds_kv(r)') /\
    (mode = "ABORT" => (unanswered(r)' => gone'[r])))]_vars

(* A pause returns before a flush or a continue; where it does not pause in place, the flush comes between. *)
publication_is_in_order ==
  [][stage = stage' \/ (stage = "SERVING" /\ stage' = "PAUSING" /\ must_flush) \/ (stage = "SERVING" /\ stage'
    = "PAUSED" /\ mode = "IN_PLACE") \/ (stage = "PAUSING" /\ stage' = "PAUSED") \/ (stage = "PAUSED" /\
    stage' = "FLUSHED") \/ (stage = "PAUSED" /\ stage' = "SERVING" /\ mode = "IN_PLACE") \/ (stage = "FLUSHED"
    /\ stage' = "SERVING")]_vars

(* The bytes of the weights change only between a pause and the continue (P22). *)
bytes_arrive_in_a_pause ==
  [][weights' # weights => stage \in {"PAUSED", "FLUSHED"}]_vars

(* One request at most is between the chunks of its prompt. *)
one_request_between_chunks ==
  \A r \in Request : \A r2 \in Request : (phase[r] = "PREFILLING" /\ phase[r2] = "PREFILLING") => r = r2

(* A token is stamped with the load whose weights sampled it (T1). *)
stamp_tells_who_sampled ==
  [][\A r \in Request : delivers(r) => stamp'[r] = ahead_weights]_vars

(* Stamps within one answer never decrease, and one that was delivered never changes (T2). *)
stamps_grow ==
  [][\A r \in Request : ((unanswered(r) /\ stamp'[r] # None) => (IF stamp'[r] = None THEN 0 ELSE stamp'[r]) >=
    (IF stamp[r] = None THEN 0 ELSE stamp[r])) /\ ((stamp'[r] # stamp[r] /\ stamp'[r] # None) => ahead =
    r)]_vars

(* After a publication that retracts, every token is of the new load (T3). *)
retract_leaves_nothing_to_sample ==
  [][(mode = "RETRACT" /\ stage = "SERVING") => (\A r \in Request : delivers(r) => stamp'[r] = label)]_vars

(* The label changes only with the last byte of a complete load, and to that load (T4). *)
label_follows_success ==
  [][label' # label => (complete' /\ weights' = label')]_vars

(* Where the driver takes a load to be complete, the weights are that load, under its label (T4). *)
label_tells_the_truth == complete => (weights = label /\ weights # 0)

(* What a request reuses is under its own key, and is counted unless it was retracted (S5). *)
reuse_is_counted ==
  [][\A r \in Request : starts(r) => ((reused'[r] => (IF adapter[r] = None THEN FALSE ELSE
    cached[adapter[r]])) /\ (retracted'[r] \/ counted'[r] = reused'[r]))]_vars

(* A request comes to an empty report and no KV, and one that ends with an error reports nothing. *)
reports_are_of_one_request ==
  [][\A r \in Request : ((~unanswered(r) /\ unanswered(r)') => (reports_nothing(r)' /\ ~(\E l \in Load :
    kv'[r, l]))) /\ ((unanswered(r) /\ ~unanswered(r)' /\ ~delivers(r)) => reports_nothing(r)')]_vars

(* An answer that counts no reused token, of a request that was not retracted, reused none. *)
answers_claim_no_more_than_is_true ==
  \A r \in Request : (phase[r] = "DONE" /\ ~counted[r] /\ ~retracted[r]) => ~reused[r]

(* Once a request was retracted, its cached_tokens never changes: it is evidence of nothing. *)
retraction_freezes_the_count ==
  [][\A r \in Request : (unanswered(r) /\ retracted[r] /\ retracted'[r]) => counted'[r] = counted[r]]_vars

(* The engine was not told to take back memory that it had not released (P21). *)
memory_paired == ~unpaired

(* The engine computes only on a complete load, under its label, and only where its memory is (P7, P21). *)
only_whole_loads_compute ==
  [][(\E r \in Request : launches(r)) => (weights # 0 /\ weights = label /\ memory_is_there)]_vars

(* Memory is released where that is asked for; nothing is in it then, and no tree outlives its KV (P21). *)
no_use_of_released_memory ==
  /\ kv_out => offloads
  /\ weights_out => (kv_out /\ weights = 0)
  /\ kv_out => (\A a \in Adapter : ~cached[a])

(* The KV's memory does not come back before the weights are complete, so that no tree can fill (P21). *)
kv_returns_after_the_bytes ==
  [][(kv_out /\ ~kv_out') => complete]_vars

(* A request that is not answered names one adapter, whose bytes are loaded. *)
requests_name_what_is_loaded ==
  \A r \in Request : unanswered(r) = (\E a \in Adapter : adapter[r] = a /\ loaded[a])

(* A queue with a limit keeps to it. *)
queue_is_limited ==
  limited => (\A r \in Request : \A r2 \in Request : (phase[r] = "WAITING" /\ phase[r2] = "WAITING") => r =
    r2)

(* A request that was started ends with its last token, under retract whatever happens (L1). Otherwise it may
   also be aborted between its chunks, or refused by a queue that it was to come back to. *)
nobody_is_lost ==
  [][\A r \in Request : (on_device(r) /\ ~unanswered(r)') => (delivers(r) \/ (mode = "ABORT" /\ phase[r] =
    "PREFILLING") \/ (limited /\ mode # "RETRACT"))]_vars

(* Where nothing but a fault can happen, the protocol may rest. *)
no_dead_end == ENABLED Ordinary

(* Reachable, so that TLC refutes its opposite as an invariant: After a publication, a request waits whose
   adapter has an entry, made since. *)
reusable ==
  /\ published
  /\ \E r \in Request : phase[r] = "WAITING" /\ (IF adapter[r] = None THEN FALSE ELSE cached[adapter[r]])

(* Reachable, so that TLC refutes its opposite as an invariant: A retracted request waits, and the tree of the
   paused engine still has its prefix. *)
retracted_ ==
  /\ stage = "PAUSED"
  /\ \E r \in Request : phase[r] = "WAITING" /\ retracted[r] /\ (IF adapter[r] = None THEN FALSE ELSE
       cached[adapter[r]])

(* Reachable, so that TLC refutes its opposite as an invariant: The engine is flushed while a retracted
   request waits and the grammar of another compiles. *)
flushed_with_work ==
  /\ stage = "FLUSHED"
  /\ \E r \in Request : phase[r] = "WAITING" /\ retracted[r]
  /\ \E r \in Request : phase[r] = "GRAMMAR"

(* Reachable, so that TLC refutes its opposite as an invariant: A request that was paused in place goes on
   with KV of two loads. *)
mixed ==
  /\ published
  /\ \E r \in Request : on_device(r) /\ kv[r, weights] /\ older(r)

(* Reachable, so that TLC refutes its opposite as an invariant: Two adapters have an entry each, and a request
   of the one runs on a hit. *)
side_by_side ==
  \E r \in Request : \E a \in Adapter : on_device(r) /\ reused[r] /\ adapter[r] # a /\ cached[a]

(* Reachable, so that TLC refutes its opposite as an invariant: New weights are there, and the result of the
   old ones is not processed yet. *)
ahead_of_an_update ==
  /\ ahead # None
  /\ ahead_label # label

(* Reachable, so that TLC refutes its opposite as an invariant: A pause that retracts finds a result that ran
   ahead, and another request on the device. *)
ahead_of_a_retraction ==
  /\ stage = "PAUSING"
  /\ mode = "RETRACT"
  /\ ahead # None
  /\ \E r \in Request : on_device(r) /\ ahead # r

(* Reachable, so that TLC refutes its opposite as an invariant: A pause that aborts has returned, and the
   request of a client that left is still on the device. *)
left_behind ==
  /\ stage = "PAUSED"
  /\ mode = "ABORT"
  /\ \E r \in Request : on_device(r)

(* Reachable, so that TLC refutes its opposite as an invariant: A batch computes once more for a request that
   is answered. *)
computed_in_vain == \E r \in Request : ahead = r /\ phase[r] = "DONE"

(* Reachable, so that TLC refutes its opposite as an invariant: Paused in place, one request is between its
   chunks, and another in the last batch. *)
frozen ==
  /\ paused
  /\ mode = "IN_PLACE"
  /\ \E r \in Request : phase[r] = "PREFILLING"
  /\ \E r \in Request : phase[r] = "PREFILLED"

(* Reachable, so that TLC refutes its opposite as an invariant: A health check was told of an idle engine,
   which is flushed and takes bytes. *)
told_while_paused ==
  /\ told_idle
  /\ stage = "FLUSHED"

(* Reachable, so that TLC refutes its opposite as an invariant: Half a load has arrived, and a request waits. *)
half_updated ==
  /\ ~complete
  /\ weights = 0
  /\ ~weights_out
  /\ ~offloads
  /\ \E r \in Request : phase[r] = "WAITING"

(* Reachable, so that TLC refutes its opposite as an invariant: A retracted request has got a token of the new
   load. *)
stamped_anew ==
  /\ mode = "RETRACT"
  /\ published
  /\ \E r \in Request : retracted[r] /\ stamp[r] = label

(* Reachable, so that TLC refutes its opposite as an invariant: An answer counts no reused token, and its
   request reused some after it was retracted. *)
reused_unseen ==
  \E r \in Request : phase[r] = "DONE" /\ reused[r] /\ ~counted[r] /\ retracted[r]

(* Reachable, so that TLC refutes its opposite as an invariant: An answer counts the tokens that its request
   reused. *)
reused_openly ==
  \E r \in Request : phase[r] = "DONE" /\ reused[r] /\ counted[r] /\ ~retracted[r]

(* Reachable, so that TLC refutes its opposite as an invariant: All memory is released while a request waits. *)
released ==
  /\ weights_out
  /\ kv_out
  /\ \E r \in Request : phase[r] = "WAITING"

(* Reachable, so that TLC refutes its opposite as an invariant: The KV's memory is released and the weights
   stay. *)
kept_resident ==
  /\ kv_out
  /\ complete
  /\ label = 1

(* Reachable, so that TLC refutes its opposite as an invariant: New weights are complete, and the KV's memory
   is not back. *)
sent_before_kv ==
  /\ kv_out
  /\ complete
  /\ 1 < label

(* Reachable, so that TLC refutes its opposite as an invariant: A request of one adapter runs, and another
   adapter is loaded. *)
loaded_beside ==
  \E r \in Request : \E a \in Adapter : phase[r] = "RUNNING" /\ adapter[r] # a /\ loaded[a]

(* Reachable, so that TLC refutes its opposite as an invariant: A queue is full while another request's
   grammar compiles. *)
at_the_limit ==
  /\ limited
  /\ \E r \in Request : phase[r] = "WAITING"
  /\ \E r \in Request : phase[r] = "GRAMMAR"

(* On fair runs: A request that waits, compiles, was retracted or frozen is answered, by tokens or by an error
   (L1). *)
every_request_is_answered ==
  \A r \in Request : unanswered(r) ~> (~unanswered(r))

(* On fair runs: A pause drains, its flush succeeds, and the engine goes on (L2). Not a pause that aborts: it
   returns when no call is under way, and clients may call for ever. *)
every_pause_ends ==
  paused ~> (stage = "SERVING")

(* From every reachable state of flush_succeeds_from, some run without faults, and without
   continue_generation, disconnect leads to flush_succeeds_to: A pause that a flush belongs to is followed by
   one that succeeds, whatever requests there are (L2). *)
flush_succeeds_from ==
  /\ stage \in {"PAUSING", "PAUSED"}
  /\ must_flush
flush_succeeds_to == stage = "FLUSHED"

(* From every reachable state of engine_continues_from, some run without faults, and without disconnect,
   update, update_part leads to engine_continues_to: Where a load is complete, the engine can continue, and no
   other load is needed for it. *)
engine_continues_from ==
  /\ stage # "SERVING"
  /\ complete
engine_continues_to == stage = "SERVING"

(* From every reachable state of engine_is_repaired_from, some run without faults, and without disconnect
   leads to engine_is_repaired_to: Where half a load is there, or none, a whole one can be sent, and the
   engine continue. *)
engine_is_repaired_from == ~complete
engine_is_repaired_to ==
  /\ complete
  /\ stage = "SERVING"

(* From every reachable state of requests_end_from, some run without faults, and without disconnect, pause
   leads to requests_end_to: While the engine serves, every request can be answered, and no publication is
   needed for it (L1). *)
requests_end_from ==
  /\ stage = "SERVING"
  /\ \E r \in Request : unanswered(r)
requests_end_to == \A r \in Request : ~unanswered(r)
================================================================================
