"""The common model in Murphi, for Rumur."""

from __future__ import annotations


def murphi(engines: int, requests: int, loads: int, bug: int = 0, *, scalarsets: bool = False) -> str:
    """The text of the model; with `scalarsets`, engines and requests are declared interchangeable."""
    engine = f"scalarset({engines})" if scalarsets else f"0..{engines - 1}"
    request = f"scalarset({requests})" if scalarsets else f"0..{requests - 1}"
    lost = 'rule "flush_lost" ph = FLUSH & !dn[e] ==> begin step(e, UPDATE); end;' if bug == 1 else ""
    retract = (
        ""
        if bug == 2
        else "for r: Req do if q[r] = RUN & !isundefined(a[r]) & a[r] = e then q[r] := WAIT; clear_kv(r); end; end;"
    )
    return f"""type
  Eng: {engine};
  Req: {request};
  Ver: 1..{loads};
  Ver0: 0..{loads};
  Phase: enum {{IDLE, PAUSE, FLUSH, UPDATE, RESUME, REBUILD}};
  Status: enum {{WAIT, RUN, DONE}};
var
  tgt: Ver;
  ph: Phase;
  dn: array [Eng] of boolean;
  w: array [Eng] of Ver;
  c: array [Eng] of Ver0;
  p: array [Eng] of boolean;
  q: array [Req] of Status;
  a: array [Req] of Eng; -- undefined: not routed
  kv: array [Req] of array [Ver] of boolean;

procedure clear_kv(r: Req); begin for v: Ver do kv[r][v] := false; end; end;
procedure clear_done(); begin for e: Eng do dn[e] := false; end; end;
procedure step(e: Eng; following: Phase); begin
  dn[e] := true;
  if forall x: Eng do dn[x] end then ph := following; clear_done(); end;
end;
function least(r: Req): Ver0; begin
  for v: Ver do if kv[r][v] then return v; end; end;
  return 0;
end;

startstate begin
  tgt := 1; ph := IDLE;
  for e: Eng do dn[e] := false; w[e] := 1; c[e] := 0; p[e] := false; end;
  for r: Req do q[r] := WAIT; undefine a[r]; clear_kv(r); end;
end;

ruleset r: Req; e: Eng do
  rule "route" q[r] = WAIT & isundefined(a[r]) ==> begin a[r] := e; end;
end;
ruleset r: Req do
  rule "admit" q[r] = WAIT & !isundefined(a[r]) & !p[a[r]] ==> begin
    q[r] := RUN; kv[r][w[a[r]]] := true;
    if c[a[r]] != 0 then kv[r][c[a[r]]] := true; end;
  end;
  rule "insert" q[r] = RUN & !p[a[r]] & c[a[r]] = 0 ==> begin c[a[r]] := least(r); end;
  rule "finish" q[r] = RUN & !p[a[r]] ==> begin q[r] := DONE; undefine a[r]; clear_kv(r); end;
end;
rule "begin" ph = IDLE & tgt < {loads} ==> begin tgt := tgt + 1; ph := PAUSE; clear_done(); end;
ruleset e: Eng do
  rule "evict" !p[e] & c[e] != 0 ==> begin c[e] := 0; end;
  rule "pause" ph = PAUSE & !dn[e] ==> begin p[e] := true; {retract} step(e, FLUSH); end;
  rule "flush" ph = FLUSH & !dn[e] ==> begin c[e] := 0; step(e, UPDATE); end;
  rule "update" ph = UPDATE & !dn[e] ==> begin w[e] := tgt; step(e, RESUME); end;
  rule "resume" ph = RESUME & !dn[e] ==> begin p[e] := false; step(e, IDLE); end;
  rule "rebuild" ph = REBUILD & !dn[e] ==> begin w[e] := tgt; step(e, RESUME); end;
  {lost}
end;
rule "fail" ph != IDLE & ph != REBUILD ==> begin
  ph := REBUILD; clear_done();
  for e: Eng do p[e] := true; c[e] := 0; end;
  for r: Req do if q[r] = RUN then q[r] := WAIT; end; undefine a[r]; clear_kv(r); end;
end;

invariant "cache_fresh" forall e: Eng do p[e] | c[e] = 0 | c[e] = w[e] end;
invariant "kv_fresh" forall r: Req do q[r] != RUN | isundefined(a[r]) | p[a[r]] |
  (forall v: Ver do !kv[r][v] | v = w[a[r]] end) end;
"""
