------------------------------ MODULE Failover ------------------------------
(* Holds that end with the process, over failovers. README.md says what it showed.                                   *)
(*                                                                                                                   *)
(* Session.tla says how a head finds that nobody listens to a holder, at one server. Here a replica takes over, and  *)
(* the server before it may go on as a primary. Nobody listens at the new one, although the holder lives. So the     *)
(* holder records at each server at which it is which reign that is, and a head ends a hold only if the record says  *)
(* the reign in which the head looks. A reign begins when a server becomes a primary (Redis: `master_replid`).       *)
(*                                                                                                                   *)
(* One holder, two servers that have its lock at first, and any number of heads at each of them. Leases are left     *)
(* out: they end holds, too, and nothing here prolongs one. All clocks go alike. A beat is sent, reaches the channel *)
(* and is heard in one step. A renewal is sent, runs and is answered in one step. Session.tla has what is between.   *)
EXTENDS Integers

CONSTANTS
  Grace,
  End,     \* the last time
  Reigns,  \* how many there may be
  Moves,   \* how often the holder may find another server, or another reign, where its scripts go
  Links,   \* how many connections for messages it may open
  Broken   \* the rule that is left out: "none", or a name from mutations.tsv

VARIABLES
  time,
  \* The servers.
  primary, \* whether it calls itself one
  reign,   \* the one that it knows: a replica knows its primary's
  reigns,  \* how many there have been
  data,    \* note: when a head found that nobody listens; record: the reign that the holder has recorded; ended: the reign in which
           \* a head has ended the hold; 0: none has
  listens, \* the connections on which the holder listens, as the servers see it
  records, \* under way, each with its server
  \* The holder.
  place,   \* where its scripts go: a server, and the reign that it has found there
  moved,   \* how often that has changed
  left,    \* the reigns from which its scripts have gone elsewhere
  link,    \* the number of its connection for messages
  leads,   \* of each of these connections: to which server
  heard,   \* it knows that it listens on `link`
  former,  \* the connection before, if its beats still count; 0: none
  last,    \* of each connection: when the last beat was sent that it has heard there
  known,   \* the connection on which it listened when the hold was last renewed where its scripts go now; 0: not yet
  holds    \* it has not been told that it has the lock no more

servers == <<primary, reign, reigns, data, listens, records>>
holder == <<place, moved, left, link, leads, heard, former, last, known, holds>>
vars == <<time, servers, holder>>

Is(rule) == Broken = rule
Nothing == -1
Servers == {1, 2}
Other(server) == 3 - server

Counts(connection) ==
  /\ connection # 0 /\ time < last[connection] + Grace
  /\ leads[connection] = place.at \/ Is("beats of another server count")
  /\ known >= connection
Valid == holds /\ (Counts(link) \/ Counts(former))

----------------------------------------------------------------------------
\* Servers.

Promotes(server) ==
  /\ ~primary[server] /\ reigns < Reigns /\ reigns' = reigns + 1
  /\ primary' = [primary EXCEPT ![server] = TRUE] /\ reign' = [reign EXCEPT ![server] = reigns']
  /\ UNCHANGED <<time, data, listens, records, holder>>

\* What a replica has is always something that its primary had before.
Replicates(server) ==
  /\ ~primary[server] /\ data' = [data EXCEPT ![server] = data[Other(server)]]
  /\ UNCHANGED <<time, primary, reign, reigns, listens, records, holder>>

\* It follows the other one from now on, and throws away what it has. Connections stay.
Demotes(server) ==
  /\ primary[1] /\ primary[2]
  /\ primary' = [primary EXCEPT ![server] = FALSE] /\ reign' = [reign EXCEPT ![server] = reign[Other(server)]]
  /\ data' = [data EXCEPT ![server] = data[Other(server)]]
  /\ UNCHANGED <<time, reigns, listens, records, holder>>

\* What a head does with its sign of life. A replica refuses it.
Looks(server) ==
  LET found == data[server]
      nobody == \A connection \in listens : leads[connection] # server
      here == IF Is("the record names the server") THEN server ELSE reign[server]
      silent == nobody /\ (found.record = here \/ Is("heads read no record"))
      ends == silent /\ found.note # Nothing /\ time >= found.note + Grace
      note == IF ~silent THEN Nothing ELSE IF found.note # Nothing THEN found.note ELSE time
  IN
  /\ primary[server] /\ found.ended = 0
  /\ data' = [data EXCEPT ![server] = [found EXCEPT !.ended = IF ends THEN reign[server] ELSE 0, !.note = note]]
  /\ UNCHANGED <<time, primary, reign, reigns, listens, records, holder>>

----------------------------------------------------------------------------
\* The holder's connection for scripts.

\* What counted before counts no more, until the hold is renewed here.
Arrives(there) ==
  /\ place' = there /\ moved' = moved + 1 /\ left' = left \union {place.of} /\ former' = 0
  /\ known' = IF Is("a hold is not renewed at another server") THEN known ELSE 0
  /\ last' = [connection \in 1 .. Links |-> IF connection = link THEN last[connection] ELSE -Grace] \* fewer states

\* The holder has opened another connection, or asks again on the same one. First it forgets what it knew of another place. Then it sends
\* the record.
Asks(server) ==
  LET there == [at |-> server, of |-> reign[server]]
      is_same == there = place \/ (server = place.at /\ Is("another reign of the same server changes nothing"))
  IN
  /\ primary[server] /\ (is_same \/ moved < Moves)
  /\ records' = records \union {there}
  /\ IF is_same \/ Is("the record comes first") THEN UNCHANGED <<place, moved, left, former, last, known>> ELSE Arrives(there)
  /\ UNCHANGED <<time, primary, reign, reigns, data, listens, link, leads, heard, holds>>

\* It may run late, when the holder has gone elsewhere. A replica refuses it.
RecordRuns(record) ==
  LET word == IF Is("the record names the server") THEN record.at ELSE record.of
  IN
  /\ record \in records /\ records' = records \ {record}
  /\ data' = IF primary[record.at] THEN [data EXCEPT ![record.at].record = word] ELSE data
  /\ UNCHANGED <<time, primary, reign, reigns, listens, holder>>

\* Only with the rule that is left out.
RecordIsAnswered(record) ==
  /\ Is("the record comes first") /\ record # place /\ moved < Moves
  /\ record \notin records /\ data[record.at].record = record.of
  /\ Arrives(record)
  /\ UNCHANGED <<time, servers, link, leads, heard, holds>>

Renews ==
  LET found == data[place.at]
      listened == IF heard THEN link ELSE link - 1
  IN
  /\ primary[place.at] /\ (known # listened \/ found.note # Nothing)
  /\ data' = [data EXCEPT ![place.at].note = Nothing]
  /\ IF found.ended = 0 THEN known' = listened /\ UNCHANGED holds ELSE holds' = FALSE /\ UNCHANGED known
  /\ UNCHANGED <<time, primary, reign, reigns, listens, records, place, moved, left, link, leads, heard, former, last>>

----------------------------------------------------------------------------
\* The holder's connection for messages. Session.tla says more about it.

Connects(server) ==
  /\ primary[server] /\ link < Links
  /\ link' = link + 1 /\ leads' = [leads EXCEPT ![link + 1] = server] /\ heard' = FALSE
  /\ former' = IF heard THEN link ELSE former
  /\ UNCHANGED <<time, servers, place, moved, left, last, known, holds>>

Listens ==
  /\ ~heard /\ heard' = TRUE /\ listens' = listens \union {link}
  /\ UNCHANGED <<time, primary, reign, reigns, data, records, place, moved, left, link, leads, former, last, known, holds>>

IsCut(connection) ==
  /\ connection \in listens /\ listens' = listens \ {connection}
  /\ UNCHANGED <<time, primary, reign, reigns, data, records, holder>>

Beats ==
  /\ link \in listens /\ last' = [last EXCEPT ![link] = time]
  /\ UNCHANGED <<time, servers, place, moved, left, link, leads, heard, former, known, holds>>

Tick == time < End /\ time' = time + 1 /\ UNCHANGED <<servers, holder>>

Init ==
  /\ time = 0 /\ primary = <<TRUE, FALSE>> /\ reign = <<1, 1>> /\ reigns = 1
  \* The record may not have reached the replica.
  /\ data = <<[note |-> Nothing, record |-> 1, ended |-> 0], [note |-> Nothing, record |-> 0, ended |-> 0]>>
  /\ listens = {1} /\ records = {}
  /\ place = [at |-> 1, of |-> 1] /\ moved = 0 /\ left = {}
  /\ link = 1 /\ leads = [connection \in 1 .. Links |-> 1] /\ heard = TRUE /\ former = 0
  /\ last = [connection \in 1 .. Links |-> IF connection = 1 THEN 0 ELSE -Grace]
  /\ known = 1 /\ holds = TRUE

Next ==
  \/ Renews \/ Listens \/ Beats \/ Tick
  \/ \E server \in Servers : Promotes(server) \/ Replicates(server) \/ Demotes(server) \/ Looks(server) \/ Asks(server) \/ Connects(server)
  \/ \E record \in records : RecordRuns(record)
  \/ \E server \in Servers, of \in 1 .. Reigns : RecordIsAnswered([at |-> server, of |-> of])
  \/ \E connection \in listens : IsCut(connection)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------

\* While the holder believes in its hold, no head has ended it, but for those at a server that its scripts have left: nothing tells that server
\* from one whose holder has died. What a server has thrown away is no promise of sessions.
OneHolder == \A server \in Servers :
  LET ended == data[server].ended
  IN ended # 0 => ~Valid \/ (ended \in left /\ ended # place.of)
=============================================================================
