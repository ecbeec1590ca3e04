------------------------------ MODULE Tokens ------------------------------
(* The counter of tokens, on a primary that a replica may replace. README.md says which variable is which line of    *)
(* code, and which of the listed exceptions (docs/guarantees.md) the model leaves out.                               *)
(*                                                                                                                   *)
(* Time. There is one clock that grows up to a limit. A server's clock is that clock, or behind it. A grant takes a  *)
(* tick at least, as one takes more than a microsecond.                                                              *)
EXTENDS Integers, TLC

CONSTANTS
  Clients,
  Start, End,  \* the first and the last time
  Margin,      \* what a client subtracts from the server's clock that it has read
  Behind,      \* by how much the clock of a server that takes over is behind
  Told,        \* clients learn that another server has taken over: behind Sentinel, in a cluster. With a plain URL they do not
  PerGrant,    \* how many holds one grant may have
  Events,      \* how many failovers and losses may happen
  Kinds,       \* which
  Broken       \* the rule that is left out: "none", or a name from mutations.tsv

VARIABLES
  time,
  counter,     \* the counter of tokens at the primary; 0: it is lost
  replica,     \* the same at the replica, which may lag
  server,      \* how many servers have taken over
  drawn,       \* a number was drawn in this tick
  reads,       \* of each client: to which server it is connected
  first,       \* the first time that its connection has reported
  beyond,      \* more than the greatest number that it was granted, or that the server before can have drawn
  request,     \* under way: its floor, and the greatest token that anybody had when it was sent
  hold,        \* the latest grant: its number, and how often it was handed on
  top,         \* the greatest token until now
  grows,       \* whether each token was greater than it has to be
  events       \* how many events may still happen

vars == <<time, counter, replica, server, drawn, reads, first, beyond, request, hold, top, grows, events>>

Is(rule) == Broken = rule
Max(a, b) == IF a > b THEN a ELSE b
NoRequest == [floor |-> -1, seen |-> 0]

Clock(s) == IF s = 0 THEN time ELSE time - Behind

\* No number is below the floor: the server's clock as the client knows it.
Floor(c) ==
  LET reading == IF Is("the floor stands still") THEN first[c] ELSE Clock(reads[c]) - Margin
      from == IF Is("a new connection begins with the margin") THEN reading ELSE Max(reading, first[c])
  IN  IF Is("there is no floor") THEN 0 ELSE Max(from, beyond[c])

\* The next number. A counter that is lost, or below the floor, continues from the server's own clock.
Number(floor) ==
  IF Is("a lost counter begins anew") THEN Max(counter + 1, floor)
  ELSE IF counter > 0 /\ counter + 1 >= floor THEN counter + 1
  ELSE IF Is("it continues from the floor") THEN floor
  ELSE Max(floor, Clock(server))

Sends(c) ==
  /\ reads[c] = server /\ request[c] = NoRequest
  /\ request' = [request EXCEPT ![c] = [floor |-> Floor(c), seen |-> top]]
  /\ UNCHANGED <<time, counter, replica, server, drawn, reads, first, beyond, hold, top, grows, events>>

Runs(c) ==
  LET r == request[c]
      number == Number(r.floor)
      token == number * PerGrant
  IN
  /\ r # NoRequest /\ ~drawn
  /\ counter' = number /\ drawn' = TRUE
  /\ hold' = [number |-> number, turns |-> 0]
  /\ grows' = (grows /\ token > r.seen)
  /\ top' = Max(top, token)
  /\ beyond' = [beyond EXCEPT ![c] = Max(@, number + 1)]
  /\ request' = [request EXCEPT ![c] = NoRequest]
  /\ UNCHANGED <<time, replica, server, reads, first, events>>

\* Within a client, a grant has several holders, one after the other.
HandsOn ==
  LET turns == hold.turns + 1
      token == hold.number * PerGrant + (IF Is("a hand-over is not in the token") THEN 0 ELSE turns)
  IN
  /\ hold.number > 0 /\ hold.number = counter
  /\ turns < PerGrant \/ (Is("a grant is handed on without end") /\ turns <= PerGrant)
  /\ hold' = [hold EXCEPT !.turns = turns]
  /\ grows' = (grows /\ token > top)
  /\ top' = Max(top, token)
  /\ UNCHANGED <<time, counter, replica, server, drawn, reads, first, beyond, request, events>>

Replicates ==
  /\ replica # counter /\ replica' = counter
  /\ UNCHANGED <<time, counter, server, drawn, reads, first, beyond, request, hold, top, grows, events>>

\* A client connects to the server that has taken over. If it knows that, it starts above all that the clock of the one before can
\* have shown.
Connects(c) ==
  /\ reads[c] # server
  /\ reads' = [reads EXCEPT ![c] = server]
  /\ first' = [first EXCEPT ![c] = Clock(server)]
  /\ beyond' = [beyond EXCEPT ![c] = IF ~Told \/ Is("nothing is handed on") THEN @ ELSE Max(@, Clock(reads[c]) + Margin)]
  /\ UNCHANGED <<time, counter, replica, server, drawn, request, hold, top, grows, events>>

Happens(kind) == kind \in Kinds /\ events > 0 /\ events' = events - 1

\* The replica takes over with what it has, which takes a tick. Connections break, and requests with them.
FailsOver ==
  /\ Happens("failover") /\ time < End
  /\ server' = server + 1 /\ counter' = replica /\ time' = time + 1 /\ drawn' = FALSE
  /\ request' = [c \in Clients |-> NoRequest] /\ hold' = [number |-> 0, turns |-> 0]
  /\ UNCHANGED <<replica, reads, first, beyond, top, grows>>

\* The same, behind a proxy that keeps all connections; it takes longer than the margin.
IsSwapped ==
  /\ Happens("swap") /\ time + Margin + 1 <= End
  /\ counter' = replica /\ time' = time + Margin + 1 /\ drawn' = FALSE
  /\ request' = [c \in Clients |-> NoRequest] /\ hold' = [number |-> 0, turns |-> 0]
  /\ UNCHANGED <<replica, server, reads, first, beyond, top, grows>>

\* FLUSHALL, DEL, or a restart without data.
IsLost ==
  /\ Happens("loss")
  /\ counter' = 0 /\ hold' = [number |-> 0, turns |-> 0]
  /\ UNCHANGED <<time, replica, server, drawn, reads, first, beyond, request, top, grows>>

Tick ==
  /\ time < End /\ time' = time + 1 /\ drawn' = FALSE
  /\ UNCHANGED <<counter, replica, server, reads, first, beyond, request, hold, top, grows, events>>

Init ==
  /\ time = Start /\ counter = 0 /\ replica = 0 /\ server = 0 /\ drawn = FALSE
  /\ reads = [c \in Clients |-> 0] /\ first = [c \in Clients |-> Start] /\ beyond = [c \in Clients |-> 0]
  /\ request = [c \in Clients |-> NoRequest] /\ hold = [number |-> 0, turns |-> 0]
  /\ top = 0 /\ grows = TRUE /\ events = Events

Next ==
  \/ \E c \in Clients : Sends(c) \/ Runs(c) \/ Connects(c)
  \/ HandsOn \/ Replicates \/ FailsOver \/ IsSwapped \/ IsLost \/ Tick

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* S6: a hold that begins after another one was granted has a greater token.
TokensGrow == grows

\* The counter never runs ahead of the clock, unless a client has started above the clock of another server.
NotAhead == Told \/ counter <= time


Symmetric == Permutations(Clients)
=============================================================================
