"""The common model in Promela, for SPIN: one process, one ``d_step`` per step with its parameters fixed."""

from __future__ import annotations

from benchmarks.peers.reference import DONE, FLUSH, IDLE, PAUSE, REBUILD, RESUME, RUN, UPDATE, WAIT


def promela(engines: int, requests: int, loads: int, bug: int = 0) -> str:
    """The text of the model. The properties are asserted at the end of every step."""
    full = (1 << engines) - 1

    def done(e: int, following: int) -> str:
        bit = 1 << e
        return f"if :: (dn | {bit}) == {full} -> ph = {following}; dn = 0 :: else -> dn = dn | {bit} fi"

    steps = []
    for r in range(requests):
        for e in range(engines):
            here = f"a[{r}]=={e + 1} && !p[{e}]"
            steps += [
                f"q[{r}]=={WAIT} && a[{r}]==0 -> a[{r}]={e + 1}",
                f"q[{r}]=={WAIT} && {here} -> q[{r}]={RUN}; kv[{r}] = BITOF(w[{e}]) | (c[{e}] -> BITOF(c[{e}]) : 0)",
                f"q[{r}]=={RUN} && {here} && c[{e}]==0 -> c[{e}]=LOW(kv[{r}])",
                f"q[{r}]=={RUN} && {here} -> q[{r}]={DONE}; a[{r}]=0; kv[{r}]=0",
            ]
    steps.append(f"ph=={IDLE} && tgt<{loads} -> tgt=tgt+1; ph={PAUSE}; dn=0")
    for e in range(engines):
        todo = f"!(dn & {1 << e})"
        retract = "" if bug == 2 else _retract(e, requests)
        steps += [
            f"!p[{e}] && c[{e}] -> c[{e}]=0",
            f"ph=={PAUSE} && {todo} -> p[{e}]=1; {retract} {done(e, FLUSH)}",
            f"ph=={FLUSH} && {todo} -> c[{e}]=0; {done(e, UPDATE)}",
            f"ph=={UPDATE} && {todo} -> w[{e}]=tgt; {done(e, RESUME)}",
            f"ph=={RESUME} && {todo} -> p[{e}]=0; {done(e, IDLE)}",
            f"ph=={REBUILD} && {todo} -> w[{e}]=tgt; {done(e, RESUME)}",
        ]
        if bug == 1:
            steps.append(f"ph=={FLUSH} && {todo} -> {done(e, UPDATE)}")
    retire = " ".join(f"p[{e}]=1; c[{e}]=0;" for e in range(engines))
    wait = " ".join(f"a[{r}]=0; kv[{r}]=0; if :: q[{r}]=={RUN} -> q[{r}]={WAIT} :: else fi;" for r in range(requests))
    steps.append(f"ph>={PAUSE} && ph<={RESUME} -> ph={REBUILD}; dn=0; {retire} {wait}".rstrip(";"))
    fresh = [f"(p[{e}] || c[{e}]==0 || c[{e}]==w[{e}])" for e in range(engines)]
    fresh += [
        f"(q[{r}]!={RUN} || a[{r}]!={e + 1} || p[{e}] || kv[{r}]==BITOF(w[{e}]))"
        for r in range(requests)
        for e in range(engines)
    ]
    lines = [
        f"byte tgt=1, ph={IDLE}, dn=0; byte w[{engines}]=1; byte c[{engines}]=0; bit p[{engines}]=0;",
        f"byte q[{requests}]={WAIT}; byte a[{requests}]=0; byte kv[{requests}]=0;",
        "#define LOW(m) ((m & 1) -> 1 : ((m & 2) -> 2 : ((m & 4) -> 3 : 4)))",
        "#define BITOF(v) (1 << (v - 1))",
        f"#define SAFE ({' && '.join(fresh)})",
        "active proctype sys() {",
        "end: do",
        *(f":: d_step {{ {step}; assert(SAFE) }}" for step in steps),
        "od }",
    ]
    return "\n".join(lines) + "\n"


def _retract(engine: int, requests: int) -> str:
    return " ".join(
        f"if :: q[{r}]=={RUN} && a[{r}]=={engine + 1} -> q[{r}]={WAIT}; kv[{r}]=0 :: else fi;" for r in range(requests)
    )
