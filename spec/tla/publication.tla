------------------------------ MODULE publication ------------------------------
(* publication. Written by reef-ref export from the protocol: change that. *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  None,
  MaxLoad,
  MaxContent,
  Engine

Mode == {"IN_PLACE", "RETRACT"}
Marker == {"NONE", "RUNNING", "CHECKPOINT", "UPDATING_WEIGHTS", "READY_TO_COMMIT", "HEAD_COMMITTED",
  "COMPLETE", "REJECTING", "REJECTED"}
Load == 0 .. MaxLoad
Content == 0 .. MaxContent
Stage == {"DOWN", "REFUSED", "IDLE", "RECORD_RUNNING", "PAUSE", "FLUSH", "TRAIN", "RECORD_CHECKPOINT",
  "DECLARE", "REBUILD", "RECORD_TARGET", "RELEASE", "RESUME_WEIGHTS", "SEND", "RESUME_KV", "VERIFY",
  "RECORD_READY", "RECORD_HEAD", "CONTINUE", "RECORD_COMPLETE", "RECORD_REJECTING", "RECORD_REJECTED",
  "RETIRE", "DECLARE_RETIRED"}
Errand == {"NOTHING", "TRAIN", "PUBLISH", "RETRY", "REPUBLISH", "RECOVER", "ACKNOWLEDGE", "REJECT"}
Phase == {"SERVING", "TRAINING_FAILED", "WEIGHT_SYNC_FAILED"}
Slot == {"EMPTY", "LIVE", "DEAD"}
Request == {"NONE", "WAITING", "RUNNING"}

VARIABLES
  colocated,
    (* engines and trainer share memory: engines release theirs while the trainer works *)
  mode,
    (* how engines are paused *)
  sharing,
    (* engines keep a prefix cache that requests share *)
  disk_status,
    (* its status *)
  disk_parent,
    (* the load that served when the job began *)
  disk_parent_content,
    (* the bytes of the parent *)
  disk_content,
    (* the bytes of the job's checkpoint *)
  disk_target,
    (* the id persisted for the job's load *)
  memory_status,
    (* the status it believes to be durable *)
  memory_parent,
    (* the parent it believes to be durable *)
  memory_parent_content,
    (* the parent's bytes it believes to be durable *)
  memory_content,
    (* the job's bytes it believes to be durable *)
  memory_target,
    (* the target it believes to be durable *)
  stage,
    (* what it does next *)
  errand,
    (* the call it works on *)
  phase,
    (* what health reports *)
  latch,
    (* set before a pause is tried, cleared when every engine has continued *)
  full,
    (* this transfer sends every byte, not the difference to the parent *)
  rebuilt,
    (* this errand has filled the empty slots *)
  done,
    (* has answered the call that is being made to every engine *)
  head,
    (* the commit head, durable: the load that is released *)
  gate,
    (* requests are admitted *)
  slot,
    (* what the slot holds *)
  paused,
    (* does not schedule *)
  weights,
    (* the bytes of its weights, as its checksum tells *)
  reports,
    (* the id it reports; on the wire: weight_version *)
  kv_out,
    (* its KV memory is released *)
  weights_out,
    (* its weights memory is released *)
  request,
    (* its work *)
  cached,
    (* its prefix tree holds an entry *)
  kv,
    (* ghost: the weights that made the running request's KV *)
  made_by,
    (* ghost: the weights that made the entries of the tree *)
  sent,
    (* ghost: the bytes ever sent under an id *)
  undeclared,
    (* ghost: engines were retired, and the record could not be told *)
  unpaired
    (* ghost: an engine was told to take back memory it had not released *)

vars == <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content, disk_target,
  memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage, errand, phase,
  latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
  cached, kv, made_by, sent, undeclared, unpaired>>

TypeOK ==
  /\ colocated \in BOOLEAN
  /\ mode \in Mode
  /\ sharing \in BOOLEAN
  /\ disk_status \in Marker
  /\ disk_parent \in Load
  /\ disk_parent_content \in Content
  /\ disk_content \in Content
  /\ disk_target \in Load \cup {None}
  /\ memory_status \in Marker
  /\ memory_parent \in Load
  /\ memory_parent_content \in Content
  /\ memory_content \in Content
  /\ memory_target \in Load \cup {None}
  /\ stage \in Stage
  /\ errand \in Errand
  /\ phase \in Phase
  /\ latch \in BOOLEAN
  /\ full \in BOOLEAN
  /\ rebuilt \in BOOLEAN
  /\ done \in [Engine -> BOOLEAN]
  /\ head \in Load
  /\ gate \in BOOLEAN
  /\ slot \in [Engine -> Slot]
  /\ paused \in [Engine -> BOOLEAN]
  /\ weights \in [Engine -> Content]
  /\ reports \in [Engine -> Load \cup {None}]
  /\ kv_out \in [Engine -> BOOLEAN]
  /\ weights_out \in [Engine -> BOOLEAN]
  /\ request \in [Engine -> Request]
  /\ cached \in [Engine -> BOOLEAN]
  /\ kv \in [Engine \X Content -> BOOLEAN]
  /\ made_by \in [Engine \X Content -> BOOLEAN]
  /\ sent \in [Load \X Content -> BOOLEAN]
  /\ undeclared \in BOOLEAN
  /\ unpaired \in BOOLEAN

(* What a scope cuts off: steps that lead out of it are not taken. *)
InScope ==
  /\ disk_parent \in Load
  /\ disk_parent_content \in Content
  /\ disk_content \in Content
  /\ disk_target \in Load \cup {None}
  /\ memory_parent \in Load
  /\ memory_parent_content \in Content
  /\ memory_content \in Content
  /\ memory_target \in Load \cup {None}
  /\ head \in Load
  /\ weights \in [Engine -> Content]
  /\ reports \in [Engine -> Load \cup {None}]

(* The slot holds a process. *)
live(e) == slot[e] = "LIVE"

(* The slot holds a handle, so that a call to every engine is made to this one. *)
present(e) == slot[e] # "EMPTY"

(* No byte of the job's checkpoint has ever left for an engine. *)
untouched == \A l \in Load : ~sent[l, disk_content]

(* What health reports of an errand that was given up. *)
failure == IF errand = "TRAIN" THEN "TRAINING_FAILED" ELSE "WEIGHT_SYNC_FAILED"

(* The bytes of the released load. *)
committed_content == IF head = disk_parent THEN disk_parent_content ELSE disk_content

(* The coordinator holds no errand and is healthy. *)
takes_calls ==
  /\ stage = "IDLE"
  /\ phase = "SERVING"

(* The coordinator runs and has read the record. *)
up == stage \notin {"DOWN", "REFUSED"}

(* The engine may run a forward pass for its request. *)
generates(e) ==
  /\ request[e] = "RUNNING"
  /\ ~paused[e]

(* The scheduler runs and has work. It does not ask whether its memory is there. *)
can_start(e) ==
  /\ request[e] = "WAITING"
  /\ ~paused[e]

(* The errand starts from nothing that engines may hold. *)
repairs == errand \in {"RETRY", "REPUBLISH", "RECOVER"}

(* The request's KV was made by more than the engine's weights. *)
older(e) == \E c \in Content : kv[e, c] /\ weights[e] # c

(* The call of this stage is made to this engine, and has not been answered. *)
asks(e, stage_) ==
  /\ stage = stage_
  /\ live(e)
  /\ ~done[e]

(* Admission is open, and every engine serves. *)
serving ==
  /\ gate
  /\ \A e \in Engine : live(e) /\ ~paused[e]

(* Something has failed, or an engine is lost. *)
amiss == phase = "SERVING" => (\E e \in Engine : ~live(e))

(* The bytes that engines must hold when this errand is done. *)
content_to_establish ==
  IF memory_status \in {"NONE", "REJECTING", "REJECTED"} THEN memory_parent_content ELSE memory_content

(* In this step, an engine that did not schedule begins to. *)
wakes(e) ==
  /\ live(e)
  /\ live(e)'
  /\ paused[e]
  /\ ~paused'[e]

(* The engine reports the released load and holds its bytes. *)
serves_committed(e) ==
  /\ reports[e] = head
  /\ weights[e] = committed_content

(* The id that engines must report when this errand is done. *)
load_to_establish ==
  IF memory_status \in {"NONE", "REJECTING", "REJECTED"} THEN memory_parent
    ELSE IF memory_target = None THEN 0
    ELSE memory_target

(* Every handle has answered the call of this stage. *)
all_answered(stage_) ==
  /\ stage = stage_
  /\ \A e \in Engine : present(e) => done[e]

(* A transfer is under way. *)
moves_bytes ==
  /\ errand # "REJECT"
  /\ stage \in {"RESUME_WEIGHTS", "SEND", "RESUME_KV", "VERIFY"}

(* The first stage of moving bytes. A job's load has an id from its first try on; a parent has one. *)
transfer ==
  IF memory_target = None /\ memory_status \notin {"NONE", "REJECTING", "REJECTED"} THEN "RECORD_TARGET"
    ELSE IF colocated THEN "RELEASE"
    ELSE "SEND"

(* What an engine holds after a transfer: a difference is right only on top of the bytes it was made against. *)
received(e) == IF full \/ weights[e] = memory_parent_content THEN content_to_establish ELSE 0

(* Health: failed, and the next retry or republish of this coordinator repairs it. Upstream counts
   UPDATING_WEIGHTS only, and calls a failed republish beyond repair though repeating it is sound. *)
replayable ==
  /\ phase = "WEIGHT_SYNC_FAILED"
  /\ memory_status \in {"UPDATING_WEIGHTS", "READY_TO_COMMIT", "HEAD_COMMITTED", "COMPLETE", "NONE",
       "REJECTING", "REJECTED"}

(* Health: failed, and only tearing the deployment down helps. *)
beyond_repair ==
  /\ phase # "SERVING"
  /\ ~replayable

(* There are engines, and every one lives, reports the id and has the checksum of the bytes. *)
verified ==
  /\ \E e \in Engine : present(e)
  /\ \A e \in Engine : present(e) => (live(e) /\ reports[e] = load_to_establish /\ weights[e] =
       content_to_establish)

(* Every engine serves the initial load, in any configuration that may run. A shared prefix cache and released
   memory both need the flush, and the flush needs retract. *)
Init ==
  \E colocated_ \in BOOLEAN, mode_ \in Mode, sharing_ \in BOOLEAN :
    /\ sharing_ => mode_ = "RETRACT"
    /\ colocated_ => mode_ = "RETRACT"
    /\ colocated = colocated_
    /\ mode = mode_
    /\ sharing = sharing_
    /\ disk_status = "NONE"
    /\ disk_parent = 0
    /\ disk_parent_content = 1
    /\ disk_content = 1
    /\ disk_target = None
    /\ memory_status = "NONE"
    /\ memory_parent = 0
    /\ memory_parent_content = 1
    /\ memory_content = 1
    /\ memory_target = None
    /\ stage = "IDLE"
    /\ errand = "NOTHING"
    /\ phase = "SERVING"
    /\ latch = FALSE
    /\ full = FALSE
    /\ rebuilt = FALSE
    /\ done = [e \in Engine |-> FALSE]
    /\ head = 0
    /\ gate = TRUE
    /\ slot = [e \in Engine |-> "LIVE"]
    /\ paused = [e \in Engine |-> FALSE]
    /\ weights = [e \in Engine |-> 1]
    /\ reports = [e \in Engine |-> 0]
    /\ kv_out = [e \in Engine |-> FALSE]
    /\ weights_out = [e \in Engine |-> FALSE]
    /\ request = [e \in Engine |-> "NONE"]
    /\ cached = [e \in Engine |-> FALSE]
    /\ kv = [e \in Engine, c \in Content |-> FALSE]
    /\ made_by = [e \in Engine, c \in Content |-> FALSE]
    /\ sent = [l \in Load, c \in Content |-> l = 0 /\ c = 1]
    /\ undeclared = FALSE
    /\ unpaired = FALSE

(* An engine stops scheduling. What runs on it is settled by the engine: `retract` and `finish`. *)
pause(e) ==
  /\ asks(e, "PAUSE")
  /\ paused' = [paused EXCEPT ![e] = TRUE]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* Every engine has answered the pause. *)
all_paused ==
  /\ all_answered("PAUSE")
  /\ stage' =
       IF mode = "RETRACT" THEN "FLUSH"
       ELSE IF errand = "TRAIN" THEN "RELEASE"
       ELSE IF memory_status = "CHECKPOINT" THEN "DECLARE"
       ELSE IF errand = "PUBLISH" \/ rebuilt THEN transfer
       ELSE "REBUILD"
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine empties its tree; it refuses while a request holds KV, and is asked again. *)
flush(e) ==
  /\ asks(e, "FLUSH")
  /\ request[e] # "RUNNING"
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ cached' = [cached EXCEPT ![e] = FALSE]
  /\ made_by' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out,
       request, kv, sent, undeclared, unpaired>>

(* Every engine has flushed: the barrier has passed. *)
all_flushed ==
  /\ all_answered("FLUSH")
  /\ stage' =
       IF errand = "TRAIN" THEN "RELEASE"
       ELSE IF memory_status = "CHECKPOINT" THEN "DECLARE"
       ELSE IF errand = "PUBLISH" \/ rebuilt THEN transfer
       ELSE "REBUILD"
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine flushes and gives its memory to the trainer, keeping a copy of its weights; again is no step. *)
release(e) ==
  /\ stage = "RELEASE"
  /\ live(e)
  /\ ~(kv_out[e] /\ weights_out[e])
  /\ request[e] # "RUNNING"
  /\ kv_out' = [kv_out EXCEPT ![e] = TRUE]
  /\ weights_out' = [weights_out EXCEPT ![e] = TRUE]
  /\ cached' = [cached EXCEPT ![e] = FALSE]
  /\ made_by' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, request, kv,
       sent, undeclared, unpaired>>

(* Every engine has released its memory. *)
all_released ==
  /\ stage = "RELEASE"
  /\ \A e \in Engine : present(e) => (live(e) /\ kv_out[e] /\ weights_out[e])
  /\ stage' = IF errand = "TRAIN" THEN "TRAIN" ELSE "RESUME_WEIGHTS"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, cached, kv, made_by, sent, undeclared, unpaired>>

(* The job is stale, or there is no room for its checkpoint: nothing is written, and it may be offered again. *)
decline_job ==
  /\ stage = "RECORD_RUNNING"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* The trainer makes the job's checkpoint. *)
train ==
  /\ stage = "TRAIN"
  /\ stage' = "RECORD_CHECKPOINT"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, cached, kv, made_by, sent, undeclared, unpaired>>

(* An empty slot gets a new process: it runs, on the bytes it booted with, and its warm-up request left an
   entry. Whatever memory a colocated one should not have, the release that follows takes from it. *)
rebuild(e) ==
  /\ stage = "REBUILD"
  /\ ~present(e)
  /\ slot' = [slot EXCEPT ![e] = "LIVE"]
  /\ cached' = [cached EXCEPT ![e] = sharing]
  /\ made_by' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN sharing /\ c = 0 ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, paused, weights, reports, kv_out, weights_out,
       request, kv, sent, undeclared, unpaired>>

(* No slot is empty: fence survivors and replacements alike. *)
all_rebuilt ==
  /\ stage = "REBUILD"
  /\ \A e \in Engine : present(e)
  /\ stage' = "PAUSE"
  /\ latch' = TRUE
  /\ rebuilt' = TRUE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, full, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine takes the memory of its weights back, if it had released it. *)
resume_weights(e) ==
  /\ stage = "RESUME_WEIGHTS"
  /\ weights_out[e]
  /\ weights_out' = [weights_out EXCEPT ![e] = FALSE]
  /\ unpaired' = (unpaired \/ ~weights_out[e])
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, request,
       cached, kv, made_by, sent, undeclared>>

(* Every engine has its weights in memory. *)
all_weights_back ==
  /\ stage = "RESUME_WEIGHTS"
  /\ \A e \in Engine : present(e) => (live(e) /\ ~weights_out[e])
  /\ stage' = IF errand = "REJECT" THEN "RESUME_KV" ELSE "SEND"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine receives the bytes, and then the id. *)
send(e) ==
  /\ asks(e, "SEND")
  /\ weights' = [weights EXCEPT ![e] = received(e)]
  /\ reports' = [reports EXCEPT ![e] = load_to_establish]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ sent' = [l \in Load, c \in Content |-> sent[l, c] \/ (l = load_to_establish /\ c = content_to_establish)]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, kv_out, weights_out, request, cached,
       kv, made_by, undeclared, unpaired>>

(* Every engine has answered the transfer. *)
all_sent ==
  /\ all_answered("SEND")
  /\ stage' = IF colocated THEN "RESUME_KV" ELSE "VERIFY"
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine takes its KV memory back, if it had released it; the weights are in place by now. *)
resume_kv(e) ==
  /\ stage = "RESUME_KV"
  /\ kv_out[e]
  /\ kv_out' = [kv_out EXCEPT ![e] = FALSE]
  /\ unpaired' = (unpaired \/ ~kv_out[e])
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, weights_out,
       request, cached, kv, made_by, sent, undeclared>>

(* Every engine has its KV memory. *)
all_kv_back ==
  /\ stage = "RESUME_KV"
  /\ \A e \in Engine : present(e) => (live(e) /\ ~kv_out[e])
  /\ stage' = IF errand = "REJECT" THEN "CONTINUE" ELSE "VERIFY"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, cached, kv, made_by, sent, undeclared, unpaired>>

(* Every engine holds what was sent, under its id. *)
verify ==
  /\ stage = "VERIFY"
  /\ verified
  /\ stage' =
       IF memory_status = "UPDATING_WEIGHTS" THEN "RECORD_READY"
       ELSE IF memory_status = "READY_TO_COMMIT" THEN "IDLE"
       ELSE "CONTINUE"
  /\ errand' =
       IF (IF memory_status = "UPDATING_WEIGHTS" THEN "RECORD_READY" ELSE IF memory_status = "READY_TO_COMMIT"
         THEN "IDLE" ELSE "CONTINUE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF memory_status = "UPDATING_WEIGHTS" THEN "RECORD_READY" ELSE IF memory_status =
       "READY_TO_COMMIT" THEN "IDLE" ELSE "CONTINUE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF memory_status = "UPDATING_WEIGHTS" THEN "RECORD_READY" ELSE IF memory_status =
       "READY_TO_COMMIT" THEN "IDLE" ELSE "CONTINUE") # "IDLE")
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* Some engine does not hold what was sent, or there is no engine. *)
find_mismatch ==
  /\ stage = "VERIFY"
  /\ ~verified
  /\ stage' = "RETIRE"
  /\ latch' = TRUE
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* An engine schedules again. A request frozen in place goes on with the KV it has. *)
continue_generation(e) ==
  /\ asks(e, "CONTINUE")
  /\ paused' = [paused EXCEPT ![e] = FALSE]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ kv' = [e2 \in Engine, c \in Content |->
       IF e2 = e THEN kv[e, c] \/ (request[e] = "RUNNING" /\ weights[e] = c)
       ELSE kv[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, weights, reports, kv_out, weights_out, request,
       cached, made_by, sent, undeclared, unpaired>>

(* Every engine schedules again: the latch is cleared. *)
all_continued ==
  /\ all_answered("CONTINUE")
  /\ stage' =
       IF memory_status = "HEAD_COMMITTED" THEN "RECORD_COMPLETE"
       ELSE IF memory_status = "REJECTING" THEN "RECORD_REJECTED"
       ELSE "IDLE"
  /\ errand' =
       IF (IF memory_status = "HEAD_COMMITTED" THEN "RECORD_COMPLETE" ELSE IF memory_status = "REJECTING" THEN
         "RECORD_REJECTED" ELSE "IDLE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF memory_status = "HEAD_COMMITTED" THEN "RECORD_COMPLETE" ELSE IF memory_status =
       "REJECTING" THEN "RECORD_REJECTED" ELSE "IDLE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF memory_status = "HEAD_COMMITTED" THEN "RECORD_COMPLETE" ELSE IF memory_status
       = "REJECTING" THEN "RECORD_REJECTED" ELSE "IDLE") # "IDLE")
  /\ done' = [e \in Engine |-> FALSE]
  /\ latch' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent,
       undeclared, unpaired>>

(* A call reached a dead handle and failed: the barrier or the transfer has failed with it. *)
find_dead ==
  /\ stage \in {"PAUSE", "FLUSH", "RELEASE", "RESUME_WEIGHTS", "SEND", "RESUME_KV"}
  /\ \E e \in Engine : slot[e] = "DEAD" /\ ~done[e]
  /\ stage' = "RETIRE"
  /\ latch' = TRUE
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* A dead handle cannot be continued. *)
find_dead_at_continue ==
  /\ stage = "CONTINUE"
  /\ \E e \in Engine : slot[e] = "DEAD" /\ ~done[e]
  /\ stage' = IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE"
  /\ errand' =
       IF (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") # "IDLE")
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* A process is shut down, or was gone, and its slot is emptied. *)
retire(e) ==
  /\ stage = "RETIRE"
  /\ present(e)
  /\ slot' = [slot EXCEPT ![e] = "EMPTY"]
  /\ paused' = [paused EXCEPT ![e] = FALSE]
  /\ weights' = [weights EXCEPT ![e] = 0]
  /\ reports' = [reports EXCEPT ![e] = None]
  /\ kv_out' = [kv_out EXCEPT ![e] = FALSE]
  /\ weights_out' = [weights_out EXCEPT ![e] = FALSE]
  /\ request' = [request EXCEPT ![e] = "NONE"]
  /\ cached' = [cached EXCEPT ![e] = FALSE]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE kv[e2, c]]
  /\ made_by' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, sent, undeclared, unpaired>>

(* Every slot is empty. *)
all_retired ==
  /\ stage = "RETIRE"
  /\ \A e \in Engine : ~present(e)
  /\ stage' = IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE"
  /\ errand' =
       IF (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") # "IDLE")
  /\ phase' = failure
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, latch,
       done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* Durable RUNNING: the optimizer may move from here on. *)
record_running ==
  /\ stage = "RECORD_RUNNING"
  /\ disk_status' = "RUNNING"
  /\ disk_parent' =
       IF memory_status = "COMPLETE" THEN (IF memory_target = None THEN 0 ELSE memory_target)
       ELSE memory_parent
  /\ disk_parent_content' = IF memory_status = "COMPLETE" THEN memory_content ELSE memory_parent_content
  /\ disk_content' = (memory_content + 1)
  /\ disk_target' = None
  /\ memory_status' = "RUNNING"
  /\ memory_parent' =
       IF memory_status = "COMPLETE" THEN (IF memory_target = None THEN 0 ELSE memory_target)
       ELSE memory_parent
  /\ memory_parent_content' = IF memory_status = "COMPLETE" THEN memory_content ELSE memory_parent_content
  /\ memory_content' = (memory_content + 1)
  /\ memory_target' = None
  /\ stage' = IF colocated THEN "PAUSE" ELSE "TRAIN"
  /\ latch' = (latch \/ (IF colocated THEN "PAUSE" ELSE "TRAIN") = "PAUSE")
  /\ UNCHANGED <<colocated, mode, sharing, errand, phase, full, rebuilt, done, head, gate, slot, paused,
       weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared, unpaired>>

(* Durable CHECKPOINT: the job's bytes exist, and no engine has any. *)
record_checkpoint ==
  /\ stage = "RECORD_CHECKPOINT"
  /\ disk_status' = "CHECKPOINT"
  /\ memory_status' = "CHECKPOINT"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, phase, latch, done, head, gate,
       slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared,
       unpaired>>

(* Durable UPDATING_WEIGHTS: engines may hold anything from here on. *)
declare ==
  /\ stage = "DECLARE"
  /\ disk_status' = "UPDATING_WEIGHTS"
  /\ memory_status' = "UPDATING_WEIGHTS"
  /\ stage' = IF errand = "PUBLISH" \/ rebuilt THEN transfer ELSE "REBUILD"
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, errand, phase, latch, full,
       rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* The id is durable before any byte leaves under it, so that every later try uses it. *)
record_target ==
  /\ stage = "RECORD_TARGET"
  /\ disk_target' = (memory_parent + 1)
  /\ memory_target' = (memory_parent + 1)
  /\ stage' = IF colocated THEN "RELEASE" ELSE "SEND"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       memory_status, memory_parent, memory_parent_content, memory_content, errand, phase, latch, full,
       rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* Durable READY_TO_COMMIT: every engine is verified, and stays paused. *)
record_ready ==
  /\ stage = "RECORD_READY"
  /\ disk_status' = "READY_TO_COMMIT"
  /\ memory_status' = "READY_TO_COMMIT"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, phase, latch, done, head, gate,
       slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared,
       unpaired>>

(* Durable HEAD_COMMITTED: the service has moved its head, engines may continue. *)
record_head ==
  /\ stage = "RECORD_HEAD"
  /\ disk_status' = "HEAD_COMMITTED"
  /\ memory_status' = "HEAD_COMMITTED"
  /\ stage' = "CONTINUE"
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, errand, phase, latch, full,
       rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* Durable COMPLETE: every engine has continued. *)
record_complete ==
  /\ stage = "RECORD_COMPLETE"
  /\ disk_status' = "COMPLETE"
  /\ memory_status' = "COMPLETE"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, phase, latch, done, head, gate,
       slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared,
       unpaired>>

(* Durable REJECTING: the job's bytes will not be used. *)
record_rejecting ==
  /\ stage = "RECORD_REJECTING"
  /\ disk_status' = "REJECTING"
  /\ memory_status' = "REJECTING"
  /\ stage' = IF colocated THEN "RESUME_WEIGHTS" ELSE "RECORD_REJECTED"
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, errand, phase, latch, full,
       rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* Durable REJECTED: the parent serves. *)
record_rejected ==
  /\ stage = "RECORD_REJECTED"
  /\ disk_status' = "REJECTED"
  /\ memory_status' = "REJECTED"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, phase, latch, done, head, gate,
       slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared,
       unpaired>>

(* Durable UPDATING_WEIGHTS after giving up from CHECKPOINT, so that the next try rebuilds what was retired. *)
declare_retired ==
  /\ stage = "DECLARE_RETIRED"
  /\ disk_status' = "UPDATING_WEIGHTS"
  /\ memory_status' = "UPDATING_WEIGHTS"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, disk_content, disk_target,
       memory_parent, memory_parent_content, memory_content, memory_target, phase, latch, done, head, gate,
       slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent, undeclared,
       unpaired>>

(* The service admits a request and routes it to a live engine. *)
admit(e) ==
  /\ gate
  /\ live(e)
  /\ request[e] = "NONE"
  /\ request' = [request EXCEPT ![e] = "WAITING"]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, cached, kv, made_by, sent, undeclared, unpaired>>

(* A request starts without a hit; its prompt enters the tree once it is prefilled. *)
start(e) ==
  /\ can_start(e)
  /\ request' = [request EXCEPT ![e] = "RUNNING"]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN weights[e] = c ELSE kv[e2, c]]
  /\ cached' = [cached EXCEPT ![e] = sharing]
  /\ made_by' = [e2 \in Engine, c \in Content |->
       IF e2 = e THEN made_by[e, c] \/ (sharing /\ weights[e] = c)
       ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, sent, undeclared, unpaired>>

(* A request starts on a cached prefix: what made the prefix is in its KV, and in what it adds to the tree. *)
start_on_hit(e) ==
  /\ can_start(e)
  /\ cached[e]
  /\ request' = [request EXCEPT ![e] = "RUNNING"]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN made_by[e, c] \/ weights[e] = c ELSE kv[e2, c]]
  /\ made_by' = [e2 \in Engine, c \in Content |->
       IF e2 = e THEN made_by[e, c] \/ weights[e] = c
       ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, cached, sent, undeclared, unpaired>>

(* A request is answered, and all of its KV enters the tree. Under retract also after the pause: the batch
   that ran ahead is delivered before the rest is retracted. *)
finish(e) ==
  /\ request[e] = "RUNNING"
  /\ paused[e] => mode = "RETRACT"
  /\ request' = [request EXCEPT ![e] = "NONE"]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE kv[e2, c]]
  /\ cached' = [cached EXCEPT ![e] = sharing]
  /\ made_by' = [e2 \in Engine, c \in Content |->
       IF e2 = e THEN made_by[e, c] \/ (sharing /\ kv[e, c])
       ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, sent, undeclared, unpaired>>

(* A paused engine sends its request back to the queue without its KV. What the tree owns stays in the tree. *)
retract(e) ==
  /\ request[e] = "RUNNING"
  /\ paused[e]
  /\ mode = "RETRACT"
  /\ request' = [request EXCEPT ![e] = "WAITING"]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE kv[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, cached, made_by, sent, undeclared, unpaired>>

(* The prefix of a request that runs on one engine reaches the tree of another, paused or not. A router moving
   a request, a cache tier or a disaggregated prefill do this without asking the receiving scheduler. It is
   why the barrier pauses every engine before it flushes any. *)
migrate(e, f) ==
  /\ sharing
  /\ e # f
  /\ generates(e)
  /\ live(f)
  /\ cached' = [cached EXCEPT ![f] = TRUE]
  /\ made_by' = [e2 \in Engine, c \in Content |->
       IF e2 = f THEN made_by[f, c] \/ kv[e, c]
       ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, kv, sent, undeclared, unpaired>>

(* Fault. A pause, flush or release is refused for good or times out; some engines may have done it. *)
barrier_fails ==
  /\ stage \in {"PAUSE", "FLUSH", "RELEASE"}
  /\ stage' = "RETIRE"
  /\ latch' = TRUE
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* Fault. An engine does not start, memory does not come back, or bytes do not arrive; some engines may have
   changed. *)
transfer_fails ==
  /\ stage \in {"REBUILD", "RESUME_WEIGHTS", "SEND", "RESUME_KV", "VERIFY"}
  /\ stage' = "RETIRE"
  /\ latch' = TRUE
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       errand, phase, full, rebuilt, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* Fault. A transfer answers success and leaves bytes that nobody sent. *)
send_tears(e, stamped) ==
  /\ asks(e, "SEND")
  /\ weights' = [weights EXCEPT ![e] = 0]
  /\ reports' = [reports EXCEPT ![e] = IF ~stamped THEN reports[e] ELSE load_to_establish]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ sent' = [l \in Load, c \in Content |-> sent[l, c] \/ (l = load_to_establish /\ c = content_to_establish)]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, kv_out, weights_out, request, cached,
       kv, made_by, undeclared, unpaired>>

(* Fault. A transfer answers success and leaves the old id. *)
send_without_stamp(e) ==
  /\ asks(e, "SEND")
  /\ weights' = [weights EXCEPT ![e] = received(e)]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ sent' = [l \in Load, c \in Content |-> sent[l, c] \/ (l = load_to_establish /\ c = content_to_establish)]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, reports, kv_out, weights_out, request,
       cached, kv, made_by, undeclared, unpaired>>

(* Fault. A transfer answers success and stamps the id; no byte has left. *)
stamp_without_bytes(e) ==
  /\ asks(e, "SEND")
  /\ reports' = [reports EXCEPT ![e] = load_to_establish]
  /\ done' = [done EXCEPT ![e] = TRUE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, head, gate, slot, paused, weights, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* Fault. An engine does not continue: the latch stays. *)
continue_fails ==
  /\ stage = "CONTINUE"
  /\ stage' = IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE"
  /\ errand' =
       IF (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF errand \in {"REPUBLISH", "RECOVER"} THEN "RETIRE" ELSE "IDLE") # "IDLE")
  /\ done' = [e \in Engine |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* Fault. Engines that still have their slots keep them, fenced by the latch, with whatever they hold: they do
   not end. They are those whose shutdown failed, whichever these are; all of them, where the monitor does not
   let go of them. *)
retire_fails ==
  /\ stage = "RETIRE"
  /\ \E e \in Engine : present(e)
  /\ stage' = IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE"
  /\ errand' =
       IF (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") = "IDLE" THEN "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") # "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF memory_status = "CHECKPOINT" THEN "DECLARE_RETIRED" ELSE "IDLE") # "IDLE")
  /\ phase' = failure
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, latch,
       done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* Fault. Training fails, or its checkpoint is not there: the optimizer may have moved. *)
train_fails ==
  /\ stage = "TRAIN"
  /\ stage' = "IDLE"
  /\ errand' = "NOTHING"
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ phase' = "TRAINING_FAILED"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, latch,
       done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* Fault. A write raises: before the rename, and nothing is written, or after it, and the new record is there.
   The coordinator reads the record again, so that it never believes less than what a restart would find.
   Upstream keeps its old copy. *)
write_fails(renamed) ==
  /\ stage \in {"RECORD_RUNNING", "RECORD_CHECKPOINT", "DECLARE", "RECORD_TARGET", "RECORD_READY",
       "RECORD_HEAD", "RECORD_COMPLETE", "RECORD_REJECTING", "RECORD_REJECTED", "DECLARE_RETIRED"}
  /\ disk_status' =
       IF renamed THEN (IF stage # "DECLARE_RETIRED" THEN (IF stage # "RECORD_REJECTED" THEN (IF stage #
         "RECORD_REJECTING" THEN (IF stage # "RECORD_COMPLETE" THEN (IF stage # "RECORD_HEAD" THEN (IF stage #
         "RECORD_READY" THEN (IF stage # "DECLARE" THEN (IF stage # "RECORD_CHECKPOINT" THEN (IF stage #
         "RECORD_RUNNING" THEN memory_status ELSE "RUNNING") ELSE "CHECKPOINT") ELSE "UPDATING_WEIGHTS") ELSE
         "READY_TO_COMMIT") ELSE "HEAD_COMMITTED") ELSE "COMPLETE") ELSE "REJECTING") ELSE "REJECTED") ELSE
         "UPDATING_WEIGHTS")
       ELSE disk_status
  /\ disk_parent' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_parent ELSE IF memory_status = "COMPLETE" THEN
         (IF memory_target = None THEN 0 ELSE memory_target) ELSE memory_parent)
       ELSE disk_parent
  /\ disk_parent_content' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_parent_content ELSE IF memory_status =
         "COMPLETE" THEN memory_content ELSE memory_parent_content)
       ELSE disk_parent_content
  /\ disk_content' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_content ELSE memory_content + 1)
       ELSE disk_content
  /\ disk_target' =
       IF renamed THEN (IF stage # "RECORD_TARGET" THEN (IF stage # "RECORD_RUNNING" THEN memory_target ELSE
         None) ELSE memory_parent + 1)
       ELSE disk_target
  /\ memory_status' =
       IF renamed THEN (IF stage # "DECLARE_RETIRED" THEN (IF stage # "RECORD_REJECTED" THEN (IF stage #
         "RECORD_REJECTING" THEN (IF stage # "RECORD_COMPLETE" THEN (IF stage # "RECORD_HEAD" THEN (IF stage #
         "RECORD_READY" THEN (IF stage # "DECLARE" THEN (IF stage # "RECORD_CHECKPOINT" THEN (IF stage #
         "RECORD_RUNNING" THEN memory_status ELSE "RUNNING") ELSE "CHECKPOINT") ELSE "UPDATING_WEIGHTS") ELSE
         "READY_TO_COMMIT") ELSE "HEAD_COMMITTED") ELSE "COMPLETE") ELSE "REJECTING") ELSE "REJECTED") ELSE
         "UPDATING_WEIGHTS")
       ELSE disk_status
  /\ memory_parent' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_parent ELSE IF memory_status = "COMPLETE" THEN
         (IF memory_target = None THEN 0 ELSE memory_target) ELSE memory_parent)
       ELSE disk_parent
  /\ memory_parent_content' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_parent_content ELSE IF memory_status =
         "COMPLETE" THEN memory_content ELSE memory_parent_content)
       ELSE disk_parent_content
  /\ memory_content' =
       IF renamed THEN (IF stage # "RECORD_RUNNING" THEN memory_content ELSE memory_content + 1)
       ELSE disk_content
  /\ memory_target' =
       IF renamed THEN (IF stage # "RECORD_TARGET" THEN (IF stage # "RECORD_RUNNING" THEN memory_target ELSE
         None) ELSE memory_parent + 1)
       ELSE disk_target
  /\ stage' = IF stage \in {"DECLARE", "RECORD_TARGET", "RECORD_READY"} THEN "RETIRE" ELSE "IDLE"
  /\ errand' =
       IF (IF stage \in {"DECLARE", "RECORD_TARGET", "RECORD_READY"} THEN "RETIRE" ELSE "IDLE") = "IDLE" THEN
         "NOTHING"
       ELSE errand
  /\ full' = (full /\ (IF stage \in {"DECLARE", "RECORD_TARGET", "RECORD_READY"} THEN "RETIRE" ELSE "IDLE") #
       "IDLE")
  /\ rebuilt' = (rebuilt /\ (IF stage \in {"DECLARE", "RECORD_TARGET", "RECORD_READY"} THEN "RETIRE" ELSE
       "IDLE") # "IDLE")
  /\ phase' =
       IF stage = "RECORD_CHECKPOINT" \/ (stage = "RECORD_RUNNING" /\ renamed) THEN "TRAINING_FAILED"
       ELSE phase
  /\ undeclared' = (stage = "DECLARE_RETIRED" /\ ~renamed)
  /\ UNCHANGED <<colocated, mode, sharing, latch, done, head, gate, slot, paused, weights, reports, kv_out,
       weights_out, request, cached, kv, made_by, sent, unpaired>>

(* Fault. The coordinator's process is gone; engines stay as they are. *)
crash ==
  /\ up
  /\ memory_status' = "NONE"
  /\ memory_parent' = 0
  /\ memory_parent_content' = 0
  /\ memory_content' = 0
  /\ memory_target' = None
  /\ stage' = "DOWN"
  /\ errand' = "NOTHING"
  /\ phase' = "SERVING"
  /\ latch' = FALSE
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ done' = [e \in Engine |-> FALSE]
  /\ undeclared' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, unpaired>>

(* Fault. An engine's process is gone; its slot keeps the handle. *)
die(e) ==
  /\ live(e)
  /\ slot' = [slot EXCEPT ![e] = "DEAD"]
  /\ paused' = [paused EXCEPT ![e] = FALSE]
  /\ weights' = [weights EXCEPT ![e] = 0]
  /\ reports' = [reports EXCEPT ![e] = None]
  /\ kv_out' = [kv_out EXCEPT ![e] = FALSE]
  /\ weights_out' = [weights_out EXCEPT ![e] = FALSE]
  /\ request' = [request EXCEPT ![e] = "NONE"]
  /\ cached' = [cached EXCEPT ![e] = FALSE]
  /\ kv' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE kv[e2, c]]
  /\ made_by' = [e2 \in Engine, c \in Content |-> IF e2 = e THEN FALSE ELSE made_by[e2, c]]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, sent, undeclared, unpaired>>

(* A new job begins; a colocated one closes admission for the whole step. *)
begin_training ==
  /\ takes_calls
  /\ memory_status \in {"NONE", "COMPLETE", "REJECTED"}
  /\ stage' = "RECORD_RUNNING"
  /\ errand' = "TRAIN"
  /\ gate' = (gate /\ ~colocated)
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, full, rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out, request, cached,
       kv, made_by, sent, undeclared, unpaired>>

(* The service closes admission and publishes the checkpoint: every byte, or the difference to the parent. *)
begin_publish(full_) ==
  /\ takes_calls
  /\ memory_status = "CHECKPOINT"
  /\ stage' = "PAUSE"
  /\ latch' = TRUE
  /\ errand' = "PUBLISH"
  /\ full' = full_
  /\ gate' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* A publication that was left in UPDATING_WEIGHTS is tried again, from nothing that engines may hold. *)
begin_retry ==
  /\ stage = "IDLE"
  /\ memory_status = "UPDATING_WEIGHTS"
  /\ stage' = "PAUSE"
  /\ latch' = TRUE
  /\ errand' = "RETRY"
  /\ full' = TRUE
  /\ phase' = "SERVING"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv,
       made_by, sent, undeclared, unpaired>>

(* What should be served is established again under its own id: after an engine was lost, or after a failed
   try. Upstream refuses this where the parent should be served, so that only a restart fills a slot there. *)
begin_republish ==
  /\ stage = "IDLE"
  /\ phase = "SERVING" \/ replayable
  /\ memory_status \in {"READY_TO_COMMIT", "HEAD_COMMITTED", "COMPLETE", "NONE", "REJECTING", "REJECTED"}
  /\ stage' = "PAUSE"
  /\ latch' = TRUE
  /\ errand' = "REPUBLISH"
  /\ full' = TRUE
  /\ phase' = "SERVING"
  /\ gate' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target,
       rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by,
       sent, undeclared, unpaired>>

(* The service refuses the checkpoint, or goes on refusing it. *)
begin_reject ==
  /\ takes_calls
  /\ memory_status \in {"CHECKPOINT", "REJECTING"}
  /\ stage' =
       IF memory_status = "CHECKPOINT" THEN "RECORD_REJECTING"
       ELSE IF colocated THEN "RESUME_WEIGHTS"
       ELSE "RECORD_REJECTED"
  /\ errand' = "REJECT"
  /\ gate' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, full, rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out, request, cached,
       kv, made_by, sent, undeclared, unpaired>>

(* The service makes the published load its head, durably, and only then acknowledges. *)
commit_head ==
  /\ memory_status = "READY_TO_COMMIT"
  /\ memory_target # head
  /\ head' = IF memory_target = None THEN 0 ELSE memory_target
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, gate, slot, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* The service tells the coordinator that the head has moved; again, if the last time ended in HEAD_COMMITTED. *)
acknowledge ==
  /\ takes_calls
  /\ memory_status \in {"READY_TO_COMMIT", "HEAD_COMMITTED"}
  /\ memory_target = head
  /\ stage' = IF memory_status = "READY_TO_COMMIT" THEN "RECORD_HEAD" ELSE "CONTINUE"
  /\ errand' = "ACKNOWLEDGE"
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, phase,
       latch, full, rebuilt, done, head, gate, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* The service admits requests when the marker it is told is settled, or engines were not touched yet. *)
open_gate ==
  /\ takes_calls
  /\ ~gate
  /\ memory_status \in {"NONE", "COMPLETE", "REJECTED"} \/ (~colocated /\ memory_status \in {"RUNNING",
       "CHECKPOINT"})
  /\ gate' = TRUE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* The health monitor takes a dead handle out of its slot, unless the latch forbids it. *)
empty_slot(e) ==
  /\ up
  /\ ~latch
  /\ slot[e] = "DEAD"
  /\ slot' = [slot EXCEPT ![e] = "EMPTY"]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, memory_status, memory_parent, memory_parent_content, memory_content, memory_target, stage,
       errand, phase, latch, full, rebuilt, done, head, gate, paused, weights, reports, kv_out, weights_out,
       request, cached, kv, made_by, sent, undeclared, unpaired>>

(* A new coordinator reads the record, fences, and recovers; it refuses RUNNING, which nobody can judge. The
   service closes admission before it lets a new coordinator recover. *)
restart ==
  /\ stage = "DOWN"
  /\ memory_status' = IF disk_status = "RUNNING" THEN memory_status ELSE disk_status
  /\ memory_parent' = IF disk_status = "RUNNING" THEN memory_parent ELSE disk_parent
  /\ memory_parent_content' = IF disk_status = "RUNNING" THEN memory_parent_content ELSE disk_parent_content
  /\ memory_content' = IF disk_status = "RUNNING" THEN memory_content ELSE disk_content
  /\ memory_target' = IF disk_status = "RUNNING" THEN memory_target ELSE disk_target
  /\ stage' = IF disk_status = "RUNNING" THEN "REFUSED" ELSE "PAUSE"
  /\ errand' = IF disk_status = "RUNNING" THEN "NOTHING" ELSE "RECOVER"
  /\ latch' = (disk_status # "RUNNING")
  /\ full' = (disk_status # "RUNNING")
  /\ gate' = FALSE
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, phase, rebuilt, done, head, slot, paused, weights, reports, kv_out, weights_out, request,
       cached, kv, made_by, sent, undeclared, unpaired>>

(* Health is beyond repair: the coordinator and every engine are killed. *)
tear_down ==
  /\ beyond_repair
  /\ memory_status' = "NONE"
  /\ memory_parent' = 0
  /\ memory_parent_content' = 0
  /\ memory_content' = 0
  /\ memory_target' = None
  /\ stage' = "DOWN"
  /\ errand' = "NOTHING"
  /\ phase' = "SERVING"
  /\ latch' = FALSE
  /\ full' = FALSE
  /\ rebuilt' = FALSE
  /\ done' = [e \in Engine |-> FALSE]
  /\ undeclared' = FALSE
  /\ slot' = [e \in Engine |-> "EMPTY"]
  /\ paused' = [e \in Engine |-> FALSE]
  /\ weights' = [e \in Engine |-> 0]
  /\ reports' = [e \in Engine |-> None]
  /\ kv_out' = [e \in Engine |-> FALSE]
  /\ weights_out' = [e \in Engine |-> FALSE]
  /\ request' = [e \in Engine |-> "NONE"]
  /\ cached' = [e \in Engine |-> FALSE]
  /\ kv' = [e \in Engine, c \in Content |-> FALSE]
  /\ made_by' = [e \in Engine, c \in Content |-> FALSE]
  /\ UNCHANGED <<colocated, mode, sharing, disk_status, disk_parent, disk_parent_content, disk_content,
       disk_target, head, gate, sent, unpaired>>

(* An operator gives the ambiguous job up, and puts the record of the last committed one in its place. *)
restore_previous_record ==
  /\ stage = "REFUSED"
  /\ disk_status' = IF disk_parent = 0 THEN "NONE" ELSE "COMPLETE"
  /\ disk_target' = IF disk_parent = 0 THEN disk_target ELSE disk_parent
  /\ disk_content' = disk_parent_content
  /\ stage' = "DOWN"
  /\ UNCHANGED <<colocated, mode, sharing, disk_parent, disk_parent_content, memory_status, memory_parent,
       memory_parent_content, memory_content, memory_target, errand, phase, latch, full, rebuilt, done, head,
       gate, slot, paused, weights, reports, kv_out, weights_out, request, cached, kv, made_by, sent,
       undeclared, unpaired>>

(* What is done, and not only suffered. *)
Ordinary ==
  \/ \E e \in Engine : pause(e)
  \/ all_paused
  \/ \E e \in Engine : flush(e)
  \/ all_flushed
  \/ \E e \in Engine : release(e)
  \/ all_released
  \/ decline_job
  \/ train
  \/ \E e \in Engine : rebuild(e)
  \/ all_rebuilt
  \/ \E e \in Engine : resume_weights(e)
  \/ all_weights_back
  \/ \E e \in Engine : send(e)
  \/ all_sent
  \/ \E e \in Engine : resume_kv(e)
  \/ all_kv_back
  \/ verify
  \/ find_mismatch
  \/ \E e \in Engine : continue_generation(e)
  \/ all_continued
  \/ find_dead
  \/ find_dead_at_continue
  \/ \E e \in Engine : retire(e)
  \/ all_retired
  \/ record_running
  \/ record_checkpoint
  \/ declare
  \/ record_target
  \/ record_ready
  \/ record_head
  \/ record_complete
  \/ record_rejecting
  \/ record_rejected
  \/ declare_retired
  \/ \E e \in Engine : admit(e)
  \/ \E e \in Engine : start(e)
  \/ \E e \in Engine : start_on_hit(e)
  \/ \E e \in Engine : finish(e)
  \/ \E e \in Engine : retract(e)
  \/ \E e \in Engine, f \in Engine : migrate(e, f)
  \/ begin_training
  \/ \E full_ \in BOOLEAN : begin_publish(full_)
  \/ begin_retry
  \/ begin_republish
  \/ begin_reject
  \/ commit_head
  \/ acknowledge
  \/ open_gate
  \/ \E e \in Engine : empty_slot(e)
  \/ restart
  \/ tear_down
  \/ restore_previous_record

(* What goes wrong. *)
Fault ==
  \/ barrier_fails
  \/ transfer_fails
  \/ \E e \in Engine, stamped \in BOOLEAN : send_tears(e, stamped)
  \/ \E e \in Engine : send_without_stamp(e)
  \/ \E e \in Engine : stamp_without_bytes(e)
  \/ continue_fails
  \/ retire_fails
  \/ train_fails
  \/ \E renamed \in BOOLEAN : write_fails(renamed)
  \/ crash
  \/ \E e \in Engine : die(e)

Next ==
  /\ Ordinary \/ Fault
  /\ InScope'

Spec == Init /\ [][Next]_vars

(* A process that is called gives an answer, one that is started comes up, and one that is shut down ends. *)
engines_answer ==
  \A e \in Engine :
    /\ WF_vars(pause(e) /\ InScope')
    /\ WF_vars(flush(e) /\ InScope')
    /\ WF_vars(release(e) /\ InScope')
    /\ WF_vars(rebuild(e) /\ InScope')
    /\ WF_vars(resume_weights(e) /\ InScope')
    /\ WF_vars(send(e) /\ InScope')
    /\ WF_vars(resume_kv(e) /\ InScope')
    /\ WF_vars(continue_generation(e) /\ InScope')
    /\ WF_vars(retire(e) /\ InScope')

(* An errand goes on when all have answered, and is given up where a dead handle does not answer. A job that
   is about to be recorded is recorded or declined. In small worlds only the second is always possible. *)
the_coordinator_goes_on ==
  /\ WF_vars(all_paused /\ InScope')
  /\ WF_vars(all_flushed /\ InScope')
  /\ WF_vars(all_released /\ InScope')
  /\ WF_vars(all_rebuilt /\ InScope')
  /\ WF_vars(all_weights_back /\ InScope')
  /\ WF_vars(all_sent /\ InScope')
  /\ WF_vars(all_kv_back /\ InScope')
  /\ WF_vars(all_continued /\ InScope')
  /\ WF_vars(verify /\ InScope')
  /\ WF_vars(find_mismatch /\ InScope')
  /\ WF_vars(find_dead /\ InScope')
  /\ WF_vars(find_dead_at_continue /\ InScope')
  /\ WF_vars(all_retired /\ InScope')
  /\ WF_vars(decline_job /\ InScope')

(* A record that is to be written is written. *)
the_disk_is_written ==
  /\ WF_vars(record_checkpoint /\ InScope')
  /\ WF_vars(declare /\ InScope')
  /\ WF_vars(record_target /\ InScope')
  /\ WF_vars(record_ready /\ InScope')
  /\ WF_vars(record_head /\ InScope')
  /\ WF_vars(record_complete /\ InScope')
  /\ WF_vars(record_rejecting /\ InScope')
  /\ WF_vars(record_rejected /\ InScope')

(* The trainer makes the checkpoint that it works on. *)
training_ends ==
  /\ WF_vars(train /\ InScope')

(* A paused engine sends back what it still runs, if it does not deliver it. *)
engines_settle ==
  \A e \in Engine :
    /\ WF_vars(retract(e) /\ InScope')

(* While it schedules, an engine gets through its request, however often it is paused in between. *)
engines_run ==
  \A e \in Engine :
    /\ SF_vars((~paused[e]) /\ start(e) /\ InScope')
    /\ SF_vars((~paused[e]) /\ finish(e) /\ InScope')

(* The service publishes a checkpoint, if it does not reject it, and tries again what was left half published. *)
jobs_are_decided ==
  /\ WF_vars(\E full_ \in BOOLEAN : begin_publish(full_) /\ InScope')
  /\ WF_vars(begin_retry /\ InScope')

(* What the service has begun to reject it goes on rejecting. *)
rejections_are_finished ==
  /\ WF_vars((memory_status = "REJECTING") /\ begin_reject /\ InScope')

(* The service holds a record of its own of what is published, and commits it (L5). *)
heads_are_committed ==
  /\ WF_vars(commit_head /\ InScope')

(* The service tells that the head has moved, and tells it again until that is done, whatever else it asks
   for. *)
commits_are_acknowledged ==
  /\ SF_vars(acknowledge /\ InScope')

(* The service republishes where something has failed or an engine is lost; where all is well it need not. *)
what_is_lost_is_republished ==
  /\ SF_vars(amiss /\ begin_republish /\ InScope')

(* The service opens admission, however often something closes it again. *)
admission_is_wanted ==
  /\ SF_vars(open_gate /\ InScope')

(* The supervisor restarts what is down, tears down what is beyond repair, and an operator decides what is
   open. *)
somebody_watches ==
  /\ WF_vars(restart /\ InScope')
  /\ WF_vars(tear_down /\ InScope')
  /\ WF_vars(restore_previous_record /\ InScope')

(* A run that is fair: it has finitely many faults, and nobody fails for ever to do their part. *)
FairSpec ==
  /\ Spec
  /\ <>[][Ordinary]_vars
  /\ engines_answer
  /\ the_coordinator_goes_on
  /\ the_disk_is_written
  /\ training_ends
  /\ engines_settle
  /\ engines_run
  /\ jobs_are_decided
  /\ rejections_are_finished
  /\ heads_are_committed
  /\ commits_are_acknowledged
  /\ what_is_lost_is_republished
  /\ admission_is_wanted
  /\ somebody_watches

(* A request starts on KV that the engine's own weights made, whatever prefix it reuses (S1). *)
no_stale_hit ==
  [][\A e \in Engine : (request[e] = "WAITING" /\ request'[e] = "RUNNING") => (\A c \in Content : kv'[e, c] =>
    weights'[e] = c)]_vars

(* A prefix cache is shared only where a pause retracts (S2). *)
sharing_only_with_retract == sharing => mode = "RETRACT"

(* While bytes move under retract, every engine's tree is empty, and stays so (S3). *)
flush_point == (moves_bytes /\ mode = "RETRACT") => (\A e \in Engine : live(e) => ~cached[e])

(* Under retract, no request holds KV that other weights made than its engine has: none outlives a flush (S4). *)
retract_keeps_kv_pure ==
  mode = "RETRACT" => (\A e \in Engine : \A c \in Content : kv[e, c] => weights[e] = c)

(* Paused in place, KV of several loads stays with the request that made it: no tree holds any (S11). *)
in_place_keeps_kv_private == mode = "IN_PLACE" => (\A e \in Engine : ~cached[e])

(* A tree with entries and a running request have KV that some weights made, and nothing else has. *)
provenance_is_complete ==
  \A e \in Engine : cached[e] = (\E c \in Content : made_by[e, c]) /\ (request[e] = "RUNNING") = (\E c \in
    Content : kv[e, c])

(* On a paused engine nothing starts; in place nothing ends either, and only under retract is anything sent
   back. *)
pauses_mean_what_they_say ==
  [][\A e \in Engine : ((request[e] # "RUNNING" /\ request'[e] = "RUNNING") => ~paused[e]) /\ ((request[e] =
    "RUNNING" /\ request'[e] # "RUNNING" /\ paused[e] /\ live(e)') => mode = "RETRACT") /\ ((request[e] =
    "RUNNING" /\ request'[e] = "WAITING") => (mode = "RETRACT" /\ paused[e]))]_vars

(* Before any byte of a checkpoint leaves for an engine, UPDATING_WEIGHTS is durable (P1). *)
bytes_only_while_updating == disk_status \in {"RUNNING", "CHECKPOINT"} => untouched

(* What an engine holds, unless it booted with it or a transfer tore it, was sent under some id (P1). *)
bytes_are_accounted_for ==
  \A e \in Engine : weights[e] = 0 \/ (\E l \in Load : sent[l, weights[e]])

(* Bytes were only ever sent under ids that the record has: its target, its parent and what came before (P2). *)
target_recorded_before_bytes ==
  \A l \in Load : (\E c \in Content : sent[l, c]) => (disk_parent < l => disk_target = l)

(* A publication that failed has fenced the engines and says so durably, or the disk would not take it (P3). *)
failure_declares ==
  (stage = "IDLE" /\ phase = "WEIGHT_SYNC_FAILED") => (latch /\ (disk_status = "CHECKPOINT" => undeclared))

(* A retry, a republication and a recovery fill every slot and send every byte (P4). *)
retry_is_full == (repairs /\ stage = "SEND") => (full /\ (\A e \in Engine : present(e)))

(* While bytes move, every engine is paused, those that appeared in the meantime too (P4, P15). *)
nobody_schedules_during_transfer == moves_bytes => (\A e \in Engine : live(e) => paused[e])

(* What an engine runs on is the load that the service has released (P5). *)
serves_only_committed == \A e \in Engine : generates(e) => serves_committed(e)

(* First the head, then durable HEAD_COMMITTED, then engines continue, then durable COMPLETE (P6). *)
ack_order ==
  [][(disk_status' \in {"HEAD_COMMITTED", "COMPLETE"} => disk_target' = head') /\ ((\E e \in Engine :
    wakes(e)) => disk_status \in {"HEAD_COMMITTED", "COMPLETE", "REJECTING", "REJECTED", "NONE"}) /\
    ((disk_status = "HEAD_COMMITTED" /\ disk_status' = "COMPLETE") => ~latch)]_vars

(* Once the first engine may continue, every live engine reports the released load and holds its bytes (P7). *)
uniform_when_serving ==
  (stage = "CONTINUE" \/ (up /\ ~latch)) => (\A e \in Engine : live(e) => serves_committed(e))

(* READY_TO_COMMIT is written only when there is an engine, and every live one has the load (P7). *)
readiness_is_observed ==
  stage = "RECORD_READY" => ((\E e \in Engine : present(e)) /\ (\A e \in Engine : live(e) => (reports[e] =
    disk_target /\ weights[e] = disk_content)))

(* No two different bytes were ever sent under one id, over retries, crashes and restarts (P8). *)
one_content_per_id ==
  \A l \in Load : \A c \in Content : \A c2 \in Content : (sent[l, c] /\ sent[l, c2]) => c = c2

(* A recorded id is used again by every later try, and never changes once it is published (P9). *)
identity_kept ==
  [][(disk_target # None /\ disk_status' # "RUNNING") => (disk_target' = disk_target /\ disk_content' =
    disk_content)]_vars

(* The durable status takes only the edges of the marker and its few raw writes (P10). *)
marker_edges ==
  [][(disk_status' = "NONE" => disk_status \in {"NONE", "RUNNING"}) /\ (disk_status' = "RUNNING" =>
    disk_status \in {"RUNNING", "NONE", "COMPLETE", "REJECTED"}) /\ (disk_status' = "CHECKPOINT" =>
    disk_status \in {"CHECKPOINT", "RUNNING"}) /\ (disk_status' = "UPDATING_WEIGHTS" => disk_status \in
    {"UPDATING_WEIGHTS", "CHECKPOINT"}) /\ (disk_status' = "READY_TO_COMMIT" => disk_status \in
    {"READY_TO_COMMIT", "UPDATING_WEIGHTS"}) /\ (disk_status' = "HEAD_COMMITTED" => disk_status \in
    {"HEAD_COMMITTED", "READY_TO_COMMIT"}) /\ (disk_status' = "COMPLETE" => disk_status \in {"COMPLETE",
    "HEAD_COMMITTED", "RUNNING"}) /\ (disk_status' = "REJECTING" => disk_status \in {"REJECTING",
    "CHECKPOINT"}) /\ (disk_status' = "REJECTED" => disk_status \in {"REJECTED", "REJECTING"})]_vars

(* What a running coordinator believes of its record is what a restart would read (P10). *)
memory_mirrors_disk ==
  up => (memory_status = disk_status /\ memory_parent = disk_parent /\ memory_parent_content =
    disk_parent_content /\ memory_content = disk_content /\ memory_target = disk_target)

(* No call makes a step where the record says that there is nothing to do, or nothing that may be done (P11). *)
calls_fit_the_marker ==
  /\ errand = "TRAIN" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ disk_status \in {"NONE", "COMPLETE",
       "REJECTED", "RUNNING"})
  /\ errand = "PUBLISH" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ disk_status \in {"CHECKPOINT",
       "UPDATING_WEIGHTS"})
  /\ errand = "RETRY" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ (disk_status = "UPDATING_WEIGHTS"))
  /\ errand = "REPUBLISH" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ disk_status \in {"READY_TO_COMMIT",
       "HEAD_COMMITTED", "COMPLETE", "NONE", "REJECTING", "REJECTED"})
  /\ errand = "ACKNOWLEDGE" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ disk_status \in {"READY_TO_COMMIT",
       "HEAD_COMMITTED"})
  /\ errand = "REJECT" => (stage \in {"RETIRE", "DECLARE_RETIRED"} \/ disk_status \in {"CHECKPOINT",
       "REJECTING"})

(* A checkpoint is rejected only where no byte of it ever left for an engine (P12). *)
reject_only_untouched == disk_status \in {"REJECTING", "REJECTED"} => untouched

(* Where RUNNING was left behind, no errand starts: nobody can tell whether the optimizer moved (P13). *)
running_never_resumed ==
  [][(disk_status = "RUNNING" /\ errand = "NOTHING") => errand' = "NOTHING"]_vars

(* Only a rebuild fills a slot; only retiring, a tear-down or, latch clear, the monitor empties one (P14). *)
slots_change_by_their_owner ==
  [][\A e \in Engine : ((slot[e] = "EMPTY" /\ present(e)') => (stage = "REBUILD" /\ latch)) /\ ((present(e) /\
    slot'[e] = "EMPTY") => ((stage = "RETIRE" \/ (stage' = "DOWN" /\ beyond_repair)) \/ (up /\ ~latch /\
    slot[e] = "DEAD"))) /\ ((slot[e] = "DEAD" /\ slot'[e] # "DEAD") => slot'[e] = "EMPTY")]_vars

(* Where there is no process, there is no pause, no weights, no id, no memory, no request and no tree. *)
empty_slots_hold_nothing ==
  \A e \in Engine : live(e) \/ (~paused[e] /\ weights[e] = 0 /\ reports[e] = None /\ ~kv_out[e] /\
    ~weights_out[e] /\ request[e] = "NONE" /\ ~cached[e])

(* Nothing of an errand outlives it, and no answer the call that it was given to (P14). *)
errands_end_clean ==
  /\ (stage \in {"DOWN", "REFUSED", "IDLE"}) = (errand = "NOTHING")
  /\ stage \in {"DOWN", "REFUSED", "IDLE"} => (~full /\ ~rebuilt)
  /\ stage \in {"PAUSE", "FLUSH", "SEND", "CONTINUE"} \/ (\A e \in Engine : ~done[e])
  /\ phase = "SERVING" \/ stage \in {"IDLE", "DECLARE_RETIRED"}

(* A coordinator that is not up knows nothing: whatever a restart goes by is in the record (L4). *)
crash_forgets ==
  stage \in {"DOWN", "REFUSED"} => (memory_status = "NONE" /\ memory_parent = 0 /\ memory_parent_content = 0
    /\ memory_content = 0 /\ memory_target = None /\ phase = "SERVING" /\ ~latch /\ ~undeclared)

(* No call is taken up before the last has ended, and no errand returns to its barrier but to rebuild (P14). *)
one_errand_at_a_time ==
  [][((errand # "NOTHING" /\ errand' # "NOTHING") => (errand' = errand /\ full' = full)) /\ ((stage # "PAUSE"
    /\ stage' = "PAUSE") => stage \in {"IDLE", "DOWN", "RECORD_RUNNING", "REBUILD"})]_vars

(* After a failure, a coordinator takes up nothing but what repairs it. *)
failure_admits_only_repair ==
  [][phase # "SERVING" => (errand' = errand \/ errand' \in {"NOTHING", "RETRY", "REPUBLISH"})]_vars

(* Only a process answers a call, once, and a call has succeeded only when every handle has answered. *)
everybody_answers ==
  [][(\A e \in Engine : (~done[e] /\ done'[e]) => live(e)) /\ (\A e \in Engine : (done[e] /\ done'[e] /\ stage
    = "SEND" /\ live(e)') => (weights'[e] = weights[e] /\ reports'[e] = reports[e])) /\ ((stage \in {"PAUSE",
    "FLUSH", "SEND", "CONTINUE"} /\ stage' # stage) => (stage' \in {"DOWN", "RETIRE", "IDLE"} \/ (\A e \in
    Engine : slot[e] = "EMPTY" \/ done[e])))]_vars

(* From before the first pause until every engine has continued, the latch is set (P15). Continuing an
   acknowledgement or a rejection whose last write failed finds engines that have continued already. *)
latch_covers_pause ==
  up => (latch \/ (~(errand \notin {"ACKNOWLEDGE", "REJECT"} /\ stage \in {"PAUSE", "FLUSH", "REBUILD",
    "RELEASE", "RESUME_WEIGHTS", "SEND", "RESUME_KV", "VERIFY", "CONTINUE"}) /\ (\A e \in Engine : ~(live(e)
    /\ paused[e]))))

(* No engine was told to take back memory that it had not released (P21). *)
memory_paired == ~unpaired

(* Bytes are written and requests run only where the memory is; no tree outlives its KV (P21). *)
no_use_of_released_memory ==
  \A e \in Engine : (generates(e) => (~kv_out[e] /\ ~weights_out[e])) /\ (cached[e] => ~kv_out[e]) /\
    ((live(e) /\ stage = "SEND") => ~weights_out[e])

(* Colocated, no engine holds memory while the trainer works (P21). *)
trainer_has_the_memory ==
  (colocated /\ stage = "TRAIN") => (\A e \in Engine : live(e) => (kv_out[e] /\ weights_out[e]))

(* Colocated, no engine has KV memory before every byte has arrived, so no tree can fill during a transfer
   (P21). *)
kv_returns_after_the_bytes ==
  (colocated /\ moves_bytes /\ stage \in {"RESUME_WEIGHTS", "SEND"}) => (\A e \in Engine : live(e) =>
    kv_out[e])

(* Nobody but the coordinator, when it continues engines, makes one schedule again (P22). *)
only_owner_resumes ==
  [][(\E e \in Engine : wakes(e)) => stage = "CONTINUE"]_vars

(* A request is admitted only through the open gate, which is open only where nothing is in flight (P23). *)
admission_only_when_settled ==
  [][((\E e \in Engine : request[e] = "NONE" /\ request'[e] = "WAITING") => gate) /\ (gate => ((disk_status
    \in {"NONE", "COMPLETE", "REJECTED"} \/ (~colocated /\ disk_status \in {"RUNNING", "CHECKPOINT"})) /\
    ~latch))]_vars

(* Where nothing has failed or moves, an engine that reports an id holds bytes that were sent under it (T4). *)
id_tells_the_truth ==
  (stage \in {"IDLE", "RECORD_READY", "RECORD_HEAD", "CONTINUE", "RECORD_COMPLETE", "RECORD_REJECTED"} /\
    phase = "SERVING") => (\A e \in Engine : \A l \in Load : (live(e) /\ reports[e] = l) => (\E c \in Content
    : sent[l, c] /\ weights[e] = c))

(* Where nothing but a fault can happen, the protocol may rest. *)
no_dead_end == ENABLED Ordinary

(* Reachable, so that TLC refutes its opposite as an invariant: After a publication, a request waits where a
   prefix is cached and the engine schedules. *)
reusable ==
  /\ 0 < head
  /\ \E e \in Engine : cached[e] /\ can_start(e)

(* Reachable, so that TLC refutes its opposite as an invariant: A retracted request waits on a paused engine
   whose tree still holds its prefix. *)
retracted ==
  /\ mode = "RETRACT"
  /\ \E e \in Engine : paused[e] /\ cached[e] /\ request[e] = "WAITING"

(* Reachable, so that TLC refutes its opposite as an invariant: A request still runs on a paused engine under
   retract, when the flush is asked for. *)
running_ahead ==
  /\ mode = "RETRACT"
  /\ stage = "FLUSH"
  /\ \E e \in Engine : paused[e] /\ request[e] = "RUNNING"

(* Reachable, so that TLC refutes its opposite as an invariant: A request paused in place goes on with KV of
   two loads. *)
mixed == \E e \in Engine : generates(e) /\ kv[e, committed_content] /\ older(e)

(* Reachable, so that TLC refutes its opposite as an invariant: One engine holds the new bytes and another the
   old ones. *)
moving ==
  /\ stage = "SEND"
  /\ \E e \in Engine : \E e2 \in Engine : weights[e] = disk_content /\ weights[e2] = disk_parent_content

(* Reachable, so that TLC refutes its opposite as an invariant: A transfer by difference has been verified. *)
sent_by_difference ==
  /\ ~full
  /\ errand = "PUBLISH"
  /\ stage = "RECORD_READY"

(* Reachable, so that TLC refutes its opposite as an invariant: A first transfer of every byte has been
   verified. *)
sent_in_full ==
  /\ full
  /\ errand = "PUBLISH"
  /\ stage = "RECORD_READY"

(* Reachable, so that TLC refutes its opposite as an invariant: A transfer has answered success and left bytes
   that nobody sent, under the new id. *)
torn ==
  /\ stage = "VERIFY"
  /\ \E e \in Engine : live(e) /\ weights[e] = 0 /\ reports[e] = memory_target

(* Reachable, so that TLC refutes its opposite as an invariant: A transfer has answered success and left the
   old id. *)
unstamped ==
  /\ stage = "VERIFY"
  /\ \E e \in Engine : weights[e] = memory_content /\ reports[e] = memory_parent

(* Reachable, so that TLC refutes its opposite as an invariant: A transfer has answered success, stamped the
   new id and left the old bytes. *)
stamped_in_vain ==
  /\ stage = "VERIFY"
  /\ \E e \in Engine : weights[e] = memory_parent_content /\ reports[e] = memory_target

(* Reachable, so that TLC refutes its opposite as an invariant: A load is published and waits for the commit. *)
published ==
  /\ stage = "IDLE"
  /\ disk_status = "READY_TO_COMMIT"

(* Reachable, so that TLC refutes its opposite as an invariant: A new load is served by every engine, with
   admission open. *)
committed ==
  /\ 0 < head
  /\ serving
  /\ \A e \in Engine : generates(e)

(* Reachable, so that TLC refutes its opposite as an invariant: The head has moved, and some engine could not
   be continued. *)
interrupted ==
  /\ stage = "IDLE"
  /\ latch
  /\ disk_status = "HEAD_COMMITTED"
  /\ phase = "SERVING"

(* Reachable, so that TLC refutes its opposite as an invariant: A colocated checkpoint was rejected and the
   parent is served again, with admission open. *)
rejected ==
  /\ disk_status = "REJECTED"
  /\ colocated
  /\ serving

(* Reachable, so that TLC refutes its opposite as an invariant: A retry has filled the slots and its transfer
   is verified. *)
retried ==
  /\ errand = "RETRY"
  /\ rebuilt
  /\ stage = "RECORD_READY"

(* Reachable, so that TLC refutes its opposite as an invariant: A published load is about to be served again
   under its own id. *)
republished ==
  /\ errand = "REPUBLISH"
  /\ disk_status = "COMPLETE"
  /\ stage = "CONTINUE"

(* Reachable, so that TLC refutes its opposite as an invariant: A restart has verified what an interrupted
   publication had left, and will publish it. *)
recovered ==
  /\ errand = "RECOVER"
  /\ stage = "RECORD_READY"

(* Reachable, so that TLC refutes its opposite as an invariant: A replacement is up, with an entry in its tree
   that no load's weights made. *)
warmed_up == \E e \in Engine : live(e) /\ (\E c \in Content : made_by[e, c] /\ c = 0)

(* Reachable, so that TLC refutes its opposite as an invariant: Retiring failed: a publication has failed, and
   live engines hold what nobody sent. *)
survived ==
  /\ phase = "WEIGHT_SYNC_FAILED"
  /\ \E e \in Engine : live(e) /\ weights[e] = 0

(* Reachable, so that TLC refutes its opposite as an invariant: Every slot was filled, the transfer has
   failed, and one engine is retired while another still lives. *)
partly_retired ==
  /\ stage = "RETIRE"
  /\ rebuilt
  /\ \E e \in Engine : slot[e] = "EMPTY" /\ (\E e2 \in Engine : live(e2))

(* Reachable, so that TLC refutes its opposite as an invariant: Engines were retired from CHECKPOINT, and the
   disk would not take the declaration. *)
undeclared_ ==
  /\ stage = "IDLE"
  /\ undeclared

(* Reachable, so that TLC refutes its opposite as an invariant: A restart has refused RUNNING. *)
refused == stage = "REFUSED"

(* Reachable, so that TLC refutes its opposite as an invariant: Health is beyond repair. *)
condemned == beyond_repair

(* Reachable, so that TLC refutes its opposite as an invariant: Engines have given their memory to the
   trainer. *)
released ==
  /\ stage = "TRAIN"
  /\ \A e \in Engine : weights_out[e] /\ kv_out[e]

(* Reachable, so that TLC refutes its opposite as an invariant: Training runs beside open admission, and an
   engine has been lost. *)
lost_while_serving ==
  /\ stage = "TRAIN"
  /\ gate
  /\ \E e \in Engine : slot[e] = "EMPTY"

(* Reachable, so that TLC refutes its opposite as an invariant: An engine has died under the latch, and its
   handle must stay. *)
lost_while_latched ==
  /\ latch
  /\ \E e \in Engine : slot[e] = "DEAD"

(* On fair runs: A job that has begun is published and committed, or refused, or given up (L3, L4). *)
every_publication_settles ==
  (disk_status \notin {"NONE", "COMPLETE", "REJECTED"}) ~> (disk_status \in {"NONE", "COMPLETE", "REJECTED"})

(* On fair runs: What is published does not wait for its commit for ever, and a commit that has begun
   completes (L5, L6). *)
every_commit_completes ==
  (disk_status \in {"READY_TO_COMMIT", "HEAD_COMMITTED"}) ~> (disk_status = "COMPLETE")

(* On fair runs: No call to the coordinator lasts for ever: every barrier passes, or fails (L2). *)
every_errand_ends ==
  (errand # "NOTHING") ~> (errand = "NOTHING")

(* On fair runs: An admitted request is answered, by tokens or, where its engine is gone, by an error (L1). *)
every_request_is_answered ==
  \A e \in Engine : (request[e] # "NONE") ~> (request[e] = "NONE")

(* On fair runs: Where a process is lost, another one comes (L7). *)
every_lost_engine_is_replaced ==
  \A e \in Engine : (~live(e)) ~> live(e)

(* On fair runs: Whatever has happened, every engine serves with admission open, again and again (L9). *)
everybody_serves ==
  TRUE ~> serving

(* From every reachable state of failure_is_repaired_in_place_from, some run without faults, and without
   restart, tear_down leads to failure_is_repaired_in_place_to: A failure that health calls replayable is
   repaired by this coordinator: published, or serving again (L3). *)
failure_is_repaired_in_place_from == replayable
failure_is_repaired_in_place_to ==
  /\ takes_calls
  /\ disk_status \in {"READY_TO_COMMIT", "HEAD_COMMITTED", "COMPLETE", "NONE", "COMPLETE", "REJECTED"}

(* From every reachable state of restart_recovers_from, some run without faults, and without tear_down leads
   to restart_recovers_to: From every record but RUNNING, a new coordinator gets to serving, or to waiting for
   the commit (L4). *)
restart_recovers_from ==
  /\ stage = "DOWN"
  /\ disk_status # "RUNNING"
restart_recovers_to ==
  /\ takes_calls
  /\ latch => disk_status = "READY_TO_COMMIT"
  /\ \A e \in Engine : live(e)

(* From every reachable state of acknowledgement_completes_from, some run without faults, and without
   begin_republish, restart, tear_down leads to acknowledgement_completes_to: Once HEAD_COMMITTED is durable,
   repeating the acknowledgement completes it if no engine has died (L6). *)
acknowledgement_completes_from ==
  /\ takes_calls
  /\ disk_status = "HEAD_COMMITTED"
  /\ \A e \in Engine : slot[e] # "DEAD"
acknowledgement_completes_to == disk_status = "COMPLETE"

(* From every reachable state of rejection_completes_from, some run without faults, and without
   begin_republish, restart, tear_down leads to rejection_completes_to: Once REJECTING is durable, repeating
   the rejection completes it if no engine has died. *)
rejection_completes_from ==
  /\ takes_calls
  /\ disk_status = "REJECTING"
  /\ \A e \in Engine : slot[e] # "DEAD"
rejection_completes_to ==
  /\ disk_status = "REJECTED"
  /\ takes_calls

(* From every reachable state of barrier_passes_from, some run without faults, and without find_dead, restart,
   tear_down leads to barrier_passes_to: A barrier in which no engine dies gets past its flush, whatever
   requests there are (L2). *)
barrier_passes_from ==
  /\ stage \in {"PAUSE", "FLUSH", "RELEASE"}
  /\ \A e \in Engine : slot[e] # "DEAD"
barrier_passes_to == stage \notin {"PAUSE", "FLUSH", "RELEASE"}

(* From every reachable state of lost_engines_are_replaced_from, some run without faults, and without
   begin_training, restart, tear_down leads to lost_engines_are_replaced_to: Where the record is settled and
   health is good, a lost engine can be replaced without restart or new job (L7). *)
lost_engines_are_replaced_from ==
  /\ takes_calls
  /\ disk_status \in {"NONE", "COMPLETE", "REJECTED"}
lost_engines_are_replaced_to == serving

(* From every reachable state of requests_end_from, some run without faults leads to requests_end_to: Every
   admitted request can be answered, by tokens or, where its engine is gone, by an error (L1). *)
requests_end_from == \E e \in Engine : request[e] # "NONE"
requests_end_to == \A e \in Engine : request[e] = "NONE"

(* From every reachable state of admission_opens_from, some run without faults, and without begin_training
   leads to admission_opens_to: From everywhere, every engine can serve again with admission open, and no
   other job is needed for it (L9). *)
admission_opens_from == TRUE
admission_opens_to == serving
================================================================================
